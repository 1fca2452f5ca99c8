/* SPDX-License-Identifier: MIT */
/* Escapes and appends; never truncates. */
#include "sim/input/joined_key.h"

#include <assert.h>

static bool append(struct joined_key *joined, uint8_t byte)
{
    if (joined->len == sizeof(joined->bytes))
        return false;
    joined->bytes[joined->len++] = byte;
    return true;
}

static bool append_part(struct joined_key *joined, struct span part)
{
    for (size_t i = 0; i < part.len; i++) {
        uint8_t byte = part.ptr[i];
        if ((byte == '+' || byte == '\\') && !append(joined, '\\'))
            return false;
        if (!append(joined, byte))
            return false;
    }
    return true;
}

int joined_key_make(struct joined_key *joined, struct span *key, const struct span *parts,
                    size_t n_parts, struct stint_error *error)
{
    assert(n_parts > 0);
    bool fits = n_parts > 1 || parts[0].len <= STINT_KEY_MAX;
    joined->len = 0;
    for (size_t i = 0; i < n_parts && n_parts > 1 && fits; i++)
        fits = (i == 0 || append(joined, '+')) && append_part(joined, parts[i]);
    if (!fits)
        return err_set(error, STINT_E_RANGE, "the key is longer than %d bytes", STINT_KEY_MAX);
    *key = n_parts == 1 ? parts[0] : span_of(joined->bytes, joined->len);
    return 0;
}
