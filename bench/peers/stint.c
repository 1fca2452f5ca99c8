/* SPDX-License-Identifier: MIT */
/* The protocol of README.md for the library itself, with the clock of its table. */
#include <stint.h>

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY_LEN 16
#define THREADS_MAX 8
#define BATCH 32
#define OTHER_KEYS 64 /* of the state sizes that are not used */
#define UPKEEP_NS 1000000

struct bench {
    struct stint_quota quota;
    struct stint_table *table;
    char (*keys)[KEY_LEN];
    uint32_t *sequence;
    size_t sequence_len; /* a power of two */
    unsigned long n_keys, n_threads, operations, turns;
    bool in_batches, keeps_time, asks_clock;
    atomic_uint_fast64_t kept_ns; /* keeps_time: the time that a thread of its own advances */
};

struct thread {
    pthread_t id;
    const struct bench *bench;
    unsigned long number, granted;
};

static void *checked(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

static void key_text(char *key, unsigned long index)
{
    assert(index <= UINT32_MAX);
    snprintf(key, KEY_LEN + 1, "user:0%010u", (unsigned)index);
}

static uint64_t now(const struct bench *bench)
{
    return bench->keeps_time ? atomic_load_explicit(&bench->kept_ns, memory_order_relaxed)
                             : stint_now(bench->table);
}

/* For as long as the process lives. */
static void *thread_upkeep(void *arg)
{
    struct bench *bench = arg;
    for (;;) {
        atomic_store_explicit(&bench->kept_ns, stint_now(bench->table), memory_order_relaxed);
        nanosleep(&(struct timespec){.tv_nsec = UPKEEP_NS}, NULL);
    }
    return NULL;
}

static void time_keep(struct bench *bench)
{
    pthread_t id;
    atomic_store(&bench->kept_ns, stint_now(bench->table));
    if (pthread_create(&id, NULL, thread_upkeep, bench) != 0)
        exit(1);
    pthread_detach(id);
}

static bool take(const struct bench *bench, const char *key)
{
    struct stint_decision decision =
        bench->keeps_time || bench->asks_clock
            ? stint_take(bench->table, &bench->quota, key, KEY_LEN, 1, now(bench))
            : stint_take_now(bench->table, &bench->quota, key, KEY_LEN, 1);
    return decision.outcome == STINT_ALLOW;
}

/* Only states of the quota's size need space. */
static struct stint_table *table_open(const struct bench *bench)
{
    struct stint_table_options options = {
        .keys = OTHER_KEYS,
        .keys16 = OTHER_KEYS,
        .keys_wide = OTHER_KEYS,
        .huge_pages = true,
    };
    size_t size = stint_state_size(&bench->quota);
    *(size == 8    ? &options.keys
      : size == 16 ? &options.keys16
                   : &options.keys_wide) = bench->n_keys > OTHER_KEYS ? bench->n_keys : OTHER_KEYS;
    struct stint_table *table;
    struct stint_error error;
    if (stint_table_open(&table, &options, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return table;
}

static double seconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

struct stopwatch {
    double wall, cpu;
};

static struct stopwatch stopwatch_start(void)
{
    return (struct stopwatch){seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

static void turn_report(const struct bench *bench, unsigned long granted, struct stopwatch start)
{
    printf("{\"operations\": %lu, \"granted\": %lu, \"cpu_s\": %.9f, \"wall_s\": %.9f}\n",
           bench->operations, granted, seconds(CLOCK_PROCESS_CPUTIME_ID) - start.cpu,
           seconds(CLOCK_MONOTONIC) - start.wall);
}

static const char *key_at(const struct bench *bench, size_t at)
{
    return bench->keys[bench->sequence[at & (bench->sequence_len - 1)]];
}

/* All keys of a batch are decided at one time, as by a caller that has them at once. */
static unsigned long take_batch(const struct bench *bench, size_t at, size_t n)
{
    struct stint_item items[BATCH];
    struct stint_decision decisions[BATCH];
    unsigned long granted = 0;
    assert(n <= BATCH);
    for (size_t i = 0; i < n; i++)
        items[i] = (struct stint_item){
            .quota = &bench->quota, .key = key_at(bench, at + i), .key_len = KEY_LEN, .cost = 1};
    stint_take_batch(bench->table, items, decisions, n, now(bench));
    for (size_t i = 0; i < n; i++)
        granted += decisions[i].outcome == STINT_ALLOW;
    return granted;
}

static void *thread_keyed(void *arg)
{
    struct thread *thread = arg;
    const struct bench *bench = thread->bench;
    unsigned long share = bench->operations / bench->n_threads, granted = 0;
    size_t at = bench->turns * share + thread->number * (bench->sequence_len / bench->n_threads);
    if (bench->in_batches) {
        for (unsigned long i = 0; i < share; i += BATCH)
            granted += take_batch(bench, at + i, share - i < BATCH ? share - i : BATCH);
    } else {
        for (unsigned long i = 0; i < share; i++)
            granted += take(bench, key_at(bench, at + i));
    }
    thread->granted = granted;
    return NULL;
}

static void turn_keyed(struct bench *bench)
{
    struct thread threads[THREADS_MAX];
    unsigned long granted = 0;
    struct stopwatch start = stopwatch_start();
    for (unsigned long i = 0; i < bench->n_threads; i++)
        threads[i] = (struct thread){.bench = bench, .number = i};
    for (unsigned long i = 1; i < bench->n_threads; i++) {
        if (pthread_create(&threads[i].id, NULL, thread_keyed, &threads[i]) != 0)
            exit(1);
    }
    thread_keyed(&threads[0]);
    for (unsigned long i = 0; i < bench->n_threads; i++) {
        if (i > 0)
            pthread_join(threads[i].id, NULL);
        granted += threads[i].granted;
    }
    turn_report(bench, granted, start);
    bench->turns++;
}

static void turn_one(struct bench *bench, struct stint_cell8 *cell8, struct stint_cell16 *cell16)
{
    bool small = stint_state_size(&bench->quota) == 8;
    unsigned long granted = 0;
    struct stopwatch start = stopwatch_start();
    for (unsigned long i = 0; i < bench->operations; i++) {
        uint64_t now_ns = now(bench);
        granted += (small ? stint_cell8_take(&bench->quota, cell8, now_ns, 1)
                          : stint_cell16_take(&bench->quota, cell16, now_ns, 1))
                       .outcome == STINT_ALLOW;
    }
    turn_report(bench, granted, start);
}

static void turn_memory(struct bench *bench)
{
    char key[KEY_LEN + 1];
    bench->table = table_open(bench); /* kept until the end */
    for (unsigned long i = 0; i < bench->n_keys; i++) {
        key_text(key, i);
        take(bench, key);
    }
    printf("{\"keys\": %lu}\n", bench->n_keys);
}

static void answer_ask(struct bench *bench, const char *line)
{
    char key[KEY_LEN + 1] = "";
    unsigned long n, granted = 0;
    if (sscanf(line, "ask %16s %lu", key, &n) != 2) {
        fprintf(stderr, "expected: ask KEY N\n");
        exit(2);
    }
    for (unsigned long i = 0; i < n; i++)
        granted += take(bench, key);
    printf("{\"granted\": %lu}\n", granted);
}

static void prepare_keyed(struct bench *bench, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) < 0) {
        perror(path);
        exit(1);
    }
    bench->sequence_len = (size_t)ftell(file) / sizeof(uint32_t);
    rewind(file);
    bench->sequence = checked(malloc(bench->sequence_len * sizeof(uint32_t)));
    if (fread(bench->sequence, sizeof(uint32_t), bench->sequence_len, file) != bench->sequence_len)
        exit(1);
    fclose(file);
    bench->keys = checked(malloc(bench->n_keys * sizeof(*bench->keys)));
    for (unsigned long i = 0; i < bench->n_keys; i++) {
        char key[KEY_LEN + 1];
        key_text(key, i);
        memcpy(bench->keys[i], key, KEY_LEN);
        take(bench, bench->keys[i]);
    }
}

/*
 * A form is the name of an algorithm, with "-batch" behind it if keys are passed in batches,
 * "-upkeep" if the time is that of the last millisecond, and "-asked" if the clock is read before
 * the take, and not by it.
 */
static void quota_read(struct bench *bench, const char *form, const char *limit,
                       const char *period_ms)
{
    char spec[128];
    struct stint_error error;
    const char *dash = strchr(form, '-');
    int name_len = dash != NULL ? (int)(dash - form) : (int)strlen(form);
    bench->in_batches = dash != NULL && strcmp(dash, "-batch") == 0;
    bench->keeps_time = dash != NULL && strcmp(dash, "-upkeep") == 0;
    bench->asks_clock = dash != NULL && strcmp(dash, "-asked") == 0;
    snprintf(spec, sizeof(spec), "%.*s %s/%sms", name_len, form, limit, period_ms);
    if (stint_quota_parse(&bench->quota, spec, &error) < 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    if (argc != 9) {
        fprintf(stderr, "usage: %s FORM ROW KEYS SEQUENCE THREADS OPERATIONS LIMIT PERIOD_MS\n",
                argv[0]);
        return 2;
    }
    struct bench bench = {
        .n_keys = strtoul(argv[3], NULL, 10),
        .n_threads = strtoul(argv[5], NULL, 10),
        .operations = strtoul(argv[6], NULL, 10),
    };
    struct stint_cell8 cell8 = {0};
    struct stint_cell16 cell16 = {{0}};
    const char *row = argv[2];
    char line[128];
    if (bench.n_threads < 1 || bench.n_threads > THREADS_MAX)
        return 2;
    quota_read(&bench, argv[1], argv[7], argv[8]);
    bool has_table = strcmp(row, "keyed") == 0 || strcmp(row, "ask") == 0;
    if (has_table)
        bench.table = table_open(&bench);
    if (bench.keeps_time)
        time_keep(&bench);
    if (strcmp(row, "keyed") == 0)
        prepare_keyed(&bench, argv[4]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    puts("{\"ready\": true}");
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strcmp(row, "keyed") == 0)
            turn_keyed(&bench);
        else if (strcmp(row, "one") == 0)
            turn_one(&bench, &cell8, &cell16);
        else if (strcmp(row, "memory") == 0)
            turn_memory(&bench);
        else
            answer_ask(&bench, line);
    }
    free(bench.keys);
    free(bench.sequence);
    stint_table_close(bench.table);
    return 0;
}
