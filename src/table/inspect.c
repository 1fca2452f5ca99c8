/* SPDX-License-Identifier: MIT */
/* The content of a table: counters, every live state, one key. */
#include "table/slot/wide.h"

#include "algorithm/expiring_counter.h"
#include "table/cooldown.h"
#include "table/overrides.h"
#include "table/pool_records.h"
#include "table/requests.h"

#include <assert.h>
#include <string.h>

/* The live state in a slot; false for an empty, expired or pending one. */
static bool read_live(struct asking *asking, struct seen *seen, struct entry_state *state)
{
    return entry_await(asking, seen, state) &&
           algorithm_expires_at(state->quota, &state->as) > asking->ask.now_ns;
}

static bool is_live(struct asking *asking, struct seen *seen)
{
    assert(asking_is_valid(asking));
    struct entry_state state;
    uint64_t now_ns = asking->ask.now_ns;
    if (asking->slots->class == CLASS_BLOCKS)
        return seen->pair.first != 0 && (seen->pair.first & TAG_PENDING) == 0 &&
               (seen->pair.first & TAG_ID_MASK) != COOLDOWN_ID && seen->pair.second > now_ns;
    if (asking->slots->class == CLASS_WIDE && seen->pair.first != 0)
        return wide_expires_at(seen) > now_ns;
    return read_live(asking, seen, &state);
}

/* Counts every set; or sets_max sets, evenly spread, and extrapolates. */
static uint64_t count_live(const struct stint_table *table, enum slot_class class, uint64_t now_ns,
                           uint64_t sets_max)
{
    assert(class < CLASSES);
    struct asking asking = entry_looking(table, class, now_ns);
    uint64_t sets = slots_used(asking.slots), looked_at = min_u64(sets, sets_max), live = 0;
    for (uint64_t i = 0; i < looked_at; i++) {
        uint64_t set = mul_div(i, sets, looked_at);
        for (unsigned way = 0; way < WAYS; way++) {
            struct seen seen =
                slots_see(asking.slots, asking.slots->base + set * asking.slots->set_size, way);
            live += is_live(&asking, &seen);
        }
    }
    return looked_at > 0 ? mul_div(live, sets, looked_at) : 0;
}

void table_metrics(const struct stint_table *table, uint64_t now_ns, uint64_t sets_max,
                   struct stint_table_info *info)
{
    assert(table_is_valid(table));
    const struct region *region = &table->region;
    const struct region_header *header = region->header;
    const struct region_fixed *fixed = &region->fixed;
    const struct region_counters *counters = &header->counters;
    *info = (struct stint_table_info){
        .bytes = fixed->bytes,
        .blocked = count_live(table, CLASS_BLOCKS, now_ns, sets_max),
        .quotas = (uint32_t)__atomic_load_n(&header->quotas, __ATOMIC_RELAXED),
        .quotas_max = fixed->quotas_max,
        .tickets = fixed->tickets_max,
        .pools = pool_records_used(table),
        .pools_max = fixed->pools_max,
        .wide_size = fixed->classes[CLASS_WIDE].state_size,
        .skew_max_ns = fixed->skew_max_ns,
        .epoch_ns = region->epoch_ns,
        .mark_ns = __atomic_load_n(&header->mark_ns, __ATOMIC_RELAXED),
        .evictions_lossless = __atomic_load_n(&counters->evictions_lossless, __ATOMIC_RELAXED),
        .evictions_inherit = __atomic_load_n(&counters->evictions_inherit, __ATOMIC_RELAXED),
        .evictions_evict = __atomic_load_n(&counters->evictions_evict, __ATOMIC_RELAXED),
        .forgotten_units = __atomic_load_n(&counters->forgotten_units, __ATOMIC_RELAXED),
        .full_denied = __atomic_load_n(&counters->full_denied, __ATOMIC_RELAXED),
        .full_allowed = __atomic_load_n(&counters->full_allowed, __ATOMIC_RELAXED),
        .undo_kept_units = __atomic_load_n(&counters->undo_kept_units, __ATOMIC_RELAXED),
        .tickets_dropped = __atomic_load_n(&counters->tickets_dropped, __ATOMIC_RELAXED),
        .expiry_kept_units = __atomic_load_n(&counters->expiry_kept_units, __ATOMIC_RELAXED),
        .owners_displaced = __atomic_load_n(&counters->owners_displaced, __ATOMIC_RELAXED),
        .states_damaged = __atomic_load_n(&counters->states_damaged, __ATOMIC_RELAXED),
        .requests_dropped = __atomic_load_n(&counters->requests_dropped, __ATOMIC_RELAXED),
        .requests = requests_count(table, now_ns, sets_max),
        .requests_max = requests_space(table),
        .overrides = (uint32_t)__atomic_load_n(&header->overrides, __ATOMIC_RELAXED),
        .overrides_max = fixed->overrides_max,
        .memory = region->memory,
        .clock = fixed->clock,
        .huge_pages = region->huge_pages,
        .restored = region->memory == STINT_MEMORY_FILE && !region->made,
        .filled = table->filled,
    };
    for (int i = 0; i < 3; i++)
        info->reservations_expired[i] =
            __atomic_load_n(&counters->reservations_expired[i], __ATOMIC_RELAXED);
    for (int class = 0; class < 3; class ++) {
        info->slots[class] = table->slots[class].sets * WAYS;
        info->live[class] = count_live(table, (enum slot_class) class, now_ns, sets_max);
    }
}

void stint_table_info(const struct stint_table *table, uint64_t now_ns,
                      struct stint_table_info *info)
{
    table_metrics(table, now_ns, UINT64_MAX, info);
}

/* The state with nothing taken, as struct stint_entry describes it. */
static struct stint_decision stands_at(struct entry_state *state, uint64_t now_ns)
{
    struct stint_ask none = {.now_ns = now_ns, .verb = STINT_PEEK}, unit = none;
    unit.cost = 1;
    struct stint_decision stands = algorithm_ask(state->quota, &state->as, &none);
    struct stint_decision one = algorithm_ask(state->quota, &state->as, &unit);
    stands.outcome = one.outcome;
    stands.retry_after_ns = one.retry_after_ns;
    stands.stored = 1;
    return stands;
}

static void describe(const struct seen *seen, struct entry_state *state, uint64_t now_ns,
                     struct stint_entry *entry)
{
    entry->quota = *state->quota;
    entry->key_hash = seen->pair.first >> 16;
    entry->expires_at_ns = algorithm_expires_at(state->quota, &state->as);
    entry->decision = stands_at(state, now_ns);
    entry->count =
        state->quota->algorithm == STINT_COUNTER ? counter_at(&state->as.word16, now_ns).count : 0;
}

void stint_table_each(const struct stint_table *table, uint64_t now_ns,
                      bool (*visit)(const struct stint_entry *entry, void *arg), void *arg)
{
    struct entry_state state;
    struct stint_entry entry;
    for (int class = 0; class < 3; class ++) {
        struct asking asking = entry_looking(table, (enum slot_class) class, now_ns);
        const uint64_t sets = slots_used(asking.slots);
        for (uint64_t slot = 0; slot < sets * WAYS; slot++) {
            uint8_t *set = asking.slots->base + slot / WAYS * asking.slots->set_size;
            struct seen seen = slots_see(asking.slots, set, (unsigned)(slot % WAYS));
            if (!read_live(&asking, &seen, &state))
                continue;
            describe(&seen, &state, now_ns, &entry);
            if (!visit(&entry, arg))
                return;
        }
    }
}

int stint_find(const struct stint_table *table, const struct stint_quota *quota, const void *key,
               size_t key_len, uint64_t now_ns, struct stint_entry *entry)
{
    assert(table_is_valid(table));
    struct entry_state state;
    struct asking asking = entry_looking(table, table_class(quota), now_ns);
    if (asking.slots->sets == 0)
        return STINT_E_GONE;
    asking.hash = table_hash(table, quota, key, key_len);
    asking.home = slots_home(asking.slots, asking.hash);
    struct seen seen = slots_find(asking.slots, &asking.home);
    if (seen.at == NULL || !read_live(&asking, &seen, &state))
        return STINT_E_GONE;
    if (quota->derived.checked == 1 && quota->algorithm == STINT_GCRA &&
        intern_is_fallback(&table->intern, (uint32_t)(seen.pair.first & TAG_ID_MASK)))
        state.quota = quota; /* instead of the fallback quota */
    describe(&seen, &state, now_ns, entry);
    return 0;
}

/* The key's state under a quota of this table; never used where it cannot be read. */
static void copy_state(struct asking *asking, const struct stint_quota *own, unsigned char *bytes)
{
    assert(asking_is_valid(asking));
    struct entry_state found;
    struct seen seen = slots_find(asking->slots, &asking->home);
    if (seen.at != NULL && entry_await(asking, &seen, &found))
        stint_state_convert(found.quota, found.as.bytes, own, bytes, asking->ask.now_ns);
    else
        memset(bytes, 0, own->derived.state_size);
}

struct stint_decision table_foresee(struct stint_table *table, const struct stint_quota *quota,
                                    struct hash128 hash, uint32_t left, uint64_t now_ns)
{
    assert(table_is_valid(table));
    _Alignas(16) unsigned char bytes[WIDE_STATE_MAX];
    struct asking asking = entry_looking(table, table_class(quota), now_ns);
    uint32_t id = intern_id(&table->intern, quota);
    const struct stint_quota *own = intern_algorithm(&table->intern, id, quota);
    if (own == NULL || asking.slots->sets == 0 || now_ns > STINT_NOW_MAX)
        return algorithm_never(0);
    asking.hash = hash;
    asking.home = slots_home(asking.slots, hash);
    copy_state(&asking, own, bytes);
    struct stint_ask ask = {.now_ns = now_ns, .verb = STINT_PEEK};
    uint32_t free_now = stint_state_ask(own, bytes, &ask).remaining;
    if (free_now > left) {
        ask = (struct stint_ask){.now_ns = now_ns, .cost = free_now - left, .verb = STINT_TAKE};
        stint_state_ask(own, bytes, &ask);
    }
    ask = (struct stint_ask){.now_ns = now_ns, .cost = left + 1, .verb = STINT_PEEK};
    return stint_state_ask(own, bytes, &ask);
}
