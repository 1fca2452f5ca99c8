/* SPDX-License-Identifier: MIT */
/* Runs cases.jsonl through a service, in virtual time, under every law; README.md has the form. */
#include "unit/serving.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

/* A Monday on which a month begins: Monday, 1 January 2024. */
#define EPOCH_NS (INT64_C(1704067200) * 1000000000)
#define RULES_MAX 4096

static const struct law {
    const char *name, *keys;
} laws[] = {
    {"window", "algorithm: window"},
    {"window12", "algorithm: window, resolution: 12"},
    {"buckets", "algorithm: buckets, count_slack: 1"},
    {"log", "algorithm: log"},
    {"gcra", "algorithm: gcra"},
    {"fixed_window", "algorithm: fixed_window"},
    {"sliding_counter", "algorithm: sliding_counter"},
};

static const char *cases_path;
static const char *const outcomes[] = {"allow", "deny", "never"};

/* Puts the law's keys where the case says LAW; false if they do not fit. */
static void write_rules(char *to, const char *from, const struct law *law)
{
    size_t at = 0;
    while (*from != '\0') {
        bool is_law = strncmp(from, "LAW", 3) == 0;
        size_t len = is_law ? strlen(law->keys) : 1;
        assert_true(at + len < RULES_MAX);
        memcpy(to + at, is_law ? law->keys : from, len);
        at += len;
        from += is_law ? 3 : 1;
    }
    to[at] = '\0';
}

static const char *expected_of(const json_t *test, const struct law *law, size_t i)
{
    char step[24];
    const json_t *differs = json_object_get(json_object_get(test, "differs"), law->name);
    snprintf(step, sizeof(step), "%zu", i);
    const json_t *other = json_object_get(differs, step);
    const json_t *common =
        json_object_get(json_array_get(json_object_get(test, "steps"), i), "expect");
    return json_string_value(other != NULL ? other : common);
}

static void play_step(struct serving *s, const json_t *test, const struct law *law, size_t i)
{
    const json_t *step = json_array_get(json_object_get(test, "steps"), i);
    const json_t *times = json_object_get(step, "times"), *cost = json_object_get(step, "cost");
    const char *asked = json_string_value(json_object_get(step, "ask"));
    const char *expected = expected_of(test, law, i);
    long n = times != NULL ? (long)json_integer_value(times) : 1;
    s->now_ns = (uint64_t)llround(json_number_value(json_object_get(step, "at")) * 1e9);
    for (long time = 0; time < n; time++) {
        const struct reply *reply =
            ask_verb(s, REQUEST_TAKE, cost != NULL ? (uint32_t)json_integer_value(cost) : 1, asked);
        if (reply->error != REPLY_DECIDED)
            fail_msg("%s", reply->sentence);
        if (strcmp(outcomes[reply->decision.outcome], expected) != 0)
            fail_msg("%s: %s: step %zu, time %ld, %s: %s, expected %s",
                     json_string_value(json_object_get(test, "name")), law->name, i, time, asked,
                     outcomes[reply->decision.outcome], expected);
    }
}

static void play(const json_t *test, const struct law *law)
{
    struct serving s;
    char rules[RULES_MAX];
    write_rules(rules, json_string_value(json_object_get(test, "rules")), law);
    serve_since(&s, rules, EPOCH_NS);
    for (size_t i = 0; i < json_array_size(json_object_get(test, "steps")); i++)
        play_step(&s, test, law, i);
    serve_no_more(&s);
}

/* Some speak of what one law alone can say. */
static bool is_for(const json_t *test, const struct law *law)
{
    const json_t *names = json_object_get(test, "laws");
    bool found = names == NULL;
    for (size_t i = 0; i < json_array_size(names); i++)
        found |= strcmp(json_string_value(json_array_get(names, i)), law->name) == 0;
    return found;
}

static void test_every_case_under_every_law(void **state)
{
    char line[16384];
    size_t n_cases = 0;
    (void)state;
    FILE *file = fopen(cases_path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        json_error_t why;
        json_t *test = json_loads(line, JSON_REJECT_DUPLICATES, &why);
        if (test == NULL)
            fail_msg("%s:%zu: %s", cases_path, n_cases + 1, why.text);
        for (size_t i = 0; i < N(laws); i++)
            if (is_for(test, &laws[i]))
                play(test, &laws[i]);
        json_decref(test);
        n_cases++;
    }
    fclose(file);
    assert_true(n_cases >= 20);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_case_under_every_law)};
    if (argc != 2)
        return 2;
    cases_path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
