/* SPDX-License-Identifier: MIT */
/* Reads or writes bytes at a position of a file, all of them. */
#ifndef STINT_CMD_LIB_FILE_AT_H
#define STINT_CMD_LIB_FILE_AT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* False with errno set; EIO: the file ends before, or takes no more. */
bool file_read_at(int fd, void *bytes, size_t size, off_t at);
bool file_write_at(int fd, const void *bytes, size_t size, off_t at);

#endif
