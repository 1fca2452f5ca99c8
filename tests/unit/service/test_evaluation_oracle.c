/* SPDX-License-Identifier: MIT */
/*
 * Random requests against a model that knows nothing of tables: lists of who was admitted when, and
 * the rules of docs/decisions/0016 said once more in the plainest way. Every status must be the
 * same, and every wait as long as the model's own.
 */
#include "unit/test_server.h"

#define KEYS 6 /* of descriptors: each has a rule */
#define VALUES 3
#define PERIOD (10 * S)
#define LEDGER_MAX 4096
#define ROUNDS 400
#define REQUESTS 60

/* Who was admitted when, under one quota and one value. */
struct ledger {
    uint64_t at_ns[LEDGER_MAX];
    size_t n_units;
};

static uint32_t used(const struct ledger *ledger, uint64_t now_ns)
{
    uint32_t units = 0;
    for (size_t i = 0; i < ledger->n_units; i++)
        units += ledger->at_ns[i] + PERIOD > now_ns;
    return units;
}

static void enter(struct ledger *ledger, uint64_t now_ns, uint32_t units)
{
    assert_true(ledger->n_units + units <= LEDGER_MAX);
    while (units-- > 0)
        ledger->at_ns[ledger->n_units++] = now_ns;
}

struct model_rule {
    uint32_t limit, candidate; /* candidate of 0: none */
    bool is_shadow, is_quota_mode;
    int replaces; /* the rule whose limit it drops; -1: none */
};

struct model {
    struct model_rule rules[KEYS];
    struct ledger live[KEYS][VALUES], candidates[KEYS][VALUES];
};

struct model_target {
    int key, value;
    uint32_t cost;
    bool is_replaced, is_over, candidate_over;
};

struct model_request {
    struct model_target targets[STINT_ITEMS_MAX];
    size_t n_targets;
    uint64_t now_ns;
};

static bool fits(const struct ledger *ledger, uint32_t limit, uint32_t cost, uint64_t now_ns)
{
    return cost == 0 || used(ledger, now_ns) + cost <= limit;
}

static bool is_live(const struct model *model, const struct model_target *target)
{
    return !target->is_replaced && !model->rules[target->key].is_shadow;
}

/* Equal descriptors add up. */
static uint32_t cost_of_all(const struct model_request *request, const struct model_target *target)
{
    uint32_t cost = 0;
    for (size_t i = 0; i < request->n_targets; i++)
        if (request->targets[i].key == target->key && request->targets[i].value == target->value)
            cost += request->targets[i].cost;
    return cost;
}

/*
 * Any hard limit that is over denies; those in quota_mode do if all of them are. One in shadow mode
 * is never over there.
 */
static bool denies(const struct model *model, const struct model_request *request, size_t except)
{
    size_t passing = 0, over = 0;
    for (size_t i = 0; i < request->n_targets; i++) {
        const struct model_target *target = &request->targets[i];
        bool is_over = is_live(model, target) && target->is_over;
        if (i == except || target->is_replaced)
            continue;
        if (!model->rules[target->key].is_quota_mode && is_over)
            return true;
        passing += model->rules[target->key].is_quota_mode && !is_over;
        over += model->rules[target->key].is_quota_mode && is_over;
    }
    return over > 0 && passing == 0;
}

static void decide_live(struct model *model, struct model_request *request)
{
    for (size_t i = 0; i < request->n_targets; i++)
        for (size_t j = 0; j < request->n_targets; j++)
            if (model->rules[request->targets[i].key].replaces == request->targets[j].key)
                request->targets[j].is_replaced = true;
    for (size_t i = 0; i < request->n_targets; i++) {
        struct model_target *target = &request->targets[i];
        target->is_over =
            is_live(model, target) &&
            !fits(&model->live[target->key][target->value], model->rules[target->key].limit,
                  cost_of_all(request, target), request->now_ns);
    }
}

/* Whether the request is allowed; enters what it is charged. */
static bool decide(struct model *model, struct model_request *request, bool charges)
{
    decide_live(model, request);
    bool denied = denies(model, request, SIZE_MAX);
    for (size_t i = 0; i < request->n_targets; i++) {
        struct model_target *target = &request->targets[i];
        if (is_live(model, target) && !target->is_over && !denied && charges)
            enter(&model->live[target->key][target->value], request->now_ns, target->cost);
    }
    for (size_t i = 0; i < request->n_targets; i++) {
        struct model_target *target = &request->targets[i];
        const struct model_rule *rule = &model->rules[target->key];
        struct ledger *ledger = &model->live[target->key][target->value];
        struct ledger *candidate = &model->candidates[target->key][target->value];
        bool counts = charges && !denies(model, request, rule->is_shadow ? SIZE_MAX : i);
        if (target->is_replaced)
            continue;
        if (rule->is_shadow) {
            target->is_over = !fits(ledger, rule->limit, target->cost, request->now_ns);
            if (counts && !target->is_over)
                enter(ledger, request->now_ns, target->cost);
        }
        if (rule->candidate == 0)
            continue;
        target->candidate_over = !fits(candidate, rule->candidate, target->cost, request->now_ns);
        if (counts && !target->candidate_over)
            enter(candidate, request->now_ns, target->cost);
    }
    return !denied;
}

/* ---- The same rules and requests for the service --------------------------------------------- */

static void make_rules(struct model *model, uint64_t *seed, char *yaml, size_t size)
{
    size_t at = (size_t)snprintf(yaml, size, "domain: d\ndescriptors:\n");
    for (int i = 0; i < KEYS; i++) {
        struct model_rule *rule = &model->rules[i];
        *rule = (struct model_rule){.limit = (uint32_t)(next_random(seed) % 7),
                                    .is_shadow = next_random(seed) % 5 == 0,
                                    .is_quota_mode = next_random(seed) % 3 == 0,
                                    .replaces = -1};
        if (next_random(seed) % 3 == 0)
            rule->candidate = 1 + (uint32_t)(next_random(seed) % 8);
        int replaces = (int)(next_random(seed) % (3 * KEYS));
        if (replaces < KEYS && replaces != i)
            rule->replaces = replaces;
        at += (size_t)snprintf(yaml + at, size - at,
                               "  - key: k%d\n    shadow_mode: %s\n    quota_mode: %s\n"
                               "    rate_limit:\n      name: n%d\n      algorithm: log\n"
                               "      period: 10s\n      requests_per_unit: %u\n",
                               i, rule->is_shadow ? "true" : "false",
                               rule->is_quota_mode ? "true" : "false", i, rule->limit);
        if (rule->replaces >= 0)
            at += (size_t)snprintf(yaml + at, size - at, "      replaces: [{name: n%d}]\n",
                                   rule->replaces);
        if (rule->candidate > 0)
            at += (size_t)snprintf(yaml + at, size - at,
                                   "    shadow: {algorithm: log, period: 10s, "
                                   "requests_per_unit: %u}\n",
                                   rule->candidate);
    }
    assert_true(at < size);
}

static void make_request(struct model_request *request, uint64_t *seed, uint64_t now_ns)
{
    *request = (struct model_request){.now_ns = now_ns, .n_targets = 1 + next_random(seed) % 5};
    for (size_t i = 0; i < request->n_targets; i++)
        request->targets[i] = (struct model_target){.key = (int)(next_random(seed) % KEYS),
                                                    .value = (int)(next_random(seed) % VALUES),
                                                    .cost = (uint32_t)(next_random(seed) % 4)};
}

static const struct reply *ask_service(struct test_server *s, const struct model_request *request,
                                       uint8_t verb)
{
    struct asked asked;
    char text[256];
    size_t at = 0;
    for (size_t i = 0; i < request->n_targets; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%sk%d=%d", i > 0 ? "; " : "",
                               request->targets[i].key, request->targets[i].value);
    struct request *made = descriptors_of(&asked, text);
    made->verb = verb;
    for (size_t i = 0; i < request->n_targets; i++) {
        asked.descriptors[i].has_hits = true;
        asked.descriptors[i].hits = request->targets[i].cost;
    }
    s->now_ns = request->now_ns;
    return ask(s, made);
}

static void assert_same(const struct reply *reply, const struct model *model,
                        const struct model_request *request, bool allowed)
{
    assert_int_equal(reply->error, REPLY_DECIDED);
    assert_int_equal(reply->decision.outcome == STINT_ALLOW, allowed);
    assert_int_equal(reply->n_statuses, request->n_targets);
    for (size_t i = 0; i < request->n_targets; i++) {
        const struct model_target *target = &request->targets[i];
        const struct target *status = &reply->statuses[i];
        assert_int_equal(status->is_replaced, target->is_replaced);
        assert_int_equal(status->over, target->is_over);
        assert_int_equal(status->shadow_over, target->candidate_over);
        if (!is_live(model, target))
            assert_int_equal(status->decision.outcome, STINT_ALLOW);
        else
            assert_int_equal(status->decision.outcome != STINT_ALLOW, target->is_over);
    }
}

/* Nobody else asking: denied until just before the end of the wait, allowed at it. */
static void assert_wait(struct model *model, const struct model_request *request,
                        const struct stint_decision *decision)
{
    struct model_request later = *request;
    if (decision->outcome != STINT_DENY)
        return;
    assert_true(decision->retry_after_ns > 0);
    later.now_ns = request->now_ns + decision->retry_after_ns - 1;
    assert_false(decide(model, &later, false));
    later = *request;
    later.now_ns += decision->retry_after_ns;
    assert_true(decide(model, &later, false));
}

static void play(uint64_t seed)
{
    static struct model model;
    static char yaml[4096];
    struct test_server s;
    struct model_request request;
    uint64_t now_ns = START;
    memset(&model, 0, sizeof(model));
    make_rules(&model, &seed, yaml, sizeof(yaml));
    serve(&s, yaml);
    for (int i = 0; i < REQUESTS; i++) {
        now_ns += next_random(&seed) % 3 == 0 ? next_random(&seed) % (4 * S) : 0;
        make_request(&request, &seed, now_ns);
        struct model_request peeked = request;
        bool allowed = decide(&model, &peeked, false);
        assert_same(ask_service(&s, &request, REQUEST_PEEK), &model, &peeked, allowed);
        allowed = decide(&model, &request, true);
        struct stint_decision decision = ask_service(&s, &request, REQUEST_TAKE)->decision;
        assert_same(&s.reply, &model, &request, allowed);
        for (size_t t = 0; t < request.n_targets; t++)
            request.targets[t].is_replaced = false;
        assert_wait(&model, &request, &decision);
    }
    server_close(&s);
}

TEST(test_random_requests_are_decided_as_the_model_does)
{
    for (uint64_t seed = 1; seed <= ROUNDS; seed++)
        play(seed * UINT64_C(0x9e3779b97f4a7c15));
}
