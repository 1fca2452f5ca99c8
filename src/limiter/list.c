/* SPDX-License-Identifier: MIT */
/*
 * All or nothing without locks. First every quota is peeked at and nothing charged: usually this
 * finds a refusal, which then leaves no trace. Then each is charged in turn. If one refuses after
 * all, because another caller was faster, the charges before it are taken back: bit by bit if the
 * state has not changed since, else as a refund. Others may meanwhile see units as taken that are
 * not, never the reverse, and no caller waits for another.
 *
 * Where every key has a slot, the first step already computes the charged states, and the second
 * only swaps them in: one hash and one lookup for each key.
 */
#include "limiter/list.h"

#include "base/wide_int.h"

#include <assert.h>

bool list_is_valid(const struct list *list)
{
    bool is_valid = list->table != NULL && list->n_parts <= STINT_ITEMS_MAX &&
                    list->n_items <= STINT_ITEMS_MAX && list->n_parts > 0;
    for (size_t i = 0; is_valid && i < list->n_items; i++)
        is_valid = list->part_of[i] < list->n_parts;
    for (size_t i = 0; is_valid && i < list->n_parts; i++)
        is_valid = list->parts[i].quota != NULL && list->parts[i].times > 0;
    return is_valid;
}

static bool has_state(const struct list_part *part, struct hash128 hash,
                      const struct stint_quota *quota)
{
    return part->hash.lo == hash.lo && part->hash.hi == hash.hi &&
           part->quota->derived.params_hash[0] == quota->derived.params_hash[0];
}

static bool add_part(struct list *list, const struct stint_item *item, uint8_t index)
{
    assert(index < STINT_ITEMS_MAX);
    if (item->key_len > STINT_KEY_MAX || item->quota->derived.checked != 1)
        return false;
    struct hash128 hash = table_hash(list->table, item->quota, item->key, item->key_len);
    for (size_t i = 0; i < list->n_parts; i++) {
        struct list_part *known = &list->parts[i];
        if (!has_state(known, hash, item->quota))
            continue;
        known->times++;
        list->part_of[index] = (uint8_t)i;
        return !__builtin_add_overflow(known->cost, item->cost, &known->cost);
    }
    list->part_of[index] = (uint8_t)list->n_parts;
    list->parts[list->n_parts++] = (struct list_part){.quota = item->quota,
                                                      .key = item->key,
                                                      .key_len = item->key_len,
                                                      .hash = hash,
                                                      .cost = item->cost,
                                                      .times = 1,
                                                      .index = index};
    return true;
}

bool list_init(struct list *list, struct stint_table *table, const struct stint_item *items,
               size_t n_items, uint64_t now_ns)
{
    assert(table_is_valid(table));
    list->table = table;
    list->n_parts = 0;
    list->n_items = n_items;
    list->now_ns = now_ns;
    list->is_hashed = false;
    if (n_items == 0 || n_items > STINT_ITEMS_MAX)
        return false;
    for (size_t i = 0; i < n_items; i++)
        if (!add_part(list, &items[i], (uint8_t)i))
            return false;
    return true;
}

void list_init_hashed(struct list *list, struct stint_table *table, uint64_t now_ns)
{
    assert(table_is_valid(table));
    list->table = table;
    list->n_parts = 0;
    list->n_items = 0;
    list->now_ns = now_ns;
    list->is_hashed = true;
}

void list_add_hashed(struct list *list, const struct stint_quota *quota, struct hash128 hash,
                     uint32_t cost)
{
    assert(list->is_hashed && list->n_parts < STINT_ITEMS_MAX);
    list->parts[list->n_parts] = (struct list_part){
        .quota = quota, .hash = hash, .cost = cost, .times = 1, .index = (uint8_t)list->n_parts};
    list->n_parts++;
}

static struct stint_decision ask_table(const struct list *list, const struct list_part *part,
                                       const struct stint_ask *ask, struct undo *undo,
                                       uint64_t *holder)
{
    const bool needs_key = part->quota->initial_set || table_has_blocks(list->table, list->now_ns);
    if (list->is_hashed || !needs_key)
        return table_ask_hash(list->table, part->quota, part->hash, ask, undo, holder);
    return table_ask(list->table, part->quota, part->key, part->key_len, ask, undo, holder);
}

static struct stint_decision ask_part(const struct list *list, struct list_part *part, uint8_t verb,
                                      uint32_t cost, uint64_t at_ns)
{
    assert(part >= list->parts && part < list->parts + list->n_parts);
    struct stint_ask ask = {.now_ns = list->now_ns, .at_ns = at_ns, .cost = cost, .verb = verb};
    bool takes = verb == STINT_TAKE || verb == TABLE_TAKE_OF_LIST;
    bool holds = part->quota->algorithm == STINT_CONCURRENCY && takes;
    part->decision = ask_table(list, part, &ask, &part->undo, holds ? &part->holder : NULL);
    return part->decision;
}

struct stint_decision list_ask_part(struct list *list, size_t part, uint8_t verb, uint64_t at_ns)
{
    assert(list_is_valid(list) && part < list->n_parts);
    return ask_part(list, &list->parts[part], verb, list->parts[part].cost, at_ns);
}

bool list_has_less(const struct stint_decision *a, const struct stint_decision *b)
{
    assert(a->outcome <= STINT_NEVER && b->outcome <= STINT_NEVER);
    return (uint64_t)a->remaining * (b->limit > 0 ? b->limit : 1) <
           (uint64_t)b->remaining * (a->limit > 0 ? a->limit : 1);
}

struct stint_decision list_sum(const struct list *list)
{
    assert(list->n_parts > 0 && list->n_parts <= STINT_ITEMS_MAX);
    const struct list_part *binding = &list->parts[0];
    uint64_t retry_after_ns = 0;
    uint8_t stored = 1;
    for (size_t i = 0; i < list->n_parts; i++) {
        const struct list_part *part = &list->parts[i];
        bool is_worse = part->decision.outcome > binding->decision.outcome;
        bool is_alike = part->decision.outcome == binding->decision.outcome;
        if (is_worse || (is_alike && list_has_less(&part->decision, &binding->decision)))
            binding = part;
        retry_after_ns = max_u64(retry_after_ns, part->decision.retry_after_ns);
        stored &= part->decision.stored;
    }
    struct stint_decision sum = binding->decision;
    bool is_allowed = sum.outcome == STINT_ALLOW;
    sum.binding = binding->index;
    sum.stored = stored;
    sum.retry_after_ns = is_allowed ? 0 : retry_after_ns;
    sum.granted = is_allowed ? sum.granted : 0;
    return sum;
}

struct stint_decision list_ask(struct list *list, uint8_t verb, uint64_t at_ns)
{
    assert(list_is_valid(list));
    uint32_t least = UINT32_MAX;
    for (size_t i = 0; i < list->n_parts; i++) {
        struct list_part *part = &list->parts[i];
        least = (uint32_t)min_u64(least, ask_part(list, part, verb, part->cost, at_ns).granted);
    }
    struct stint_decision sum = list_sum(list);
    if (verb == STINT_CHARGE || verb == STINT_REFUND)
        sum.granted = least;
    return sum;
}

/* Gives back what a part of a refused request was charged; a booking was charged at its start. */
static void take_back(const struct list *list, struct list_part *part, uint32_t units, uint8_t verb)
{
    assert(part->quota != NULL);
    uint64_t start_ns = add_sat(list->now_ns, part->decision.retry_after_ns);
    uint32_t returned = 0;
    if (part->decision.stored == 0)
        return; /* allowed by a full table, and nothing charged */
    if (part->holder != 0)
        table_holder(list->table, part->quota, part->hash, list->now_ns, &part->holder, &returned);
    else if (table_undo(&part->undo))
        return;
    else {
        struct stint_ask ask = {.now_ns = list->now_ns,
                                .at_ns = verb == STINT_UNBOOK ? start_ns : part->undo.entered_ns,
                                .cost = units,
                                .verb = verb};
        returned = ask_table(list, part, &ask, NULL, NULL).granted;
    }
    if (returned < units)
        table_count(&table_counters(list->table)->undo_kept_units, units - returned);
}

void list_take_back(struct list *list, size_t n, uint8_t verb)
{
    assert(n <= list->n_parts);
    while (n-- > 0)
        take_back(list, &list->parts[n], list->parts[n].cost, verb);
}

/* What each part's take would decide, and its swap; false if that is unknown, or one refuses. */
static bool plan_all(struct list *list)
{
    struct taking takings[STINT_ITEMS_MAX];
    const uint64_t now_ns = list->now_ns;
    if (!table_is_plain_at(list->table, now_ns))
        return false;
    for (size_t i = 0; i < list->n_parts; i++)
        if (!table_set_out(&takings[i], list->table, list->parts[i].quota, list->parts[i].hash))
            return false;
    for (size_t i = 0; i < list->n_parts; i++) {
        struct list_part *part = &list->parts[i];
        if (!table_plan(&takings[i], part->cost, now_ns, &part->undo, &part->decision) ||
            part->decision.outcome != STINT_ALLOW)
            return false;
    }
    return true;
}

/*
 * Charges `each` times the part's multiplicity, or its own cost where `each` is 0; as planned where
 * that still holds.
 */
static bool charge_all(struct list *list, uint32_t each, bool is_planned)
{
    assert(list_is_valid(list));
    bool is_one_take = list->n_parts == 1 && each == 0;
    uint8_t verb = is_one_take ? STINT_TAKE : TABLE_TAKE_OF_LIST;
    for (size_t i = 0; i < list->n_parts; i++) {
        struct list_part *part = &list->parts[i];
        uint32_t cost = each > 0 ? each * part->times : part->cost;
        if (is_planned && table_carry_out(&part->undo))
            continue;
        if (ask_part(list, part, verb, cost, 0).outcome == STINT_ALLOW)
            continue;
        while (i-- > 0)
            take_back(list, &list->parts[i],
                      each > 0 ? each * list->parts[i].times : list->parts[i].cost, STINT_REFUND);
        return false;
    }
    return true;
}

struct stint_decision list_take(struct list *list)
{
    assert(list_is_valid(list));
    const bool is_planned = plan_all(list);
    if (!is_planned && list->n_parts > 1) {
        struct stint_decision sum = list_ask(list, STINT_PEEK, 0);
        if (sum.outcome != STINT_ALLOW)
            return sum;
    }
    charge_all(list, 0, is_planned);
    return list_sum(list);
}

/* How often one unit of each of its equal items fits a part: what a peek leaves, and that one. */
static uint32_t space_in(struct list *list, struct list_part *part)
{
    assert(part->times > 0);
    struct stint_decision peek = ask_part(list, part, STINT_PEEK, part->times, 0);
    return peek.outcome == STINT_ALLOW ? peek.remaining / part->times + 1 : 0;
}

/*
 * If a charge is refused after a peek that allowed it, another caller took units meanwhile, and the
 * next peek shows less; or the list conflicts with itself: two of its keys need the last free slot,
 * or two of its quotas share a state. Then half is tried, and in the end nothing is granted.
 */
struct stint_decision list_take_upto(struct list *list, uint32_t most)
{
    assert(list_is_valid(list));
    assert(most > 0);
    struct stint_decision refused = {.outcome = STINT_DENY};
    uint32_t failed = 0;
    for (;;) {
        uint32_t each = most;
        for (size_t i = 0; i < list->n_parts; i++)
            each = (uint32_t)min_u64(each, space_in(list, &list->parts[i]));
        if (each == 0)
            return list_sum(list);
        if (failed > 0 && each >= failed)
            each = failed / 2;
        if (each == 0)
            return refused;
        bool charged = charge_all(list, each, false);
        struct stint_decision sum = list_sum(list);
        assert(each <= most);
        if (charged) {
            sum.granted = each;
            return sum;
        }
        refused = sum;
        failed = each;
    }
}
