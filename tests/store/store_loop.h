/* SPDX-License-Identifier: MIT */
/*
 * A program that asks one store from a loop, as a worker does, a turn each millisecond, until its
 * stdin ends. What it asks is the caller's business.
 */
#ifndef STINT_TESTS_STORE_STORE_LOOP_H
#define STINT_TESTS_STORE_STORE_LOOP_H

#include "net/upstream/backends.h"

struct store_loop {
    uv_loop_t loop;
    uv_timer_t timer;
    uv_pipe_t input;
    struct store_config config; /* but for the URL */
    struct stores *stores;
    void (*turn)(struct store_loop *store_loop);
    void (*ended)(struct store_loop *store_loop);   /* stdin has; there are no more turns */
    void (*closing)(struct store_loop *store_loop); /* the stores are there still */
    bool is_ending;
    char bytes[256];
};

/* Callbacks and config are set. False: what is wrong has been said. */
bool store_loop_open(struct store_loop *store_loop, const char *url);
/* Returns the program's exit code, once store_loop_close() has been called, and all is closed. */
int store_loop_run(struct store_loop *store_loop);
/* Gives back what is held, and closes all in a turn of its own; also from within an answer. */
void store_loop_close(struct store_loop *store_loop);

#endif
