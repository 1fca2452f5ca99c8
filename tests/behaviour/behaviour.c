/* SPDX-License-Identifier: MIT */
/*
 * Runs cases.jsonl through one frontend, in virtual time, under every algorithm, with the states in
 * one store; README.md has the form. Whatever a frontend tells has to be what a service of the same
 * rules, asked beside it, decides.
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
    json_t *steps, *differs, *algorithms;
    json_t *not_in; /* by store and algorithm: why the case cannot hold there */
};

struct step {
    double at, told; /* seconds; NAN: not said */
    const char *ask, *expect;
    int times, cost;
    json_t *granted, *limit, *remaining, *retry_after_ms; /* NULL: not said */
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
    if (json_unpack_ex(line, &why, JSON_STRICT, "{s:s, s:s, s:o, s?o, s?s, s?o, s?o}", "name",
                       &test.name, "rules", &test.rules, "steps", &test.steps, "differs",
                       &test.differs, "why", &test.why, "algorithms", &test.algorithms, "not_in",
                       &test.not_in) != 0)
        fail_msg("%s", why.text);
    check_names(&test);
    return test;
}

static struct step read_step(const struct behaviour *test, size_t i)
{
    struct step step = {.at = NAN, .told = NAN, .times = 1, .cost = 1};
    json_error_t why;
    if (json_unpack_ex(json_array_get(test->steps, i), &why, JSON_STRICT,
                       "{s?F, s?F, s:s, s:s, s?i, s?i, s?o, s?o, s?o, s?o}", "at", &step.at, "told",
                       &step.told, "ask", &step.ask, "expect", &step.expect, "times", &step.times,
                       "cost", &step.cost, "granted", &step.granted, "limit", &step.limit,
                       "remaining", &step.remaining, "retry_after_ms", &step.retry_after_ms) != 0)
        fail_msg("step %zu: %s", i, why.text);
    if (isnan(step.at) == isnan(step.told))
        fail_msg("step %zu: expected one of at and told", i);
    return step;
}

/* Some speak of what one algorithm alone can say. */
static bool is_for(const struct behaviour *test, const struct algorithm_case *algorithm)
{
    bool found = test->algorithms == NULL;
    for (size_t i = 0; i < json_array_size(test->algorithms); i++)
        found |=
            strcmp(json_string_value(json_array_get(test->algorithms, i)), algorithm->name) == 0;
    return found;
}

/* Puts the keys of algorithm and store where the case says LAW. */
static void write_rules(char *to, const char *from, const struct algorithm_case *algorithm)
{
    size_t at = 0;
    char keys[128];
    snprintf(keys, sizeof(keys), "%s%s", algorithm->keys, store_keys());
    while (*from != '\0') {
        bool is_placeholder = strncmp(from, "LAW", 3) == 0;
        size_t len = is_placeholder ? strlen(keys) : 1;
        assert_true(at + len < RULES_MAX);
        memcpy(to + at, is_placeholder ? keys : from, len);
        at += len;
        from += is_placeholder ? 3 : 1;
    }
    to[at] = '\0';
}

/* ---- Playing it ------------------------------------------------------------------------------ */

struct play {
    const struct behaviour *test;
    const struct algorithm_case *algorithm;
    void *server;  /* behind the frontend */
    void *service; /* beside it; NULL: the frontend is the service itself */
    size_t step;
    uint64_t now_ns;
    uint64_t back_ns; /* when the last who was denied was told to come back */
    struct told told, exact;
    jmp_buf failed; /* with the reason in `fault` */
    char fault[8192];
};

/* Ends the play: whether that fails the test is decided in play_under(). */
__attribute__((noreturn)) static void fail_play(struct play *play, const char *expected)
{
    snprintf(play->fault, sizeof(play->fault),
             "%s in %s: step %zu at %.3f s: expected %s; told\n%s\n%s %jd granted, %jd of %jd "
             "remain, %jd ms",
             play->algorithm->name, store, play->step, (double)play->now_ns / 1e9, expected,
             play->told.answer, play->told.all.outcome, (intmax_t)play->told.all.granted,
             (intmax_t)play->told.all.remaining, (intmax_t)play->told.all.limit,
             (intmax_t)play->told.all.retry_after_ms);
    longjmp(play->failed, 1);
}

static bool are_same(const struct metrics *a, const struct metrics *b)
{
    return strcmp(a->outcome, b->outcome) == 0 && a->granted == b->granted &&
           a->limit == b->limit && a->remaining == b->remaining &&
           a->retry_after_ms == b->retry_after_ms;
}

/* A frontend may leave out the statuses of a request that has one. */
static void compare_with_service(struct play *play)
{
    const struct told *told = &play->told, *exact = &play->exact;
    if (!are_same(&told->all, &exact->all) || told->binding != exact->binding)
        fail_play(play, "what a service decides");
    if (told->n_statuses == 0 && exact->n_statuses == 1)
        return;
    if (told->n_statuses != exact->n_statuses)
        fail_play(play, "a status for each descriptor");
    for (size_t i = 0; i < told->n_statuses; i++)
        if (!are_same(&told->statuses[i], &exact->statuses[i]))
            fail_play(play, "the status that a service tells of each descriptor");
}

static void ask_once(struct play *play, const struct request *request)
{
    if (!frontend->ask(play->server, request, play->now_ns, &play->told))
        fail_play(play, "a decision in every part of the answer");
    if (play->service == NULL)
        return;
    if (!frontend_service.ask(play->service, request, play->now_ns, &play->exact))
        fail_msg("the service: %s", play->exact.answer);
    compare_with_service(play);
}

static void compare_metric(struct play *play, const char *name, const json_t *expected,
                           int64_t told)
{
    char text[64];
    int64_t metric = json_is_null(expected) ? TOLD_NONE : (int64_t)json_integer_value(expected);
    if (expected == NULL || metric == told)
        return;
    snprintf(text, sizeof(text), "%s of %jd", name, (intmax_t)metric);
    fail_play(play, text);
}

/* The figures of a step are of its last time, under the algorithms that do as all others. */
static void compare_metrics(struct play *play, const struct step *step)
{
    const struct metrics *told = &play->told.all;
    compare_metric(play, "granted", step->granted, told->granted);
    compare_metric(play, "limit", step->limit, told->limit);
    compare_metric(play, "remaining", step->remaining, told->remaining);
    compare_metric(play, "retry_after_ms", step->retry_after_ms, told->retry_after_ms);
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
    if (isnan(step->told))
        play->now_ns = (uint64_t)llround(step->at * 1e9);
    else
        play->now_ns = play->back_ns + (uint64_t)llround(step->told * 1e9);
}

static void play_step(struct play *play)
{
    struct asked asked;
    struct step step = read_step(play->test, play->step);
    const char *other = differing_outcome(play);
    const char *outcome = other != NULL ? other : step.expect;
    struct request *request = descriptors_of(&asked, step.ask);
    request->cost = (uint32_t)step.cost;
    set_time(play, &step);
    for (int time = 0; time < step.times; time++) {
        ask_once(play, request);
        if (strcmp(play->told.all.outcome, outcome) != 0)
            fail_play(play, outcome);
    }
    if (other == NULL)
        compare_metrics(play, &step);
    if (strcmp(outcome, "deny") == 0)
        play->back_ns = play->now_ns + (uint64_t)play->told.all.retry_after_ms * MS;
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
    play.server = frontend->open(rules, EPOCH_NS);
    if (frontend != &frontend_service)
        play.service = frontend_service.open(rules, EPOCH_NS);
    bool holds = play_all(&play);
    frontend->close(play.server);
    if (play.service != NULL)
        frontend_service.close(play.service);
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
