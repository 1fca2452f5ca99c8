/* SPDX-License-Identifier: MIT */
/* "ms KEY 3 T60 C17\r\nabc\r\n": a verb, the key, a length, flags of one letter each. */
#include "backend/wire/memcached_command.h"

#include "base/number.h"

#include <assert.h>

void memcached_add_span(struct redis_bytes *bytes, struct span span)
{
    assert(bytes->len + span.len <= bytes->size);
    if (span.len > 0)
        memcpy(bytes->ptr + bytes->len, span.ptr, span.len);
    bytes->len += span.len;
}

void memcached_add_text(struct redis_bytes *bytes, const char *text)
{
    memcached_add_span(bytes, span_of_text(text));
}

void memcached_add_number(struct redis_bytes *bytes, const char *before, uint64_t number)
{
    memcached_add_text(bytes, before);
    assert(bytes->len + RESP_DIGITS_MAX <= bytes->size);
    bytes->len = (size_t)(resp_number_write(bytes->ptr + bytes->len, number) - bytes->ptr);
}

static void write_flags(struct redis_bytes *bytes, const struct memcached_command *command)
{
    switch (command->verb) {
    case MEMCACHED_GET:
        memcached_add_text(bytes, " v c h");
        break;
    case MEMCACHED_ADD:
    case MEMCACHED_SWAP:
    case MEMCACHED_SET:
        memcached_add_number(bytes, " ", command->value.len);
        memcached_add_number(bytes, " T", command->ttl_s);
        if (command->verb == MEMCACHED_ADD)
            memcached_add_text(bytes, " ME");
        else if (command->verb == MEMCACHED_SWAP)
            memcached_add_number(bytes, " C", command->number);
        memcached_add_text(bytes, "\r\n");
        memcached_add_span(bytes, command->value);
        break;
    default:
        break;
    }
}

void memcached_command_write(struct redis_bytes *bytes, const struct memcached_command *command)
{
    static const char *const words[] = {
        [MEMCACHED_GET] = "mg", [MEMCACHED_ADD] = "ms",    [MEMCACHED_SWAP] = "ms",
        [MEMCACHED_SET] = "ms", [MEMCACHED_DELETE] = "md", [MEMCACHED_STATS] = "stats",
    };
    /* A number of 0 would count as no number, and any value be overwritten. */
    assert(command->verb != MEMCACHED_SWAP || command->number > 0);
    memcached_add_text(bytes, words[command->verb]);
    if (command->key.len > 0)
        memcached_add_text(bytes, " ");
    memcached_add_span(bytes, command->key);
    write_flags(bytes, command);
    memcached_add_text(bytes, "\r\n");
}
