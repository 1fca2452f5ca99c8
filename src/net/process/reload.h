/* SPDX-License-Identifier: MIT */
/*
 * Reads files again in a thread of its own, so that no loop waits for it. A request returns a
 * number, which identifies the result of a reload that began after the request.
 */
#ifndef STINT_NET_PROCESS_RELOAD_H
#define STINT_NET_PROCESS_RELOAD_H

#include "base/err.h"

#include <uv.h>

struct reload;

struct reload_options {
    uv_loop_t *loop;                                                     /* runs all but load() */
    int (*load)(void *arg, struct stint_error *error);                   /* in another thread */
    void (*began)(void *arg);                                            /* in the loop */
    void (*ended)(void *arg, int code, const struct stint_error *error); /* in the loop */
    void *arg;
};

struct reload *reload_new(const struct reload_options *options); /* NULL: no memory */
/* No more requests are accepted. The loop waits for a running reload. */
void reload_close(struct reload *reload);
void reload_free(struct reload *reload); /* after the loop has run; NULL is allowed */

/* Any thread. */
uint64_t reload_ask(struct reload *reload);
/* False while the result is not known. Any thread. */
bool reload_result(struct reload *reload, uint64_t asked, int *code, struct stint_error *error);

#endif
