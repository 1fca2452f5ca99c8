/* SPDX-License-Identifier: MIT */
/* The pair of words of a pool: its phases, and one unit out of it. */
#include "store/turns.h"

#include "base/wide_int.h"

/*
 * The second word: 4 bits of phase, 12 of cursor, 15 of the quota's id, 33 of names; or, for
 * PER_KEY, 60 bits of turns. No phase becomes another one by one flipped bit.
 */
#define PHASE_BITS 4
#define CURSOR_AT PHASE_BITS
#define CURSOR_BITS 12
#define ID_AT (CURSOR_AT + CURSOR_BITS)
#define NAMES_AT (ID_AT + QUOTA_ID_BITS)

enum code { CODE_FRESH = 0, CODE_LIVE = 3, CODE_CLOSING = 5, CODE_SHUT = 6, CODE_PER_KEY = 9 };

_Static_assert(TURNS_KEYS_MAX == 1u << CURSOR_BITS, "a cursor names every key");

static enum code code_of(struct pair pair)
{
    return (enum code)(pair.second & ((1u << PHASE_BITS) - 1));
}

static uint32_t cursor_of(struct pair pair)
{
    return (uint32_t)(pair.second >> CURSOR_AT) & (TURNS_KEYS_MAX - 1);
}

static uint32_t id_of(struct pair pair)
{
    return (uint32_t)(pair.second >> ID_AT & QUOTA_ID_MASK);
}

static struct pair live(const struct turns *turns, uint64_t state, uint32_t cursor)
{
    /* relaxed: this thread or another has worked it out, and all find one that will do. */
    uint64_t id = __atomic_load_n(&turns->id, __ATOMIC_RELAXED);
    uint64_t rest = (uint64_t)cursor << CURSOR_AT | id << ID_AT;
    return (struct pair){state, CODE_LIVE | rest | turns->names << NAMES_AT};
}

static const struct pair per_key = {0, CODE_PER_KEY};

/* Whether a LIVE or CLOSING pair is of these keys. */
static bool is_ours(const struct turns *turns, struct pair pair)
{
    return turns->quota.derived.checked == 1 && pair.second >> NAMES_AT == turns->names &&
           cursor_of(pair) < turns->keys;
}

uint64_t turns_names(struct hash128 hash)
{
    return hash.lo >> NAMES_AT;
}

bool turns_quota(const struct stint_quota *each, uint32_t keys, struct stint_quota *all)
{
    uint64_t limit = (uint64_t)each->limit * keys;
    uint32_t resolution = each->resolution;
    if (each->algorithm != STINT_WINDOW || keys < 2 || keys > TURNS_KEYS_MAX || limit == 0 ||
        limit > UINT32_MAX)
        return false;
    /* Slots that begin where one of each key's begins: what it is charged with is then no older. */
    if (resolution % 2 == 0 && resolution >= 20)
        resolution /= 2;
    *all = (struct stint_quota){.period_ns = each->period_ns,
                                .limit = (uint32_t)limit,
                                .resolution = resolution,
                                .algorithm = STINT_WINDOW,
                                .when_full = STINT_FULL_INHERIT};
    bool fits = stint_quota_check(all, NULL) == 0 && all->derived.state_size == sizeof(uint64_t);
    all->derived.checked = fits;
    return fits;
}

/* ---- Records --------------------------------------------------------------------------------- */

static struct pool_record *record_at(const struct stint_table *table, uint32_t i)
{
    const struct region_fixed *fixed = &table->region.fixed;
    return (struct pool_record *)region_at(&table->region, fixed->pools_offset) + i;
}

static uint64_t check_of(const struct stint_table *table, struct pair name)
{
    const uint64_t words[2] = {name.first, name.second};
    return siphash13_128(table->region.fixed.hash_key, 0, words, sizeof(words)).lo | 1;
}

/* Of this name; else, if `claims`, the first free one, made its own. */
CAS16_TARGET static struct pool_record *find(struct stint_table *table, struct pair name,
                                             bool claims)
{
    static const struct pair nobody;
    for (uint32_t i = 0; i < table->region.fixed.pools_max; i++) {
        struct pool_record *record = record_at(table, i);
        struct pair seen = cas16_load_stable(&record->name);
        if (claims && pair_equals(seen, nobody) && cas16(&record->name, nobody, name))
            return record;
        if (pair_equals(cas16_load_stable(&record->name), name))
            return record;
    }
    return NULL;
}

/*
 * All records are looked at before one is claimed. Two who claim the same name meet: each goes from
 * the first on, and none that was taken becomes free.
 */
int turns_open(struct stint_table *table, struct hash128 name, struct pool_record **record,
               struct stint_error *error)
{
    struct pair pair = {name.lo, name.hi | 1};
    *record = find(table, pair, false);
    if (*record == NULL)
        *record = find(table, pair, true);
    if (*record == NULL)
        return err_set(error, STINT_E_FULL, "the table knows %u pools already",
                       table->region.fixed.pools_max);
    /* relaxed: of use after all who have the table open are gone. */
    __atomic_store_n(&(*record)->check, check_of(table, pair), __ATOMIC_RELAXED);
    return 0;
}

/* ---- Phases ---------------------------------------------------------------------------------- */

static const struct stint_quota *window_of(struct stint_table *table, struct pair pair)
{
    const struct stint_quota *quota = intern_quota(&table->intern, id_of(pair));
    bool fits = quota != NULL && quota->algorithm == STINT_WINDOW && quota->derived.state_size == 8;
    return fits ? quota : NULL;
}

/* Nobody may have any unit left by then, whoever was asked at whatever time. */
static struct pair shut(struct stint_table *table, struct pair seen, uint64_t now_ns)
{
    const struct stint_quota *quota = window_of(table, seen);
    uint64_t period_ns = quota != NULL ? quota->period_ns : table->ahead_ns;
    uint64_t until_ns = add_sat(table_latest_ns(table, now_ns), period_ns);
    until_ns = min_u64(add_sat(until_ns, table_grace_ns(table)), STINT_NOW_MAX);
    return (struct pair){until_ns, CODE_SHUT};
}

static bool is_dead(struct stint_table *table, struct pair seen, uint64_t now_ns)
{
    const struct stint_quota *quota = window_of(table, seen);
    return code_of(seen) == CODE_LIVE && quota != NULL &&
           add_sat(law8_dies_at(quota, seen.first), table_grace_ns(table)) <= now_ns;
}

CAS16_TARGET static bool swap(const struct turns *turns, struct pair from, struct pair to)
{
    return cas16(&turns->record->turns, from, to);
}

/* One unit for the next key in turn. False if another was faster. */
static bool take(const struct turns *turns, struct pair seen, bool ours, enum turns_wish wish,
                 uint64_t now_ns, struct turns_step *step)
{
    uint64_t state = ours ? seen.first : 0;
    struct stint_ask ask = {.now_ns = now_ns, .cost = 1};
    step->phase = TURNS_LIVE;
    step->turn = ours ? cursor_of(seen) : 0;
    ask.verb = wish == TURNS_WISH_PEEK ? STINT_PEEK : STINT_TAKE;
    step->decision = law8_ask(&turns->quota, &state, &ask);
    step->decision.stored = 1;
    if (ask.verb == STINT_PEEK || step->decision.outcome != STINT_ALLOW)
        return true; /* both words were seen at one moment, in which this was the answer */
    uint32_t next = step->turn + 1 < turns->keys ? step->turn + 1 : 0;
    return swap(turns, seen, live(turns, state, next));
}

/*
 * What each key is to be charged with. At what time: not before any of the units was taken, and
 * none was later than the last instant of its slot.
 */
static void close_with(struct stint_table *table, const struct turns *turns, struct pair seen,
                       uint64_t now_ns, struct turns_step *step)
{
    struct held_run runs[HELD_RUNS_MAX];
    uint64_t units = 0, held_at_ns = sub_floor(now_ns, table_grace_ns(table));
    size_t n_runs = law8_held(&turns->quota, seen.first, held_at_ns, runs);
    for (size_t i = 0; i < n_runs; i++)
        units += runs[i].units;
    step->phase = TURNS_CLOSING;
    step->closing = seen;
    step->each = (uint32_t)((units + turns->keys - 1) / turns->keys);
    step->charge_ns = now_ns;
    if (n_runs > 0)
        step->charge_ns =
            max_u64(now_ns, min_u64(table_latest_ns(table, now_ns), runs[n_runs - 1].at_ns));
}

/* FRESH, and as good as that. */
static bool begin(struct stint_table *table, const struct turns *turns, struct pair seen,
                  enum turns_wish wish, uint64_t now_ns, struct turns_step *step)
{
    /* relaxed: written at opening alone. */
    uint64_t shut_until_ns =
        __atomic_load_n(&table->region.header->pools_shut_until_ns, __ATOMIC_RELAXED);
    if (shut_until_ns > now_ns) {
        swap(turns, seen, (struct pair){shut_until_ns, CODE_SHUT});
        return false;
    }
    if (turns->by_turns && wish != TURNS_WISH_LEAVE)
        return take(turns, seen, false, wish, now_ns, step);
    swap(turns, seen, per_key);
    return false;
}

/* LIVE. */
static bool go_on(struct stint_table *table, const struct turns *turns, struct pair seen,
                  enum turns_wish wish, uint64_t now_ns, struct turns_step *step)
{
    if (!is_ours(turns, seen)) {
        if (is_dead(table, seen, now_ns))
            return begin(table, turns, seen, wish, now_ns, step);
        swap(turns, seen, shut(table, seen, now_ns));
        return false;
    }
    if (turns->by_turns && wish != TURNS_WISH_LEAVE)
        return take(turns, seen, true, wish, now_ns, step);
    swap(turns, seen, (struct pair){seen.first, (seen.second ^ CODE_LIVE) | CODE_CLOSING});
    return false;
}

/* True if *step is the answer; else the pair is to be looked at again. */
static bool try_step(struct stint_table *table, const struct turns *turns, enum turns_wish wish,
                     uint64_t now_ns, struct turns_step *step)
{
    struct pair seen = cas16_load_stable(&turns->record->turns);
    switch (code_of(seen)) {
    case CODE_FRESH:
        return begin(table, turns, seen, wish, now_ns, step);
    case CODE_LIVE:
        return go_on(table, turns, seen, wish, now_ns, step);
    case CODE_PER_KEY:
        step->phase = TURNS_PER_KEY;
        return true;
    case CODE_SHUT:
        step->phase = TURNS_SHUT;
        step->until_ns = seen.first;
        if (seen.first > now_ns)
            return true;
        swap(turns, seen, per_key);
        return false;
    case CODE_CLOSING:
        if (is_ours(turns, seen)) {
            close_with(table, turns, seen, now_ns, step);
            return true;
        }
        break;
    }
    swap(turns, seen, shut(table, seen, now_ns));
    return false;
}

struct turns_step turns_step(struct stint_table *table, const struct turns *turns,
                             enum turns_wish wish, uint64_t now_ns)
{
    struct turns_step step = {.phase = TURNS_FRESH};
    while (!try_step(table, turns, wish, now_ns, &step)) {
    }
    return step;
}

void turns_closed(struct stint_table *table, const struct turns *turns,
                  const struct turns_step *step, bool all_charged, uint64_t now_ns)
{
    swap(turns, step->closing, all_charged ? per_key : shut(table, step->closing, now_ns));
}

bool turns_is_closing(const struct turns *turns, const struct turns_step *step)
{
    return pair_equals(cas16_load(&turns->record->turns), step->closing);
}

uint64_t turns_count(const struct turns *turns)
{
    struct pair seen = cas16_load_stable(&turns->record->turns);
    return code_of(seen) == CODE_PER_KEY ? seen.second >> PHASE_BITS : 0;
}

bool turns_count_on(const struct turns *turns, uint64_t from, uint64_t to)
{
    struct pair seen = {0, from << PHASE_BITS | CODE_PER_KEY};
    return swap(turns, seen, (struct pair){0, to << PHASE_BITS | CODE_PER_KEY});
}

struct turns_view turns_look(const struct turns *turns)
{
    struct pair seen = cas16_load_stable(&turns->record->turns);
    struct turns_view view = {.phase = TURNS_OTHER};
    switch (code_of(seen)) {
    case CODE_FRESH:
        view.phase = TURNS_FRESH;
        break;
    case CODE_PER_KEY:
        view.phase = TURNS_PER_KEY;
        break;
    case CODE_SHUT:
        view.phase = TURNS_SHUT;
        view.until_ns = seen.first;
        break;
    case CODE_LIVE:
    case CODE_CLOSING:
        if (!is_ours(turns, seen))
            break;
        view.phase = code_of(seen) == CODE_LIVE ? TURNS_LIVE : TURNS_CLOSING;
        view.state = seen.first;
        view.turn = cursor_of(seen);
    }
    return view;
}

/* ---- Openings, snapshots, figures ------------------------------------------------------------ */

/* Whether any use can have left a pair, if nobody asked later than asked_max_ns. */
static bool is_possible(struct stint_table *table, struct pair pair, uint64_t asked_max_ns)
{
    const struct stint_quota *quota = window_of(table, pair);
    switch (code_of(pair)) {
    case CODE_FRESH:
        return pair.first == 0 && pair.second == 0;
    case CODE_PER_KEY:
        return pair.first == 0;
    case CODE_SHUT:
        return pair.second == CODE_SHUT &&
               pair.first <= add_sat(add_sat(asked_max_ns, table->ahead_ns), table_grace_ns(table));
    case CODE_LIVE:
    case CODE_CLOSING:
        return quota != NULL && law8_is_valid(quota, pair.first, asked_max_ns);
    }
    return false;
}

/* A record whose name is damaged is some pool's, which will come and find itself new. */
static void forget(struct stint_table *table, struct pool_record *record, struct pair until)
{
    uint64_t *shut_until_ns = &table->region.header->pools_shut_until_ns;
    *record = (struct pool_record){.check = 0};
    *shut_until_ns = max_u64(*shut_until_ns, until.first);
    table_count(&table_counters(table)->states_damaged, 1);
}

void turns_mend(struct stint_table *table, bool after_crash)
{
    static const struct pair nobody;
    struct region_header *header = table->region.header;
    uint64_t now_ns = min_u64(region_now(&table->region), STINT_NOW_MAX);
    uint64_t asked_max_ns = add_sat(table_latest_ns(table, now_ns),
                                    add_sat(table->region.fixed.skew_max_ns, table->ahead_ns));
    struct pair until = shut(table, nobody, now_ns);
    for (uint32_t i = 0; i < table->region.fixed.pools_max; i++) {
        struct pool_record *record = record_at(table, i);
        bool is_new = code_of(record->turns) == CODE_FRESH;
        if (pair_equals(record->name, nobody) && is_new && record->check == 0)
            continue;
        if (record->check == 0)
            record->check = check_of(table, record->name);
        if (record->check != check_of(table, record->name)) {
            forget(table, record, until);
        } else if (!is_possible(table, record->turns, asked_max_ns)) {
            record->turns = until;
            table_count(&table_counters(table)->states_damaged, 1);
        } else if (after_crash && code_of(record->turns) != CODE_PER_KEY) {
            record->turns = until;
        }
    }
    /* What was written last may be lost, also that a pool was there. */
    if (after_crash)
        header->pools_shut_until_ns = max_u64(header->pools_shut_until_ns, until.first);
    if (header->pools_shut_until_ns > until.first)
        header->pools_shut_until_ns = until.first;
}

void turns_copy(const struct stint_table *table, uint32_t i, struct pool_record *copy)
{
    const struct pool_record *record = record_at(table, i);
    *copy = (struct pool_record){.name = cas16_load_stable(&record->name),
                                 .turns = cas16_load_stable(&record->turns)};
    static const struct pair nobody;
    if (!pair_equals(copy->name, nobody))
        copy->check = check_of(table, copy->name);
}

uint32_t turns_pools(const struct stint_table *table)
{
    static const struct pair nobody;
    uint32_t pools = 0;
    for (uint32_t i = 0; i < table->region.fixed.pools_max; i++)
        pools += !pair_equals(cas16_load(&record_at(table, i)->name), nobody);
    return pools;
}
