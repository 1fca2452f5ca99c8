/* SPDX-License-Identifier: MIT */
/*
 * What backend/redis/pool_backend.h makes of asks and replies, for test_store_pools.py. A line is
 *     pool ORDER {TAB NAME TAB WEIGHT TAB SPEC[|SPEC…]}…       the pool from here on
 *     next NOW COST PROBE | status NOW | give_back NAME COST AT NOW
 *     report NAME OUTCOME COOLDOWN NOW | let_in NAME NOW
 *     read next|status|back INTEGER…
 * Times are in ns, NOW of - is the store's. Answered by a line: of an ask its words in hexadecimal,
 * an empty one as -; of a reply what it says; `none` where there is nothing to be said.
 */
#include "backend/redis/pool_backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES (1 << 18)
#define KEYS_MAX 128

static struct backend_pool_list *pool;
static struct pool_command command;

static void define(char *line)
{
    static struct stint_quota quotas[KEYS_MAX][STINT_POOL_QUOTAS_MAX];
    struct stint_pool_key keys[KEYS_MAX];
    struct stint_error error;
    struct backend_pool_definition options = {
        .name = span_of_text("a pool"), .order = (uint8_t)strtoul(line, &line, 10), .keys = keys};
    char *rest = *line == '\t' ? line + 1 : NULL;
    while (rest != NULL && options.n_keys < KEYS_MAX) {
        struct stint_pool_key *key = &keys[options.n_keys];
        key->name = strsep(&rest, "\t\n");
        key->weight = (uint32_t)strtoul(strsep(&rest, "\t\n"), NULL, 10);
        key->quotas = quotas[options.n_keys];
        key->n_quotas = 0;
        char *specs = strsep(&rest, "\t\n");
        for (char *spec; (spec = strsep(&specs, "|")) != NULL; key->n_quotas++)
            if (stint_quota_parse(&quotas[options.n_keys][key->n_quotas], spec, &error) != STINT_OK)
                exit(2);
        options.n_keys++;
        if (rest != NULL && *rest == '\0')
            rest = NULL;
    }
    pool_backend_free(pool);
    pool = NULL;
    puts(pool_backend_new(&pool, span_of_text("stint:"), &options, &error) == 0 ? "made"
                                                                                : error.message);
}

static struct pool_time time_of(const char *word)
{
    bool is_virtual = word != NULL && strcmp(word, "-") != 0;
    return (struct pool_time){is_virtual, is_virtual ? strtoull(word, NULL, 10) : 0};
}

static uint64_t number_of(const char *word)
{
    return word != NULL ? strtoull(word, NULL, 10) : 0;
}

static bool ask(char **words)
{
    struct span name = words[1] != NULL ? span_of_text(words[1]) : span_of_text("");
    struct backend_pool_request asked = {.list = pool, .key = name};
    const char *time = words[4];
    if (strcmp(words[0], "next") == 0) {
        asked.verb = BACKEND_POOL_NEXT;
        asked.cost = (uint32_t)number_of(words[2]);
        asked.probe = number_of(words[3]) == 1;
        time = words[1];
    } else if (strcmp(words[0], "status") == 0) {
        asked.verb = BACKEND_POOL_STATUS;
        time = words[1];
    } else if (strcmp(words[0], "give_back") == 0) {
        asked.verb = BACKEND_POOL_GIVE_BACK;
        asked.cost = (uint32_t)number_of(words[2]);
        asked.at_ns = number_of(words[3]);
    } else if (strcmp(words[0], "report") == 0) {
        asked.verb = BACKEND_POOL_REPORT;
        asked.outcome = (uint8_t)number_of(words[2]);
        asked.cooldown_ns = number_of(words[3]);
    } else if (strcmp(words[0], "let_in") == 0) {
        asked.verb = BACKEND_POOL_LET_IN;
        time = words[2];
    } else {
        return false;
    }
    return pool_command_make(&command, &asked, time_of(time));
}

static void print_words(void)
{
    for (size_t i = 0; i < command.n_words; i++) {
        for (size_t at = 0; at < command.words[i].len; at++)
            printf("%02x", command.words[i].ptr[at]);
        fputs(command.words[i].len == 0 ? "-" : "", stdout);
        putchar(i + 1 < command.n_words ? ' ' : '\n');
    }
}

static void print_decision(const struct stint_decision *told)
{
    printf("%u %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %u", told->outcome,
           told->granted, told->limit, told->remaining, told->retry_after_ns, told->reset_after_ns,
           told->binding);
}

static bool print_reply(const char *what, const int64_t *values, size_t n_values)
{
    static struct stint_pool_status statuses[KEYS_MAX];
    struct backend_pool_answer answer = {.statuses = statuses};
    uint8_t verb = strcmp(what, "next") == 0     ? BACKEND_POOL_NEXT
                   : strcmp(what, "status") == 0 ? BACKEND_POOL_STATUS
                                                 : BACKEND_POOL_GIVE_BACK;
    if (!pool_backend_read(pool, verb, values, n_values, &answer))
        return false;
    if (verb == BACKEND_POOL_NEXT) {
        const struct stint_pool_answer *next = &answer.next;
        printf("%s %" PRIu64 " %" PRIu64 " %d ", next->name != NULL ? next->name : "-",
               next->wait_ns, next->granted_at_ns, next->probe);
        print_decision(&next->decision);
    } else if (verb == BACKEND_POOL_STATUS) {
        for (size_t i = 0; i < pool_backend_n_keys(pool); i++) {
            printf("%s %" PRIu32 " %u %u %" PRIu64 " ", statuses[i].name, statuses[i].weight,
                   statuses[i].standing, statuses[i].failures, statuses[i].returns_after_ns);
            print_decision(&statuses[i].decision);
            putchar(' ');
        }
    } else {
        printf("%" PRIu32, answer.given_back);
    }
    putchar('\n');
    return true;
}

static void answer_line(char *line)
{
    static int64_t values[POOL_STORE_STATUS * KEYS_MAX + 1];
    char *words[8] = {NULL};
    size_t n_words = 0, n_values = 0;
    for (char *word = strtok(line, " \n"); word != NULL; word = strtok(NULL, " \n")) {
        if (n_words < 2 || strcmp(words[0], "read") != 0)
            words[n_words < 7 ? n_words++ : 7] = word;
        else if (n_values < sizeof(values) / sizeof(values[0]))
            values[n_values++] = strtoll(word, NULL, 10);
    }
    if (n_words == 0)
        exit(2);
    if (strcmp(words[0], "read") == 0 && n_words == 2) {
        if (!print_reply(words[1], values, n_values))
            puts("none");
    } else if (ask(words)) {
        print_words();
    } else {
        puts("none");
    }
}

int main(void)
{
    static char line[LINE_MAX_BYTES];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strncmp(line, "pool ", 5) == 0)
            define(line + 5);
        else
            answer_line(line);
        fflush(stdout);
    }
    pool_command_deinit(&command);
    pool_backend_free(pool);
    return 0;
}
