/* SPDX-License-Identifier: MIT */
/*
 * Reads a line that is one JSON object. The caller chooses which of its members are the time, the
 * key and the cost.
 */
#ifndef STINT_SIM_INPUT_JSONL_H
#define STINT_SIM_INPUT_JSONL_H

#include "sim/input/event.h"

#define JSONL_NUMBER_SIZE 32 /* of a number in text */

struct json_t;

struct jsonl_options {
    const char *time; /* member: seconds as a number or text, or RFC 3339 */
    const char *key;  /* MEMBER[+MEMBER…] */
    const char *cost; /* member, a whole number; NULL = every line costs 1 */
};

struct jsonl {
    const char *time, *cost;
    char *members[JOINED_KEY_PARTS_MAX]; /* of the key */
    size_t n_members;
    char *names;           /* the memory of `members` */
    struct json_t *object; /* of the last line: owns the key's bytes */
    char *repaired;        /* space for a line that is not quite JSON */
    size_t repaired_size;
    char numbers[JOINED_KEY_PARTS_MAX]
                [JSONL_NUMBER_SIZE]; /* parts of a key that are numbers, in text */
    struct joined_key joined;
};

int jsonl_init(struct jsonl *jsonl, const struct jsonl_options *options, struct stint_error *error);
void jsonl_deinit(struct jsonl *jsonl);

/* Returns an enum event_line, or a negative code for a line that is malformed. */
int jsonl_parse(struct jsonl *jsonl, struct event *event, struct span line,
                struct stint_error *error);

#endif
