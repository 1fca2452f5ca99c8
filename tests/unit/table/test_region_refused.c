/* SPDX-License-Identifier: MIT */
/*
 * Each system call with which a region is opened, refused: first the first of its calls, then its
 * second, and so on. Opening fails with a message, or does without, and leaves nothing behind.
 */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "table/region/owner.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* ---- The system: tests/meson.build links calls to these -------------------------------------- */

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
static enum call refused = CALLS;
static long left = -1; /* calls of that kind until one is refused; below 0: none is */

static bool is_refused(enum call call)
{
    if (call != refused || left < 0 || left-- > 0)
        return false;
    errno = EIO;
    return true;
}

void *__real_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_fstat64(int fd, struct stat *status);
ssize_t __real_pwrite64(int fd, const void *bytes, size_t size, off_t offset);
int __real_fsync(int fd);
int __real_link(const char *from, const char *to);
int __real_getentropy(void *bytes, size_t size);
int __real_open64(const char *name, int flags, mode_t mode);
ssize_t __real_read(int fd, void *bytes, size_t size);

void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_fstat64(int fd, struct stat *status);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t offset);
int __wrap_fsync(int fd);
int __wrap_link(const char *from, const char *to);
int __wrap_getentropy(void *bytes, size_t size);
int __wrap_open64(const char *name, int flags, mode_t mode);
ssize_t __wrap_read(int fd, void *bytes, size_t size);

void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return is_refused(CALL_MMAP) ? MAP_FAILED
                                 : __real_mmap64(at, size, protection, flags, fd, offset);
}

int __wrap_fstat64(int fd, struct stat *status)
{
    return is_refused(CALL_FSTAT) ? -1 : __real_fstat64(fd, status);
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t size, off_t offset)
{
    return is_refused(CALL_PWRITE) ? -1 : __real_pwrite64(fd, bytes, size, offset);
}

int __wrap_fsync(int fd)
{
    return is_refused(CALL_FSYNC) ? -1 : __real_fsync(fd);
}

int __wrap_link(const char *from, const char *to)
{
    return is_refused(CALL_LINK) ? -1 : __real_link(from, to);
}

int __wrap_getentropy(void *bytes, size_t size)
{
    return is_refused(CALL_RANDOM) ? -1 : __real_getentropy(bytes, size);
}

int __wrap_open64(const char *name, int flags, mode_t mode)
{
    return is_refused(CALL_OPEN) ? -1 : __real_open64(name, flags, mode);
}

ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
    return is_refused(CALL_READ) ? -1 : __real_read(fd, bytes, size);
}

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
        refused = call;
        left = n;
        int code = region_open(&region, options, &error);
        bool was_refused = left < 0;
        left = -1;
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
    refused = CALL_MMAP;
    left = 0;
    assert_null(region_map_private(&error));
    assert_int_equal(error.code, STINT_E_SYSTEM);
    assert_string_equal(error.message, "cannot map a page that fork wipes: Input/output error");
}

/* Else its states would be given to others while it works on them. */
TEST(a_process_that_cannot_be_seen_has_not_ended)
{
    static const enum call calls[] = {CALL_OPEN, CALL_READ};
    uint64_t self = owner_self();
    assert_false(owner_has_ended(self));
    for (size_t i = 0; i < N(calls); i++) {
        refused = calls[i];
        left = 0;
        bool has_ended = owner_has_ended(self);
        assert_true(left < 0);
        assert_false(has_ended);
    }
}
