/* SPDX-License-Identifier: MIT */
/* Filling a question: the rule of each descriptor, the quota that counts, and who replaces whom. */
#include "decide/question_parts.h"

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

int question_accepts(struct stint_table *table, const struct rules *rules,
                     struct stint_error *error)
{
    struct stint_error why;
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *rule = rules_at(rules, i);
        int code = accepts_rule(table, rule, &why);
        if (code != 0)
            return err_set(error, code, "%s:%u: %s", rule->file, rule->line, why.sentence);
    }
    return 0;
}

int question_init(struct question *question, struct stint_table *table, struct stint_error *error)
{
    *question = (struct question){.table = table};
    question->keys = malloc(QUESTION_KEYS_SIZE);
    if (question->keys == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the keys of a request");
    return 0;
}

void question_deinit(struct question *question)
{
    free(question->keys);
    free(question->ticket_rules);
    question->keys = NULL;
    question->ticket_rules = NULL;
}

void question_begin(struct question *question, uint64_t now_ns)
{
    question->now_ns = max_u64(now_ns, table_mark(question->table));
    question->at_ns = question->now_ns;
    question->n_targets = 0;
    question->n_unmatched = 0;
    question->bans_lost = 0;
    question->keys_len = 0;
    question->errand = NULL;
    question->id = NULL;
    question->is_ticket = false;
    question->ticket_ns = question->longer_ns = 0;
    question->ticket_store = 0;
    question->has_on_expiry = false;
    question->reservation = NULL;
    question->has_charged = false;
    question->is_ahead = false;
    question->is_waiting = question->is_too_early = question->is_replayed = false;
    question->fault = 0;
}

static struct target *add_target(struct question *question, uint32_t cost)
{
    assert(question->n_targets < TARGETS_MAX);
    struct target *target = &question->targets[question->n_targets++];
    *target = (struct target){.cost = cost, .decision = decision_unlimited(cost)};
    return target;
}

/* ---- Whose state it is ----------------------------------------------------------------------- */

/* The rule of a target's states; 0: nothing ever limits it. */
static uint64_t rule_of(const struct target *target)
{
    if (target->rule != NULL)
        return target->rule->id;
    return target->quota != NULL ? target->quota->rule : 0;
}

static struct hash128 hash_of(const struct question *question, const struct target *target)
{
    const uint64_t *secret = question->table->region.fixed.hash_key;
    return siphash13_128(secret, rule_of(target), target->key.ptr, target->key.len);
}

/* What was set for a key goes before its rule, and before what a request brings along. */
static void find_own_quota(struct question *question, struct target *target)
{
    struct stint_quota *own = &question->quotas[target - question->targets];
    if (!overrides_any(question->table) || rule_of(target) == 0 ||
        !overrides_find(question->table, hash_of(question, target), rule_of(target), own))
        return;
    target->quota = own;
    target->has_own_quota = true;
    target->is_override = false;
}

/* NULL: that of its rule. */
static int set_own_quota(struct question *question, const struct target *target,
                         const struct stint_quota *quota, struct stint_error *error)
{
    struct hash128 hash = hash_of(question, target);
    if (quota != NULL) {
        struct stint_quota own = *quota;
        own.rule = rule_of(target);
        return overrides_set(question->table, hash, &own, error);
    }
    int code = overrides_drop(question->table, hash, error);
    return code == STINT_E_GONE ? 0 : code; /* it goes by its rule as it is */
}

/* Back to what was found when the target was added, the last first: a key may be there twice. */
static void restore_own_quotas(struct question *question, size_t n_set)
{
    struct stint_error error; /* what was told of the one that failed is told */
    for (size_t i = n_set; i-- > 0;) {
        const struct target *target = &question->targets[i];
        set_own_quota(question, target, target->has_own_quota ? target->quota : NULL, &error);
    }
}

int question_set_quota(struct question *question, const struct stint_quota *quota,
                       struct stint_error *error)
{
    for (size_t i = 0; i < question->n_targets; i++)
        if (rule_of(&question->targets[i]) == 0)
            return err_set(error, STINT_E_MISMATCH, "no rule matches descriptor %zu", i + 1);
    for (size_t i = 0; i < question->n_targets; i++) {
        int code = set_own_quota(question, &question->targets[i], quota, error);
        if (code != 0) {
            restore_own_quotas(question, i);
            return code;
        }
    }
    return 0;
}

/* Where its states are. A key that a rule names goes where the rule says. */
static void assign_store(const struct question *question, struct target *target)
{
    const struct question_stores *stores = question->stores;
    const struct rule *rule = target->rule;
    size_t at = 0;
    if (stores == NULL || target->quota == NULL)
        return;
    at = rule != NULL ? rule->store.at : stores->items;
    target->on_error = rule != NULL ? rule->store.on_error : stores->items_on_error;
    target->store = at <= stores->n_stores ? (uint8_t)at : 0;
}

/*
 * The states of a quota without a rule are those of its parameters. Said outright, a quota that is
 * set for the key later, and may have states of another size, finds them, and they find it.
 */
void question_add_item(struct question *question, const struct stint_quota *quota, struct span key,
                       uint32_t cost)
{
    struct target *target = add_target(question, cost);
    struct stint_quota *own = &question->quotas[target - question->targets];
    *own = *quota;
    if (own->rule == 0)
        own->rule = own->derived.params_hash[0];
    target->quota = own;
    target->key = key;
    target->part = TARGET_LIVE;
    find_own_quota(question, target);
    assign_store(question, target);
}

void question_add_throttle(struct question *question, const struct stint_quota *quota,
                           struct span key, uint32_t cost)
{
    struct target *target = add_target(question, cost);
    *target = (struct target){.quota = quota,
                              .key = key,
                              .cost = cost,
                              .part = TARGET_LIVE,
                              .store = (uint8_t)question->stores->throttle,
                              .on_error = question->stores->items_on_error,
                              .is_throttle = true};
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

static bool append(struct question *question, const void *bytes, size_t len)
{
    if (len > QUESTION_KEYS_SIZE - question->keys_len)
        return false;
    memcpy(question->keys + question->keys_len, bytes, len);
    question->keys_len += len;
    return true;
}

/* Big-endian, so that a key is the same wherever it is made. */
static bool append_number(struct question *question, uint64_t number, size_t size)
{
    uint8_t bytes[sizeof(number)];
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(number >> (8 * (size - 1 - i)));
    return append(question, bytes, size);
}

/* A text behind its length: so no two lists of texts are the same bytes. */
static bool append_text(struct question *question, struct span text)
{
    return append_number(question, text.len, sizeof(uint32_t)) &&
           append(question, text.ptr, text.len);
}

/*
 * The key of a descriptor that no rule matches but that brings a quota along: all that it says, in
 * the form of rules_match().
 */
static int key_of_override(struct question *question, struct span domain,
                           const struct descriptor *descriptor, struct span *key,
                           struct stint_error *error)
{
    size_t from = question->keys_len;
    bool fits =
        append_number(question, OVERRIDE_RULE, sizeof(uint64_t)) && append_text(question, domain);
    for (size_t i = 0; fits && i < descriptor->n_entries; i++)
        fits = append_text(question, descriptor->entries[i].key) &&
               append_text(question, descriptor->entries[i].value);
    *key = span_of(question->keys + from, question->keys_len - from);
    if (!fits || key->len > STINT_KEY_MAX)
        return err_set(error, STINT_E_RANGE, "the descriptor is longer than a key may be: %d bytes",
                       STINT_KEY_MAX);
    return 0;
}

/*
 * Whether an override counts what its rule counts: then the rule is asked with another limit, as
 * envoyproxy/ratelimit does, whose counters have a name of the unit alone.
 */
static bool has_unit_of(const struct rule *rule, const struct stint_quota *override)
{
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
    *own = rule->quota;
    own->limit = limit;
    own->burst = 0; /* that of the limit */
    own->count_slack = own->count_slack < limit ? own->count_slack : limit;
    return stint_quota_check(own, error);
}

/* By the algorithm of limits that name none, where it can keep such a limit. */
static void use_default_algorithm(struct stint_quota *own, const struct rules *rules)
{
    struct stint_quota other = *own;
    struct stint_error ignored;
    other.algorithm = rules_default_algorithm(rules);
    other.resolution = 0; /* of window alone */
    if (other.algorithm != own->algorithm && stint_quota_check(&other, &ignored) == 0)
        *own = other;
}

/* A quota that the request brings along, for a descriptor with or without a rule. */
static int bring_quota(struct question *question, const struct question_ask *ask,
                       struct target *target, const struct stint_quota *quota,
                       struct stint_error *error)
{
    struct stint_quota *own = &question->quotas[target - question->targets];
    const struct rule *rule = target->rule;
    struct stint_error ignored;
    target->quota = own;
    target->is_override = true;
    if (rule != NULL && has_unit_of(rule, quota) &&
        limit_rule(own, rule, quota->limit, &ignored) == 0)
        return table_stores(question->table, own, error);
    *own = *quota;
    use_default_algorithm(own, ask->rules);
    own->rule = siphash13_128(override_secret, rule != NULL ? rule->id : OVERRIDE_RULE,
                              &quota->period_ns, sizeof(quota->period_ns))
                    .lo;
    return table_stores(question->table, own, error);
}

static int match(struct question *question, const struct question_ask *ask,
                 const struct descriptor *descriptor, struct target *target,
                 struct stint_error *error)
{
    struct rule_match found = {.rule = NULL};
    uint8_t *key = question->keys + question->keys_len;
    if (ask->rules == NULL)
        return 0;
    int code = rules_match(ask->rules, ask->domain, descriptor, key, RULES_KEY_MAX, &found, error);
    if (code != 0)
        return code;
    if (found.rule != NULL) {
        target->rule = found.rule;
        target->key = span_of(key, found.key_len);
        target->is_quota_mode |= found.rule->quota_mode && descriptor->override == NULL;
        question->keys_len += found.key_len;
        if (!found.rule->unlimited)
            target->quota = &found.rule->quota;
    } else if (descriptor->override != NULL && rules_has_domain(ask->rules, ask->domain)) {
        code = key_of_override(question, ask->domain, descriptor, &target->key, error);
    }
    if (code == 0 && descriptor->override != NULL && target->key.ptr != NULL)
        code = bring_quota(question, ask, target, descriptor->override, error);
    return code;
}

/* Places of concurrency are taken and given back: there is nothing to charge. */
static uint8_t hits_of(const struct question *question, const struct target *target,
                       const struct descriptor *descriptor)
{
    const struct rule *rule = target->rule;
    if (!descriptor->has_hits || descriptor->is_refund || target->quota == NULL)
        return TARGET_HITS_TAKE;
    if (descriptor->hits == 0)
        return TARGET_HITS_CHECK;
    bool charges = rule != NULL && rule->hits != RULE_HITS_UNSAID ? rule->hits == RULE_HITS_CHARGE
                                                                  : question->charges_hits;
    return charges && target->quota->algorithm != STINT_CONCURRENCY ? TARGET_HITS_CHARGE
                                                                    : TARGET_HITS_TAKE;
}

static void assign_part(const struct question *question, struct target *target)
{
    bool is_shadow = target->rule != NULL && target->rule->shadow_mode && !target->is_override;
    target->is_all_shadow = question->all_shadow && !is_shadow;
    if (target->quota == NULL)
        target->part = TARGET_FREE;
    else
        target->part = is_shadow || target->is_all_shadow ? TARGET_SHADOW : TARGET_LIVE;
}

static bool replaces(const struct rule *rule, const struct rule *other)
{
    for (size_t i = 0; other->name[0] != '\0' && i < rule->n_replaces; i++)
        if (strcmp(rule->replaces[i], other->name) == 0)
            return true;
    return false;
}

/*
 * Everybody's list counts, also that of a rule which is itself replaced. An override has neither
 * the name of its rule nor its list.
 */
static void drop_replaced(struct question *question)
{
    for (size_t i = 0; i < question->n_targets; i++) {
        const struct rule *rule = question->targets[i].rule;
        bool has_list = rule != NULL && rule->n_replaces > 0 && !question->targets[i].is_override;
        for (size_t j = 0; has_list && j < question->n_targets; j++) {
            struct target *other = &question->targets[j];
            if (other->rule == NULL || other->is_override || !replaces(rule, other->rule))
                continue;
            other->is_replaced = true;
            other->is_quota_mode = question->all_quota_mode;
            other->part = TARGET_FREE;
        }
    }
}

int question_add_descriptors(struct question *question, const struct question_ask *ask,
                             struct stint_error *error)
{
    for (size_t i = 0; i < ask->n_descriptors; i++) {
        const struct descriptor *descriptor = &ask->descriptors[i];
        struct target *target =
            add_target(question, descriptor->has_hits ? descriptor->hits : ask->cost);
        target->is_quota_mode = question->all_quota_mode;
        int code = match(question, ask, descriptor, target, error);
        if (code != 0)
            return code;
        find_own_quota(question, target);
        target->is_refund = descriptor->is_refund;
        if (ask->has_envoy_hits)
            target->hits = hits_of(question, target, descriptor);
        target->is_values = true;
        target->is_unmatched = target->rule == NULL && target->quota == NULL;
        question->n_unmatched += target->is_unmatched;
        assign_part(question, target);
        assign_store(question, target);
    }
    if (question->n_unmatched > 0)
        question->domain =
            ask->rules != NULL ? rules_find_domain(ask->rules, ask->domain) : SIZE_MAX;
    drop_replaced(question);
    return 0;
}
