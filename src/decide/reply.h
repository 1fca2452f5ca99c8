/* SPDX-License-Identifier: MIT */
/*
 * The reply to a request, whatever the protocol. The service fills it, a protocol's writer formats
 * it. What it points to lives until the next call of the service.
 */
#ifndef STINT_DECIDE_REPLY_H
#define STINT_DECIDE_REPLY_H

#include "decide/evaluation.h"

/* Why there is no decision. */
enum reply_error {
    REPLY_DECIDED = 0,
    REPLY_BAD_REQUEST, /* an invalid SPEC, domain or number */
    REPLY_FORBIDDEN,   /* the caller's role does not allow it */
    REPLY_GONE,        /* a ticket that was used, has ended, or never existed */
    REPLY_CONFLICT,    /* the id was used for a different request, or that one is in progress */
    REPLY_FULL,        /* no space: quotas, blocks, tickets, overrides */
    REPLY_UNAVAILABLE, /* the store is unavailable */
    REPLY_WAITS,       /* not yet: a store request waits. `pending`, and service/service.h */
    REPLY_AHEAD,       /* for a request that is_ahead: send it again in its turn */
};

/* The quota that limited a descriptor or item; NULL: nothing did. */
static inline const struct stint_quota *reply_quota(const struct target *status)
{
    return status->is_replaced ? NULL : status->quota;
}

struct reply {
    uint8_t error; /* enum reply_error */
    bool replayed; /* the answer to an earlier request with the same id */
    bool has_ticket, found;
    char message[STINT_ERROR_MAX];  /* of the error */
    struct stint_decision decision; /* of the whole request; binding: index into statuses */
    struct stint_ticket ticket;
    struct span ticket_text; /* of a ticket in a store; empty: it is `ticket` */
    uint64_t again_at_ns; /* no reply yet: the time to decide the request again; 0: it is final */
    uint64_t at_ns;       /* the time at which units were charged: granted_at of a refund */
    uint64_t expires_after_ns;    /* FIND: until the state is as if never used */
    struct stint_counter counter; /* COUNT */
    /* As evaluated, one for each descriptor or item, in their order. None on errors and tickets. */
    const struct target *statuses;
    size_t n_statuses;
    bool is_domain_unknown;  /* of descriptors that are unmatched: no rule has their domain */
    struct pending *pending; /* REPLY_WAITS: the caller passes it to service_ask() or _drop() */
};

#endif
