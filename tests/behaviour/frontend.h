/* SPDX-License-Identifier: MIT */
/*
 * A way in to a limiter: the same requests go through each, and what each tells is read into one
 * form, to be compared. All in this process, in virtual time, without a socket.
 */
#ifndef STINT_TESTS_FRONTEND_H
#define STINT_TESTS_FRONTEND_H

#include "unit/serving.h"

#include <jansson.h>

#define TOLD_NONE INT64_C(-1) /* the figure of what is not limited; the wait of what never fits */

struct metrics {
    char outcome[8];
    int64_t granted, limit, remaining, retry_after_ms;
};

struct told {
    struct metrics all;
    size_t binding;
    struct metrics statuses[STINT_ITEMS_MAX];
    size_t n_statuses;
    char answer[4096]; /* as the frontend said it, for whoever reads of a failure */
};

struct frontend {
    const char *name;
    /* Opens a server with these rules; its time 0 is so much of the wall clock. */
    void *(*open)(const char *yaml, int64_t epoch_ns);
    /* False: told->answer is no decision, or contradicts itself. */
    bool (*ask)(void *frontend, const struct request *request, uint64_t now_ns, struct told *told);
    void (*close)(void *frontend);
};

extern const struct frontend frontend_service, frontend_resp, frontend_http, frontend_grpc;

/*
 * Reads the members that frontends name alike. `none` is how this frontend says that there is no
 * figure; another frontend's way of saying so is a fault.
 */
bool told_read(struct told *told, const json_t *answer, const json_t *none);

#endif
