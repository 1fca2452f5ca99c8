/* SPDX-License-Identifier: MIT */
/* A small file as one text: certificates, tokens, configuration. */
#ifndef STINT_NET_FILE_FILE_TEXT_H
#define STINT_NET_FILE_FILE_TEXT_H

#include "base/err.h"

/*
 * Opens a file for reading: a descriptor, or a negative code and a message that begins with the
 * path. Never waits: a named pipe, a device or a folder is rejected with STINT_E_SYSTEM. An
 * inherited pipe (/dev/stdin, the shell's <(command)) is read like a file.
 */
int file_open(const char *path, struct stint_error *error);

/* For files that a library opens by their name: 0, or the error of file_open(). */
int file_check(const char *path, struct stint_error *error);

/*
 * The caller frees *text, which ends with a zero byte that is not the file's. STINT_E_SYSTEM for a
 * file that cannot be read, STINT_E_RANGE for one of more than `max` bytes, STINT_E_SYNTAX for one
 * that contains a zero byte; the message begins with the path.
 */
int file_text_read(const char *path, size_t max, char **text, struct stint_error *error);

/* The folder of a file, from its path: "." where the path has none. */
void file_folder(const char *path, char *folder, size_t size);

#endif
