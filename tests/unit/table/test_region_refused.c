/* SPDX-License-Identifier: MIT */
/*
 * Each system call with which a region is opened, refused: first the first of its calls, then its
 * second, and so on. Opening fails with a message, or does without, and leaves nothing behind.
 */
#define _GNU_SOURCE
#include "unit/refusals.h"
#include "unit/region_file.h"

#include "table/region/owner.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The system ------------------------------------------------------------------------------ */

enum call {
    CALL_MMAP,
    CALL_FSTAT,
    CALL_PWRITE,
    CALL_FSYNC,
    CALL_LINK,
    CALL_RANDOM,
    CALL_OPEN,
    CALL_READ,
    CALLS
};

static const char *const call_names[CALLS] = {"mmap", "fstat",      "pwrite", "fsync",
                                              "link", "getentropy", "open",   "read"};

REFUSES(CALL_MMAP, EIO, void *, mmap64, MAP_FAILED,
        (void *at, size_t size, int protection, int flags, int fd, off_t offset),
        (at, size, protection, flags, fd, offset))
REFUSES(CALL_FSTAT, EIO, int, fstat64, -1, (int fd, struct stat *status), (fd, status))
REFUSES(CALL_PWRITE, EIO, ssize_t, pwrite64, -1,
        (int fd, const void *bytes, size_t size, off_t offset), (fd, bytes, size, offset))
REFUSES(CALL_FSYNC, EIO, int, fsync, -1, (int fd), (fd))
REFUSES(CALL_LINK, EIO, int, link, -1, (const char *from, const char *to), (from, to))
REFUSES(CALL_RANDOM, EIO, int, getentropy, -1, (void *bytes, size_t size), (bytes, size))
REFUSES(CALL_OPEN, EIO, int, open64, -1, (const char *name, int flags, mode_t mode),
        (name, flags, mode))
REFUSES(CALL_READ, EIO, ssize_t, read, -1, (int fd, void *bytes, size_t size), (fd, bytes, size))

/* ---- Tests ----------------------------------------------------------------------------------- */

SETUP
{
    name_path();
}

TEARDOWN
{
    remove_file();
}

/* With the n-th call of a kind refused. How many there are, when none is refused any more. */
static void open_with(const struct stint_table_options *options, enum call call)
{
    for (long n = 0;; n++) {
        struct region region;
        struct stint_error error = {.code = 0};
        refuse((int)call, n);
        int code = region_open(&region, options, &error);
        bool was_refused = refused();
        if (code == 0)
            region_close(&region);
        else if (!was_refused || error.code != code || error.message[0] == '\0')
            fail_msg("%s %ld: %d, %s", call_names[call], n, code, error.message);
        if (!was_refused)
            return;
    }
}

TEST(opening_a_region_without_the_system)
{
    struct stint_table_options file = small_file(STINT_CLOCK_REAL), memory = file;
    memory.memory = STINT_MEMORY_SHARED;
    memory.path = NULL;
    for (enum call call = 0; call < CALLS; call++) {
        remove_file();
        open_with(&memory, call);
        open_with(&file, call); /* makes it, then enters it */
        open_with(&file, call);
        file.read_only = true;
        open_with(&file, call);
        file.read_only = false;
    }
}

TEST(a_private_page_without_the_system)
{
    struct stint_error error;
    refuse(CALL_MMAP, 0);
    assert_null(region_map_private(&error));
    assert_true(refused());
    assert_int_equal(error.code, STINT_E_SYSTEM);
    assert_string_equal(error.message, "cannot map a page that fork wipes: Input/output error");
}

/* What the last boot left in the file is still there for the next that opens it. */
TEST(a_table_that_could_not_start_leaves_its_file_as_it_was)
{
    const struct stint_table_options options = small_file(STINT_CLOCK_REAL);
    stint_table_close(must_open_table(&options));
    for (int clean = 0; clean < 2; clean++) {
        struct region_header before = read_header(), after;
        struct stint_table *table;
        struct stint_table_info info;
        before.boot_id ^= 2;
        before.clean = (uint64_t)clean;
        write_header(&before);
        refuse(CALL_MMAP, 1); /* the region is mapped, the page of the process is not */
        int code = stint_table_open(&table, &options, NULL);
        assert_true(refused());
        assert_int_equal(code, STINT_E_SYSTEM);
        after = read_header();
        assert_int_equal(after.boot_id, before.boot_id);
        assert_int_equal(after.clean, before.clean);
        table = must_open_table(&options);
        stint_table_info(table, stint_now(table), &info);
        assert_int_equal(info.filled, !clean);
        stint_table_close(table);
    }
}

/* Else its states would be given to others while it works on them. */
TEST(a_process_that_cannot_be_seen_has_not_ended)
{
    static const enum call calls[] = {CALL_OPEN, CALL_READ};
    uint64_t self = owner_self();
    assert_false(owner_has_ended(self));
    for (size_t i = 0; i < N(calls); i++) {
        refuse((int)calls[i], 0);
        bool has_ended = owner_has_ended(self);
        assert_true(refused());
        assert_false(has_ended);
    }
}

/* The same of a process that could not see itself when it took its name. */
TEST(a_process_that_cannot_see_itself_has_not_ended)
{
    static const enum call calls[] = {CALL_OPEN, CALL_READ};
    for (size_t i = 0; i < N(calls); i++) {
        refuse((int)calls[i], 0);
        uint64_t self = owner_self();
        assert_true(refused());
        assert_false(owner_has_ended(self));
    }
}

TEST(a_process_that_could_not_see_itself_ends)
{
    int told[2];
    uint64_t name = 0;
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        refuse(CALL_OPEN, 0);
        name = owner_self();
        _exit(write(told[1], &name, sizeof(name)) == (ssize_t)sizeof(name) ? 0 : 1);
    }
    assert_int_equal(read(told[0], &name, sizeof(name)), sizeof(name));
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(told[0]);
    close(told[1]);
    assert_true(owner_has_ended(name));
}
