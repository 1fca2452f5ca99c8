/* SPDX-License-Identifier: MIT */
/* What the files of a service share. */
#ifndef STINT_SERVICE_SERVICE_PARTS_H
#define STINT_SERVICE_SERVICE_PARTS_H

#include "decide/evaluation_ticket.h"
#include "decide/pending.h"
#include "service/expiries.h"
#include "service/server_state.h"
#include "service/spec_cache.h"
#include "service/throttle_cache.h"

/* A ticket of a store in base64: four digits for every three bytes. */
#define SERVICE_TICKET_TEXT ((TICKET_BYTES_MAX + 2) / 3 * 4 + 1)

struct service {
    struct server_state *server_state;
    struct stint_table *table;
    unsigned worker;
    struct metrics_worker *metrics;
    uint64_t generation; /* of ruleset */
    struct ruleset *ruleset;
    struct evaluation evaluation;
    struct reply_status statuses[TARGETS_MAX];
    struct evaluation_stores stores; /* none: all zero */
    struct pending_requests pending_requests;
    const struct caller *caller; /* of the request that is asked */
    struct ruleset
        *borrowed; /* that the statuses of a pending request's reply point into; NULL: none */
    uint8_t id[BACKEND_ID_LEN];            /* of the request that is asked */
    uint8_t ticket[TICKET_BYTES_MAX];      /* of a store: that a request names */
    char ticket_text[SERVICE_TICKET_TEXT]; /* the same, that a reply gives */
    struct expiries expiries;
    struct expiring *expiring; /* SERVICE_EXPIRING_MAX of them; NULL: there are no stores */
    struct throttle_cache throttles;
    struct spec_cache specs;
};

/* Makes *reply an error; which one, the code says. */
void service_refuse(struct reply *reply, const struct stint_error *error);
/* The same with a message of the caller's. */
void service_refuse_as(struct reply *reply, enum reply_error why, const char *message);

/* Answers any verb, without looking at who asks, or at its id. */
void service_answer(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply);
/* The same for a request with an id: once, and from memory after that. */
void service_once(struct service *service, const struct request *request,
                  const struct caller *caller, uint64_t now_ns, struct reply *reply);

/* Figures, and who is asked most: of the question that was just answered, of a throttle. */
void service_count_evaluation(struct service *service, const struct request *request,
                              const struct reply *reply);
void service_count_throttle(struct service *service, const struct request *request,
                            const struct reply *reply);

/* CL.THROTTLE and what else there is to its keys: THROTTLE, FORGET, FIND. */
void service_throttle(struct service *service, const struct request *request, uint64_t now_ns,
                      struct reply *reply);
void service_forget(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply);
void service_find(struct service *service, const struct request *request, uint64_t now_ns,
                  struct reply *reply);

/* ---- service_pending.c: requests that ask stores ----------------------------------------------
 */

/* Whether it is for a store to tell a request's id from others: then service_once() is not asked.
 */
bool service_is_shared(struct service *service, const struct request *request, uint64_t now_ns);
/*
 * Before the question, which is filled, is asked: gives it a pending request where it needs one.
 * False: it is not to be asked, and the reply says why.
 */
bool service_begin_pending(struct service *service, const struct request *request,
                           struct reply *reply);
/* After it: false where there is no decision (yet), and the reply says so. */
bool service_end_pending(struct service *service, struct reply *reply);
/* What tells a request's id from others, and what it is about, at every node alike. False: no
 * memory. */
bool service_shared_id(const struct request *request, const struct caller *caller,
                       uint8_t id[BACKEND_ID_LEN], uint64_t *body);

#define SERVICE_GONE "the ticket was used, has ended, or never was"
/* Verbs on tickets: SETTLE, CANCEL, RENEW. */
void service_ticket(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply);
/* After a reserve or a book in a store that has a ticket: its text. */
void service_tell_ticket(struct service *service, struct reply *reply);

/* ---- service_expire.c: tickets of stores that are never settled ------------------------------ */

#define SERVICE_EXPIRING_MAX 64 /* asked of the stores at once */
struct expiring;
bool service_init_expiring(struct service *service); /* false: no memory */
/* After a reserve that gave a ticket of a store: closes it once it is over. */
void service_expect_expiry(struct service *service, const struct request *request, uint64_t now_ns);
/* It was settled or cancelled, or is gone. */
void service_expect_no_expiry(struct service *service, struct span ticket);
void service_count_expired(struct service *service, const struct evaluation_expired *expired);

/* All verbs that are asked of items or of descriptors. */
void service_decide(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply);
/*
 * Statuses for an answer that was given before: the one that decided as it did then, the others as
 * they stand now.
 */
void service_show_again(struct service *service, const struct request *request, uint64_t now_ns,
                        struct reply *reply);

#endif
