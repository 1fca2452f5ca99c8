/* SPDX-License-Identifier: MIT */
/*
 * Reads files anew in a thread of its own, so that no loop waits for it. Whoever asks gets a
 * number, and finds out by it what came of a reading that began after he asked.
 */
#ifndef STINT_NET_PROCESS_RELOAD_H
#define STINT_NET_PROCESS_RELOAD_H

#include "base/err.h"

#include <uv.h>

struct reload;

struct reload_options {
    uv_loop_t *loop;                                   /* its thread opens, closes, and is told */
    int (*load)(void *arg, struct stint_error *error); /* in another thread */
    void (*began)(void *arg);                          /* in the loop */
    void (*ended)(void *arg, int code, const struct stint_error *error); /* in the loop */
    void *arg;
};

struct reload *reload_new(const struct reload_options *options); /* NULL: no memory */
/* No more may be asked. A reading that has begun is waited for by the loop. */
void reload_close(struct reload *reload);
void reload_free(struct reload *reload); /* when the loop has run; NULL is fine */

/* Any thread. */
uint64_t reload_ask(struct reload *reload);
/* False while it is not yet known. Any thread. */
bool reload_result(struct reload *reload, uint64_t asked, int *code, struct stint_error *error);

#endif
