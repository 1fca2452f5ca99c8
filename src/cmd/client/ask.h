/* SPDX-License-Identifier: MIT */
/*
 * The parts of `stint take`, `peek` and `reset`, which ask a server, and what they hand each other:
 * the options, the body that is sent, and the decision that comes back.
 */
#ifndef STINT_CMD_CLIENT_ASK_H
#define STINT_CMD_CLIENT_ASK_H

#include "cmd/client/client.h"
#include "rules/descriptor.h"

#include <jansson.h>

enum ask_verb { ASK_TAKE = 0, ASK_PEEK, ASK_RESET };

struct ask_options {
    enum ask_verb verb;
    struct client_options client;
    const char *quota;  /* a SPEC, with one word, the key; or else */
    const char *domain; /* with words that are descriptors */
    char *words[DESCRIPTORS_MAX];
    size_t n_words;
    const char *id; /* NULL: none */
    uint64_t wait_ns;
    uint32_t cost; /* 0: it was not said */
    bool json;
};

/* Exits where the command line is wrong. */
void ask_options_parse(struct ask_options *options, enum ask_verb verb, int argc, char **argv);

/* ---- What is sent ---- */

/*
 * The body of the question; NULL with a message where a descriptor is no KEY=VALUE[,KEY=VALUE …],
 * something is not UTF-8, or memory does not suffice. Words are cut up on the way.
 */
json_t *ask_body(struct ask_options *options, struct stint_error *error);

/* ---- What comes back ---- */

struct ask_answer {
    json_t *object;  /* as the server sent it; NULL where it sent none */
    uint8_t outcome; /* enum stint_outcome */
    uint64_t retry_after_ns;
};

/*
 * Reads a decision, or that it is done (of a reset). STINT_E_SYSTEM with what the server says of an
 * error of its own or ours, STINT_E_SYNTAX for an answer that is none of these. The caller frees
 * the object in both cases.
 */
int ask_answer_read(struct ask_answer *answer, enum ask_verb verb, const struct client_answer *from,
                    struct stint_error *error);

#endif
