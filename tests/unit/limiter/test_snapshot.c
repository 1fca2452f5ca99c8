/* SPDX-License-Identifier: MIT */
/* Snapshots: a copy that opens as the table was, put in place whole or not at all. */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "table/region/owner.h"
#include "table/slot/wide.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define NOW (1000 * MINUTE)

static const char *const specs[] = {"gcra 20/1h", "window 20/1h resolution=12", "window 20/1h",
                                    "log 20/1h"};
#define N_SPECS (N(specs))

static struct stint_table *open_table(const char *where)
{
    const struct stint_table_options options = {.path = where,
                                                .keys = 64,
                                                .keys16 = 64,
                                                .keys_wide = 64,
                                                .wide_size = 256,
                                                .tickets = 8,
                                                .blocks = 8,
                                                .quotas = 8,
                                                .clock = STINT_CLOCK_VIRTUAL,
                                                .must_exist = where != NULL};
    struct stint_table *table = must_open_table(&options);
    stint_table_set_now(table, NOW);
    return table;
}

static void must_snapshot(const struct stint_table *table)
{
    struct stint_error error;
    if (stint_table_snapshot(table, path, &error) != 0)
        fail_msg("%s", error.message);
}

static uint32_t remaining(struct stint_table *table, const struct stint_quota *quota)
{
    const struct stint_item asked = {quota, "key", 3, 0};
    return stint_peek(table, &asked, 1, NOW).remaining;
}

struct taker {
    struct stint_table *table;
    const struct stint_quota *quota;
    uint32_t is_over;
};

SETUP
{
    name_path();
}

TEARDOWN
{
    remove_file();
}

/* A copy opens as the table was, with its states, blocks, tickets, quotas and time; what happens to
 * the table afterwards is not in it, and it needs no repairing. */
TEST(test_a_copy_opens_as_the_table_was)
{
    struct stint_quota quotas[N_SPECS];
    struct stint_table *table = open_table(NULL), *copy;
    struct stint_table_info info;
    struct stint_ticket ticket;
    for (uint32_t i = 0; i < N_SPECS; i++) {
        quotas[i] = quota_of(specs[i]);
        stint_take(table, &quotas[i], "key", 3, i + 1, NOW);
    }
    const struct stint_item asked = {&quotas[0], "ticket", 6, 20};
    stint_reserve(table, &asked, 1, MINUTE, NOW, &ticket);
    assert_int_equal(stint_block(table, "blocked", 7, NOW + MINUTE, NOW), 0);
    must_snapshot(table);
    assert_int_equal(read_header().clean, 1); /* though the table it was made of is in use */
    for (size_t i = 0; i < N_SPECS; i++)
        stint_take(table, &quotas[i], "key", 3, 1, NOW);
    stint_table_close(table);

    copy = open_table(path);
    assert_int_equal(stint_now(copy), NOW);
    for (uint32_t i = 0; i < N_SPECS; i++)
        assert_int_equal(remaining(copy, &quotas[i]), 20 - (i + 1));
    assert_int_equal(stint_take(copy, &quotas[0], "blocked", 7, 1, NOW).outcome, STINT_DENY);
    assert_int_equal(stint_take(copy, &quotas[0], "ticket", 6, 1, NOW).outcome, STINT_DENY);
    assert_int_equal(stint_cancel(copy, ticket, NOW, NULL), 0);
    assert_int_equal(stint_take(copy, &quotas[0], "ticket", 6, 1, NOW).outcome, STINT_ALLOW);
    stint_table_info(copy, NOW, &info);
    assert_true(info.restored && !info.filled);
    assert_int_equal(info.states_damaged, 0);
    assert_int_equal(info.quotas, N_SPECS);
    assert_int_equal(info.blocked, 1);
    stint_table_close(copy);
}

static void *take_on(void *arg)
{
    struct taker *taker = arg;
    while (__atomic_load_n(&taker->is_over, __ATOMIC_RELAXED) == 0)
        stint_take(taker->table, taker->quota, "key", 3, 1, NOW);
    return NULL;
}

/* A key that others take from while the table is copied is in the copy, in each class of states. */
TEST(test_a_copy_has_the_keys_in_use)
{
    static const char *const unbounded[] = {"gcra 4000000000/1h", "window 390000/1h resolution=12",
                                            "window 390000/1h", "log 20/1h"};
    for (size_t i = 0; i < N(unbounded); i++) {
        struct stint_quota quota = quota_of(unbounded[i]);
        struct taker taker = {open_table(NULL), &quota, 0};
        pthread_t thread;
        stint_take(taker.table, &quota, "key", 3, 10, NOW);
        assert_int_equal(pthread_create(&thread, NULL, take_on, &taker), 0);
        for (unsigned round = 0; round < 30; round++) {
            must_snapshot(taker.table);
            struct stint_table *copy = open_table(path);
            const struct stint_item asked = item(&quota, "key", 0);
            struct stint_decision decision = stint_peek(copy, &asked, 1, NOW);
            assert_true(decision.remaining <= decision.limit - 10);
            stint_table_close(copy);
        }
        __atomic_store_n(&taker.is_over, 1, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
        stint_table_close(taker.table);
    }
}

static struct wide_state *only_wide_state(const struct stint_table *table)
{
    const struct slots *wide = &table->slots[CLASS_WIDE];
    for (uint64_t slot = 0; slot < wide->sets * WAYS; slot++) {
        uint8_t *set = wide->base + slot / WAYS * wide->set_size;
        if (slots_pair(wide, set, slot % WAYS)->first != 0)
            return slots_state(wide, set, slot % WAYS);
    }
    fail_msg("no wide state");
    return NULL;
}

/* A state whose owner is stuck, and may have written half of it, is full in the copy for a period.
 */
TEST(test_a_state_whose_owner_is_stuck_is_copied_full)
{
    struct stint_quota quota = quota_of("log 20/1h");
    struct stint_table *table = open_table(NULL), *copy;
    stint_take(table, &quota, "key", 3, 5, NOW);
    only_wide_state(table)->owner = OWNER_HELD | owner_self();
    must_snapshot(table);
    only_wide_state(table)->owner = 0;
    stint_table_close(table);
    copy = open_table(path);
    assert_int_equal(remaining(copy, &quota), 0);
    const struct stint_item asked = item(&quota, "key", 20);
    assert_int_equal(stint_peek(copy, &asked, 1, NOW + 61 * MINUTE).outcome, STINT_ALLOW);
    stint_table_close(copy);
}

/* A newer copy replaces an older one; one that cannot be written leaves it as it was, and nothing
 * beside it. */
TEST(test_a_copy_is_put_in_place_whole)
{
    struct stint_quota quota = quota_of(specs[2]);
    struct stint_table *table = open_table(NULL), *copy;
    struct stint_error error;
    char nowhere[80];
    for (uint32_t turn = 1; turn <= 2; turn++) {
        stint_take(table, &quota, "key", 3, 1, NOW);
        must_snapshot(table);
        assert_int_equal(count_files(), 1);
        copy = open_table(path);
        assert_int_equal(remaining(copy, &quota), 20 - turn);
        stint_table_close(copy);
    }
    snprintf(nowhere, sizeof(nowhere), "%s/below-a-file", path);
    assert_int_equal(stint_table_snapshot(table, nowhere, &error), STINT_E_SYSTEM);
    assert_non_null(strstr(error.message, nowhere));
    snprintf(nowhere, sizeof(nowhere), "%s-folder", path);
    assert_int_equal(mkdir(nowhere, 0700), 0);
    int code = stint_table_snapshot(table, nowhere, &error);
    assert_int_equal(rmdir(nowhere), 0);
    assert_int_equal(code, STINT_E_SYSTEM);
    assert_int_equal(count_files(), 1);
    stint_table_close(table);
}

/* A copy has space on its disk for all keys, also where the table has used a part of its slots. */
TEST(test_a_copy_is_allocated_in_full)
{
    const struct stint_table_options options = {.keys = 1000000, .clock = STINT_CLOCK_VIRTUAL};
    struct stint_table *table = must_open_table(&options);
    struct stat status;
    must_snapshot(table);
    stint_table_close(table);
    assert_int_equal(stat(path, &status), 0);
    assert_true(status.st_blocks * 512 >= status.st_size);
}

/* A copy that finds no space is refused, and no part of it is left under any name. */
TEST(test_a_copy_without_space_leaves_nothing)
{
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {.rlim_cur = 8192, .rlim_max = 8192};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(stint_table_snapshot(open_table(NULL), path, NULL) == STINT_E_SYSTEM ? 0 : 1);
    }
    assert_int_equal(exit_code_of(child), 0);
    assert_int_equal(count_files(), 0);
}

/* A copy never takes the place of the file that the table is in, whatever its path is called. */
TEST(test_a_table_is_not_copied_over_its_file)
{
    char linked[80];
    struct stint_error error;
    struct stat before, after;
    struct stint_table *table = open_table(NULL);
    must_snapshot(table);
    stint_table_close(table);
    table = open_table(path);
    assert_int_equal(stat(path, &before), 0);
    snprintf(linked, sizeof(linked), "%s-link", path);
    assert_int_equal(symlink(path, linked), 0);
    assert_int_equal(stint_table_snapshot(table, path, &error), STINT_E_MISMATCH);
    assert_non_null(strstr(error.message, "copy it to another path"));
    int code = stint_table_snapshot(table, linked, &error);
    assert_int_equal(unlink(linked), 0);
    assert_int_equal(code, STINT_E_MISMATCH);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(count_files(), 1);
    stint_table_close(table);
}

#define THREADS 4u

struct copier {
    const struct stint_table *table;
    pthread_barrier_t *start;
    int code;
};

static void *copy_at_once(void *arg)
{
    struct copier *copier = arg;
    pthread_barrier_wait(copier->start);
    copier->code = stint_table_snapshot(copier->table, path, NULL);
    return NULL;
}

/* Threads that copy one table to one file at once are not in each other's way: one copy stands. */
TEST(test_threads_that_copy_at_once_leave_one_copy)
{
    struct stint_quota quota = quota_of(specs[2]);
    struct stint_table *table = open_table(NULL);
    struct copier copiers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    stint_take(table, &quota, "key", 3, 7, NOW);
    for (unsigned round = 0; round < 10; round++) {
        assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
        for (size_t i = 0; i < THREADS; i++) {
            copiers[i] = (struct copier){table, &start, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, copy_at_once, &copiers[i]), 0);
        }
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&start);
        for (size_t i = 0; i < THREADS; i++)
            assert_int_equal(copiers[i].code, 0);
        assert_int_equal(count_files(), 1);
        struct stint_table *copy = open_table(path);
        assert_int_equal(remaining(copy, &quota), 13);
        stint_table_close(copy);
    }
    stint_table_close(table);
}
