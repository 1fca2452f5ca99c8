/* SPDX-License-Identifier: MIT */
/* Reads a token, and leaves no copy of it in memory. */
#define _GNU_SOURCE
#include "cmd/serve/token_file.h"

#include "net/file/file_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A token must be valid in a header field: visible ASCII. */
static bool is_token(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] <= ' ' || bytes[i] > '~')
            return false;
    return len > 0;
}

int token_file_read(const char *path, char token[TOKEN_FILE_SPACE], struct stint_error *error)
{
    int fd = file_open(path, error);
    if (fd < 0)
        return fd;
    FILE *file = fdopen(fd, "re");
    if (file == NULL) {
        close(fd);
        return err_set(error, STINT_E_SYSTEM, "cannot read %s: %s", path, strerror(errno));
    }
    setvbuf(file, NULL, _IONBF, 0); /* no copy of a secret stays behind */
    size_t n = fread(token, 1, TOKEN_FILE_MAX + 1, file), len = 0;
    fclose(file);
    while (len < n && token[len] != '\n')
        len++;
    len -= len > 0 && len < n && token[len - 1] == '\r';
    token[len] = '\0';
    if (len <= TOKEN_FILE_MAX && is_token(token, len))
        return 0;
    return err_set(error, STINT_E_RANGE,
                   "%s: expected a token of visible ASCII, up to %d bytes, as the first line", path,
                   TOKEN_FILE_MAX);
}
