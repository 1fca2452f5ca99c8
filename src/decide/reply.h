/* SPDX-License-Identifier: MIT */
/*
 * What is answered, whatever the protocol. The service fills it, a protocol's writer writes it.
 * What it points to lives until the service is asked again.
 */
#ifndef STINT_DECIDE_REPLY_H
#define STINT_DECIDE_REPLY_H

#include "rules/rules.h"

/* Why there is no decision. */
enum reply_error {
    REPLY_DECIDED = 0,
    REPLY_BAD_REQUEST, /* a SPEC, a domain or a number that cannot be meant */
    REPLY_FORBIDDEN,   /* the caller's role does not allow it */
    REPLY_GONE,        /* a ticket that was used, has ended, or never was */
    REPLY_CONFLICT,    /* the id was used for something else, or is being answered */
    REPLY_FULL,        /* no room: quotas, blocks, tickets, overrides */
    REPLY_UNAVAILABLE, /* the store cannot be asked */
    REPLY_WAITS,       /* not yet: a store was asked. `pending request`, and service/service.h */
    REPLY_AHEAD,       /* of a request that is_ahead: it is to be asked in its turn */
};

/* What became of one descriptor, or one item, in their order. */
struct reply_status {
    const struct rule *rule;         /* NULL: an item, or nothing matched */
    const struct stint_quota *quota; /* what was asked; NULL where nothing matched or unlimited */
    struct stint_decision decision;  /* of this one alone; ALLOW where nothing matched */
    bool matched;                    /* a rule applied that is not replaced */
    bool replaced;                   /* another rule of the request stands in its place */
    bool is_unmatched;               /* a descriptor that nothing limits, as no rule matches it, */
    bool is_domain_unknown;          /* and its domain has none */
    bool over;        /* it would deny: also in shadow_mode, where outcome is ALLOW */
    bool banned;      /* denied by a block of its key */
    bool is_override; /* the quota is one that the request brought along */
    /* In shadow_mode by the server's setting alone, and not by its rule. */
    bool is_all_shadow;
    uint8_t when_full; /* enum stint_when_full, of the table; DEFAULT: the state is in a store */
    /*
     * Where the request wants_growth: how long until decision.remaining next grows if nobody else
     * asks. No more than that can be used before, and more can be then; under `concurrency` a
     * holder may give back before. 0: nothing is used, so it cannot grow. STINT_NEVER_NS: never.
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
    uint64_t at_ns;            /* the time that units were charged under: granted_at of a refund */
    uint64_t expires_after_ns; /* FIND: until the state is as never used */
    const struct reply_status *statuses;
    struct pending
        *pending;      /* REPLY_WAITS: of the request, until service_ask() or _drop() had it */
    size_t n_statuses; /* as many as descriptors or items were asked; 0 on errors and tickets */
};

#endif
