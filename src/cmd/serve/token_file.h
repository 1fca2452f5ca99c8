/* SPDX-License-Identifier: MIT */
/* A client's token: the first line of a file. */
#ifndef STINT_CMD_SERVE_TOKEN_FILE_H
#define STINT_CMD_SERVE_TOKEN_FILE_H

#include "base/err.h"

#define TOKEN_FILE_MAX 4096 /* bytes of a token */
#define TOKEN_FILE_SPACE (TOKEN_FILE_MAX + 2)

/* Terminated. STINT_E_SYSTEM or STINT_E_RANGE, with a message that names the file. */
int token_file_read(const char *path, char token[TOKEN_FILE_SPACE], struct stint_error *error);

#endif
