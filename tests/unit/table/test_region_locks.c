/* SPDX-License-Identifier: MIT */
/*
 * Who is in a region's file: one who makes it, one at a time in the frontend, and everybody gone
 * whose process is.
 */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include <pthread.h>
#include <signal.h>

#define THREADS 4u

struct opener {
    pthread_barrier_t *start;
    struct region region;
    int code;
};

static void *open_at_once(void *arg)
{
    struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
    struct opener *opener = arg;
    pthread_barrier_wait(opener->start);
    opener->code = region_open(&opener->region, &options, NULL);
    if (opener->code == 0)
        region_settle(&opener->region);
    return NULL;
}

SETUP
{
    name_path();
    alarm(120); /* a lock that never opens is a failure, too */
}

TEARDOWN
{
    remove_file();
}

/* Threads of one process that open at once what does not exist all get the one that is made. */
TEST(test_threads_that_open_at_once_share_one_file)
{
    struct opener openers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    for (unsigned round = 0; round < 20; round++) {
        unsigned alone = 0;
        unlink(path);
        assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
        for (size_t i = 0; i < THREADS; i++) {
            openers[i].start = &start;
            assert_int_equal(pthread_create(&threads[i], NULL, open_at_once, &openers[i]), 0);
        }
        for (size_t i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&start);
        for (size_t i = 0; i < THREADS; i++) {
            assert_int_equal(openers[i].code, 0);
            assert_memory_equal(&openers[i].region.header->fixed, &openers[0].region.header->fixed,
                                sizeof(struct region_fixed));
            alone += openers[i].region.alone;
        }
        assert_int_equal(alone, 1);
        for (size_t i = 0; i < THREADS; i++)
            region_close(&openers[i].region);
    }
}

/* The frontend is shut from opening until region_settle(), and the users' byte held until the
 * close. */
TEST(test_the_frontend_is_shut_until_it_is_settled)
{
    struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
    struct region region = must_open(&options);
    assert_false(is_free(FRONTEND_BYTE));
    assert_false(is_free(USERS_BYTE));
    region_settle(&region);
    assert_true(is_free(FRONTEND_BYTE));
    assert_false(is_free(USERS_BYTE));
    region_close(&region);
    assert_true(is_free(FRONTEND_BYTE) && is_free(USERS_BYTE));
}

/* Who finds the frontend shut waits, and is no error. That he comes at all is what takes real time.
 */
TEST(test_who_finds_the_frontend_shut_waits)
{
    struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
    struct region region = must_open(&options), late;
    char said = 0;
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_NONBLOCK), 0);
    pid_t child = fork();
    if (child == 0) {
        int code = region_open(&late, &options, NULL);
        said = code == 0 && !late.alone ? 'y' : 'n';
        _exit(write(pipes[1], &said, 1) == 1 ? 0 : 1);
    }
    usleep(30000);
    assert_int_equal(read(pipes[0], &said, 1), -1);
    region_settle(&region);
    assert_int_equal(exit_code_of(child), 0);
    assert_int_equal(read(pipes[0], &said, 1), 1);
    assert_int_equal(said, 'y');
    close(pipes[0]);
    close(pipes[1]);
    region_close(&region);
}

/* A user's locks end with him, also by kill -9: in the frontend, and inside. */
TEST(test_locks_end_with_their_holder)
{
    struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
    for (int settled = 0; settled < 2; settled++) {
        int pipes[2];
        char byte = 0;
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0) {
            struct region region = must_open(&options);
            if (settled)
                region_settle(&region);
            alarm(60); /* should nobody be left to kill it */
            if (write(pipes[1], &byte, 1) == 1)
                pause();
            _exit(1);
        }
        assert_int_equal(read(pipes[0], &byte, 1), 1);
        assert_int_equal(is_free(FRONTEND_BYTE), settled);
        assert_false(is_free(USERS_BYTE));
        kill(child, SIGKILL);
        exit_code_of(child);
        close(pipes[0]);
        close(pipes[1]);
        struct region region = open_file(STINT_CLOCK_VIRTUAL);
        assert_true(region.alone);
        region_close(&region);
    }
}

/* A forked child shares the locks of its parent's file: its close leaves them as they are. */
TEST(test_a_child_that_closes_leaves_its_parents_locks)
{
    struct region region = open_file(STINT_CLOCK_REAL);
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        if (child == 0) {
            region_close(&region);
            _exit(0);
        }
        assert_int_equal(exit_code_of(child), 0);
        assert_true(is_free(FRONTEND_BYTE));
        assert_false(is_free(USERS_BYTE));
        assert_int_equal(region.header->clean, 0);
        struct region other = open_file(STINT_CLOCK_REAL);
        assert_false(other.alone);
        region_close(&other);
    }
    region_close(&region);
    assert_true(is_free(FRONTEND_BYTE) && is_free(USERS_BYTE));
}

/* A child goes on using what its parent closed: others can open the file, and are not alone. */
TEST(test_a_child_keeps_the_lock_of_a_parent_that_closed)
{
    int pipes[2];
    char byte = 0;
    struct region region = open_file(STINT_CLOCK_REAL);
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        close(pipes[1]);
        bool is_over = read(pipes[0], &byte, 1) == 0;
        region_close(&region);
        _exit(is_over ? 0 : 1);
    }
    region_close(&region);
    assert_true(is_free(FRONTEND_BYTE));
    assert_false(is_free(USERS_BYTE));
    struct region other = open_file(STINT_CLOCK_REAL);
    assert_false(other.alone);
    assert_int_equal(other.header->clean, 0);
    region_close(&other);
    close(pipes[1]);
    assert_int_equal(exit_code_of(child), 0);
    close(pipes[0]);
    assert_true(is_free(FRONTEND_BYTE) && is_free(USERS_BYTE));
}

/* Whose process ids mean something else is kept out while others are in, and let in alone. */
TEST(test_another_pid_namespace_is_kept_out)
{
    const struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
    struct region first = open_file(STINT_CLOCK_VIRTUAL);
    uint64_t ours = first.header->pid_space;
    first.header->pid_space ^= 1;
    struct region second;
    struct stint_error error;
    assert_int_equal(region_open(&second, &options, &error), STINT_E_BUSY);
    assert_non_null(strstr(error.message, "PID namespace"));
    region_close(&first);
    first = open_file(STINT_CLOCK_VIRTUAL);
    assert_true(first.alone);
    assert_int_equal(first.header->pid_space, ours);
    region_close(&first);
}
