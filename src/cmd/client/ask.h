/* SPDX-License-Identifier: MIT */
/*
 * The parts of `stint take`, `peek` and `reset`, which send a request to a server, and their shared
 * types: the options, the body that is sent, and the decision that is returned.
 */
#ifndef STINT_CMD_CLIENT_ASK_H
#define STINT_CMD_CLIENT_ASK_H

#include "cmd/client/client.h"
#include "decide/request.h"

#include <jansson.h>

struct ask_options {
    enum request_verb verb;
    struct client_options client;
    const char *quota;  /* a SPEC; the only word is the key. NULL with a domain */
    const char *domain; /* the words are descriptors. NULL with a quota */
    char *words[DESCRIPTORS_MAX];
    size_t n_words;
    const char *id; /* NULL: none */
    uint64_t wait_ns;
    uint32_t cost; /* 0: not given */
    bool json;
};

/* Exits if the command line is wrong. */
void ask_options_parse(struct ask_options *options, enum request_verb verb, int argc, char **argv);

/* ---- What is sent ---- */

/*
 * The body of the request; NULL with a message if a descriptor is no KEY=VALUE[,KEY=VALUE …],
 * something is not UTF-8, or there is no memory. The words are modified.
 */
json_t *ask_body(struct ask_options *options, struct stint_error *error);

/* ---- The answer ---- */

struct ask_answer {
    json_t *object;  /* as the server sent it; NULL if it sent none */
    uint8_t outcome; /* enum stint_outcome */
    uint64_t retry_after_ns;
};

/*
 * Reads a decision, or the confirmation of a reset. STINT_E_SYSTEM with the server's message if it
 * reports an error, STINT_E_SYNTAX for any other answer. The caller frees the object in both cases.
 */
int ask_answer_read(struct ask_answer *answer, enum request_verb verb,
                    const struct client_answer *from, struct stint_error *error);

#endif
