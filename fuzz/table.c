/* SPDX-License-Identifier: MIT */
/*
 * Histories of the table's verbs over few keys on a table so small that they crowd each other out:
 * lists, tickets, blocks, resets, refunds, changes of quota, and callers with late clocks.
 *
 * The oracle is the exact log of each key: no window of a strict quota ever holds more than its
 * limit, a blocked key gets nothing, and a refused take leaves every state as it was.
 */
#include "draw.h"
#include "model/uses.h"

#include "table/table.h"

#define QUOTAS 6
#define KEYS 12
#define TICKETS 16
#define STEPS_MAX 300
#define LIST_MAX 6
#define BACKEND_RULE 7 /* the last two quotas are one promise under two sets of parameters */

struct held_ticket {
    struct stint_ticket name;
    uint64_t now_ns, effective_ns;
    uint32_t cost; /* of each item */
    uint8_t n_items, quota[LIST_MAX], key[LIST_MAX];
    bool open, books;
};

struct run {
    struct stint_table *table;
    struct span bytes;
    struct draw_hints hints;
    struct stint_quota quotas[QUOTAS];
    uint64_t bounds[QUOTAS];
    size_t n_quotas, n_tickets;
    bool counted[QUOTAS];
    struct uses uses[QUOTAS][KEYS];
    uint64_t blocked_until_ns[KEYS];
    uint64_t kept_ns[KEYS]; /* the latest time that a state may have kept without a use */
    struct counted_key {
        uint64_t count, expires_at_ns, evictions; /* evictions: of any state, up to then */
    } counters[KEYS];
    /* The shared rule: which of its quotas asked last, and how often that changed. One change keeps
     * the larger bound; a second one too soon may not, since units that no longer fit are gone. */
    uint8_t shared_quota[KEYS], changes[KEYS];
    struct held_ticket tickets[TICKETS];
    unsigned char *before;
    size_t size;
};

static const char key_names[KEYS][4] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"};

/* Quotas that share a rule, or are equal, share their states, and count as one. */
static size_t promise_of(const struct run *run, size_t quota)
{
    const struct stint_quota *asked = &run->quotas[quota];
    size_t first = 0;
    while (run->quotas[first].rule != asked->rule ||
           (asked->rule == 0 && !intern_same_params(&run->quotas[first], asked)))
        first++;
    assert(first <= quota);
    return first;
}

static struct uses *uses_of(struct run *run, size_t quota, size_t key)
{
    return &run->uses[promise_of(run, quota)][key];
}

/* As if the key were never used; no state has its time any more. */
static void forget(struct uses *uses)
{
    uses->n = 0;
    uses->clock_ns = 0;
}

/* The time by which the library counts: late clocks are late by at most the skew. */
static uint64_t effective(const struct run *run, uint64_t now_ns)
{
    const struct region_header *header = run->table->region.header;
    uint64_t floor_ns = header->mark_ns > header->fixed.skew_max_ns
                            ? header->mark_ns - header->fixed.skew_max_ns
                            : 0;
    return now_ns > floor_ns ? now_ns : floor_ns;
}

/* A state may have been written without a use that is counted: by a refund or a refusal, say. */
static void keep_time(struct run *run, size_t key, uint64_t now_ns)
{
    uint64_t at_ns = effective(run, now_ns);
    if (run->kept_ns[key] < at_ns)
        run->kept_ns[key] = at_ns;
}

static void count(struct run *run, size_t quota, size_t key, uint64_t now_ns, uint64_t units)
{
    size_t promise = promise_of(run, quota);
    struct uses *uses = &run->uses[promise][key];
    if (units == 0 || !run->counted[promise])
        return;
    if (run->quotas[quota].rule == BACKEND_RULE && run->changes[key] > 1)
        return;
    if (uses_is_full(uses)) {
        run->counted[promise] = false;
        return;
    }
    if (effective(run, now_ns) < run->kept_ns[key])
        forget(uses); /* it is counted at the time kept, or at its own */
    uint64_t at_ns = uses_add(uses, effective(run, now_ns), units);
    struct uses_length period = {run->quotas[quota].period_ns, 1};
    uses->use[uses->n - 1].now_ns = now_ns;
    if (draw_is_shown() && uses_within(uses, at_ns, period) > run->bounds[promise])
        for (size_t i = 0; i < uses->n; i++)
            fprintf(stderr, "op use %llu units at %llu\n", (unsigned long long)uses->use[i].units,
                    (unsigned long long)uses->use[i].at_ns);
    MUST(uses_within(uses, at_ns, period) <= run->bounds[promise]);
}

/* Whatever decides is in these bytes; owner words count how often a state was worked on. */
static void save_states(const struct run *run, unsigned char *to)
{
    const struct region_header *header = run->table->region.header;
    uint64_t offset = header->fixed.classes[CLASS_8].offset;
    memcpy(to, (const unsigned char *)header + offset, run->size);
    const struct class_layout *wide = &header->fixed.classes[CLASS_WIDE];
    for (uint64_t set = 0; set < wide->sets; set++)
        for (uint64_t way = 0; way < WAYS; way++) {
            uint64_t at = wide->offset - offset + set * wide->set_size + wide->state_offset +
                          way * wide->state_stride;
            memset(to + at, 0, sizeof(uint64_t));
        }
}

static void check_unchanged(const struct run *run)
{
    static unsigned char *after;
    static size_t after_size;
    if (after_size < run->size) {
        after = realloc(after, run->size);
        after_size = run->size;
        MUST(after != NULL);
    }
    save_states(run, after);
    MUST(memcmp(run->before, after, run->size) == 0);
}

static void check_decision(const struct stint_decision *decision)
{
    MUST(decision->outcome <= STINT_NEVER && decision->remaining <= decision->limit);
    MUST((decision->outcome == STINT_NEVER) == (decision->retry_after_ns == STINT_NEVER_NS));
    MUST(decision->outcome == STINT_ALLOW || decision->granted == 0);
}

/* ---- One list and its verbs -------------------------------------------------------------------
 */

struct request {
    size_t n;
    struct stint_item items[LIST_MAX];
    uint8_t quota[LIST_MAX], key[LIST_MAX];
    uint32_t cost;
    uint64_t now_ns;
    bool may_write, is_blocked;
};

static struct request draw_request(struct run *run, bool alone)
{
    struct request request = {.n = 1};
    uint8_t shape = bytes_u8(&run->bytes);
    if (!alone && shape >= 128)
        request.n = 1 + shape % LIST_MAX;
    bool stale;
    request.now_ns = draw_now(&run->bytes, &run->hints, &stale);
    if (request.now_ns > TABLE_LIFE_NS)
        request.now_ns = run->hints.now_ns;
    if (!stale)
        run->hints.now_ns = request.now_ns;
    stint_table_set_now(run->table, run->hints.now_ns);
    for (size_t i = 0; i < request.n; i++) {
        uint8_t pick = bytes_u8(&run->bytes);
        request.quota[i] = (uint8_t)(pick % run->n_quotas);
        request.key[i] = (uint8_t)(pick / 16 % KEYS);
        const struct stint_quota *quota = &run->quotas[request.quota[i]];
        if (quota->rule == BACKEND_RULE && run->shared_quota[request.key[i]] != request.quota[i]) {
            uint8_t *changes = &run->changes[request.key[i]];
            if (*changes < 2 && run->shared_quota[request.key[i]] != 0)
                (*changes)++;
            run->shared_quota[request.key[i]] = request.quota[i];
        }
        if (i == 0) {
            run->hints.period_ns = quota->period_ns;
            run->hints.capacity = quota->algorithm == STINT_GCRA ? quota->burst : quota->limit;
            request.cost = draw_cost(&run->bytes, &run->hints);
        }
        request.items[i] = (struct stint_item){quota, key_names[request.key[i]], 1, request.cost};
        /* A refusal may count, or carry a state over from under the rule's other quota. */
        request.may_write |= quota->rule != 0 || quota->count_denied;
        request.is_blocked |=
            run->blocked_until_ns[request.key[i]] > effective(run, request.now_ns);
    }
    return request;
}

static void count_request(struct run *run, const struct request *request, uint32_t units)
{
    for (size_t i = 0; i < request->n; i++)
        count(run, request->quota[i], request->key[i], request->now_ns, units);
}

static void show(const char *verb, const struct request *request,
                 const struct stint_decision *decision)
{
    struct stint_ask ask = {.now_ns = request->now_ns, .cost = request->cost};
    if (!draw_is_shown())
        return;
    fprintf(stderr, "op %s", verb);
    for (size_t i = 0; i < request->n; i++)
        fprintf(stderr, " %u/%s", request->quota[i], key_names[request->key[i]]);
    draw_show(":", &ask, decision);
}

/* How often a new key found no place. */
static uint64_t places_missed(const struct run *run)
{
    const struct region_counters *counters = table_counters(run->table);
    return counters->full_denied + counters->full_allowed + counters->evictions_inherit;
}

/* Whether a list missed a place: the keys before have had theirs. */
static bool had_places(const struct run *run, const struct request *request, uint64_t missed)
{
    return request->n > 1 && places_missed(run) > missed;
}

/*
 * A refused list that wrote states leaves its time in them. One that missed a place had charged the
 * keys before: what a refund cannot return stays, too.
 */
static void follow_refused(struct run *run, const struct request *request)
{
    for (size_t i = 0; i < request->n; i++)
        keep_time(run, request->key[i], request->now_ns);
}

static void ask(struct run *run, uint8_t verb)
{
    struct request request = draw_request(run, false);
    struct stint_decision decision;
    uint64_t missed = places_missed(run);
    save_states(run, run->before);
    if (verb == STINT_PEEK)
        decision = stint_peek(run->table, request.items, request.n, request.now_ns);
    else if (verb == STINT_TAKE_UPTO)
        decision = stint_take_upto(run->table, request.items, request.n, request.now_ns);
    else if (request.n == 1 && request.cost % 2 == 0)
        decision = stint_take(run->table, request.items[0].quota, request.items[0].key, 1,
                              request.cost, request.now_ns);
    else
        decision = stint_take_all(run->table, request.items, request.n, request.now_ns);
    show(verb == STINT_PEEK ? "peek" : verb == STINT_TAKE ? "take" : "upto", &request, &decision);
    check_decision(&decision);
    bool refused = decision.outcome != STINT_ALLOW || request.cost == 0 || verb == STINT_PEEK;
    if (refused && (request.may_write || had_places(run, &request, missed)))
        follow_refused(run, &request);
    else if (refused)
        check_unchanged(run);
    if (request.is_blocked && request.cost > 0)
        MUST(decision.outcome != STINT_ALLOW);
    if (verb == STINT_PEEK || decision.outcome != STINT_ALLOW) {
        run->hints.free_at_ns = request.now_ns + decision.retry_after_ns;
        return;
    }
    /* Equal items of a list are one part of it, and add up. */
    MUST(decision.granted >= (verb == STINT_TAKE ? request.cost : 0));
    MUST(decision.granted <= (uint64_t)request.cost * request.n);
    uint32_t each = verb == STINT_TAKE ? request.cost : decision.granted;
    count_request(run, &request, each < request.cost ? each : request.cost);
    run->hints.remaining = decision.remaining;
}

static void charge(struct run *run)
{
    struct request request = draw_request(run, true);
    struct stint_item nothing = request.items[0];
    nothing.cost = 0;
    uint32_t free = stint_peek(run->table, &nothing, 1, request.now_ns).remaining;
    struct stint_decision decision = stint_charge(run->table, request.items, 1, request.now_ns);
    show("charge", &request, &decision);
    MUST(decision.granted <= request.cost);
    /* A charge need not fit, and then displaces units that the bound is for. */
    if (stint_is_strict(request.items[0].quota) && decision.granted <= free)
        count_request(run, &request, decision.granted);
    else
        keep_time(run, request.key[0], request.now_ns);
}

/* Whether an open ticket is for units of a promise's key that were granted at a time. */
static bool is_reserved(const struct run *run, size_t promise, size_t key, uint64_t now_ns)
{
    for (size_t t = 0; t < TICKETS; t++) {
        const struct held_ticket *ticket = &run->tickets[t];
        for (size_t i = 0; ticket->open && ticket->now_ns == now_ns && i < ticket->n_items; i++)
            if (promise_of(run, ticket->quota[i]) == promise && ticket->key[i] == key)
                return true;
    }
    return false;
}

/*
 * Gives back a use that was made; `units` are those that came back. Not what a ticket can give
 * back: the table cannot know that these units return twice.
 */
static void refund(struct run *run)
{
    struct request request = draw_request(run, true);
    struct uses *uses = uses_of(run, request.quota[0], request.key[0]);
    if (uses->n == 0)
        return;
    struct use *use = &uses->use[uses->n - 1 - bytes_u8(&run->bytes) % uses->n];
    if (is_reserved(run, promise_of(run, request.quota[0]), request.key[0], use->now_ns))
        return;
    uint64_t units = use->units < request.cost ? use->units : request.cost;
    request.items[0].cost = (uint32_t)units;
    struct stint_decision decision =
        stint_refund(run->table, request.items, 1, use->now_ns, request.now_ns);
    show("refund", &request, &decision);
    MUST(decision.granted <= units);
    use->units -= decision.granted;
    if (decision.granted > 0)
        keep_time(run, request.key[0], request.now_ns);
}

/* ---- Tickets --------------------------------------------------------------------------------- */

static void reserve(struct run *run, bool books)
{
    struct request request = draw_request(run, books);
    struct held_ticket *ticket = &run->tickets[run->n_tickets++ % TICKETS];
    uint64_t missed = places_missed(run);
    uint64_t life_ns = run->hints.period_ns / 16 * bytes_u8(&run->bytes);
    struct stint_decision decision;
    struct stint_ticket name;
    if (books)
        decision = stint_book(run->table, request.items, request.n, life_ns, request.now_ns, &name);
    else
        decision =
            stint_reserve(run->table, request.items, request.n, life_ns, request.now_ns, &name);
    show(books ? "book" : "reserve", &request, &decision);
    ticket->open = decision.outcome == STINT_ALLOW;
    MUST(ticket->open || decision.granted == 0);
    MUST(!ticket->open || !request.is_blocked || request.cost == 0);
    if (!ticket->open) {
        if (had_places(run, &request, missed))
            follow_refused(run, &request);
        MUST(name.slot == 0 && name.nonce == 0);
        ticket->n_items = 0; /* what stood here before is nobody's any more */
        return;
    }
    ticket->name = name;
    ticket->now_ns = request.now_ns;
    ticket->cost = request.cost;
    ticket->books = books;
    ticket->n_items = (uint8_t)request.n;
    memcpy(ticket->quota, request.quota, sizeof(ticket->quota));
    memcpy(ticket->key, request.key, sizeof(ticket->key));
    for (size_t i = 0; i < request.n; i++)
        if (books)
            run->counted[promise_of(run, request.quota[i])] = false;
    count_request(run, &request, request.cost);
}

/* Units that were not used after all were never used, whatever the table can still give back. */
static void take_off(struct run *run, const struct held_ticket *ticket, uint32_t unused)
{
    for (size_t i = 0; i < ticket->n_items; i++) {
        struct uses *uses = uses_of(run, ticket->quota[i], ticket->key[i]);
        uint64_t left = unused;
        keep_time(run, ticket->key[i], run->hints.now_ns);
        for (size_t u = uses->n; u > 0 && left > 0; u--) {
            struct use *use = &uses->use[u - 1];
            if (use->now_ns != ticket->now_ns)
                continue;
            uint64_t taken = use->units < left ? use->units : left;
            use->units -= taken;
            left -= taken;
        }
    }
}

static void settle(struct run *run)
{
    uint8_t pick = bytes_u8(&run->bytes);
    struct held_ticket *ticket = &run->tickets[pick % TICKETS];
    uint32_t actual = pick / 16 < 8 ? 0 : ticket->cost / 8 * (pick / 16 % 8) + pick % 2;
    if (run->n_tickets == 0 || ticket->n_items == 0)
        return;
    bool cancels = pick / 16 % 2 == 0 || ticket->books;
    uint64_t now_ns = run->hints.now_ns;
    struct stint_decision decision = {0};
    int code = cancels ? stint_cancel(run->table, ticket->name, now_ns, &decision)
                       : stint_settle(run->table, ticket->name, actual, now_ns, &decision);
    if (draw_is_shown())
        fprintf(stderr, "op %s %u of %u x %u now %llu: code %d moved %u\n",
                cancels ? "cancel" : "settle", actual, ticket->cost, ticket->n_items,
                (unsigned long long)now_ns, code, decision.granted);
    MUST(code == 0 || code == STINT_E_GONE);
    MUST(code != 0 || ticket->open);
    ticket->open = ticket->open && code != 0;
    if (code == 0 && (cancels || actual < ticket->cost))
        take_off(run, ticket, cancels ? ticket->cost : ticket->cost - actual);
    MUST(stint_settle(run->table, ticket->name, 0, now_ns, NULL) == STINT_E_GONE || code != 0);
}

/* ---- Counters -------------------------------------------------------------------------------- */

/* What a counter is after an amount; 0 for one that is not begun. */
static struct counted_key counted(struct counted_key before, int64_t amount, uint64_t expiry_ns,
                                  uint64_t at_ns)
{
    if (before.expires_at_ns <= at_ns)
        before = (struct counted_key){0, amount > 0 ? at_ns + expiry_ns : 0, 0};
    if (before.expires_at_ns == 0)
        return before;
    uint64_t down = amount < 0 ? (uint64_t)-amount : 0;
    before.count = amount >= 0           ? before.count + (uint64_t)amount
                   : down < before.count ? before.count - down
                                         : 0;
    return before;
}

/* Exactly the counter, or, where a state was evicted meanwhile, that or one that begins. */
static void count_one(struct run *run)
{
    struct request request = draw_request(run, true);
    struct counted_key *known = &run->counters[request.key[0]];
    int64_t amount = (int8_t)bytes_u8(&run->bytes);
    uint64_t expiry_ns = 1 + (uint64_t)bytes_u32(&run->bytes);
    const char *key = key_names[request.key[0]];
    struct stint_counter counter;
    if (amount == INT8_MIN) {
        MUST(stint_count_reset(run->table, key, 1, NULL) == 0);
        *known = (struct counted_key){0, 0, 0};
        return;
    }
    int code = stint_count(run->table, key, 1, amount, expiry_ns, request.now_ns, &counter, NULL);
    uint64_t at_ns = effective(run, request.now_ns);
    uint64_t evictions = table_counters(run->table)->evictions_evict;
    struct counted_key empty = {0, 0, 0}, exact = counted(*known, amount, expiry_ns, at_ns);
    struct counted_key begun = counted(empty, amount, expiry_ns, at_ns);
    if (draw_is_shown())
        fprintf(stderr, "op count %lld of %s now %llu: %d, %llu for %llu\n", (long long)amount, key,
                (unsigned long long)request.now_ns, code, (unsigned long long)counter.count,
                (unsigned long long)counter.expires_after_ns);
    bool may_be_gone = evictions != known->evictions || known->expires_at_ns <= at_ns;
    MUST(code == 0 || (code == STINT_E_FULL && amount > 0 && may_be_gone));
    if (code != 0)
        exact = begun = empty;
    bool is_exact = counter.count == exact.count &&
                    counter.expires_after_ns == sub_floor(exact.expires_at_ns, request.now_ns);
    bool is_begun = counter.count == begun.count &&
                    counter.expires_after_ns == sub_floor(begun.expires_at_ns, request.now_ns);
    MUST(is_exact || (may_be_gone && is_begun));
    /* An expired one that is not begun again stays for callers whose clocks are behind. */
    if (amount > 0 || known->expires_at_ns > at_ns) {
        *known = is_exact ? exact : begun;
        known->evictions = evictions;
    }
}

/* ---- Whoever runs the table ------------------------------------------------------------------ */

static void block(struct run *run)
{
    struct request request = draw_request(run, true);
    uint64_t until_ns = request.now_ns + run->hints.period_ns / 64 * bytes_u8(&run->bytes);
    if (until_ns > STINT_NOW_MAX)
        return;
    int code = stint_block(run->table, request.items[0].key, 1, until_ns, request.now_ns);
    if (draw_is_shown())
        fprintf(stderr, "op block %s until %llu now %llu: %d\n", key_names[request.key[0]],
                (unsigned long long)until_ns, (unsigned long long)request.now_ns, code);
    MUST(code == 0 || code == STINT_E_FULL);
    if (code == 0)
        run->blocked_until_ns[request.key[0]] = until_ns;
}

static void reset(struct run *run)
{
    struct request request = draw_request(run, true);
    if (draw_is_shown())
        fprintf(stderr, "op reset %u/%s\n", request.quota[0], key_names[request.key[0]]);
    stint_reset(run->table, request.items[0].quota, request.items[0].key, 1, request.now_ns);
    run->blocked_until_ns[request.key[0]] = 0;
    forget(uses_of(run, request.quota[0], request.key[0]));
}

static void set_quota(struct run *run)
{
    struct request request = draw_request(run, true);
    run->changes[request.key[0]] = 2;
    size_t from = request.quota[0], to = bytes_u8(&run->bytes) % run->n_quotas;
    int code = stint_set_quota(run->table, &run->quotas[from], &run->quotas[to],
                               request.items[0].key, 1, request.now_ns);
    if (draw_is_shown())
        fprintf(stderr, "op set_quota %zu to %zu key %s: %d\n", from, to,
                (const char *)request.items[0].key, code);
    MUST(code == 0 || code == STINT_E_FULL);
    if (code == 0 && promise_of(run, from) != promise_of(run, to))
        forget(uses_of(run, from, request.key[0]));
}

static bool visit(const struct stint_entry *entry, void *arg)
{
    size_t *n = arg;
    MUST(entry->quota.derived.checked == 1 && entry->decision.remaining <= entry->decision.limit);
    return ++*n < 1000;
}

static void look(struct run *run)
{
    struct request request = draw_request(run, true);
    struct stint_table_info info;
    struct stint_entry entry;
    size_t n = 0;
    save_states(run, run->before);
    stint_table_info(run->table, request.now_ns, &info);
    stint_table_each(run->table, request.now_ns, visit, &n);
    MUST(n == info.live[0] + info.live[1] + info.live[2]);
    int code = stint_find(run->table, request.items[0].quota, request.items[0].key, 1,
                          request.now_ns, &entry);
    MUST(code == 0 || code == STINT_E_GONE);
    check_unchanged(run);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static bool open_table(struct run *run)
{
    struct stint_table_options options = {
        .keys = 8,
        .keys16 = 8,
        .keys_wide = 8,
        .wide_size = 512,
        .tickets = 4,
        .blocks = 4,
        .quotas = 16,
        .skew_max_ns = 1000 + bytes_u32(&run->bytes),
        .hash_key = {1, bytes_u8(&run->bytes)},
        .clock = STINT_CLOCK_VIRTUAL,
    };
    return stint_table_open(&run->table, &options, NULL) == 0;
}

static void draw_quotas(struct run *run)
{
    run->n_quotas = 0;
    for (size_t i = 0; i < QUOTAS - 2; i++) {
        struct stint_quota *quota = &run->quotas[i];
        uint8_t pick = bytes_u8(&run->bytes);
        if (!draw_quota(&run->bytes, quota, 1 + pick % STINT_SLIDING_COUNTER) ||
            quota->derived.state_size > 512)
            MUST(stint_quota_parse(quota, pick & 1 ? "window 5/1s" : "log 3/1ms", NULL) == 0);
        quota->when_full = STINT_FULL_INHERIT + pick / 32 % 4;
        MUST(stint_quota_check(quota, NULL) == 0);
        bool holds = quota->when_full == STINT_FULL_INHERIT || quota->when_full == STINT_FULL_DENY;
        run->bounds[i] = quota->limit;
        run->counted[i] = stint_is_strict(quota) && holds;
        run->n_quotas++;
        draw_show_quota(quota);
    }
    /* Two limits and two widths of state behind one rule: keys move between all classes. */
    static const uint8_t resolutions[] = {24, 100, 10, 12}; /* of 16, 32, 8 and 8 bytes */
    struct stint_quota *first = &run->quotas[QUOTAS - 2], *second = &run->quotas[QUOTAS - 1];
    uint8_t pick = bytes_u8(&run->bytes);
    if (!draw_quota(&run->bytes, first, STINT_WINDOW) || first->limit > 1000)
        MUST(stint_quota_parse(first, "window 7/1s", NULL) == 0);
    first->rule = BACKEND_RULE;
    *second = *first;
    second->limit = pick % 64;
    second->resolution = resolutions[pick / 64];
    if (stint_quota_check(second, NULL) != 0)
        *second = *first;
    MUST(stint_quota_check(first, NULL) == 0 && stint_quota_check(second, NULL) == 0);
    run->n_quotas = QUOTAS;
    run->counted[QUOTAS - 2] = true;
    run->bounds[QUOTAS - 2] = first->limit > second->limit ? first->limit : second->limit;
}

static void step(struct run *run)
{
    uint8_t verb = bytes_u8(&run->bytes);
    switch (verb % 32) {
    case 0:
        charge(run);
        break;
    case 1:
    case 2:
        refund(run);
        break;
    case 3:
    case 4:
        reserve(run, false);
        break;
    case 5:
        reserve(run, true);
        break;
    case 6:
    case 7:
    case 8:
        settle(run);
        break;
    case 9:
        block(run);
        break;
    case 10:
        reset(run);
        break;
    case 11:
        set_quota(run);
        break;
    case 12:
        look(run);
        break;
    case 18:
    case 19:
        count_one(run);
        break;
    case 13:
    case 14:
        ask(run, STINT_PEEK);
        break;
    case 15:
    case 16:
    case 17:
        ask(run, STINT_TAKE_UPTO);
        break;
    default:
        ask(run, STINT_TAKE);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run run;
    run.bytes = span_of(data, size);
    MUST(open_table(&run));
    run.n_tickets = 0;
    for (size_t i = 0; i < QUOTAS; i++)
        for (size_t key = 0; key < KEYS; key++)
            forget(&run.uses[i][key]);
    memset(run.blocked_until_ns, 0, sizeof(run.blocked_until_ns));
    memset(run.kept_ns, 0, sizeof(run.kept_ns));
    memset(run.tickets, 0, sizeof(run.tickets));
    memset(run.shared_quota, 0, sizeof(run.shared_quota));
    memset(run.changes, 0, sizeof(run.changes));
    memset(run.counters, 0, sizeof(run.counters));
    draw_quotas(&run);
    const struct region_fixed *fixed = &run.table->region.header->fixed;
    run.size = fixed->bytes - fixed->classes[CLASS_8].offset;
    run.before = malloc(run.size);
    MUST(run.before != NULL);
    run.hints = (struct draw_hints){.period_ns = NS_PER_MS};
    run.hints.now_ns = bytes_number(&run.bytes, 7) % TABLE_LIFE_NS;
    for (int i = 0; i < STEPS_MAX && run.bytes.len > 0; i++)
        step(&run);
    stint_table_close(run.table);
    free(run.before);
    return 0;
}
