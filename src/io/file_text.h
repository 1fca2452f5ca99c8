/* SPDX-License-Identifier: MIT */
/* A small file as one text: certificates, tokens, configuration. */
#ifndef STINT_IO_FILE_TEXT_H
#define STINT_IO_FILE_TEXT_H

#include "base/err.h"

/*
 * *text is to be freed, and ends with a zero byte that is not the file's. STINT_E_SYSTEM for what
 * cannot be read, STINT_E_RANGE for a file of more than `max` bytes, STINT_E_SYNTAX for one with a
 * zero byte in it; the sentence begins with the path.
 */
int file_text_read(const char *path, size_t max, char **text, struct stint_error *error);

/* The folder that a file is in, as its path says it: "." where it says none. */
void file_folder(const char *path, char *folder, size_t size);

#endif
