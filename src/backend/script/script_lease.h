/* SPDX-License-Identifier: MIT */
/*
 * Requests under quotas of which units are leased, as words of an EVALSHA: those of
 * backend/script/script.h, with a second key for the leases, and two more verbs.
 * script_reply_read() reads their replies; the one holder of a lease's reply is its end and the
 * number of others.
 */
#ifndef STINT_BACKEND_SCRIPT_SCRIPT_LEASE_H
#define STINT_BACKEND_SCRIPT_SCRIPT_LEASE_H

#include "backend/script/script.h"
#include "decide/backend.h"

#define SCRIPT_ENDED_MAX 8 /* leases that one request ends */
#define SCRIPT_LEASES_SUFFIX                                                                       \
    "!leases" /* of their key, behind that of the state: no text has a !                           \
               */

/* Whether units of this item are leased: then all its requests use these functions. */
bool script_is_leased(const struct backend_item *item);

struct script_lease {
    uint8_t verb;                      /* BACKEND_LEASE, BACKEND_RETURN; else that of the request */
    uint64_t term_ns;                  /* of a lease; 0: charged at once */
    uint32_t least;                    /* of a lease */
    const struct backend_lease *ended; /* at most SCRIPT_ENDED_MAX */
    size_t n_ended;
};

/* `leases` is the second key. With an id: no lease, no return, and nothing ended. */
void script_command_leased(struct script_command *command, const struct script_item *item,
                           struct span leases, const struct script_ask *ask,
                           const struct script_lease *lease);

#endif
