/* SPDX-License-Identifier: MIT */
/* "*2\r\n$3\r\nGET\r\n$1\r\na\r\n": a count of words, and each with its length. */
#include "backend/wire/redis_command.h"

#include "base/number.h"

#include <assert.h>
#include <stdlib.h>

bool redis_bytes_reserve(struct redis_bytes *bytes, size_t more, size_t max)
{
    if (more > max || bytes->len > max - more)
        return false;
    if (bytes->len + more <= bytes->size)
        return true;
    size_t size = 2 * (bytes->len + more) < 1024 ? 1024 : 2 * (bytes->len + more);
    uint8_t *grown = realloc(bytes->ptr, size);
    if (grown == NULL)
        return false;
    bytes->ptr = grown;
    bytes->size = size;
    return true;
}

void redis_bytes_deinit(struct redis_bytes *bytes)
{
    free(bytes->ptr);
    *bytes = (struct redis_bytes){NULL, 0, 0};
}

size_t redis_command_len(const struct span *words, size_t n_words)
{
    size_t len = 1 + resp_number_len(n_words) + 2;
    for (size_t i = 0; i < n_words; i++)
        len += 1 + resp_number_len(words[i].len) + 2 + words[i].len + 2;
    return len;
}

static void write_count(struct redis_bytes *bytes, char kind, size_t count)
{
    bytes->ptr[bytes->len++] = (uint8_t)kind;
    bytes->len = (size_t)(resp_number_write(bytes->ptr + bytes->len, count) - bytes->ptr);
    bytes->ptr[bytes->len++] = '\r';
    bytes->ptr[bytes->len++] = '\n';
}

void redis_command_write(struct redis_bytes *bytes, const struct span *words, size_t n_words)
{
    assert(bytes->len + redis_command_len(words, n_words) <= bytes->size);
    write_count(bytes, '*', n_words);
    for (size_t i = 0; i < n_words; i++) {
        write_count(bytes, '$', words[i].len);
        if (words[i].len > 0)
            memcpy(bytes->ptr + bytes->len, words[i].ptr, words[i].len);
        bytes->len += words[i].len;
        bytes->ptr[bytes->len++] = '\r';
        bytes->ptr[bytes->len++] = '\n';
    }
}
