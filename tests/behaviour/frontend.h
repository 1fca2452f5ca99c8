/* SPDX-License-Identifier: MIT */
/*
 * A frontend of a limiter: the same requests go through each, and what each replies is read into
 * one form, to be compared. All in this process, in virtual time, without a socket.
 */
#ifndef STINT_TESTS_FRONTEND_H
#define STINT_TESTS_FRONTEND_H

#include "unit/test_server.h"

#include <jansson.h>

#define METRIC_NONE INT64_C(-1) /* of what is not limited; the wait of what never fits */
#define TICKET_TEXT_SIZE 4104   /* of a store's ticket, with its NUL */

struct metrics {
    char
        outcome[16]; /* allow, deny, never; ok: done; or why there is no decision, as error_names */
    int64_t granted, limit, remaining, retry_after_ms;
    int64_t count, expires_after_ms; /* of a counter */
    /* What a service knows of a status, and frontends do not reply to each verb. */
    bool over, banned, replaced, matched, shadow_over;
    int64_t shadow_retry_after_ms;
};

struct result {
    struct metrics all;
    size_t binding;
    struct metrics statuses[STINT_ITEMS_MAX];
    size_t n_statuses;
    bool replayed;
    char ticket[TICKET_TEXT_SIZE]; /* "": none */
    char reply[16384];             /* as the frontend wrote it, for the message of a failure */
};

/*
 * A request as it goes through a frontend. A ticket is in ticket_text. What a frontend has no words
 * for is asked of the service behind it.
 */
struct frontend {
    const char *name;
    /* Opens a server with these rules; its time 0 is so much of the wall clock. */
    void *(*open)(const char *yaml, int64_t epoch_ns);
    /*
     * `beside` is a service of the same rules that has decided the same: `exact`. False:
     * result->reply is no decision, or contradicts itself.
     */
    bool (*decide)(void *frontend, void *beside, const struct request *request, uint64_t now_ns,
                   const struct result *exact, struct result *result);
    void (*close)(void *frontend);
};

extern const struct frontend frontend_service, frontend_resp, frontend_http, frontend_grpc;

/* The result of a service: its decision is rounded as frontends have to. */
bool service_decide(struct test_server *server, const struct request *request, uint64_t now_ns,
                    struct result *result);

/* By enum reply_error. */
extern const char *const error_names[];

/* Verbs that reply no decision, and no error. */
bool is_without_decision(uint8_t verb);

/*
 * Reads the members that frontends name alike. `none` is how this frontend writes that there is no
 * figure; another frontend's way of writing it is a fault.
 */
bool result_read(struct result *result, const json_t *reply, const json_t *none);
/* The same of a counter. */
bool result_read_count(struct result *result, const json_t *reply);

#endif
