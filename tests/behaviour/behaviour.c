/* SPDX-License-Identifier: MIT */
/*
 * Runs cases.jsonl through one frontend, in virtual time, under every algorithm, with the states in
 * one store; README.md has the form. What a frontend replies has to be what a service of the same
 * rules decides beside it.
 */
#include "behaviour/frontend.h"
#include "behaviour/store.h"

#include <math.h>
#include <stdio.h>

/* A Monday on which a month begins: Monday, 1 January 2024. */
#define EPOCH_NS (INT64_C(1704067200) * 1000000000)
#define RULES_MAX 4096
#define CASES_MAX 256

static const struct algorithm_case {
    const char *name, *keys;
} algorithms[] = {
    {"window", "algorithm: window"},
    {"window12", "algorithm: window, resolution: 12"},
    {"buckets", "algorithm: buckets, count_slack: 1"},
    {"log", "algorithm: log"},
    {"gcra", "algorithm: gcra"},
    {"fixed_window", "algorithm: fixed_window"},
    {"sliding_counter", "algorithm: sliding_counter"},
};

static const struct frontend *const frontends[] = {&frontend_service, &frontend_resp,
                                                   &frontend_http, &frontend_grpc};
static const struct frontend *frontend;
static const char *const stores[] = {"table", "redis", "memcached"};
static const char *store;

/* ---- What a case says ------------------------------------------------------------------------ */

struct behaviour {
    const char *name, *rules, *why;
    json_t *steps, *differs, *algorithms, *settings;
    json_t *not_in; /* by store and algorithm: why the case cannot hold there */
};

struct step {
    double at, after_wait, later; /* seconds; NAN: absent */
    double every;                 /* between times */
    const char *verb, *request, *expect, *quota, *id, *key;
    json_int_t amount;                 /* of the counter `key` */
    int times, cost, ticket, replayed; /* ticket, replayed: -1: absent */
    double lifetime;                   /* of what is reserved, blocked or begun */
    json_t *items, *hits, *envoy_hits, *quotas;
    json_t *granted, *limit, *remaining, *retry_after_ms; /* NULL: absent */
    json_t *binding, *statuses, *left, *count, *expires_after_ms;
};

static bool is_store(const char *name)
{
    for (size_t i = 0; i < N(stores); i++)
        if (strcmp(stores[i], name) == 0)
            return true;
    return false;
}

static bool is_algorithm(const char *name)
{
    for (size_t i = 0; i < N(algorithms); i++)
        if (strcmp(algorithms[i].name, name) == 0)
            return true;
    return false;
}

/* A name that is mistaken would take an algorithm, or a step, out of what is tested. */
static void check_names(const struct behaviour *test)
{
    const char *algorithm, *step, *name;
    json_t *steps, *value, *reasons;
    size_t i;
    json_array_foreach(test->algorithms, i, value)
        assert_true(is_algorithm(json_string_value(value)));
    json_array_foreach(test->settings, i, value)
        assert_true(strcmp(json_string_value(value), "charges_hits") == 0 ||
                    strcmp(json_string_value(value), "checks_debt") == 0);
    json_object_foreach(test->differs, algorithm, steps)
    {
        assert_true(is_algorithm(algorithm));
        assert_non_null(test->why);
        json_object_foreach(steps, step, value)
            assert_in_range(atoi(step), 0, json_array_size(test->steps) - 1);
    }
    json_object_foreach(test->not_in, name, reasons)
    {
        assert_true(is_store(name));
        json_object_foreach(reasons, algorithm, value)
            assert_true(is_algorithm(algorithm) && json_string_length(value) > 0);
    }
}

static struct behaviour read_case(json_t *line)
{
    struct behaviour test = {0};
    json_error_t why;
    if (json_unpack_ex(line, &why, JSON_STRICT, "{s:s, s:s, s:o, s?o, s?s, s?o, s?o, s?o}", "name",
                       &test.name, "rules", &test.rules, "steps", &test.steps, "differs",
                       &test.differs, "why", &test.why, "algorithms", &test.algorithms, "not_in",
                       &test.not_in, "settings", &test.settings) != 0)
        fail_msg("%s", why.text);
    check_names(&test);
    return test;
}

static struct step read_step(const struct behaviour *test, size_t i)
{
    struct step step = {.at = NAN,
                        .after_wait = NAN,
                        .later = NAN,
                        .verb = "take",
                        .times = 1,
                        .cost = 1,
                        .ticket = -1,
                        .replayed = -1,
                        .lifetime = 60};
    json_error_t why;
    if (json_unpack_ex(
            json_array_get(test->steps, i), &why, JSON_STRICT,
            "{s?F, s?F, s?F, s?F, s?F, s?s, s?s, s?s, s?s, s?s, s?i, s?i, s?i, s?b, s?o, s?o, s?o,"
            " s?o, s?o, s?o, s?o, s?o, s?o, s?o, s?o, s?s, s?I, s?o, s?o}",
            "at", &step.at, "after_wait", &step.after_wait, "later", &step.later, "every",
            &step.every, "lifetime", &step.lifetime, "verb", &step.verb, "request", &step.request,
            "expect", &step.expect, "quota", &step.quota, "id", &step.id, "times", &step.times,
            "cost", &step.cost, "ticket", &step.ticket, "replayed", &step.replayed, "items",
            &step.items, "hits", &step.hits, "envoy_hits", &step.envoy_hits, "quotas", &step.quotas,
            "granted", &step.granted, "limit", &step.limit, "remaining", &step.remaining,
            "retry_after_ms", &step.retry_after_ms, "binding", &step.binding, "statuses",
            &step.statuses, "left", &step.left, "key", &step.key, "amount", &step.amount, "count",
            &step.count, "expires_after_ms", &step.expires_after_ms) != 0)
        fail_msg("step %zu: %s", i, why.text);
    if (isnan(step.at) + isnan(step.after_wait) + isnan(step.later) < 2)
        fail_msg("step %zu: expected one of at, after_wait and later", i);
    return step;
}

static bool has_text(const json_t *list, const char *text)
{
    bool has = false;
    for (size_t i = 0; i < json_array_size(list); i++)
        has |= strcmp(json_string_value(json_array_get(list, i)), text) == 0;
    return has;
}

/* Some are about what one algorithm alone promises. */
static bool is_for(const struct behaviour *test, const struct algorithm_case *algorithm)
{
    return test->algorithms == NULL || has_text(test->algorithms, algorithm->name);
}

/* Puts the keys of algorithm and store in the place of ALGORITHM. */
static void write_rules(char *to, const char *from, const struct algorithm_case *algorithm)
{
    size_t at = 0;
    char keys[128];
    snprintf(keys, sizeof(keys), "%s%s", algorithm->keys, store_keys());
    while (*from != '\0') {
        bool is_placeholder = strncmp(from, "ALGORITHM", 9) == 0;
        size_t len = is_placeholder ? strlen(keys) : 1;
        assert_true(at + len < RULES_MAX);
        memcpy(to + at, is_placeholder ? keys : from, len);
        at += len;
        from += is_placeholder ? 9 : 1;
    }
    to[at] = '\0';
}

/* ---- Requests -------------------------------------------------------------------------------- */

#define TICKETS 4

/* A step as a request. */
struct step_request {
    struct asked asked;
    struct request *request;
    struct request_item items[STINT_ITEMS_MAX];
    struct stint_quota quotas[STINT_ITEMS_MAX];
};

static uint8_t verb_of(const char *name)
{
    for (uint8_t verb = 0; verb < REQUEST_VERBS; verb++)
        if (strcmp(request_verbs[verb].name, name) == 0)
            return verb;
    fail_msg("there is no verb %s", name);
    return 0;
}

/* Items: [SPEC, key], or with a cost of its own [SPEC, key, cost]. */
static void read_items(struct step_request *to, const json_t *items)
{
    const json_t *item;
    size_t i;
    to->request->domain = (struct span){NULL, 0};
    to->request->n_descriptors = 0;
    to->request->items = to->items;
    to->request->n_items = json_array_size(items);
    json_array_foreach(items, i, item) to->items[i] =
        (struct request_item){.quota = span_of_text(json_string_value(json_array_get(item, 0))),
                              .key = span_of_text(json_string_value(json_array_get(item, 1))),
                              .cost = (uint32_t)json_integer_value(json_array_get(item, 2)),
                              .has_cost = json_array_size(item) > 2};
}

/* Of each descriptor, or null: what is negative is given back. */
static void read_hits(struct step_request *to, const json_t *hits)
{
    const json_t *number;
    size_t i;
    json_array_foreach(hits, i, number)
    {
        json_int_t value = json_integer_value(number);
        to->asked.descriptors[i].has_hits = json_is_integer(number);
        to->asked.descriptors[i].is_refund = value < 0;
        to->asked.descriptors[i].hits = (uint32_t)(value < 0 ? -value : value);
    }
}

static void read_quotas(struct step_request *to, const json_t *quotas)
{
    const json_t *spec;
    size_t i;
    json_array_foreach(quotas, i, spec)
    {
        if (json_is_null(spec))
            continue;
        to->quotas[i] = quota_of(json_string_value(spec));
        to->asked.descriptors[i].override = &to->quotas[i];
    }
}

static void make_request(struct step_request *to, const struct step *step)
{
    bool is_bare = step->request == NULL;
    to->request = descriptors_of(&to->asked, is_bare ? "" : step->request);
    if (is_bare)
        to->request->n_descriptors = 0;
    to->request->verb = verb_of(step->verb);
    to->request->cost = (uint32_t)step->cost;
    to->request->lifetime_ns = (uint64_t)llround(step->lifetime * 1e9);
    to->request->has_envoy_hits = step->envoy_hits != NULL;
    to->request->amount = step->amount;
    if (step->key != NULL)
        to->request->key = span_of_text(step->key);
    if (step->quota != NULL)
        to->request->quota = span_of_text(step->quota);
    if (step->id != NULL)
        to->request->id = span_of_text(step->id);
    if (step->items != NULL)
        read_items(to, step->items);
    read_hits(to, step->hits != NULL ? step->hits : step->envoy_hits);
    read_quotas(to, step->quotas);
}

/* ---- Playing it ------------------------------------------------------------------------------ */

struct play {
    const struct behaviour *test;
    const struct algorithm_case *algorithm;
    void *server; /* behind the frontend */
    void *beside; /* a service of the same rules */
    size_t step;
    uint64_t now_ns;
    uint64_t back_ns; /* when the wait is over that was in the last denial */
    struct result result, exact;
    char tickets[2][TICKETS][TICKET_TEXT_SIZE]; /* of server and service */
    jmp_buf failed;                             /* with the reason in `fault` */
    char fault[20480];
};

/* Ends the play: whether that fails the test is decided in play_under(). */
__attribute__((noreturn)) static void fail_play(struct play *play, const char *expected)
{
    const struct metrics *all = &play->result.all;
    snprintf(play->fault, sizeof(play->fault),
             "%s in %s: step %zu at %.3f s: expected %s; the reply is\n%s\n%s %jd granted, %jd of "
             "%jd remain, %jd ms",
             play->algorithm->name, store, play->step, (double)play->now_ns / 1e9, expected,
             play->result.reply, all->outcome, (intmax_t)all->granted, (intmax_t)all->remaining,
             (intmax_t)all->limit, (intmax_t)all->retry_after_ms);
    longjmp(play->failed, 1);
}

static bool are_same(const struct metrics *a, const struct metrics *b)
{
    return strcmp(a->outcome, b->outcome) == 0 && a->granted == b->granted &&
           a->limit == b->limit && a->remaining == b->remaining &&
           a->retry_after_ms == b->retry_after_ms && a->count == b->count &&
           a->expires_after_ms == b->expires_after_ms;
}

/* A frontend may leave out the statuses of a request that has one. */
static void compare_with_service(struct play *play)
{
    const struct result *result = &play->result, *exact = &play->exact;
    if (!are_same(&result->all, &exact->all) || result->binding != exact->binding ||
        result->replayed != exact->replayed ||
        (result->ticket[0] != '\0') != (exact->ticket[0] != '\0'))
        fail_play(play, "what a service decides");
    if (result->n_statuses == 0 && exact->n_statuses == 1)
        return;
    if (result->n_statuses != exact->n_statuses)
        fail_play(play, "a status for each descriptor");
    for (size_t i = 0; i < result->n_statuses; i++)
        if (!are_same(&result->statuses[i], &exact->statuses[i]))
            fail_play(play, "the status that a service has of each descriptor");
}

static void decide_once(struct play *play, struct request *request, const struct step *step)
{
    bool has_ticket = step->ticket >= 0 && request->n_descriptors + request->n_items == 0;
    if (has_ticket)
        request->ticket_text = span_of_text(play->tickets[1][step->ticket]);
    if (!service_decide(play->beside, request, play->now_ns, &play->exact))
        fail_msg("the service: %s", play->exact.reply);
    if (has_ticket)
        request->ticket_text = span_of_text(play->tickets[0][step->ticket]);
    if (!frontend->decide(play->server, play->beside, request, play->now_ns, &play->exact,
                          &play->result))
        fail_play(play, "a decision in every part of the reply");
    compare_with_service(play);
    if (!has_ticket && (step->ticket >= 0) != (play->result.ticket[0] != '\0'))
        fail_play(play, "a ticket where the step names one");
    if (step->ticket >= 0 && !has_ticket) {
        strcpy(play->tickets[0][step->ticket], play->result.ticket);
        strcpy(play->tickets[1][step->ticket], play->exact.ticket);
    }
}

static void compare_metric(struct play *play, const char *name, const json_t *expected,
                           int64_t value)
{
    char text[64];
    int64_t metric = json_is_null(expected) ? METRIC_NONE : (int64_t)json_integer_value(expected);
    if (expected == NULL || metric == value)
        return;
    snprintf(text, sizeof(text), "%s of %jd", name, (intmax_t)metric);
    fail_play(play, text);
}

/* What the service beside has of a status: what it has not, or another value, is a fault. */
static void compare_status(struct play *play, const struct metrics *exact, const json_t *expected)
{
    json_t *status = json_pack(
        "{s:s, s:I, s:I, s:I, s:b, s:b, s:b, s:b, s:b, s:I}", "outcome", exact->outcome, "granted",
        (json_int_t)exact->granted, "limit", (json_int_t)exact->limit, "remaining",
        (json_int_t)exact->remaining, "over", exact->over, "banned", exact->banned, "matched",
        exact->matched, "replaced", exact->replaced, "shadow_over", exact->shadow_over,
        "shadow_retry_after_ms", (json_int_t)exact->shadow_retry_after_ms);
    char *text = json_dumps(expected, JSON_COMPACT);
    json_t *both = json_deep_copy(status);
    json_object_update(both, (json_t *)(uintptr_t)expected);
    bool is_as_expected = json_equal(both, status);
    char copy[512];
    snprintf(copy, sizeof(copy), "a status with %s", text);
    free(text);
    json_decref(both);
    json_decref(status);
    if (!is_as_expected)
        fail_play(play, copy);
}

static void compare_statuses(struct play *play, const json_t *statuses)
{
    const json_t *expected;
    size_t i;
    if (json_array_size(statuses) > play->exact.n_statuses)
        fail_play(play, "more statuses");
    json_array_foreach(statuses, i, expected)
        compare_status(play, &play->exact.statuses[i], expected);
}

/* The figures of a step are of its last time, under the algorithms that do as all others. */
static void compare_metrics(struct play *play, const struct step *step)
{
    const struct metrics *all = &play->result.all;
    compare_metric(play, "granted", step->granted, all->granted);
    compare_metric(play, "limit", step->limit, all->limit);
    compare_metric(play, "remaining", step->remaining, all->remaining);
    compare_metric(play, "retry_after_ms", step->retry_after_ms, all->retry_after_ms);
    compare_metric(play, "binding", step->binding, (int64_t)play->result.binding);
    compare_metric(play, "count", step->count, all->count);
    compare_metric(play, "expires_after_ms", step->expires_after_ms, all->expires_after_ms);
    if (step->replayed >= 0 && step->replayed != play->result.replayed)
        fail_play(play, "another value of replayed");
}

/* What a peek of nothing replies as left of each. */
static void compare_left(struct play *play, json_t *left)
{
    const char *descriptors;
    json_t *expected;
    json_object_foreach(left, descriptors, expected)
    {
        const struct step look = {.ticket = -1};
        struct asked asked;
        struct request *request = descriptors_of(&asked, descriptors);
        request->verb = REQUEST_PEEK;
        request->cost = 0;
        decide_once(play, request, &look);
        compare_metric(play, descriptors, expected, play->result.all.remaining);
    }
}

static const char *differing_outcome(const struct play *play)
{
    char step[24];
    snprintf(step, sizeof(step), "%zu", play->step);
    return json_string_value(
        json_object_get(json_object_get(play->test->differs, play->algorithm->name), step));
}

static void set_time(struct play *play, const struct step *step)
{
    if (!isnan(step->at))
        play->now_ns = (uint64_t)llround(step->at * 1e9);
    else if (!isnan(step->after_wait))
        play->now_ns = play->back_ns + (uint64_t)llround(step->after_wait * 1e9);
    else if (!isnan(step->later))
        play->now_ns += (uint64_t)llround(step->later * 1e9);
}

static void play_step(struct play *play)
{
    struct step_request made;
    struct step step = read_step(play->test, play->step);
    const char *other = differing_outcome(play);
    const char *outcome = other != NULL ? other : step.expect;
    bool is_request =
        step.request != NULL || step.items != NULL || step.ticket >= 0 || step.key != NULL;
    set_time(play, &step);
    if (is_request == (outcome == NULL))
        fail_msg("step %zu: expected a request and its outcome", play->step);
    for (int time = 0; time < step.times && is_request; time++) {
        play->now_ns += time > 0 ? (uint64_t)llround(step.every * 1e9) : 0;
        make_request(&made, &step);
        decide_once(play, made.request, &step);
        if (strcmp(play->result.all.outcome, outcome) != 0)
            fail_play(play, outcome);
        if (other == NULL)
            compare_statuses(play, step.statuses);
    }
    if (other == NULL)
        compare_metrics(play, &step);
    if (is_request && strcmp(outcome, "deny") == 0)
        play->back_ns = play->now_ns + (uint64_t)play->result.all.retry_after_ms * MS;
    compare_left(play, step.left);
}

/* Why this case cannot hold in this store, by the case; NULL: it has to. */
static const char *why_not(const struct behaviour *test, const struct algorithm_case *algorithm)
{
    const json_t *reasons = json_object_get(test->not_in, store);
    return json_string_value(json_object_get(reasons, algorithm->name));
}

static bool play_all(struct play *play)
{
    if (setjmp(play->failed) != 0)
        return false;
    for (; play->step < json_array_size(play->test->steps); play->step++)
        play_step(play);
    return true;
}

static void play_under(const struct behaviour *test, const struct algorithm_case *algorithm)
{
    static struct play play;
    char rules[RULES_MAX];
    play = (struct play){.test = test, .algorithm = algorithm};
    write_rules(rules, test->rules, algorithm);
    store_set_hits(has_text(test->settings, "charges_hits"),
                   has_text(test->settings, "checks_debt"));
    play.server = frontend->open(rules, EPOCH_NS);
    play.beside = frontend_service.open(rules, EPOCH_NS);
    bool holds = play_all(&play);
    frontend->close(play.server);
    frontend_service.close(play.beside);
    store_take_back();
    const char *why = why_not(test, algorithm);
    if (!holds && why == NULL)
        fail_msg("%s", play.fault);
    if (holds && why != NULL)
        fail_msg("%s in %s holds, though not_in says: %s", algorithm->name, store, why);
}

static void test_case_under_every_algorithm(void **state)
{
    const struct behaviour test = read_case(*state);
    for (size_t i = 0; i < N(algorithms); i++)
        if (is_for(&test, &algorithms[i]))
            play_under(&test, &algorithms[i]);
}

/* ---- All of them ----------------------------------------------------------------------------- */

/* How many tests there are; 0 if the file cannot be read to its end. */
static size_t load(struct CMUnitTest *tests, const char *path)
{
    char line[16384];
    size_t n = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        perror(path);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        json_error_t why;
        json_t *test = json_loads(line, JSON_REJECT_DUPLICATES, &why);
        if (test == NULL || n == CASES_MAX) {
            fprintf(stderr, "%s:%zu: %s\n", path, n + 1, test == NULL ? why.text : "too many");
            json_decref(test);
            break;
        }
        tests[n++] = (struct CMUnitTest){
            .name = json_string_value(json_object_get(test, "name")),
            .test_func = test_case_under_every_algorithm,
            .initial_state = test,
        };
    }
    bool is_whole = file != NULL && feof(file);
    if (file != NULL)
        fclose(file);
    return is_whole ? n : 0;
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[CASES_MAX];
    for (size_t i = 0; i < N(frontends) && argc == 4; i++)
        if (strcmp(frontends[i]->name, argv[1]) == 0)
            frontend = frontends[i];
    store = argc == 4 ? argv[2] : "";
    if (frontend == NULL || !store_begin(store, EPOCH_NS)) {
        fprintf(stderr, "usage: behaviour service|resp|http|grpc table|redis|memcached CASES\n");
        return 2;
    }
    size_t n = load(tests, argv[3]);
    if (n == 0)
        fprintf(stderr, "%s: no cases\n", argv[3]);
    int failed = n == 0 ? 2 : _cmocka_run_group_tests(argv[1], tests, n, NULL, NULL);
    store_end();
    for (size_t i = 0; i < n; i++)
        json_decref(tests[i].initial_state);
    return failed;
}
