/* SPDX-License-Identifier: MIT */
/*
 * Regions: memory that is one process's or shared as was asked, and files that are whole or
 * not there. Who may be in at once is in test_region_locks.c, their time in test_region_time.c.
 */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static struct stint_table_options small(uint8_t memory, uint8_t clock)
{
    struct stint_table_options options = small_file(clock);
    options.memory = memory;
    options.path = memory == STINT_MEMORY_FILE ? path : NULL;
    return options;
}

/* Opening fails with this code, and a message that names the file and says this. */
static void assert_refused_as(const struct stint_table_options *options, int code, const char *says)
{
    struct region region;
    struct stint_error error = {.code = 0};
    assert_int_equal(region_open(&region, options, &error), code);
    assert_int_equal(error.code, code);
    if (strstr(error.message, says) == NULL)
        fail_msg("%s", error.message);
}

static void assert_refused(const struct stint_table_options *options, int code)
{
    assert_refused_as(options, code, options->path != NULL ? options->path : "");
}

/* ---- Memory ---------------------------------------------------------------------------------- */

SETUP
{
    name_path();
    alarm(120); /* a lock that never opens is a failure, too */
}

TEARDOWN
{
    remove_file();
}

/* A region of whatever memory is made new: a head that proves itself, and zero behind it. */
TEST(test_a_new_region_is_zero_behind_its_head)
{
    for (uint8_t memory = STINT_MEMORY_HEAP; memory <= STINT_MEMORY_FILE; memory++) {
        struct stint_table_options options = small(memory, STINT_CLOCK_VIRTUAL);
        options.epoch_ns = 12345;
        struct region region = must_open(&options);
        const struct region_header *header = region.header;
        const uint8_t *bytes = region_at(&region, 0);
        assert_true(region.made);
        assert_int_equal(region.memory, memory);
        assert_int_equal(region.fd >= 0, memory == STINT_MEMORY_FILE);
        assert_int_equal(header->fixed_checksum, region_checksum(&header->fixed));
        assert_int_equal(header->epoch_ns, 12345);
        assert_int_equal(region.map_size, header->fixed.bytes);
        for (uint64_t i = sizeof(*header); i < header->fixed.bytes; i++)
            assert_int_equal(bytes[i], 0);
        region_settle(&region);
        region_close(&region);
    }
}

/* The secret that spreads keys is the one that was given, or one that no other region has. */
TEST(test_the_secret_is_given_or_nobody_elses)
{
    struct stint_table_options options = small(STINT_MEMORY_HEAP, STINT_CLOCK_VIRTUAL);
    struct region one = must_open(&options), other = must_open(&options);
    assert_memory_not_equal(one.header->fixed.hash_key, other.header->fixed.hash_key, 16);
    region_close(&other);
    options.hash_key[1] = 7;
    other = must_open(&options);
    assert_memory_equal(other.header->fixed.hash_key, options.hash_key, 16);
    region_close(&other);
    region_close(&one);
}

/* What a child writes to heap memory stays with it; shared memory and files carry it over. */
TEST(test_only_what_is_shared_is_seen_by_others)
{
    for (uint8_t memory = STINT_MEMORY_HEAP; memory <= STINT_MEMORY_FILE; memory++) {
        struct stint_table_options options = small(memory, STINT_CLOCK_VIRTUAL);
        struct region region = must_open(&options);
        region_settle(&region);
        pid_t child = fork();
        if (child == 0) {
            region.header->ticket_next = 99;
            _exit(0);
        }
        assert_int_equal(exit_code_of(child), 0);
        assert_int_equal(region.header->ticket_next, memory == STINT_MEMORY_HEAP ? 0 : 99);
        region_close(&region);
    }
}

/* A page of a process's own is empty in its child, who would else pass for its parent. */
TEST(test_a_private_page_is_empty_in_a_child)
{
    struct stint_error error;
    uint64_t *page = region_map_private(&error);
    assert_non_null(page);
    page[0] = page[REGION_PAGE / 8 - 1] = 42;
    pid_t child = fork();
    if (child == 0)
        _exit(page[0] == 0 && page[REGION_PAGE / 8 - 1] == 0 ? 0 : 1);
    assert_int_equal(exit_code_of(child), 0);
    assert_int_equal(page[0], 42);
    region_unmap_private(page);
}

/* Huge pages are asked for, not counted on: the memory is there with them or without. */
TEST(test_huge_pages_are_as_good_as_others)
{
    struct stint_table_options options = small(STINT_MEMORY_HEAP, STINT_CLOCK_VIRTUAL);
    options.huge_pages = true;
    struct region region = must_open(&options);
    assert_int_equal(region.map_size % (2 << 20), 0);
    memset(region_at(&region, region.map_size - 1), 1, 1);
    assert_int_equal(region.header->fixed.bytes <= region.map_size, true);
    region_close(&region);
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* A file owns every byte of its length from the start: no later write can find the disk full. */
TEST(test_a_file_is_fully_allocated)
{
    struct stat status;
    struct region region = open_file(STINT_CLOCK_VIRTUAL);
    assert_int_equal(fstat(region.fd, &status), 0);
    assert_int_equal(status.st_size, region.header->fixed.bytes);
    assert_true(status.st_blocks * 512 >= status.st_size);
    assert_int_equal(status.st_mode & 0777, 0600);
    region_close(&region);
}

/* A file for which there is no room is refused, and no piece of it is left under any name. */
TEST(test_no_space_leaves_nothing)
{
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {.rlim_cur = 8192, .rlim_max = 8192};
        struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
        struct region region;
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(region_open(&region, &options, NULL) == STINT_E_SYSTEM ? 0 : 1);
    }
    assert_int_equal(exit_code_of(child), 0);
    assert_int_equal(count_files(), 0);
    /* The same where the sizes cannot be, and where the file was to exist. */
    struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
    options.must_exist = true;
    assert_refused(&options, STINT_E_SYSTEM);
    options = small_file(STINT_CLOCK_VIRTUAL);
    options.read_only = true;
    assert_refused(&options, STINT_E_SYSTEM);
    struct region region;
    options = small_file(STINT_CLOCK_VIRTUAL);
    options.quotas = 40000;
    assert_int_equal(region_open(&region, &options, NULL), STINT_E_RANGE);
    assert_int_equal(count_files(), 0);
}

/* Once a file is made, its own name is the only one it has. */
TEST(test_a_file_has_one_name)
{
    struct region region = open_file(STINT_CLOCK_VIRTUAL);
    assert_int_equal(count_files(), 1);
    region_close(&region);
}

/* What somebody of the same process id left behind when he was killed is in nobody's way. */
TEST(test_what_a_killed_maker_left_is_in_nobodys_way)
{
    char left[96];
    for (unsigned i = 0; i < 3; i++) {
        snprintf(left, sizeof(left), "%s.%ld.%u.making", path, (long)getpid(), i);
        close(open(left, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    }
    struct region region = open_file(STINT_CLOCK_VIRTUAL);
    assert_true(region.made);
    region_close(&region);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(left, sizeof(left), "%s.%ld.%u.making", path, (long)getpid(), i);
        assert_int_equal(unlink(left), 0);
    }
    assert_int_equal(count_files(), 1);
}

/* The second opener shares the first one's memory and sizes, whatever sizes he asks for. */
TEST(test_the_second_opener_shares)
{
    struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
    struct region first = open_file(STINT_CLOCK_VIRTUAL);
    options.keys = 100000;
    options.hash_key[0] = 1;
    struct region second = must_open(&options);
    region_settle(&second);
    assert_memory_equal(&second.header->fixed, &first.header->fixed, sizeof(first.header->fixed));
    assert_int_equal(second.map_size, first.map_size);
    assert_true(first.made && first.alone);
    assert_false(second.made || second.alone || second.after_crash);
    first.header->ticket_next = 5;
    assert_int_equal(second.header->ticket_next, 5);
    region_close(&second);
    region_close(&first);
}

/* Options that contradict each other are refused. */
TEST(test_contradictions_are_refused)
{
    struct stint_table_options options = {.memory = STINT_MEMORY_FILE};
    assert_refused(&options, STINT_E_MISMATCH);
    options = small(STINT_MEMORY_HEAP, STINT_CLOCK_VIRTUAL);
    options.read_only = true;
    assert_refused(&options, STINT_E_MISMATCH);
}

/* ---- What is refused ------------------------------------------------------------------------- */

static unsigned open_descriptors(void)
{
    return count_names("/proc/self/fd", "");
}

static struct region_header changed(const struct region_header *good, size_t at, uint8_t flip)
{
    struct region_header bad = *good;
    ((uint8_t *)&bad)[at] ^= flip;
    return bad;
}

static void assert_header_refused(const struct region_header *header, bool checksum, int code)
{
    struct region_header bad = *header;
    const struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
    if (checksum)
        bad.fixed_checksum = region_checksum(&bad.fixed);
    write_header(&bad);
    assert_refused(&options, code);
    struct region_header after = read_header();
    assert_memory_equal(&after, &bad, sizeof(after));
}

/* The reason is in the message, and the end of the path, however long that is. */
TEST(test_a_long_path_leaves_the_reason)
{
    static char long_path[REGION_PATH_SPACE];
    struct stint_table_options options = small_file(STINT_CLOCK_REAL);
    struct stint_error error;
    struct region region;
    options.path = long_path;
    for (size_t len = 240; len < 2000; len += 80) {
        snprintf(long_path, sizeof(long_path), "/tmp/%0*d-end", (int)len, 1);
        assert_int_equal(region_open(&region, &options, &error), STINT_E_SYSTEM);
        assert_non_null(strstr(error.message, strerror(ENAMETOOLONG)));
        assert_non_null(strstr(error.message, "1-end"));
    }
    for (size_t at = 0; at < 1000; at += 5) /* no such folder */
        memcpy(long_path + at, "/none", 5);
    assert_int_equal(region_open(&region, &options, &error), STINT_E_SYSTEM);
    assert_non_null(strstr(error.message, strerror(ENOENT)));
    assert_non_null(strstr(error.message, "; check the path"));
}

/* Another kind, version, machine, length or time is refused; the file stays as it is. */
TEST(test_a_file_of_another_kind_is_refused)
{
    struct region region = open_file(STINT_CLOCK_VIRTUAL);
    region_close(&region);
    const struct region_header good = read_header();
    unsigned descriptors = open_descriptors();
    struct region_header bad = good;
    bad.fixed.magic++;
    assert_header_refused(&bad, true, STINT_E_CORRUPT);
    bad = good;
    bad.fixed.version++;
    assert_header_refused(&bad, true, STINT_E_VERSION);
    bad = good;
    bad.fixed.quota_size += 8;
    assert_header_refused(&bad, true, STINT_E_VERSION);
    bad = good;
    bad.fixed.bytes += REGION_PAGE;
    assert_header_refused(&bad, true, STINT_E_CORRUPT);
    bad = good;
    bad.mark_ns = STINT_NOW_MAX + 1;
    assert_header_refused(&bad, false, STINT_E_CORRUPT);
    bad = good;
    bad.epoch_ns = INT64_MIN;
    assert_header_refused(&bad, false, STINT_E_CORRUPT);
    bad.epoch_ns = INT64_MAX;
    assert_header_refused(&bad, false, STINT_E_CORRUPT);
    /* The checksum holds even where the number could be another: a secret, a clock difference. */
    const size_t covered[] = {offsetof(struct region_fixed, hash_key),
                              offsetof(struct region_fixed, skew_max_ns),
                              offsetof(struct region_header, fixed_checksum)};
    for (size_t i = 0; i < N(covered); i++) {
        bad = changed(&good, covered[i], 4);
        assert_header_refused(&bad, false, STINT_E_CORRUPT);
    }
    assert_int_equal(open_descriptors(), descriptors);
    write_header(&good);
    region = open_file(STINT_CLOCK_VIRTUAL); /* and nobody stands in the frontend */
    region_close(&region);
}

/* A file that is cut, has grown or never was a region is refused, and so is what is no file. */
TEST(test_what_is_no_region_is_refused)
{
    struct stint_table_options options = small_file(STINT_CLOCK_VIRTUAL);
    struct region region = open_file(STINT_CLOCK_VIRTUAL);
    const off_t whole = (off_t)region.header->fixed.bytes;
    const off_t head = (off_t)sizeof(struct region_header);
    const off_t lengths[] = {whole + 1, whole - 1, head, head - 1, 1, 0};
    region_close(&region);
    for (size_t i = 0; i < N(lengths); i++) {
        assert_int_equal(truncate(path, lengths[i]), 0);
        assert_refused(&options, STINT_E_CORRUPT);
        assert_refused_as(&options, STINT_E_CORRUPT, lengths[i] < head ? "has only" : "is cut");
    }
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused_as(&options, STINT_E_CORRUPT, "not a regular file");
    unlink(path);
    options.path = "/tmp";
    assert_refused(&options, STINT_E_SYSTEM);
    options.path = "/nowhere/table";
    assert_refused(&options, STINT_E_SYSTEM);
}

/* A region made under one clock is not opened under the other, unless only to be looked at. */
TEST(test_the_other_clock_is_refused)
{
    for (uint8_t clock = STINT_CLOCK_REAL; clock <= STINT_CLOCK_VIRTUAL; clock++) {
        struct stint_table_options options = small_file((uint8_t)!clock);
        struct region region = open_file(clock);
        region_close(&region);
        assert_refused(&options, STINT_E_MISMATCH);
        options.read_only = true;
        region = must_open(&options);
        region_close(&region);
        unlink(path);
    }
}

/* Who only looks locks nobody out and leaves not a bit behind. */
TEST(test_a_reader_leaves_no_trace)
{
    struct stint_table_options options = small_file(STINT_CLOCK_REAL);
    struct region region = open_file(STINT_CLOCK_REAL);
    region_close(&region);
    struct region_header before = read_header();
    before.clock_offset_ns += (int64_t)DAY; /* a heartbeat is due, and is not his to give */
    write_header(&before);
    options.read_only = true;
    region = must_open(&options);
    assert_true(is_free(USERS_BYTE) && is_free(FRONTEND_BYTE));
    region_now(&region);
    region_settle(&region);
    region_close(&region);
    struct region_header after = read_header();
    assert_memory_equal(&after, &before, sizeof(after));
}
