/* SPDX-License-Identifier: MIT */
/* Commands as bytes: words in an array, in a buffer that grows to a limit. */
#ifndef STINT_BACKEND_WIRE_REDIS_COMMAND_H
#define STINT_BACKEND_WIRE_REDIS_COMMAND_H

#include "base/span.h"

#include <stdbool.h>

struct redis_bytes {
    uint8_t *ptr;
    size_t len, size;
};

/* Makes space for so many more; false: no memory, or more than `max` in all. */
bool redis_bytes_reserve(struct redis_bytes *bytes, size_t more, size_t max);
void redis_bytes_deinit(struct redis_bytes *bytes);

/* What a command takes in bytes. */
size_t redis_command_len(const struct span *words, size_t n_words);
/* Appends it; the space must be there. */
void redis_command_write(struct redis_bytes *bytes, const struct span *words, size_t n_words);

#endif
