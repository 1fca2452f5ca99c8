/* SPDX-License-Identifier: MIT */
/* A file of a test's own, regions in it, and who stands in it. Includers define _GNU_SOURCE. */
#ifndef STINT_TESTS_REGION_FILE_H
#define STINT_TESTS_REGION_FILE_H

#include "unit/test_quota.h"

#include "table/region/region.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The bytes of a region's file that are locked: by all who are in it, and by who is in its
 * frontend. */
enum { USERS_BYTE, FRONTEND_BYTE };

static char path[64];

/* To set a test up: nothing is at the path, and no other process of tests names its file so. */
static inline void name_path(void)
{
    snprintf(path, sizeof(path), "/tmp/stint-test-%ld-", (long)getpid());
    unlink(path);
}

static inline void remove_file(void)
{
    unlink(path);
}

/* What makes a small region in the file, or enters it. */
static inline struct stint_table_options small_file(uint8_t clock)
{
    return (struct stint_table_options){.path = path,
                                        .keys = 12,
                                        .keys16 = 12,
                                        .tickets = 4,
                                        .blocks = 4,
                                        .quotas = 4,
                                        .clock = clock};
}

static inline struct region must_open(const struct stint_table_options *options)
{
    struct region region;
    struct stint_error error;
    if (region_open(&region, options, &error) != 0)
        fail_msg("%s", error.message);
    return region;
}

static inline struct region open_file(uint8_t clock)
{
    const struct stint_table_options options = small_file(clock);
    struct region region = must_open(&options);
    region_settle(&region);
    return region;
}

static inline struct region_header read_header(void)
{
    struct region_header header;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
    close(fd);
    return header;
}

static inline void write_header(const struct region_header *header)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, header, sizeof(*header), 0), sizeof(*header));
    close(fd);
}

static inline unsigned count_names(const char *folder, const char *prefix)
{
    unsigned n = 0;
    DIR *names = opendir(folder);
    assert_non_null(names);
    for (struct dirent *name = readdir(names); name != NULL; name = readdir(names))
        n += strncmp(name->d_name, prefix, strlen(prefix)) == 0;
    closedir(names);
    return n;
}

/* The file, and those beside it whose names begin with its name. */
static inline unsigned count_files(void)
{
    return count_names("/tmp", path + strlen("/tmp/"));
}

/* Whether somebody who comes now could lock this byte of the file for himself. */
static inline bool is_free(off_t byte)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int refused = fcntl(fd, F_OFD_SETLK, &lock);
    close(fd);
    return refused == 0;
}

/* -1: it was killed. */
static inline int exit_code_of(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The bits are counted from the start of the file, eight to a byte. */
static inline void flip_bit(uint64_t bit)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (uint8_t)(1u << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
    close(fd);
}

#endif
