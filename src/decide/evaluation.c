/* SPDX-License-Identifier: MIT */
/* Fills an evaluation: each descriptor's rule, the quota that counts, and replaced rules. */
#include "decide/evaluation_parts.h"

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
            return err_set(error, code, "%s:%u: %s", rule->file, rule->line, why.message);
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
           (!target->made_ban || target->banned);
}

bool evaluation_is_valid(const struct evaluation *evaluation)
{
    const struct evaluation_stores *stores = evaluation->stores;
    if (evaluation->table == NULL || evaluation->keys == NULL ||
        evaluation->n_targets > TARGETS_MAX || evaluation->n_items > TARGETS_MAX ||
        evaluation->n_unmatched > evaluation->n_targets ||
        evaluation->keys_len > EVALUATION_KEYS_SIZE || evaluation->fault > BACKEND_AHEAD ||
        (evaluation->is_ticket && evaluation->id == NULL) ||
        (evaluation->is_taken_alone && evaluation->n_targets != 1) ||
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
    evaluation->is_taken_alone = false;
    evaluation->n_targets = 0;
    evaluation->n_unmatched = 0;
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
    const uint64_t *secret = evaluation->table->region.fixed.hash_key;
    return siphash13_128(secret, rule_of(target), target->key.ptr, target->key.len);
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

int evaluation_set_quota(struct evaluation *evaluation, const struct stint_quota *quota,
                         struct stint_error *error)
{
    assert(evaluation_is_valid(evaluation));
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (rule_of(&evaluation->targets[i]) == 0)
            return err_set(error, STINT_E_MISMATCH, "no rule matches descriptor %zu", i + 1);
    for (size_t i = 0; i < evaluation->n_targets; i++) {
        int code = set_own_quota(evaluation, &evaluation->targets[i], quota, error);
        if (code != 0) {
            restore_own_quotas(evaluation, i);
            return code;
        }
    }
    return 0;
}

/* Where its states are. The rule decides, if there is one. */
static void assign_store(const struct evaluation *evaluation, struct target *target)
{
    const struct evaluation_stores *stores = evaluation->stores;
    const struct rule *rule = target->rule;
    size_t at = 0;
    if (stores == NULL || target->quota == NULL)
        return;
    at = rule != NULL ? rule->store.at : stores->items;
    target->on_error = rule != NULL ? rule->store.on_error : stores->items_on_error;
    target->store = at <= stores->n_stores ? (uint8_t)at : 0;
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

/* ---- Descriptors ----------------------------------------------------------------------------- */

static bool append(struct evaluation *evaluation, const void *bytes, size_t len)
{
    assert(evaluation->keys_len <= EVALUATION_KEYS_SIZE);
    if (len > EVALUATION_KEYS_SIZE - evaluation->keys_len)
        return false;
    memcpy(evaluation->keys + evaluation->keys_len, bytes, len);
    evaluation->keys_len += len;
    return true;
}

/* Big-endian, so that a key is the same wherever it is made. */
static bool append_number(struct evaluation *evaluation, uint64_t number, size_t size)
{
    assert(size == sizeof(number) || (size < sizeof(number) && number >> (8 * size) == 0));
    uint8_t bytes[sizeof(number)];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(number >> (8 * (size - 1 - i)));
    return append(evaluation, bytes, size);
}

/* A text after its length: so no two lists of texts have the same bytes. */
static bool append_text(struct evaluation *evaluation, struct span text)
{
    return append_number(evaluation, text.len, sizeof(uint32_t)) &&
           append(evaluation, text.ptr, text.len);
}

/*
 * The key of a descriptor that no rule matches but that supplies a quota: all of its entries, in
 * the form of rules_match().
 */
static int key_of_override(struct evaluation *evaluation, struct span domain,
                           const struct descriptor *descriptor, struct span *key,
                           struct stint_error *error)
{
    assert(descriptor->n_entries >= 1);
    size_t from = evaluation->keys_len;
    bool fits = append_number(evaluation, OVERRIDE_RULE, sizeof(uint64_t)) &&
                append_text(evaluation, domain);
    for (size_t i = 0; fits && i < descriptor->n_entries; i++)
        fits = append_text(evaluation, descriptor->entries[i].key) &&
               append_text(evaluation, descriptor->entries[i].value);
    *key = span_of(evaluation->keys + from, evaluation->keys_len - from);
    if (!fits || key->len > STINT_KEY_MAX)
        return err_set(error, STINT_E_RANGE, "the descriptor is longer than a key may be: %d bytes",
                       STINT_KEY_MAX);
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
                 const struct descriptor *descriptor, struct target *target,
                 struct stint_error *error)
{
    assert(evaluation->keys_len + RULES_KEY_MAX <= EVALUATION_KEYS_SIZE);
    struct rule_match found = {.rule = NULL};
    uint8_t *key = evaluation->keys + evaluation->keys_len;
    if (ask->rules == NULL)
        return 0;
    int code = rules_match(ask->rules, ask->domain, descriptor, key, RULES_KEY_MAX, &found, error);
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
    for (size_t i = 0; i < ask->n_descriptors; i++) {
        const struct descriptor *descriptor = &ask->descriptors[i];
        struct target *target =
            add_target(evaluation, descriptor->has_hits ? descriptor->hits : ask->cost);
        target->is_quota_mode = evaluation->all_quota_mode;
        int code = match(evaluation, ask, descriptor, target, error);
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

bool evaluation_asks_stores(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].part != TARGET_FREE && evaluation->targets[i].store != 0)
            return true;
    return false;
}

bool evaluation_asks_table(const struct evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].part != TARGET_FREE && evaluation->targets[i].store == 0)
            return true;
    return false;
}
