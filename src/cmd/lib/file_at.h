/* SPDX-License-Identifier: MIT */
/* Files without a name, and all bytes at a position of a file. */
#ifndef STINT_CMD_LIB_FILE_AT_H
#define STINT_CMD_LIB_FILE_AT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The folder in TMPDIR, or else the usual one. */
const char *folder_temporary(const char *usual);
/* An empty file there that no other process finds, and that none leaves behind; -1 with errno. */
int file_unnamed(const char *usual);

/* False with errno set; EIO: the file ends before, or takes no more. */
bool file_read_at(int fd, void *bytes, size_t size, off_t at);
bool file_write_at(int fd, const void *bytes, size_t size, off_t at);

#endif
