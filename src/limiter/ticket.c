/* SPDX-License-Identifier: MIT */
/*
 * Tickets: what a reservation, a booking or a hold was charged, kept in a ring in the region until
 * it is settled, cancelled or over.
 *
 * A ticket over a list takes as many slots in a row as it has quotas, all with one nonce. The nonce
 * of the first is what makes it good once: whoever swaps it for 0 may act on the ticket. A writer
 * zeroes the nonce before it writes and sets it last. A writer who is stopped there for a whole
 * turn of the ring writes into a ticket of somebody else, so a reader also checks a sum of what it
 * has read: a ticket that is not whole is gone, and stays charged as estimated.
 */
#include "limiter/list.h"

#include "base/wide_int.h"

#define TICKET_TWEAK UINT64_C(0x74656b636974)
#define TICKET_WORDS (TICKET_SIZE / 8)
#define READS_MAX 1000 /* of a ticket that is being renewed meanwhile */

enum ticket_kind { KIND_CHARGE, KIND_BOOKING, KIND_HOLD };

struct ticket_part {
    uint64_t nonce;
    uint64_t hash_lo, hash_hi;
    uint64_t granted_at_ns; /* a booking: when it starts; a hold: the holder's value */
    uint64_t deadline_ns;
    uint32_t units;
    uint16_t quota_id;
    uint8_t kind;    /* enum ticket_kind */
    uint8_t n_parts; /* of the whole ticket */
    uint32_t times;  /* equal items that were merged into this part */
    uint32_t number; /* of this part within the ticket */
    uint64_t check;  /* over all the rest: see is_whole() */
};

enum { WORD_HELD = 3, WORD_DEADLINE = 4, WORD_CHECK = 7 };

_Static_assert(sizeof(struct ticket_part) == TICKET_SIZE, "the region counts on it");

static uint64_t *ticket_slot(const struct stint_table *table, uint64_t at)
{
    const struct region_fixed *fixed = &table->region.fixed;
    char *ring = region_at(&table->region, fixed->tickets_offset);
    return (uint64_t *)(void *)(ring + at % fixed->tickets_max * TICKET_SIZE);
}

union ticket_words {
    struct ticket_part part;
    uint64_t words[TICKET_WORDS];
};

static uint64_t sum_of(const struct stint_table *table, const struct ticket_part *part)
{
    struct ticket_part copy = *part;
    copy.check = 0;
    return siphash13_128(table->region.fixed.hash_key, TICKET_TWEAK, &copy, sizeof(copy)).lo;
}

static void write_part(uint64_t *slot, const struct ticket_part *part)
{
    union ticket_words from = {.part = *part};
    for (int i = 1; i < TICKET_WORDS; i++)
        __atomic_store_n(&slot[i], from.words[i], __ATOMIC_RELAXED);
    /* release: whoever sees the nonce sees the ticket. */
    __atomic_store_n(&slot[0], from.words[0], __ATOMIC_RELEASE);
}

/* Part `number` of a ticket. False if the slot does not hold it, whole. */
static bool read_part(const struct stint_table *table, struct stint_ticket ticket, uint32_t number,
                      struct ticket_part *part)
{
    uint64_t *slot = ticket_slot(table, ticket.slot + number);
    union ticket_words to;
    for (int tries = 0; tries < READS_MAX; tries++) {
        /* acquire: the words read next are those written before this nonce. */
        to.words[0] = __atomic_load_n(&slot[0], __ATOMIC_ACQUIRE);
        if (ticket.nonce == 0 || to.words[0] != ticket.nonce)
            return false;
        for (int i = 1; i < TICKET_WORDS; i++)
            to.words[i] = __atomic_load_n(&slot[i], __ATOMIC_ACQUIRE);
        *part = to.part;
        if (part->number == number && part->check == sum_of(table, part))
            return true;
    }
    return false;
}

/* Whether a slot holds the head of a ticket that is not over; its nonce says if it was settled. */
static bool holds_head(const uint64_t *slot, uint64_t now_ns)
{
    union ticket_words seen;
    /* relaxed: it only counts, and nothing is done to what was read. */
    for (int i = 0; i < TICKET_WORDS; i++)
        seen.words[i] = __atomic_load_n(&slot[i], __ATOMIC_RELAXED);
    return seen.part.number == 0 && seen.part.deadline_ns > now_ns;
}

/*
 * Empties n slots for a new ticket; a ticket that still stood there is closed as estimated, and
 * counted where its first part stood: the others keep their nonces when it is settled.
 */
static uint64_t clear_slots(struct stint_table *table, size_t n, uint64_t now_ns)
{
    uint64_t *next = &table->region.header->ticket_next;
    /* relaxed: the number only says whose the slots are. */
    uint64_t first = __atomic_fetch_add(next, n, __ATOMIC_RELAXED);
    for (size_t i = 0; i < n; i++) {
        uint64_t *slot = ticket_slot(table, first + i);
        bool had_head = holds_head(slot, now_ns);
        /* acq_rel: the old ticket is over before a word of the new one is written. */
        if (__atomic_exchange_n(&slot[0], 0, __ATOMIC_ACQ_REL) != 0 && had_head)
            table_count(&table_counters(table)->tickets_dropped, 1);
    }
    return first;
}

/* A ticket has one end: where no lifetime is given, that of the longest lease among its holds. */
static uint64_t life_of(const struct list *list, uint64_t lifetime_ns)
{
    uint64_t life_ns = lifetime_ns;
    for (size_t i = 0; lifetime_ns == 0 && i < list->n_parts; i++)
        if (list->parts[i].quota->algorithm == STINT_CONCURRENCY)
            life_ns = max_u64(life_ns, list->parts[i].quota->lease_ns);
    return life_ns;
}

/* start_ns: of a booking. Charges were entered when they were; each part knows. */
static struct stint_ticket issue(struct list *list, enum ticket_kind kind, uint64_t lifetime_ns,
                                 uint64_t start_ns)
{
    struct stint_table *table = list->table;
    size_t n = list->n_parts;
    uint64_t first = clear_slots(table, n, list->now_ns);
    uint64_t nonce =
        siphash13_128(table->region.fixed.hash_key, TICKET_TWEAK, &first, sizeof(first)).lo;
    nonce |= nonce == 0;
    uint64_t deadline_ns = add_sat(list->now_ns, life_of(list, lifetime_ns));
    for (size_t i = n; i-- > 0;) {
        const struct list_part *part = &list->parts[i];
        bool holds = part->quota->algorithm == STINT_CONCURRENCY;
        uint64_t at_ns = kind == KIND_CHARGE ? part->undo.entered_ns : start_ns;
        struct ticket_part made = {
            .nonce = nonce,
            .hash_lo = part->hash.lo,
            .hash_hi = part->hash.hi,
            .granted_at_ns = holds ? part->holder : at_ns,
            .deadline_ns = deadline_ns,
            .units = part->cost,
            .quota_id = (uint16_t)intern_id(&table->intern, part->quota),
            .kind = (uint8_t)(holds ? KIND_HOLD : kind),
            .n_parts = (uint8_t)n,
            .times = part->times,
            .number = (uint32_t)i,
        };
        made.check = sum_of(table, &made);
        write_part(ticket_slot(table, first + i), &made);
    }
    return (struct stint_ticket){first, nonce};
}

/* A ticket over a list takes as many slots as the list has quotas: all the ring may have too few.
 */
static bool can_issue(const struct list *list)
{
    return list->n_parts <= list->table->region.fixed.tickets_max;
}

struct stint_decision stint_reserve(struct stint_table *table, const struct stint_item *items,
                                    size_t n_items, uint64_t lifetime_ns, uint64_t now_ns,
                                    struct stint_ticket *ticket)
{
    struct list list;
    *ticket = (struct stint_ticket){0, 0};
    if (!list_init(&list, table, items, n_items, now_ns) || !can_issue(&list))
        return law_never(0);
    struct stint_decision decision = list_take(&list);
    if (decision.outcome == STINT_ALLOW)
        *ticket = issue(&list, KIND_CHARGE, lifetime_ns, 0);
    return decision;
}

/*
 * A booking over several quotas would have to start everywhere at once, and a log cannot be charged
 * for later than its own first free place without another look: lists are for gcra alone, whose
 * debt is the same whenever it is used.
 */
static bool can_book(const struct list *list)
{
    for (size_t i = 0; i < list->n_parts; i++) {
        uint8_t algorithm = list->parts[i].quota->algorithm;
        if (algorithm != STINT_GCRA && (algorithm != STINT_LOG || list->n_parts > 1))
            return false;
    }
    return true;
}

struct stint_decision stint_book(struct stint_table *table, const struct stint_item *items,
                                 size_t n_items, uint64_t max_wait_ns, uint64_t now_ns,
                                 struct stint_ticket *ticket)
{
    struct list list;
    *ticket = (struct stint_ticket){0, 0};
    if (!list_init(&list, table, items, n_items, now_ns) || !can_issue(&list) || !can_book(&list))
        return law_never(0);
    uint64_t wait_ns = 0;
    max_wait_ns = min_u64(max_wait_ns, BOOK_WAIT_MAX_NS);
    for (size_t i = 0; i < list.n_parts; i++) {
        struct stint_decision decision = list_ask_part(&list, i, STINT_BOOK, max_wait_ns);
        if (decision.outcome != STINT_ALLOW) {
            list_take_back(&list, i);
            return list_sum(&list);
        }
        wait_ns = max_u64(wait_ns, decision.retry_after_ns);
    }
    struct stint_decision sum = list_sum(&list);
    sum.retry_after_ns = wait_ns;
    table_raise_booked(table, add_sat(now_ns, wait_ns));
    *ticket = issue(&list, KIND_BOOKING, wait_ns, add_sat(now_ns, wait_ns));
    return sum;
}

/* The parts of a ticket that stands in the ring and is not over; their number, or GONE. */
static int read_ticket(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns,
                       struct ticket_part *parts)
{
    if (!read_part(table, ticket, 0, &parts[0]) || parts[0].n_parts == 0 ||
        parts[0].n_parts > STINT_ITEMS_MAX || parts[0].deadline_ns <= now_ns)
        return STINT_E_GONE;
    for (uint32_t i = 1; i < parts[0].n_parts; i++)
        if (!read_part(table, ticket, i, &parts[i]))
            return STINT_E_GONE;
    return parts[0].n_parts;
}

/* The same, taken out of the ring: of all who try, one gets it. */
static int redeem(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns,
                  struct ticket_part *parts)
{
    int n = read_ticket(table, ticket, now_ns, parts);
    uint64_t nonce = ticket.nonce;
    /* acq_rel: what is done to the ticket comes after it was won. */
    if (n > 0 && !__atomic_compare_exchange_n(ticket_slot(table, ticket.slot), &nonce, 0, false,
                                              __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return STINT_E_GONE;
    return n;
}

static struct stint_decision move_part(struct stint_table *table, const struct ticket_part *part,
                                       uint8_t verb, uint32_t units, uint64_t now_ns)
{
    const struct stint_quota *quota = intern_quota(&table->intern, part->quota_id);
    struct hash128 hash = {part->hash_lo, part->hash_hi};
    struct stint_decision decision = {.outcome = STINT_ALLOW};
    struct stint_ask ask = {
        .now_ns = now_ns, .at_ns = part->granted_at_ns, .cost = units, .verb = verb};
    if (quota == NULL)
        return law_never(0);
    if (part->kind == KIND_HOLD) {
        table_release(table, quota, hash, now_ns, part->granted_at_ns, &decision.granted);
        return decision;
    }
    return table_ask_hash(table, quota, hash, &ask, NULL, NULL);
}

static void keep_least(struct stint_decision *sum, const struct stint_decision *decision,
                       bool is_first)
{
    uint32_t least =
        is_first || decision->granted < sum->granted ? decision->granted : sum->granted;
    *sum = *decision;
    sum->granted = least;
}

/* Places that were free before the ticket was closed: their lease has ended, or the key was reset.
 */
static bool was_free(const struct ticket_part *part, const struct stint_decision *decision)
{
    return part->kind == KIND_HOLD && part->units > 0 && decision->granted == 0;
}

int stint_settle(struct stint_table *table, struct stint_ticket ticket, uint32_t actual,
                 uint64_t now_ns, struct stint_decision *decision)
{
    struct ticket_part parts[STINT_ITEMS_MAX];
    struct stint_decision sum = {.outcome = STINT_ALLOW};
    bool is_gone = true;
    int n = redeem(table, ticket, now_ns, parts);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        const struct ticket_part *part = &parts[i];
        struct stint_decision one;
        uint64_t used = min_u64((uint64_t)actual * part->times, UINT32_MAX);
        if (used <= part->units)
            one = move_part(table, part, STINT_REFUND, part->units - (uint32_t)used, now_ns);
        else
            one = move_part(table, part, STINT_CHARGE, (uint32_t)used - part->units, now_ns);
        keep_least(&sum, &one, i == 0);
        is_gone &= was_free(part, &one);
    }
    if (is_gone)
        return STINT_E_GONE;
    if (decision != NULL)
        *decision = sum;
    return 0;
}

int stint_cancel(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns,
                 struct stint_decision *decision)
{
    struct ticket_part parts[STINT_ITEMS_MAX];
    struct stint_decision sum = {.outcome = STINT_ALLOW};
    bool is_gone = true;
    int n = redeem(table, ticket, now_ns, parts);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        uint8_t verb = parts[i].kind == KIND_BOOKING ? STINT_UNBOOK : STINT_REFUND;
        struct stint_decision one = move_part(table, &parts[i], verb, parts[i].units, now_ns);
        keep_least(&sum, &one, i == 0);
        is_gone &= was_free(&parts[i], &one);
    }
    if (is_gone)
        return STINT_E_GONE;
    if (decision != NULL)
        *decision = sum;
    return 0;
}

/* One word of a ticket in the ring; a swap, since the slot may have gone to another ticket. */
static void set_word(uint64_t *slot, int word, uint64_t old, uint64_t new)
{
    __atomic_compare_exchange_n(&slot[word], &old, new, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Moves the end of one part; whoever reads the ticket meanwhile finds its sum wrong, and waits. */
static void rewrite_part(struct stint_table *table, uint64_t *slot, const struct ticket_part *old,
                         uint64_t holder, uint64_t deadline_ns)
{
    struct ticket_part new = *old;
    new.granted_at_ns = holder;
    new.deadline_ns = deadline_ns;
    new.check = sum_of(table, &new);
    set_word(slot, WORD_HELD, old->granted_at_ns, holder);
    set_word(slot, WORD_DEADLINE, old->deadline_ns, deadline_ns);
    set_word(slot, WORD_CHECK, old->check, new.check);
}

int stint_renew(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns)
{
    struct ticket_part parts[STINT_ITEMS_MAX];
    uint64_t deadline_ns = 0, holders[STINT_ITEMS_MAX];
    int n = read_ticket(table, ticket, now_ns, parts);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        const struct ticket_part *part = &parts[i];
        const struct stint_quota *quota = intern_quota(&table->intern, part->quota_id);
        struct hash128 hash = {part->hash_lo, part->hash_hi};
        holders[i] = part->granted_at_ns;
        if (part->kind != KIND_HOLD || quota == NULL)
            continue;
        if (!table_renew(table, quota, hash, now_ns, &holders[i]))
            return STINT_E_GONE;
        deadline_ns = max_u64(deadline_ns, add_sat(now_ns, quota->lease_ns));
    }
    if (deadline_ns == 0)
        return STINT_E_MISMATCH;
    for (int i = 0; i < n; i++)
        rewrite_part(table, ticket_slot(table, ticket.slot + (uint64_t)i), &parts[i], holders[i],
                     max_u64(deadline_ns, parts[i].deadline_ns));
    return 0;
}
