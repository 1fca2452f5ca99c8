/* SPDX-License-Identifier: MIT */
/* A small file as one text: certificates, tokens, configuration. */
#ifndef STINT_NET_FILE_FILE_TEXT_H
#define STINT_NET_FILE_FILE_TEXT_H

#include "base/err.h"

/*
 * Opens a file to read it to its end: a descriptor, or a negative code and a message that begins
 * with the path. Never waits: a named pipe, a device or a folder is refused with STINT_E_SYSTEM. A
 * pipe that was handed over (/dev/stdin, the shell's <(command)) is read like a file.
 */
int file_open(const char *path, struct stint_error *error);

/* For files that a library opens by their name: 0, or as file_open() refuses them. */
int file_check(const char *path, struct stint_error *error);

/*
 * *text is to be freed, and ends with a zero byte that is not the file's. STINT_E_SYSTEM for what
 * cannot be read, STINT_E_RANGE for a file of more than `max` bytes, STINT_E_SYNTAX for one with a
 * zero byte in it; the message begins with the path.
 */
int file_text_read(const char *path, size_t max, char **text, struct stint_error *error);

/* The folder that a file is in, as its path says it: "." where it says none. */
void file_folder(const char *path, char *folder, size_t size);

#endif
