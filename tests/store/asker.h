/* SPDX-License-Identifier: MIT */
/*
 * A program that asks one store from a loop, as a worker does, a turn each millisecond, until its
 * stdin ends. What it asks is the caller's business.
 */
#ifndef STINT_TESTS_STORE_ASKER_H
#define STINT_TESTS_STORE_ASKER_H

#include "net/upstream/backends.h"

struct asker {
    uv_loop_t loop;
    uv_timer_t timer;
    uv_pipe_t input;
    struct store_config config; /* but for the URL */
    struct stores *stores;
    void (*turn)(struct asker *asker);
    void (*ended)(struct asker *asker);   /* stdin has; there are no more turns */
    void (*closing)(struct asker *asker); /* the stores are there still */
    bool is_ending;
    char bytes[256];
};

/* Callbacks and config are set. False: what is wrong has been said. */
bool asker_open(struct asker *asker, const char *url);
/* Returns the program's exit code, once asker_close() has been called, and all is closed. */
int asker_run(struct asker *asker);
/* Gives back what is held, and closes all in a turn of its own; also from within an answer. */
void asker_close(struct asker *asker);

#endif
