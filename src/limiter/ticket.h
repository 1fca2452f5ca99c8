/* SPDX-License-Identifier: MIT */
/*
 * Reserving in steps, for callers that charge more than the list that decides: limits that are not
 * enforced are charged once the others have allowed, and one ticket covers all of them.
 */
#ifndef STINT_LIMITER_TICKET_H
#define STINT_LIMITER_TICKET_H

#include "base/wide_int.h"
#include "limiter/list.h"

#define TICKET_SHADOWS_MAX STINT_ITEMS_MAX

/* Units of one state that a ticket covers. */
struct ticket_entry {
    const struct stint_quota *quota;
    struct hash128 hash;
    uint64_t at_ns; /* when they were charged; of a booking, its start; of a hold, the holder */
    uint32_t units;
    uint32_t kept;   /* that stay charged if the ticket is never settled: at most `units` */
    uint32_t times;  /* equal items that were merged into this entry */
    uint32_t action; /* enum stint_expiry */
    bool is_shadow;  /* does not affect the result of a settle, if other entries are there */
};

struct reservation {
    struct list *list;
    size_t n_entries; /* those of the list first */
    struct ticket_entry entries[STINT_ITEMS_MAX + TICKET_SHADOWS_MAX];
};

/* The enum stint_expiry (keep, release or floor) of a number of units to keep. */
enum stint_expiry expiry_action(uint32_t kept);

/* What a settle requests of an algorithm: unused units go back, or more are charged now. */
static inline struct stint_ask ticket_settling(uint32_t charged, uint64_t used, uint64_t charged_ns,
                                               uint64_t now_ns)
{
    bool is_back = used <= charged;
    uint64_t units = is_back ? charged - used : min_u64(used, UINT32_MAX) - charged;
    return (struct stint_ask){.now_ns = now_ns,
                              .at_ns = charged_ns,
                              .cost = (uint32_t)units,
                              .verb = is_back ? STINT_REFUND : STINT_CHARGE};
}

/* Between calls: the entries of the list come first, then shadows. */
bool reservation_is_valid(const struct reservation *reservation);

/* Without a list, nothing charged yet. */
void reservation_init(struct reservation *reservation);
/*
 * Takes what is to be reserved, as stint_reserve_expiring(). False: the request can never be
 * allowed, and nothing was decided. `list` must last until the ticket is issued.
 */
bool reservation_take(struct reservation *reservation, struct list *list,
                      const struct stint_item *items, const uint32_t *kept,
                      struct stint_decision *decision);
/*
 * Units of a limit that is not enforced, which are charged already; at_ns: when, or the holder.
 * Those beyond TICKET_SHADOWS_MAX are left out.
 */
void reservation_add_shadow(struct reservation *reservation, const struct stint_quota *quota,
                            struct hash128 hash, uint32_t units, uint32_t kept, uint64_t at_ns);
/* Where the ring of the table has too few slots for all, the shadows are left out. */
struct stint_ticket reservation_issue(const struct reservation *reservation,
                                      struct stint_table *table, uint64_t lifetime_ns,
                                      uint64_t now_ns);

/* Reservations, bookings and holds that are not settled and not over; it reads the whole ring. */
uint64_t tickets_open(const struct stint_table *table, uint64_t now_ns);

#endif
