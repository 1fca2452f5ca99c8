/* SPDX-License-Identifier: MIT */
/* Fills an evaluation: each descriptor's rule, the quota that counts, and replaced rules. */
#include "decide/evaluation_parts.h"

#include "algorithm/gcra.h"
#include "base/wide_int.h"
#include "rules/ban.h"
#include "table/overrides.h"

#include <assert.h>
#include <stdlib.h>

/* Names the states of overrides in a domain that has no rule for them. */
#define OVERRIDE_RULE UINT64_C(0x65646972726576)
/* Public: every server has the same names for them. */
static const uint64_t override_secret[2] = {OVERRIDE_RULE, UINT64_C(0x756e6974)};

static int accepts_rule(struct stint_table *table, const struct rule *rule,
                        struct stint_error *error)
{
    int code = rule->unlimited ? 0 : table_keeps(table, &rule->quota, error);
    if (code == 0 && rule->has_shadow)
        code = table_keeps(table, &rule->shadow, error);
    if (code == 0 && rule->ban.after > 0)
        code = ban_accepted(table, rule, error);
    return code;
}

int evaluation_accepts(struct stint_table *table, const struct rules *rules,
                       struct stint_error *error)
{
    struct stint_error why;
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *rule = rules_at(rules, i);
        int code = accepts_rule(table, rule, &why);
        if (code != 0)
            return err_set(error, code, "%s: %s", rule_position(rule).text, why.message);
    }
    return 0;
}

int evaluation_init(struct evaluation *evaluation, struct stint_table *table,
                    struct stint_error *error)
{
    assert(table != NULL);
    *evaluation = (struct evaluation){.table = table};
    evaluation->keys = malloc(EVALUATION_KEYS_SIZE);
    if (evaluation->keys == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the keys of a request");
    return 0;
}

void evaluation_deinit(struct evaluation *evaluation)
{
    free(evaluation->keys);
    free(evaluation->ticket_rules);
    evaluation->keys = NULL;
    evaluation->ticket_rules = NULL;
}

static bool is_valid(const struct evaluation *evaluation, const struct target *target)
{
    size_t n_stores = evaluation->stores != NULL ? evaluation->stores->n_stores : 0;
    bool is_stored = target->store != 0;
    return target->part <= TARGET_SHADOW && target->hits <= TARGET_HITS_CHARGE &&
           target->fallback <= FALLBACK_LOCAL && target->store <= n_stores &&
           (target->part == TARGET_FREE || target->quota != NULL) &&
           (target->part == TARGET_FREE || !target->is_replaced) &&
           (target->fallback == FALLBACK_NONE || is_stored) &&
           (!target->is_reserved || is_stored) && (!target->is_candidate_reserved || is_stored) &&
           (!target->banned || target->over) && (!target->excluded || target->is_quota_mode) &&
           (!target->made_ban || target->banned) && (!target->is_taken || target->is_hashed);
}

bool evaluation_is_valid(const struct evaluation *evaluation)
{
    const struct evaluation_stores *stores = evaluation->stores;
    if (evaluation->table == NULL || evaluation->keys == NULL ||
        evaluation->n_targets > TARGETS_MAX || evaluation->n_items > TARGETS_MAX ||
        evaluation->n_unmatched > evaluation->n_targets ||
        evaluation->keys_len > EVALUATION_KEYS_SIZE || evaluation->fault > BACKEND_AHEAD ||
        (evaluation->is_ticket && evaluation->id == NULL) ||
        (evaluation->reservation != NULL && evaluation->pending != NULL) ||
        evaluation->ticket_store > (stores != NULL ? stores->n_stores : 0) ||
        (evaluation->pending != NULL && !pending_is_valid(evaluation->pending)))
        return false;
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (!is_valid(evaluation, &evaluation->targets[i]))
            return false;
    return true;
}

void evaluation_begin(struct evaluation *evaluation, uint64_t now_ns)
{
    assert(evaluation->table != NULL && evaluation->keys != NULL);
    evaluation->now_ns = max_u64(now_ns, table_mark(evaluation->table));
    evaluation->at_ns = evaluation->now_ns;
    evaluation->n_targets = 0;
    evaluation->n_unmatched = 0;
    evaluation->retry_until_ns = 0;
    evaluation->bans_lost = 0;
    evaluation->keys_len = 0;
    evaluation->pending = NULL;
    evaluation->id = NULL;
    evaluation->is_ticket = false;
    evaluation->ticket_ns = evaluation->longer_ns = 0;
    evaluation->ticket_store = 0;
    evaluation->has_on_expiry = false;
    evaluation->reservation = NULL;
    evaluation->has_charged = false;
    evaluation->is_ahead = false;
    evaluation->is_waiting = evaluation->is_too_early = evaluation->is_replayed = false;
    evaluation->fault = 0;
    assert(evaluation_is_valid(evaluation));
}

static struct target *add_target(struct evaluation *evaluation, uint32_t cost)
{
    assert(evaluation->n_targets < TARGETS_MAX);
    struct target *target = &evaluation->targets[evaluation->n_targets++];
    *target = (struct target){.cost = cost, .decision = decision_unlimited(cost)};
    return target;
}

/* ---- The rule of a state --------------------------------------------------------------------- */

/* The rule of a target's states; 0: nothing ever limits it. */
static uint64_t rule_of(const struct target *target)
{
    if (target->rule != NULL)
        return target->rule->id;
    return target->quota != NULL ? target->quota->rule : 0;
}

static struct hash128 hash_of(const struct evaluation *evaluation, const struct target *target)
{
    assert(rule_of(target) != 0);
    return table_hash_under(evaluation->table, rule_of(target), target->key.ptr, target->key.len);
}

/* Where its states are: in evaluation.stores, from 1; 0: in the table. Its rule decides, if any. */
static size_t store_of(const struct evaluation *evaluation, const struct target *target)
{
    const struct evaluation_stores *stores = evaluation->stores;
    if (stores == NULL)
        return 0;
    size_t at = target->rule != NULL ? target->rule->store.at : stores->items;
    return at <= stores->n_stores ? at : 0;
}

static void assign_store(const struct evaluation *evaluation, struct target *target)
{
    const struct evaluation_stores *stores = evaluation->stores;
    const struct rule *rule = target->rule;
    if (stores == NULL || target->quota == NULL)
        return;
    target->on_error = rule != NULL ? rule->store.on_error : stores->items_on_error;
    target->store = (uint8_t)store_of(evaluation, target);
}

/* An override for the key replaces its rule and a quota that the request supplies. */
static void find_own_quota(struct evaluation *evaluation, struct target *target)
{
    struct stint_quota *own = &evaluation->quotas[evaluation_index(evaluation, target)];
    if (!overrides_any(evaluation->table) || rule_of(target) == 0 ||
        !overrides_find(evaluation->table, hash_of(evaluation, target), rule_of(target), own))
        return;
    target->quota = own;
    target->has_own_quota = true;
    target->is_override = false;
}

/* NULL: that of its rule */
static int set_own_quota(struct evaluation *evaluation, const struct target *target,
                         const struct stint_quota *quota, struct stint_error *error)
{
    assert(quota == NULL || quota->derived.checked == 1);
    struct hash128 hash = hash_of(evaluation, target);
    if (quota != NULL) {
        struct stint_quota own = *quota;
        own.rule = rule_of(target);
        return overrides_set(evaluation->table, hash, &own, error);
    }
    int code = overrides_drop(evaluation->table, hash, error);
    return code == STINT_E_GONE ? 0 : code; /* its rule's quota holds */
}

/* Undoes in reverse order, as a key may be there twice. */
static void restore_own_quotas(struct evaluation *evaluation, size_t n_set)
{
    assert(n_set <= evaluation->n_targets);
    struct stint_error error; /* the caller gets the error of the one that failed */
    for (size_t i = n_set; i-- > 0;) {
        const struct target *target = &evaluation->targets[i];
        set_own_quota(evaluation, target, target->has_own_quota ? target->quota : NULL, &error);
    }
}

/* Whether every target has states. */
static int check_rules(const struct evaluation *evaluation, struct stint_error *error)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (rule_of(&evaluation->targets[i]) == 0)
            return err_set(error, STINT_E_MISMATCH, "no rule matches descriptor %zu", i + 1);
    return 0;
}

/* Whether the stores of the targets can keep states under it. */
static int check_stores(const struct evaluation *evaluation, const struct stint_quota *quota,
                        struct stint_error *error)
{
    int code = 0;
    for (size_t i = 0; i < evaluation->n_targets && code == 0; i++) {
        size_t at = store_of(evaluation, &evaluation->targets[i]);
        const struct backend *store = at > 0 ? evaluation->stores->stores[at - 1] : NULL;
        if (store != NULL)
            code = store->ops->accepts(store, quota, error);
    }
    return code;
}

int evaluation_set_quota(struct evaluation *evaluation, const struct stint_quota *quota,
                         struct stint_error *error)
{
    assert(evaluation_is_valid(evaluation));
    if (check_rules(evaluation, error) != 0 ||
        (quota != NULL && check_stores(evaluation, quota, error) != 0))
        return error->code;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        int code = set_own_quota(evaluation, &evaluation->targets[i], quota, error);
        if (code != 0) {
            restore_own_quotas(evaluation, i);
            return code;
        }
    }
    return 0;
}

/*
 * The states of a quota without a rule belong to its parameters. With this id set explicitly, an
 * override of the key finds them even if its states have another size, and the reverse.
 */
void evaluation_add_item(struct evaluation *evaluation, const struct stint_quota *quota,
                         struct span key, uint32_t cost)
{
    assert(quota->derived.checked == 1);
    struct target *target = add_target(evaluation, cost);
    struct stint_quota *own = &evaluation->quotas[evaluation_index(evaluation, target)];
    *own = *quota;
    if (own->rule == 0)
        own->rule = own->derived.params_hash[0];
    target->quota = own;
    target->key = key;
    target->part = TARGET_LIVE;
    find_own_quota(evaluation, target);
    assign_store(evaluation, target);
    assert(evaluation_is_valid(evaluation));
}

void evaluation_add_throttle(struct evaluation *evaluation, const struct stint_quota *quota,
                             struct span key, uint32_t cost)
{
    assert(quota->derived.checked == 1 && evaluation->stores != NULL);
    assert(evaluation->stores->throttle <= evaluation->stores->n_stores);
    struct target *target = add_target(evaluation, cost);
    *target = (struct target){.quota = quota,
                              .key = key,
                              .cost = cost,
                              .part = TARGET_LIVE,
                              .store = (uint8_t)evaluation->stores->throttle,
                              .on_error = evaluation->stores->items_on_error,
                              .is_throttle = true};
}

/* A store counts in microseconds: the expiry is rounded up to them. */
void evaluation_add_counter(struct evaluation *evaluation, struct span key, uint64_t expiry_ns)
{
    assert(evaluation->stores != NULL && expiry_ns <= STINT_COUNT_EXPIRY_MAX_NS);
    struct target *target = add_target(evaluation, 0);
    struct stint_quota *own = &evaluation->quotas[evaluation_index(evaluation, target)];
    *own = counter_quota();
    if (expiry_ns > 0)
        own->period_ns = (expiry_ns + NS_PER_US - 1) / NS_PER_US * NS_PER_US;
    *target = (struct target){.quota = own,
                              .key = key,
                              .part = TARGET_LIVE,
                              .store = (uint8_t)evaluation->stores->counters,
                              .on_error = RULE_STORE_ERROR_ERROR};
    assert(evaluation_is_valid(evaluation));
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

/*
 * The key of a descriptor that no rule matches but that supplies a quota: all of its entries, in
 * the form of rules_match().
 */
static int key_of_override(struct evaluation *evaluation, struct span domain,
                           const struct descriptor *descriptor, struct span *key,
                           struct stint_error *error)
{
    assert(descriptor->n_entries >= 1 && descriptor->n_entries <= ENTRIES_MAX);
    assert(evaluation->keys_len + STINT_KEY_MAX <= EVALUATION_KEYS_SIZE);
    struct span texts[1 + 2 * ENTRIES_MAX] = {domain};
    uint8_t *bytes = evaluation->keys + evaluation->keys_len;
    size_t n = 1;
    for (size_t i = 0; i < descriptor->n_entries; i++) {
        texts[n++] = descriptor->entries[i].key;
        texts[n++] = descriptor->entries[i].value;
    }
    size_t len = rules_write_key(bytes, STINT_KEY_MAX, OVERRIDE_RULE, texts, n);
    if (len > STINT_KEY_MAX)
        return err_set(error, STINT_E_RANGE, "the descriptor is longer than a key may be: %d bytes",
                       STINT_KEY_MAX);
    *key = span_of(bytes, len);
    evaluation->keys_len += len;
    return 0;
}

/*
 * Whether an override counts in the same period as its rule: then the rule's states are used with
 * another limit, as in envoyproxy/ratelimit, whose counter names hold only the unit.
 */
static bool has_unit_of(const struct rule *rule, const struct stint_quota *override)
{
    assert(override->derived.checked == 1);
    if (rule->unlimited || rule->quota.algorithm == STINT_CONCURRENCY)
        return false;
    uint64_t unit_ns =
        rule->unit != RULE_UNIT_NONE ? rule_unit_ns(rule->unit) : rule->quota.period_ns;
    return unit_ns == override->period_ns;
}

/* The rule's quota with the limit of the override. */
static int limit_rule(struct stint_quota *own, const struct rule *rule, uint32_t limit,
                      struct stint_error *error)
{
    assert(!rule->unlimited);
    *own = rule->quota;
    own->limit = limit;
    own->burst = 0; /* that of the limit */
    own->count_slack = own->count_slack < limit ? own->count_slack : limit;
    return stint_quota_check(own, error);
}

/* The algorithm of limits that name none, where it can keep such a limit. */
static void use_default_algorithm(struct stint_quota *own, const struct rules *rules)
{
    struct stint_quota other = *own;
    struct stint_error ignored;
    other.algorithm = rules_default_algorithm(rules);
    other.resolution = 0; /* of window alone */
    if (other.algorithm != own->algorithm && stint_quota_check(&other, &ignored) == 0)
        *own = other;
    assert(own->derived.checked == 1);
}

/* A quota that the request supplies, for a descriptor with or without a rule. */
static int bring_quota(struct evaluation *evaluation, const struct evaluation_ask *ask,
                       struct target *target, const struct stint_quota *quota,
                       struct stint_error *error)
{
    assert(quota->derived.checked == 1 && target->key.ptr != NULL);
    struct stint_quota *own = &evaluation->quotas[evaluation_index(evaluation, target)];
    const struct rule *rule = target->rule;
    struct stint_error ignored;
    target->quota = own;
    target->is_override = true;
    if (rule != NULL && has_unit_of(rule, quota) &&
        limit_rule(own, rule, quota->limit, &ignored) == 0)
        return table_stores(evaluation->table, own, error);
    *own = *quota;
    use_default_algorithm(own, ask->rules);
    own->rule = siphash13_128(override_secret, rule != NULL ? rule->id : OVERRIDE_RULE,
                              &quota->period_ns, sizeof(quota->period_ns))
                    .lo;
    return table_stores(evaluation->table, own, error);
}

static int match(struct evaluation *evaluation, const struct evaluation_ask *ask,
                 struct rules_walk *walk, const struct descriptor *descriptor,
                 struct target *target, struct stint_error *error)
{
    assert(evaluation->keys_len + RULES_KEY_MAX <= EVALUATION_KEYS_SIZE);
    struct rule_match found = {.rule = NULL};
    uint8_t *key = evaluation->keys + evaluation->keys_len;
    if (ask->rules == NULL)
        return 0;
    int code = rules_match(walk, descriptor, key, RULES_KEY_MAX, &found, error);
    if (code != 0)
        return code;
    if (found.rule != NULL) {
        target->rule = found.rule;
        target->key = span_of(key, found.key_len);
        target->is_quota_mode |= found.rule->quota_mode && descriptor->override == NULL;
        evaluation->keys_len += found.key_len;
        if (!found.rule->unlimited)
            target->quota = &found.rule->quota;
    } else if (descriptor->override != NULL && rules_has_domain(ask->rules, ask->domain)) {
        code = key_of_override(evaluation, ask->domain, descriptor, &target->key, error);
    }
    if (code == 0 && descriptor->override != NULL && target->key.ptr != NULL)
        code = bring_quota(evaluation, ask, target, descriptor->override, error);
    return code;
}

/* Slots of concurrency are taken and returned: there is nothing to charge. */
static uint8_t hits_of(const struct evaluation *evaluation, const struct target *target,
                       const struct descriptor *descriptor)
{
    const struct rule *rule = target->rule;
    if (!descriptor->has_hits || descriptor->is_refund || target->quota == NULL)
        return TARGET_HITS_TAKE;
    if (descriptor->hits == 0)
        return TARGET_HITS_CHECK;
    bool charges = rule != NULL && rule->hits != RULE_HITS_UNSAID ? rule->hits == RULE_HITS_CHARGE
                                                                  : evaluation->charges_hits;
    return charges && target->quota->algorithm != STINT_CONCURRENCY ? TARGET_HITS_CHARGE
                                                                    : TARGET_HITS_TAKE;
}

static void assign_part(const struct evaluation *evaluation, struct target *target)
{
    bool is_shadow = target->rule != NULL && target->rule->shadow_mode && !target->is_override;
    target->is_all_shadow = evaluation->all_shadow && !is_shadow;
    if (target->quota == NULL)
        target->part = TARGET_FREE;
    else
        target->part = is_shadow || target->is_all_shadow ? TARGET_SHADOW : TARGET_LIVE;
    assert((target->part == TARGET_FREE) == (target->quota == NULL));
}

static bool replaces(const struct rule *rule, const struct rule *other)
{
    assert(rule != NULL && other != NULL);
    for (size_t i = 0; other->name[0] != '\0' && i < rule->n_replaces; i++)
        if (strcmp(rule->replaces[i], other->name) == 0)
            return true;
    return false;
}

/*
 * Each rule's list counts, even if the rule is itself replaced. An override has neither the name of
 * its rule nor its list.
 */
static void drop_replaced(struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct rule *rule = evaluation->targets[i].rule;
        bool has_list = rule != NULL && rule->n_replaces > 0 && !evaluation->targets[i].is_override;
        for (size_t j = 0; has_list && j < evaluation->n_targets; j++) {
            struct target *other = &evaluation->targets[j];
            if (other->rule == NULL || other->is_override || !replaces(rule, other->rule))
                continue;
            other->is_replaced = true;
            other->is_quota_mode = evaluation->all_quota_mode;
            other->part = TARGET_FREE;
        }
    }
}

int evaluation_add_descriptors(struct evaluation *evaluation, const struct evaluation_ask *ask,
                               struct stint_error *error)
{
    assert(ask->n_descriptors >= 1);
    assert(evaluation->n_targets + ask->n_descriptors <= TARGETS_MAX);
    struct rules_walk walk;
    if (ask->rules != NULL)
        rules_walk_begin(&walk, ask->rules, ask->domain);
    for (size_t i = 0; i < ask->n_descriptors; i++) {
        const struct descriptor *descriptor = &ask->descriptors[i];
        struct target *target =
            add_target(evaluation, descriptor->has_hits ? descriptor->hits : ask->cost);
        target->is_quota_mode = evaluation->all_quota_mode;
        int code = match(evaluation, ask, &walk, descriptor, target, error);
        if (code != 0)
            return code;
        find_own_quota(evaluation, target);
        target->is_refund = descriptor->is_refund;
        if (ask->has_envoy_hits)
            target->hits = hits_of(evaluation, target, descriptor);
        target->is_values = true;
        target->is_unmatched = target->rule == NULL && target->quota == NULL;
        evaluation->n_unmatched += target->is_unmatched;
        assign_part(evaluation, target);
        assign_store(evaluation, target);
    }
    if (evaluation->n_unmatched > 0)
        evaluation->domain =
            ask->rules != NULL ? rules_find_domain(ask->rules, ask->domain) : SIZE_MAX;
    drop_replaced(evaluation);
    assert(evaluation_is_valid(evaluation));
    return 0;
}

/* ---- Inputs of later runs -------------------------------------------------------------------- */

struct evaluation_inputs {
    size_t n_targets, n_unmatched, domain, keys_len;
    struct {
        struct target target; /* its key will be in evaluation.keys */
        struct stint_quota quota;
    } of[]; /* then the keys */
};

/* The key is not copied. */
static struct target input_of(const struct target *target)
{
    size_t outcome = offsetof(struct target, shadow_retry_after_ns);
    struct target input = *target;
    memset((char *)&input + outcome, 0, sizeof(input) - outcome);
    if (input.part != TARGET_FREE) /* others keep theirs */
        input.decision = decision_unlimited(input.cost);
    return input;
}

bool evaluation_keep(const struct evaluation *evaluation, struct pending *pending)
{
    assert(evaluation->n_targets > 0 && pending->inputs == NULL);
    size_t n = evaluation->n_targets, keys_len = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        keys_len += evaluation->targets[i].key.len;
    struct evaluation_inputs *inputs =
        malloc(sizeof(*inputs) + n * sizeof(inputs->of[0]) + keys_len);
    if (inputs == NULL)
        return false;
    *inputs = (struct evaluation_inputs){n, evaluation->n_unmatched, evaluation->domain, keys_len};
    for (size_t i = 0; i < n; i++) {
        struct span key = evaluation->targets[i].key;
        inputs->of[i].target = input_of(&evaluation->targets[i]);
        inputs->of[i].target.key.ptr = evaluation->keys + at;
        inputs->of[i].quota = evaluation->quotas[i];
        if (key.len > 0)
            memcpy((uint8_t *)&inputs->of[n] + at, key.ptr, key.len);
        at += key.len;
    }
    pending->inputs = inputs;
    return true;
}

void evaluation_recall(struct evaluation *evaluation, const struct pending *pending)
{
    const struct evaluation_inputs *inputs = pending->inputs;
    assert(inputs != NULL && inputs->keys_len <= EVALUATION_KEYS_SIZE);
    evaluation_begin(evaluation, pending->now_ns);
    evaluation->n_targets = inputs->n_targets;
    evaluation->n_unmatched = inputs->n_unmatched;
    evaluation->domain = inputs->domain;
    evaluation->keys_len = inputs->keys_len;
    memcpy(evaluation->keys, &inputs->of[inputs->n_targets], inputs->keys_len);
    for (size_t i = 0; i < inputs->n_targets; i++) {
        evaluation->targets[i] = inputs->of[i].target;
        evaluation->quotas[i] = inputs->of[i].quota;
    }
    assert(evaluation_is_valid(evaluation));
}

/* ---- Where the states are -------------------------------------------------------------------- */

void evaluation_leave_distant_shadows(struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation));
    bool decides_in_table = false;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        if (target_asks(&evaluation->targets[i]) && evaluation->targets[i].store != 0)
            return;
        decides_in_table |= target_asks(&evaluation->targets[i]);
    }
    for (size_t i = 0; decides_in_table && i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        if (target->part == TARGET_SHADOW && target->store != 0)
            target->part = TARGET_FREE;
    }
}

bool evaluation_asks(const struct evaluation *evaluation, bool in_stores)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].part != TARGET_FREE &&
            (evaluation->targets[i].store != 0) == in_stores)
            return true;
    return false;
}

/* ---- Blocks -------------------------------------------------------------------------------- */

/* Puts back the ends that blocks had before; one that others moved since stays. */
static void restore_blocks(struct evaluation *evaluation, size_t n, uint64_t until_ns,
                           const uint64_t *before_ns)
{
    assert(n <= evaluation->n_targets);
    struct stint_table *table = evaluation->table;
    for (size_t i = n; i-- > 0;) {
        const struct span key = evaluation->targets[i].key;
        struct hash128 hash = table_block_hash(table, key.ptr, key.len);
        if (before_ns[i] >= until_ns || table_blocked_until(table, hash) != until_ns)
            continue;
        table_unblock(table, hash);
        if (before_ns[i] > evaluation->now_ns)
            table_block(table, hash, before_ns[i], evaluation->now_ns);
    }
}

int evaluation_block(struct evaluation *evaluation, uint64_t for_ns, struct stint_error *error)
{
    assert(evaluation_is_valid(evaluation));
    struct stint_table *table = evaluation->table;
    uint64_t until_ns = add_sat(evaluation->now_ns, for_ns), before_ns[TARGETS_MAX];
    if (check_rules(evaluation, error) != 0)
        return error->code;
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].quota == NULL)
            return err_set(error, STINT_E_MISMATCH,
                           "the rule of descriptor %zu is unlimited: its keys cannot be blocked",
                           i + 1);
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct span key = evaluation->targets[i].key;
        before_ns[i] = table_blocked_until(table, table_block_hash(table, key.ptr, key.len));
        int code = stint_block(table, key.ptr, key.len, until_ns, evaluation->now_ns);
        if (code != 0)
            restore_blocks(evaluation, i, until_ns, before_ns);
        if (code == STINT_E_FULL)
            return err_set(error, code, "the table has no free space for another blocked key");
        if (code != 0)
            return err_set(error, code, "the end of the block is later than the largest time");
    }
    return 0;
}

/* ---- The decision of the request ------------------------------------------------------------- */

bool evaluation_is_denied(const struct evaluation *evaluation, size_t except)
{
    assert(except == NO_TARGET || except < evaluation->n_targets);
    size_t quota_modes_over = 0;
    bool any_passes = false;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (i == except)
            continue;
        bool is_over = target->over && target_asks(target);
        if (is_over && !target->is_quota_mode)
            return true;
        quota_modes_over += is_over;
        any_passes = any_passes || (target->is_quota_mode && target_passes_in_quota_mode(target));
    }
    return quota_modes_over > 0 && !any_passes;
}

bool evaluation_would_be_denied(const struct evaluation *evaluation)
{
    assert(evaluation_is_valid(evaluation));
    bool any_over = false, any_passes = false;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        bool is_over = target->part == TARGET_SHADOW && target->is_all_shadow && target->over;
        if (is_over && !target->is_quota_mode)
            return true;
        any_over |= is_over;
        any_passes |= !is_over && target_passes_in_quota_mode(target);
    }
    return any_over && !any_passes;
}

/*
 * What denies: all that are over; where all are in quota_mode, the one whose capacity returns
 * first. With it the request passes again, and the others are excluded.
 */
static const struct target *first_to_return(const struct evaluation *evaluation)
{
    const struct target *first = NULL;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target_passes_in_quota_mode(target))
            return NULL;
        if (!target_asks(target) || !target->is_quota_mode)
            continue;
        if (first == NULL || target->decision.retry_after_ns < first->decision.retry_after_ns)
            first = target;
    }
    return first;
}

static bool binds_more(const struct target *a, const struct target *b)
{
    assert(a != NULL);
    if (b == NULL || a->decision.outcome != b->decision.outcome)
        return b == NULL || a->decision.outcome > b->decision.outcome;
    return list_has_less(&a->decision, &b->decision);
}

static struct stint_decision sum_denied(const struct evaluation *evaluation)
{
    const struct target *first = first_to_return(evaluation), *binding = NULL;
    uint64_t retry_after_ns = 0;
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        const struct target *target = &evaluation->targets[i];
        if (!target_asks(target) || !target->over || (target->is_quota_mode && target != first))
            continue;
        retry_after_ns = max_u64(retry_after_ns, target->decision.retry_after_ns);
        if (binds_more(target, binding))
            binding = target;
    }
    assert(binding != NULL); /* only needed because another one denies */
    struct stint_decision sum = binding->decision;
    sum.binding = (uint8_t)evaluation_index(evaluation, binding);
    sum.retry_after_ns = retry_after_ns;
    sum.granted = 0;
    assert(sum.outcome != STINT_ALLOW);
    return sum;
}

/* Where no live quota decides, the numbers are those of a shadow one: this gives at least some. */
static struct stint_decision sum_allowed(const struct evaluation *evaluation)
{
    assert(evaluation->n_targets > 0);
    static const uint8_t parts[] = {TARGET_LIVE, TARGET_SHADOW, TARGET_FREE};
    const struct target *binding = NULL;
    for (size_t part = 0; binding == NULL && part < sizeof(parts); part++)
        for (size_t i = 0; i < evaluation->n_targets; i++) {
            const struct target *target = &evaluation->targets[i];
            if (target->part == parts[part] && !target->is_refund && !target->excluded &&
                binds_more(target, binding))
                binding = target;
        }
    for (size_t i = 0; binding == NULL && i < evaluation->n_targets; i++)
        binding = &evaluation->targets[i];
    assert(binding != NULL);
    struct stint_decision sum = binding->decision;
    sum.binding = (uint8_t)evaluation_index(evaluation, binding);
    return sum;
}

struct stint_decision evaluation_sum(const struct evaluation *evaluation, bool is_denied)
{
    assert(evaluation_is_valid(evaluation));
    return is_denied ? sum_denied(evaluation) : sum_allowed(evaluation);
}

/* ---- When what is left grows ----------------------------------------------------------------- */

/*
 * A peek of one unit more than remains: its wait lasts until `remaining` grows. If the peek is
 * allowed at once, more is free than was decided, since no take was made or units came back: then a
 * copy of the state without these units gives the wait. If other requests took units, the wait is
 * longer, but still correct: no more than `remaining` can be used before it ends.
 */
static uint64_t look(struct evaluation *evaluation, struct target *target)
{
    assert(target->decision.remaining < target->decision.limit && target->store == 0);
    uint32_t left = target->decision.remaining;
    struct stint_ask ask = {.now_ns = evaluation->now_ns, .cost = left + 1, .verb = STINT_PEEK};
    struct stint_decision more;
    struct hash128 hash = target->hash;
    if (!target->is_hashed)
        hash = table_hash(evaluation->table, target->quota, target->key.ptr, target->key.len);
    if (table_has_blocks(evaluation->table, evaluation->now_ns))
        more = table_ask(evaluation->table, target->quota, target->key.ptr, target->key.len, &ask,
                         NULL, NULL);
    else
        more = table_ask_hash(evaluation->table, target->quota, hash, &ask, NULL, NULL);
    if (more.outcome == STINT_ALLOW)
        more = table_foresee(evaluation->table, target->quota, hash, left, evaluation->now_ns);
    return more.outcome == STINT_NEVER ? STINT_NEVER_NS : max_u64(more.retry_after_ns, 1);
}

/*
 * Whether the numbers of a take give the same as a peek. gcra: units return at whole nanoseconds
 * before `reset_after_ns`, so its rounding up is that of every unit.
 */
static bool is_gcra_of_ns(const struct stint_quota *quota)
{
    return quota->algorithm == STINT_GCRA &&
           quota->derived.interval_ticks % (UINT64_C(1) << GCRA_TICKS_PER_NS_LOG2) == 0;
}

/* window: only the units of this take are used, and they return together. */
static bool is_first_of_window(const struct target *target)
{
    const struct stint_decision *decision = &target->decision;
    return target->quota->algorithm == STINT_WINDOW && decision->outcome == STINT_ALLOW &&
           decision->granted == decision->limit - decision->remaining;
}

/* Until one unit more than remains: all but the rest of the burst has returned. */
static uint64_t gcra_grows_after(const struct target *target)
{
    assert(target->quota->algorithm == STINT_GCRA);
    assert(target->decision.remaining < target->decision.limit);
    const struct stint_decision *decision = &target->decision;
    uint64_t interval_ns = target->quota->derived.interval_ticks >> GCRA_TICKS_PER_NS_LOG2;
    uint64_t rest = decision->limit - decision->remaining - 1;
    return max_u64(sub_floor(decision->reset_after_ns, rest * interval_ns), 1);
}

uint64_t evaluation_grows_after(struct evaluation *evaluation, size_t index)
{
    assert(evaluation_is_valid(evaluation) && index < evaluation->n_targets);
    struct target *target = &evaluation->targets[index];
    const struct stint_decision *decision = &target->decision;
    if (decision->outcome == STINT_NEVER || decision->limit == 0)
        return STINT_NEVER_NS;
    if (target->part == TARGET_FREE || decision->remaining >= decision->limit)
        return 0;
    if (target->banned) /* a peek ignores bans, which belong to the rule */
        return decision->retry_after_ns;
    /*
     * Not worth another store request. It is also true, though less exact, that no more than what
     * is left can be used before all is back.
     */
    if (target->store != 0)
        return decision->remaining == 0 && decision->retry_after_ns > 0
                   ? decision->retry_after_ns
                   : max_u64(decision->reset_after_ns, 1);
    bool is_plain = target->is_taken && decision->stored == 1 &&
                    !table_has_blocks(evaluation->table, evaluation->now_ns);
    if ((target->quota->algorithm == STINT_FIXED_WINDOW && decision->stored == 1) ||
        (is_plain && is_first_of_window(target)))
        return max_u64(decision->reset_after_ns, 1);
    return is_plain && is_gcra_of_ns(target->quota) ? gcra_grows_after(target)
                                                    : look(evaluation, target);
}
