/* SPDX-License-Identifier: MIT */
/*
 * Tickets: what a reservation, a booking or a hold was charged, kept in a ring in the region until
 * it is settled, cancelled or over.
 *
 * A ticket over a list takes as many consecutive slots as it has quotas, all with one nonce. The
 * nonce of the first makes it valid once: the thread that swaps it for 0 may act on the ticket. A
 * writer zeroes the nonce before it writes and sets it last. A writer that is stopped there until
 * another comes to the slot writes into another ticket, so a reader also checks a sum of what it
 * has read: a ticket that is not whole is gone, and stays charged as estimated.
 *
 * A reservation that is never settled is closed once its deadline has passed: by stint_expire(), or
 * by the ticket that takes its slot. Both win the nonce first, as a settle does, so units come
 * back at most once; if the process ends in between, they stay charged.
 */
#include "limiter/ticket.h"

#include "base/wide_int.h"

#include <assert.h>

#define TICKET_TWEAK UINT64_C(0x74656b636974)
#define TICKET_WORDS (TICKET_SIZE / 8)
#define READS_MAX 1000     /* of a ticket that is being renewed meanwhile */
#define EXPIRE_READS_MAX 8 /* a ticket that is being renewed is not over; a damaged one is none */
#define SEARCHES_MAX 64    /* for slots that no open ticket has */
#define PARTS_MAX (STINT_ITEMS_MAX + TICKET_SHADOWS_MAX)
/*
 * A ticket has the hash of a rule's key, not the rule. Where there is one, the key may have moved
 * to another class of slots since, and is searched for there; without one that finds nothing.
 */
#define ANY_RULE 1

enum ticket_kind { KIND_CHARGE, KIND_BOOKING, KIND_HOLD };

struct ticket_part {
    uint64_t nonce;
    uint64_t hash_lo, hash_hi;
    uint64_t granted_at_ns; /* a booking: where it is charged; a hold: the holder's value */
    uint64_t deadline_ns;
    uint32_t units;
    uint16_t quota_id;
    uint8_t kind;    /* enum ticket_kind */
    uint8_t n_parts; /* of the whole ticket */
    /* In files from before on_expiry these bytes are 0, except `times` and `number`. */
    uint8_t times;  /* equal items that were merged into this part */
    uint8_t action; /* enum stint_expiry, of this part */
    uint16_t kept_low;
    uint8_t number; /* of this part within the ticket */
    uint8_t is_shadow;
    uint16_t kept_high; /* units that stay charged if it is never settled; unless it keeps all */
    uint64_t check;     /* over all the rest */
};

enum { WORD_HELD = 3, WORD_DEADLINE = 4, WORD_CHECK = 7 };

_Static_assert(sizeof(struct ticket_part) == TICKET_SIZE, "the region counts on it");
_Static_assert(PARTS_MAX <= UINT8_MAX, "a part says its number in a byte");

static uint64_t *ticket_slot(const struct stint_table *table, uint64_t at)
{
    assert(table->region.fixed.tickets_max > 0);
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
    assert(part->nonce != 0 && part->number < part->n_parts && part->kind <= KIND_HOLD);
    union ticket_words from = {.part = *part};
    for (int i = 1; i < TICKET_WORDS; i++)
        __atomic_store_n(&slot[i], from.words[i], __ATOMIC_RELAXED);
    /* release: a reader that sees the nonce sees the ticket. */
    __atomic_store_n(&slot[0], from.words[0], __ATOMIC_RELEASE);
}

/* Part `number` of a ticket. False if the slot does not hold it, whole. */
static bool read_part(const struct stint_table *table, struct stint_ticket ticket, uint32_t number,
                      struct ticket_part *part, int tries)
{
    assert(number < PARTS_MAX && tries > 0);
    uint64_t *slot = ticket_slot(table, ticket.slot + number);
    union ticket_words to;
    while (tries-- > 0) {
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

enum slot_holds { HOLDS_NONE, HOLDS_OPEN, HOLDS_OVER };

/*
 * A hint of the ticket in a slot that was not settled, before more of it is read. Only its first
 * part loses its nonce when it is settled: a later part is of a ticket if its first part is there.
 */
static enum slot_holds look_at_slot(const struct stint_table *table, uint64_t at, uint64_t now_ns,
                                    struct stint_ticket *ticket)
{
    const uint64_t *slot = ticket_slot(table, at);
    const uint32_t max = table->region.fixed.tickets_max;
    union ticket_words seen;
    /* relaxed: nothing is changed by what was read. */
    for (int i = 0; i < TICKET_WORDS; i++)
        seen.words[i] = __atomic_load_n(&slot[i], __ATOMIC_RELAXED);
    if (seen.part.nonce == 0 || seen.part.number >= max)
        return HOLDS_NONE;
    *ticket = (struct stint_ticket){at % max + max - seen.part.number, seen.part.nonce};
    if (seen.part.number > 0 &&
        __atomic_load_n(ticket_slot(table, ticket->slot), __ATOMIC_RELAXED) != ticket->nonce)
        return HOLDS_NONE;
    return seen.part.deadline_ns > now_ns ? HOLDS_OPEN : HOLDS_OVER;
}

/* The same for the first part alone: each ticket once. */
static enum slot_holds look_for_first(const struct stint_table *table, uint64_t at, uint64_t now_ns,
                                      struct stint_ticket *ticket)
{
    assert(at < table->region.fixed.tickets_max);
    enum slot_holds holds = look_at_slot(table, at, now_ns, ticket);
    bool is_first = holds != HOLDS_NONE && ticket->slot - table->region.fixed.tickets_max == at;
    return is_first ? holds : HOLDS_NONE;
}

uint64_t tickets_open(const struct stint_table *table, uint64_t now_ns)
{
    struct stint_ticket ticket;
    uint64_t n_open = 0;
    for (uint64_t slot = 0; slot < table->region.fixed.tickets_max; slot++)
        n_open += look_for_first(table, slot, now_ns, &ticket) == HOLDS_OPEN;
    return n_open;
}

static bool are_open(const struct stint_table *table, uint64_t first, size_t n, uint64_t now_ns)
{
    struct stint_ticket ticket;
    for (size_t i = 0; i < n; i++)
        if (look_at_slot(table, first + i, now_ns, &ticket) == HOLDS_OPEN)
            return true;
    return false;
}

/*
 * The number of the first of n slots that no open ticket has; if the search finds none, of those
 * that the ring has come to. The search is spread over the ring: tickets that were issued together
 * are open together, and it must get past them. It goes around once, so that the next ticket
 * continues behind this one, and a full ring closes the oldest first.
 */
static uint64_t choose_slots(struct stint_table *table, size_t n, uint64_t now_ns)
{
    const uint64_t max = table->region.fixed.tickets_max;
    const uint64_t step = max_u64(n, (max + SEARCHES_MAX - 1) / SEARCHES_MAX);
    uint64_t *next = &table->region.header->ticket_next;
    /* relaxed: the number only assigns the slots. */
    const uint64_t first = __atomic_fetch_add(next, n, __ATOMIC_RELAXED);
    uint64_t at = first;
    for (uint64_t left = max; are_open(table, at, n, now_ns); left -= step) {
        if (left <= step) {
            __atomic_fetch_add(next, left, __ATOMIC_RELAXED);
            return first;
        }
        at = __atomic_fetch_add(next, step, __ATOMIC_RELAXED);
    }
    return at;
}

static bool expire(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns);
static bool win(struct stint_table *table, struct stint_ticket ticket);

/*
 * Empties n slots for a new ticket. A reservation that is still there and whose deadline has passed
 * is closed as its expiry was set. One that is not over is closed as estimated, and counted.
 */
static uint64_t clear_slots(struct stint_table *table, size_t n, uint64_t now_ns)
{
    assert(n > 0 && n <= table->region.fixed.tickets_max);
    uint64_t first = choose_slots(table, n, now_ns);
    for (size_t i = 0; i < n; i++) {
        struct stint_ticket ticket;
        enum slot_holds holds = look_at_slot(table, first + i, now_ns, &ticket);
        if (holds == HOLDS_OVER)
            expire(table, ticket, now_ns);
        else if (holds == HOLDS_OPEN && win(table, ticket))
            table_count(&table_counters(table)->tickets_dropped, 1);
        /* acq_rel: the old ticket is over before a word of the new one is written. */
        __atomic_exchange_n(ticket_slot(table, first + i), 0, __ATOMIC_ACQ_REL);
    }
    return first;
}

static bool holds_places(const struct stint_quota *quota)
{
    return quota->algorithm == STINT_CONCURRENCY;
}

/* A ticket has one end: without a lifetime, that of the longest lease among its holds. */
static uint64_t life_of(const struct ticket_entry *entries, size_t n, uint64_t lifetime_ns)
{
    assert(n > 0);
    uint64_t life_ns = lifetime_ns;
    for (size_t i = 0; lifetime_ns == 0 && i < n; i++)
        if (holds_places(entries[i].quota))
            life_ns = max_u64(life_ns, entries[i].quota->lease_ns);
    return life_ns;
}

static struct ticket_part part_of(struct stint_table *table, const struct ticket_entry *entry,
                                  enum ticket_kind kind)
{
    assert(entry->times <= UINT8_MAX && entry->action <= UINT8_MAX);
    bool holds = holds_places(entry->quota);
    uint32_t kept = entry->action == STINT_EXPIRY_KEEP ? 0 : entry->kept;
    return (struct ticket_part){
        .hash_lo = entry->hash.lo,
        .hash_hi = entry->hash.hi,
        .granted_at_ns = entry->at_ns,
        .units = entry->units,
        .quota_id = (uint16_t)intern_entry_id(&table->intern, entry->quota),
        .kind = (uint8_t)(holds ? KIND_HOLD : kind),
        .times = (uint8_t)entry->times,
        .action = (uint8_t)entry->action,
        .kept_low = (uint16_t)kept,
        .kept_high = (uint16_t)(kept >> 16),
        .is_shadow = entry->is_shadow,
    };
}

/*
 * The counter of slots may return, to where a copy of the file or a crash has left it. So the
 * opening is part of the nonce: a ticket from before that is none of those issued since.
 */
static uint64_t nonce_of(const struct stint_table *table, uint64_t first)
{
    const uint64_t text[2] = {first, table->region.opening};
    uint64_t nonce =
        siphash13_128(table->region.fixed.hash_key, TICKET_TWEAK, text, sizeof(text)).lo;
    return nonce | (nonce == 0);
}

static struct stint_ticket issue(struct stint_table *table, enum ticket_kind kind,
                                 const struct ticket_entry *entries, size_t n, uint64_t lifetime_ns,
                                 uint64_t now_ns)
{
    assert(n > 0 && n <= PARTS_MAX);
    uint64_t first = clear_slots(table, n, now_ns);
    uint64_t nonce = nonce_of(table, first);
    uint64_t deadline_ns = add_sat(now_ns, life_of(entries, n, lifetime_ns));
    bool charges = false;
    for (size_t i = n; i-- > 0;) {
        struct ticket_part made = part_of(table, &entries[i], kind);
        made.nonce = nonce;
        made.deadline_ns = deadline_ns;
        made.n_parts = (uint8_t)n;
        made.number = (uint8_t)i;
        made.check = sum_of(table, &made);
        write_part(ticket_slot(table, first + i), &made);
        charges |= made.kind == KIND_CHARGE;
    }
    if (charges)
        region_raise(&table->region.header->expiries_until_ns, deadline_ns);
    return (struct stint_ticket){first, nonce};
}

/*
 * A ticket over a list takes as many slots as the list has quotas: the whole ring may have too few.
 * It names each quota by its entry.
 */
static bool can_issue(const struct list *list)
{
    assert(list_is_valid(list));
    for (size_t i = 0; i < list->n_parts; i++)
        if (intern_entry_id(&list->table->intern, list->parts[i].quota) == 0)
            return false;
    return list->n_parts <= list->table->region.fixed.tickets_max;
}

/* ---- Reserving ------------------------------------------------------------------------------- */

enum stint_expiry expiry_action(uint32_t kept)
{
    if (kept == STINT_KEEP_ALL)
        return STINT_EXPIRY_KEEP;
    return kept == 0 ? STINT_EXPIRY_RELEASE : STINT_EXPIRY_FLOOR;
}

bool reservation_is_valid(const struct reservation *reservation)
{
    bool is_valid = reservation->n_entries <= PARTS_MAX;
    for (size_t i = 0; is_valid && i < reservation->n_entries; i++) {
        const struct ticket_entry *entry = &reservation->entries[i];
        is_valid = entry->quota != NULL && entry->times > 0 &&
                   entry->action <= STINT_EXPIRY_RELEASE &&
                   (i == 0 || entry->is_shadow >= entry[-1].is_shadow);
    }
    return is_valid;
}

void reservation_init(struct reservation *reservation)
{
    reservation->list = NULL;
    reservation->n_entries = 0;
}

/* Equal items keep what each keeps; the part's action is that of the item that keeps least. */
static void add_kept(struct ticket_entry *entry, uint32_t kept, uint32_t cost)
{
    entry->kept += (uint32_t)min_u64(kept, cost);
    entry->action = (uint32_t)max_u64(entry->action, expiry_action(kept));
    assert(entry->kept <= entry->units);
}

static void enter_list(struct reservation *reservation, const struct stint_item *items,
                       const uint32_t *kept)
{
    assert(list_is_valid(reservation->list));
    const struct list *list = reservation->list;
    for (size_t i = 0; i < list->n_parts; i++) {
        const struct list_part *part = &list->parts[i];
        reservation->entries[i] =
            (struct ticket_entry){.quota = part->quota,
                                  .hash = part->hash,
                                  .at_ns = part->holder != 0 ? part->holder : part->undo.entered_ns,
                                  .units = part->cost,
                                  .times = part->times};
    }
    reservation->n_entries = list->n_parts;
    for (size_t i = 0; i < list->n_items; i++)
        add_kept(&reservation->entries[list->part_of[i]], kept != NULL ? kept[i] : STINT_KEEP_ALL,
                 items[i].cost);
}

bool reservation_take(struct reservation *reservation, struct list *list,
                      const struct stint_item *items, const uint32_t *kept,
                      struct stint_decision *decision)
{
    assert(list_is_valid(list));
    reservation_init(reservation);
    if (!can_issue(list))
        return false;
    *decision = list_take(list);
    if (decision->outcome != STINT_ALLOW)
        return true;
    reservation->list = list;
    enter_list(reservation, items, kept);
    return true;
}

void reservation_add_shadow(struct reservation *reservation, const struct stint_quota *quota,
                            struct hash128 hash, uint32_t units, uint32_t kept, uint64_t at_ns)
{
    assert(reservation_is_valid(reservation));
    size_t n_live = reservation->list != NULL ? reservation->list->n_parts : 0;
    if (reservation->n_entries - n_live == TICKET_SHADOWS_MAX)
        return;
    struct ticket_entry *entry = &reservation->entries[reservation->n_entries++];
    *entry = (struct ticket_entry){.quota = quota,
                                   .hash = hash,
                                   .at_ns = at_ns,
                                   .units = units,
                                   .times = 1,
                                   .is_shadow = true};
    add_kept(entry, kept, units);
    assert(reservation_is_valid(reservation));
}

struct stint_ticket reservation_issue(const struct reservation *reservation,
                                      struct stint_table *table, uint64_t lifetime_ns,
                                      uint64_t now_ns)
{
    assert(reservation_is_valid(reservation));
    size_t n = min_u64(reservation->n_entries, table->region.fixed.tickets_max);
    assert(n > 0);
    return issue(table, KIND_CHARGE, reservation->entries, n, lifetime_ns, now_ns);
}

struct stint_decision stint_reserve_expiring(struct stint_table *table,
                                             const struct stint_item *items, size_t n_items,
                                             uint64_t lifetime_ns, const uint32_t *kept,
                                             uint64_t now_ns, struct stint_ticket *ticket)
{
    assert(table_is_valid(table) && ticket != NULL);
    struct list list;
    struct reservation reservation;
    struct stint_decision decision;
    *ticket = (struct stint_ticket){0, 0};
    if (!list_init(&list, table, items, n_items, now_ns) ||
        !reservation_take(&reservation, &list, items, kept, &decision))
        return algorithm_never(0);
    if (decision.outcome == STINT_ALLOW)
        *ticket = reservation_issue(&reservation, table, lifetime_ns, now_ns);
    return decision;
}

struct stint_decision stint_reserve(struct stint_table *table, const struct stint_item *items,
                                    size_t n_items, uint64_t lifetime_ns, uint64_t now_ns,
                                    struct stint_ticket *ticket)
{
    return stint_reserve_expiring(table, items, n_items, lifetime_ns, NULL, now_ns, ticket);
}

/* ---- Booking --------------------------------------------------------------------------------- */

/*
 * A booking over several quotas would have to start everywhere at once, and a log cannot be charged
 * later than its own first free time without a second look: lists are for gcra alone, whose debt is
 * the same whenever it is used.
 */
static bool can_book(const struct list *list)
{
    assert(list_is_valid(list));
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
    assert(table_is_valid(table) && ticket != NULL);
    struct list list;
    *ticket = (struct stint_ticket){0, 0};
    if (!list_init(&list, table, items, n_items, now_ns) || !can_issue(&list) || !can_book(&list))
        return algorithm_never(0);
    uint64_t wait_ns = 0;
    max_wait_ns = min_u64(max_wait_ns, BOOK_WAIT_MAX_NS);
    for (size_t i = 0; i < list.n_parts; i++) {
        struct stint_decision decision = list_ask_part(&list, i, STINT_BOOK, max_wait_ns);
        if (decision.outcome != STINT_ALLOW) {
            list_take_back(&list, i, STINT_UNBOOK);
            return list_sum(&list);
        }
        wait_ns = max_u64(wait_ns, decision.retry_after_ns);
    }
    struct stint_decision sum = list_sum(&list);
    sum.retry_after_ns = wait_ns;
    struct ticket_entry entries[STINT_ITEMS_MAX];
    for (size_t i = 0; i < list.n_parts; i++) {
        const struct list_part *part = &list.parts[i]; /* charged at its own start */
        entries[i] = (struct ticket_entry){.quota = part->quota,
                                           .hash = part->hash,
                                           .at_ns = add_sat(now_ns, part->decision.retry_after_ns),
                                           .units = part->cost,
                                           .times = part->times};
    }
    *ticket = issue(table, KIND_BOOKING, entries, list.n_parts, wait_ns, now_ns);
    return sum;
}

/* ---- Settling -------------------------------------------------------------------------------- */

/* The parts of a whole ticket in the ring; returns their number, or GONE. */
static int read_parts(const struct stint_table *table, struct stint_ticket ticket,
                      struct ticket_part *parts, int tries)
{
    assert(tries > 0);
    if (!read_part(table, ticket, 0, &parts[0], tries) || parts[0].n_parts == 0 ||
        parts[0].n_parts > PARTS_MAX)
        return STINT_E_GONE;
    for (uint32_t i = 1; i < parts[0].n_parts; i++)
        if (!read_part(table, ticket, i, &parts[i], tries))
            return STINT_E_GONE;
    return parts[0].n_parts;
}

/* The same for one that is not over. */
static int read_ticket(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns,
                       struct ticket_part *parts)
{
    if (table->region.read_only)
        return STINT_E_MISMATCH;
    if (now_ns > STINT_NOW_MAX)
        return STINT_E_RANGE;
    int n = read_parts(table, ticket, parts, READS_MAX);
    return n > 0 && parts[0].deadline_ns <= now_ns ? STINT_E_GONE : n;
}

/* Of all callers that try, one wins the ticket. */
static bool win(struct stint_table *table, struct stint_ticket ticket)
{
    assert(ticket.nonce != 0);
    uint64_t nonce = ticket.nonce;
    /* acq_rel: what is done to the ticket comes after it was won. */
    return __atomic_compare_exchange_n(ticket_slot(table, ticket.slot), &nonce, 0, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* The parts of a ticket that is not over, taken out of the ring. */
static int redeem(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns,
                  struct ticket_part *parts)
{
    int n = read_ticket(table, ticket, now_ns, parts);
    return n > 0 && !win(table, ticket) ? STINT_E_GONE : n;
}

static struct stint_decision move_part(struct stint_table *table, const struct ticket_part *part,
                                       uint8_t verb, uint32_t units, uint64_t now_ns)
{
    const struct stint_quota *shared = intern_quota(&table->intern, part->quota_id);
    struct hash128 hash = {part->hash_lo, part->hash_hi};
    struct stint_decision decision = {.outcome = STINT_ALLOW};
    struct stint_ask ask = {
        .now_ns = now_ns, .at_ns = part->granted_at_ns, .cost = units, .verb = verb};
    if (shared == NULL)
        return algorithm_never(0);
    if (part->kind == KIND_HOLD) {
        table_holder(table, shared, hash, now_ns, &ask.at_ns, &decision.granted);
        return decision;
    }
    struct stint_quota quota = *shared;
    quota.rule = ANY_RULE;
    return table_ask_hash(table, &quota, hash, &ask, NULL, NULL);
}

/* The result over several parts: the least that any moved; shadows count only without others. */
struct closing {
    struct stint_decision sum;
    bool has_any, has_live;
    bool is_gone; /* the ticket held only concurrency units, which were free before */
};

static void add_closed(struct closing *closing, const struct ticket_part *part,
                       const struct stint_decision *one)
{
    if (part->is_shadow && closing->has_live)
        return;
    bool is_first = !closing->has_any || (!part->is_shadow && !closing->has_live);
    uint32_t least =
        is_first || one->granted < closing->sum.granted ? one->granted : closing->sum.granted;
    bool was_free = part->kind == KIND_HOLD && part->units > 0 && one->granted == 0;
    closing->sum = *one;
    closing->sum.granted = least;
    closing->is_gone = was_free && (is_first || closing->is_gone);
    assert(least <= one->granted);
    closing->has_any = true;
    closing->has_live |= !part->is_shadow;
}

/* A settle where `actual` is not NULL, else a cancel. */
static int close_ticket(struct stint_table *table, struct stint_ticket ticket,
                        const uint32_t *actual, uint64_t now_ns, struct stint_decision *decision)
{
    assert(table_is_valid(table));
    struct ticket_part parts[PARTS_MAX];
    struct closing closing = {.sum = {.outcome = STINT_ALLOW}};
    int n = redeem(table, ticket, now_ns, parts);
    for (int i = 0; i < n; i++) {
        const struct ticket_part *part = &parts[i];
        struct stint_ask ask = {
            .cost = part->units,
            .verb = part->kind == KIND_BOOKING ? STINT_UNBOOK : STINT_REFUND,
        };
        if (actual != NULL)
            ask = ticket_settling(part->units, (uint64_t)*actual * part->times, part->granted_at_ns,
                                  now_ns);
        struct stint_decision one = move_part(table, part, ask.verb, ask.cost, now_ns);
        add_closed(&closing, part, &one);
    }
    if (n < 0 || closing.is_gone)
        return n < 0 ? n : STINT_E_GONE;
    assert(closing.has_any);
    if (decision != NULL)
        *decision = closing.sum;
    return 0;
}

int stint_settle(struct stint_table *table, struct stint_ticket ticket, uint32_t actual,
                 uint64_t now_ns, struct stint_decision *decision)
{
    return close_ticket(table, ticket, &actual, now_ns, decision);
}

int stint_cancel(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns,
                 struct stint_decision *decision)
{
    return close_ticket(table, ticket, NULL, now_ns, decision);
}

/* ---- Expiry ---------------------------------------------------------------------------------- */

static bool has_charges(const struct ticket_part *parts, int n)
{
    assert(n > 0 && n <= PARTS_MAX);
    for (int i = 0; i < n; i++)
        if (parts[i].kind == KIND_CHARGE)
            return true;
    return false;
}

/* What a part gives back. Concurrency units are free when their lease ends instead. */
static void expire_part(struct stint_table *table, const struct ticket_part *part, uint64_t now_ns)
{
    uint32_t kept = part->kept_low | (uint32_t)part->kept_high << 16;
    if (part->kind != KIND_CHARGE || part->action == STINT_EXPIRY_KEEP || kept >= part->units)
        return;
    uint32_t units = part->units - kept;
    struct stint_decision back = move_part(table, part, STINT_REFUND, units, now_ns);
    if (back.granted < units && !part->is_shadow)
        table_count(&table_counters(table)->expiry_kept_units, units - back.granted);
}

/* Closes a reservation whose deadline has passed. False where it is none, or not over. */
static bool expire(struct stint_table *table, struct stint_ticket ticket, uint64_t now_ns)
{
    struct ticket_part parts[PARTS_MAX];
    uint8_t action = STINT_EXPIRY_KEEP;
    int n = read_parts(table, ticket, parts, EXPIRE_READS_MAX);
    if (n < 0 || parts[0].deadline_ns > now_ns || !has_charges(parts, n) || !win(table, ticket))
        return false;
    for (int i = 0; i < n; i++) {
        expire_part(table, &parts[i], now_ns);
        if (parts[i].kind == KIND_CHARGE && parts[i].action > action)
            action = parts[i].action;
    }
    action = (uint8_t)min_u64(action, STINT_EXPIRY_RELEASE); /* it may come from a damaged file */
    table_count(&table_counters(table)->reservations_expired[action], 1);
    return true;
}

/* A pass over the ring continues from call to call. */
static uint64_t sweep(struct stint_table *table, uint64_t now_ns, uint64_t slots_max)
{
    assert(!table->region.read_only);
    struct sweep *sweep = &table->process->sweep;
    uint64_t issued = __atomic_load_n(&table->region.header->ticket_next, __ATOMIC_RELAXED);
    uint64_t end = min_u64(issued, table->region.fixed.tickets_max);
    if (sweep->next == 0)
        sweep->began_ns = now_ns;
    for (; slots_max > 0 && sweep->next < end; slots_max--) {
        struct stint_ticket ticket;
        if (look_for_first(table, sweep->next, now_ns, &ticket) == HOLDS_OVER)
            expire(table, ticket, now_ns);
        sweep->next++;
    }
    if (sweep->next < end)
        return end - sweep->next;
    sweep->next = 0;
    /* Later passes find reservations made meanwhile by callers whose clocks are behind. */
    __atomic_store_n(&sweep->done_ns, sub_floor(sweep->began_ns, table_grace_ns(table)),
                     __ATOMIC_RELAXED);
    return 0;
}

uint64_t stint_expire(struct stint_table *table, uint64_t now_ns, uint64_t slots_max)
{
    assert(table_is_valid(table));
    const uint64_t *until = &table->region.header->expiries_until_ns;
    /* relaxed: a reservation that is not seen now is seen by the next call. */
    if (table->region.read_only || now_ns > STINT_NOW_MAX ||
        __atomic_load_n(&table->process->sweep.done_ns, __ATOMIC_RELAXED) >=
            __atomic_load_n(until, __ATOMIC_RELAXED))
        return 0;
    uint32_t *is_at_work = &table->process->sweep.is_at_work;
    if (__atomic_exchange_n(is_at_work, 1, __ATOMIC_ACQUIRE) != 0)
        return 0; /* another thread does it */
    uint64_t left = sweep(table, now_ns, slots_max);
    __atomic_store_n(is_at_work, 0, __ATOMIC_RELEASE);
    return left;
}

/* ---- Renewing -------------------------------------------------------------------------------- */

/* One word of a ticket in the ring; a swap, since the slot may belong to another ticket by now. */
static void set_word(uint64_t *slot, int word, uint64_t old, uint64_t new)
{
    assert(word > 0 && word < TICKET_WORDS);
    __atomic_compare_exchange_n(&slot[word], &old, new, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Moves the end of one part; a concurrent reader of the ticket finds its sum wrong, and waits. */
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
    assert(table_is_valid(table));
    struct ticket_part parts[PARTS_MAX];
    uint64_t deadline_ns = 0, holders[PARTS_MAX];
    int code = STINT_OK, n = read_ticket(table, ticket, now_ns, parts);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        const struct ticket_part *part = &parts[i];
        const struct stint_quota *quota = intern_quota(&table->intern, part->quota_id);
        struct hash128 hash = {part->hash_lo, part->hash_hi};
        holders[i] = part->granted_at_ns;
        if (part->kind != KIND_HOLD || quota == NULL)
            continue;
        if (!table_holder(table, quota, hash, now_ns, &holders[i], NULL)) {
            if (parts[0].is_shadow || !part->is_shadow)
                code = STINT_E_GONE;
            continue;
        }
        deadline_ns = max_u64(deadline_ns, add_sat(now_ns, quota->lease_ns));
    }
    if (deadline_ns == 0)
        return code != STINT_OK ? code : STINT_E_MISMATCH;
    /* Also if a place has ended: the ticket must name the holders of the others. */
    if (has_charges(parts, n))
        region_raise(&table->region.header->expiries_until_ns, deadline_ns);
    for (int i = 0; i < n; i++)
        rewrite_part(table, ticket_slot(table, ticket.slot + (uint64_t)i), &parts[i], holders[i],
                     max_u64(deadline_ns, parts[i].deadline_ns));
    return code;
}
