/* SPDX-License-Identifier: MIT */
/*
 * The store over memcached, asked line by line, for test_memcached_*.py:
 *
 *     store_memcached URL PREFIX [AHEAD_NS [TIMEOUT_MS [CA_FILE]]]
 *
 * whose clock is so far ahead of the system's. A line is
 *     ask VERB NOW_NS AT_NS [ID GOOD_NS] {TAB COST[/KEPT] TAB KEY TAB SPEC}…
 *     once VERB {TAB COST TAB KEY TAB SPEC}…     with the id of a request
 *     load COUNT PARALLEL COST KEY TAB SPEC
 * SPEC may be "counter EXPIRY_US". VERB as a number, NOW_NS of - for real time, ID of a ticket: a
 * number. Of an ask a line is answered: the outcome as enum backend_outcome, the time, then the
 * decision over all and those of each item between bars, and a counter's count; or the message of
 * what went wrong. A load is so many takes, so many of them at once: each that was granted is a
 * line "granted TIME UNITS", then comes "done", and how many were decided and failed. "figures"
 * prints what was counted.
 */
#define _GNU_SOURCE
#include "algorithm/algorithm.h"
#include "base/ns.h"
#include "net/upstream/backends.h"
#include "table/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 65536
#define OUTPUT_MAX_BYTES (8u << 20)

static struct {
    uv_loop_t loop;
    struct stores *stores;
    struct backend *store;
    uint64_t ahead_ns, timeout_ns, skew_told_ns;
} run;

static uint64_t wall(void)
{
    return (uint64_t)clock_wall_ns() + run.ahead_ns;
}

static void skewed(void *arg, uint64_t skew_ns)
{
    (void)arg;
    run.skew_told_ns = skew_ns;
}

static char *field(char **rest)
{
    char *found = strsep(rest, "\t\n");
    if (found == NULL) {
        fprintf(stderr, "store_memcached: a field is missing\n");
        exit(2);
    }
    return found;
}

static void parse(struct stint_quota *quota, const char *spec)
{
    struct stint_error error;
    uint64_t expiry_us;
    if (sscanf(spec, "counter %" SCNu64, &expiry_us) == 1) {
        *quota = counter_quota();
        quota->period_ns = expiry_us * NS_PER_US;
        return;
    }
    if (stint_quota_parse(quota, spec, &error) == 0)
        return;
    fprintf(stderr, "store_memcached: %s\n", error.message);
    exit(2);
}

static void print_decision(const struct stint_decision *decision)
{
    printf(" | %u %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %u",
           decision->outcome, decision->granted, decision->limit, decision->remaining,
           decision->retry_after_ns, decision->reset_after_ns, decision->binding);
}

static void print_answer(const struct backend_answer *answer, size_t n_items, bool is_counter)
{
    printf("%u %" PRIu64, answer->outcome, answer->at_ns);
    if (answer->outcome == BACKEND_DECIDED) {
        print_decision(&answer->sum);
        for (size_t i = 0; i < n_items; i++)
            print_decision(&answer->each[i]);
        if (is_counter)
            printf(" | %" PRIu64, answer->count);
    } else
        printf(" %s", answer->error != NULL ? answer->error : "");
    putchar('\n');
}

/* ---- One ask --------------------------------------------------------------------------------- */

static void stop(struct backend_op *op, uint64_t now_ns)
{
    (void)now_ns;
    *(bool *)op->arg = true;
    uv_stop(&run.loop);
}

static size_t read_items(char *rest, struct backend_item *items)
{
    static struct stint_quota quotas[STINT_ITEMS_MAX];
    size_t n_items = 0;
    while (rest != NULL && *rest != '\0') {
        struct backend_item *item = &items[n_items];
        *item = (struct backend_item){.quota = &quotas[n_items], .name = span_of_text("test")};
        char *kept;
        item->cost = (uint32_t)strtoul(field(&rest), &kept, 10);
        item->kept = *kept == '/' ? (uint32_t)strtoul(kept + 1, NULL, 10) : STINT_KEEP_ALL;
        item->key = span_of_text(field(&rest));
        parse(&quotas[n_items++], field(&rest));
    }
    return n_items;
}

static void once(char *rest)
{
    static const uint8_t id[BACKEND_ID_LEN] = {1};
    struct backend_item items[STINT_ITEMS_MAX];
    struct stint_decision each[STINT_ITEMS_MAX];
    struct backend_op op = {.answer.each = each};
    struct backend_request asked = {.items = items, .now_ns = uv_hrtime(), .id = id};
    asked.verb = (uint8_t)strtoul(field(&rest), NULL, 10);
    asked.deadline_ns = asked.now_ns + run.timeout_ns;
    asked.n_items = read_items(rest, items);
    run.store->ops->ask(run.store, &asked, &op);
    if (op.answer.outcome == BACKEND_WAITS) /* it must not be asked at all */
        exit(1);
    print_answer(&op.answer, asked.n_items, items[0].quota->algorithm == STINT_COUNTER);
}

static void ask(char *rest)
{
    struct backend_item items[STINT_ITEMS_MAX];
    struct stint_decision each[STINT_ITEMS_MAX];
    bool is_answered = false;
    struct backend_op op = {.answer.each = each, .answered = stop, .arg = &is_answered};
    struct backend_request asked = {.items = items, .now_ns = uv_hrtime()};
    char now[32], *head = field(&rest);
    uint8_t id[BACKEND_ID_LEN] = {0};
    uint64_t number;
    unsigned verb;
    int n_words = sscanf(head, "%u %31s %" SCNu64 " %" SCNu64 " %" SCNu64, &verb, now, &asked.at_ns,
                         &number, &asked.ticket_ns);
    if (n_words != 3 && n_words != 5)
        exit(2);
    asked.verb = (uint8_t)verb;
    if (n_words == 5) {
        memcpy(id, &number, sizeof(number));
        asked.id = id;
        asked.is_ticket = true;
    }
    asked.deadline_ns = asked.now_ns + run.timeout_ns;
    asked.is_virtual = strcmp(now, "-") != 0;
    if (asked.is_virtual)
        asked.now_ns = strtoull(now, NULL, 10);
    asked.n_items = read_items(rest, items);
    run.store->ops->ask(run.store, &asked, &op);
    if (op.answer.outcome != BACKEND_WAITS) /* nobody else runs the loop */
        uv_run(&run.loop, UV_RUN_NOWAIT);
    while (op.answer.outcome == BACKEND_WAITS && !is_answered)
        uv_run(&run.loop, UV_RUN_ONCE);
    print_answer(&op.answer, asked.n_items, items[0].quota->algorithm == STINT_COUNTER);
}

/* ---- Many ------------------------------------------------------------------------------------ */

struct load {
    struct stint_quota quota;
    char *key;
    uint32_t cost;
    unsigned left, n_waiting, decided, failed;
};

struct one {
    struct backend_op op;
    struct stint_decision each;
};

static void go_on(struct one *one, struct load *load);

static void take(struct backend_op *op, uint64_t now_ns)
{
    struct load *load = op->arg;
    (void)now_ns;
    load->n_waiting--;
    if (op->answer.outcome == BACKEND_DECIDED) {
        load->decided++;
        if (op->answer.sum.granted > 0)
            printf("granted %" PRIu64 " %" PRIu32 "\n", op->answer.at_ns, op->answer.sum.granted);
    } else
        load->failed++;
    if (load->left > 0)
        go_on((struct one *)op, load);
}

static void go_on(struct one *one, struct load *load)
{
    const struct backend_item item = {.quota = &load->quota,
                                      .name = span_of_text("test"),
                                      .key = span_of_text(load->key),
                                      .cost = load->cost};
    uint64_t now_ns = uv_hrtime();
    const struct backend_request asked = {.verb = REQUEST_TAKE,
                                          .items = &item,
                                          .n_items = 1,
                                          .now_ns = now_ns,
                                          .deadline_ns = now_ns + run.timeout_ns};
    while (load->left > 0) {
        load->left--;
        *one = (struct one){.op = {.answer.each = &one->each, .answered = take, .arg = load}};
        run.store->ops->ask(run.store, &asked, &one->op);
        if (one->op.answer.outcome == BACKEND_WAITS) {
            load->n_waiting++;
            return;
        }
        load->failed++; /* at once */
    }
}

static void load_many(char *rest)
{
    struct load load = {0};
    unsigned parallel;
    char *head = field(&rest), key[256];
    if (sscanf(head, "%u %u %" SCNu32 " %255s", &load.left, &parallel, &load.cost, key) != 4)
        exit(2);
    load.key = key;
    parse(&load.quota, field(&rest));
    struct one *all = calloc(parallel, sizeof(*all));
    if (all == NULL)
        exit(2);
    for (unsigned i = 0; i < parallel && load.left > 0; i++)
        go_on(&all[i], &load);
    while (load.n_waiting > 0)
        uv_run(&run.loop, UV_RUN_ONCE);
    free(all);
    printf("done %u %u\n", load.decided, load.failed);
}

static void print_metrics(void)
{
    const struct memcached_metrics *metrics = memcached_backend_metrics(run.store);
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
           " %" PRIu64 "\n",
           metrics->asks, metrics->conflicts, metrics->lost, metrics->kept, metrics->restarts,
           metrics->skew_ns, metrics->damaged, run.skew_told_ns);
}

/* The loop runs while nobody asks: answers to looks at clocks, and sockets that go. */
static void idle(unsigned long ms)
{
    uint64_t end_ns = uv_hrtime() + ms * NS_PER_MS;
    while (uv_hrtime() < end_ns)
        if (uv_run(&run.loop, UV_RUN_NOWAIT) >= 0)
            uv_sleep(1);
    puts("idle");
}

int main(int argc, char **argv)
{
    static char line[LINE_MAX_BYTES];
    struct store_url url;
    struct stint_error error;
    if (argc < 3 || store_url_parse(&url, argv[1], &error) != 0)
        return 2;
    run.ahead_ns = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    run.timeout_ns = (argc > 4 ? strtoull(argv[4], NULL, 10) : 2000) * NS_PER_MS;
    struct upstream_tls *tls = NULL;
    const struct upstream_tls_paths paths = {.ca_file = argc > 5 ? argv[5] : NULL};
    if (url.is_tls && upstream_tls_load(&tls, &paths, &error) != 0)
        return 2;
    /* All that a load prints: a store whose process waits for its reader would be late. */
    setvbuf(stdout, NULL, _IOFBF, OUTPUT_MAX_BYTES);
    uv_loop_init(&run.loop);
    const struct store_config config = {.url = url,
                                        .tls = tls,
                                        .prefix = argv[2],
                                        .reply_ns = run.timeout_ns,
                                        .without_front = true};
    const struct stores_options options = {
        .loop = &run.loop, .configs = &config, .n_configs = 1, .wall = wall, .skewed = skewed};
    if (stores_open(&run.stores, &options, &error) != 0)
        return 2;
    run.store = stores_all(run.stores)[0];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strncmp(line, "ask ", 4) == 0)
            ask(line + 4);
        else if (strncmp(line, "load ", 5) == 0)
            load_many(line + 5);
        else if (strncmp(line, "once ", 5) == 0)
            once(line + 5);
        else if (strncmp(line, "idle ", 5) == 0)
            idle(strtoul(line + 5, NULL, 10));
        else if (strcmp(line, "figures\n") == 0)
            print_metrics();
        else
            return 2;
        fflush(stdout);
    }
    stores_close(run.stores);
    uv_run(&run.loop, UV_RUN_DEFAULT);
    upstream_tls_free(tls);
    return uv_loop_close(&run.loop) == 0 ? 0 : 1;
}
