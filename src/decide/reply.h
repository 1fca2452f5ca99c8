/* SPDX-License-Identifier: MIT */
/*
 * The reply to a request, whatever the protocol. The service fills it, a protocol's writer formats
 * it. What it points to lives until the next call of the service.
 */
#ifndef STINT_DECIDE_REPLY_H
#define STINT_DECIDE_REPLY_H

#include "rules/rules.h"

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

/* The outcome of one descriptor, or one item, in their order. */
struct reply_status {
    const struct rule *rule;         /* NULL: an item, or nothing matched */
    const struct stint_quota *quota; /* the requested cost; NULL: no rule, or unlimited */
    struct stint_decision decision;  /* of this one alone; ALLOW where nothing matched */
    bool matched;                    /* a rule applied that is not replaced */
    bool replaced;                   /* another rule of the request replaces it */
    bool is_unmatched;               /* a descriptor that nothing limits, as no rule matches it, */
    bool is_domain_unknown;          /* and its domain has none */
    bool over;        /* it would deny: also in shadow_mode, where outcome is ALLOW */
    bool banned;      /* denied by a block of its key */
    bool is_override; /* the request supplied the quota */
    /* In shadow_mode only by the server's setting, and not by its rule. */
    bool is_all_shadow;
    uint8_t when_full; /* enum stint_when_full, of the table; DEFAULT: the state is in a store */
    /*
     * Where the request wants_growth: how long until decision.remaining next grows if no other
     * request comes. No more than that can be used before, and more can be then; under
     * `concurrency` a holder may return a slot earlier. 0: nothing is used, so it cannot grow.
     * STINT_NEVER_NS: never.
     */
    uint64_t grows_after_ns;
    uint64_t shadow_retry_after_ns; /* of the candidate quota, where shadow_over */
    bool shadow_over;               /* the candidate quota beside it would deny */
};

struct reply {
    uint8_t error; /* enum reply_error */
    bool replayed; /* the answer to an earlier request with the same id */
    bool has_ticket, found;
    char message[STINT_ERROR_MAX];  /* of the error */
    struct stint_decision decision; /* of the whole request; binding: index into statuses */
    struct stint_ticket ticket;
    struct span ticket_text;   /* of a ticket in a store; empty: it is `ticket` */
    uint64_t at_ns;            /* the time at which units were charged: granted_at of a refund */
    uint64_t expires_after_ns; /* FIND: until the state is as if never used */
    const struct reply_status *statuses;
    struct pending *pending; /* REPLY_WAITS: the caller passes it to service_ask() or _drop() */
    size_t n_statuses; /* as many as descriptors or items in the request; 0 on errors and tickets */
};

#endif
