/* SPDX-License-Identifier: MIT */
/* Values are joined by commas; commas and percent signs in them are %2C and %25. */
#include "remote/memcached_key.h"

#include "base/siphash.h"
#include "remote/script.h"

#include <assert.h>
#include <stdlib.h>

#define ID_LEN 8     /* of a rule, in front of the values */
#define LENGTH_LEN 4 /* of a value, in front of it */

static uint32_t read_length(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static char *add_value(char *at, struct span value)
{
    for (size_t i = 0; i < value.len; i++) {
        bool is_plain = value.ptr[i] != ',' && value.ptr[i] != '%';
        if (is_plain) {
            *at++ = (char)value.ptr[i];
            continue;
        }
        memcpy(at, value.ptr[i] == ',' ? "%2C" : "%25", 3);
        at += 3;
    }
    return at;
}

/* At most three bytes for each, and the commas take the place of lengths. */
static bool join_values(struct span key, char *text, size_t *len)
{
    char *at = text;
    bool is_first = true;
    if (key.len < ID_LEN)
        return false;
    for (struct span rest = span_of(key.ptr + ID_LEN, key.len - ID_LEN); rest.len > 0;) {
        uint32_t value_len = rest.len >= LENGTH_LEN ? read_length(rest.ptr) : UINT32_MAX;
        if (value_len > rest.len - LENGTH_LEN || rest.len < LENGTH_LEN)
            return false;
        if (!is_first)
            *at++ = ',';
        is_first = false;
        at = add_value(at, span_of(rest.ptr + LENGTH_LEN, value_len));
        rest = span_of(rest.ptr + LENGTH_LEN + value_len, rest.len - LENGTH_LEN - value_len);
    }
    *len = (size_t)(at - text);
    return true;
}

static void write_hash(struct memcached_key *key, const char *prefix, struct span name,
                       memcached_digest *digest, void *arg)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t hash[MEMCACHED_DIGEST_LEN];
    size_t len = strlen(prefix);
    assert(len + 1 + 2 * sizeof(hash) <= sizeof(key->text));
    digest(arg, name, hash);
    memcpy(key->text, prefix, len);
    key->text[len++] = '#';
    for (size_t i = 0; i < sizeof(hash); i++) {
        key->text[len++] = digits[hash[i] >> 4];
        key->text[len++] = digits[hash[i] & 15];
    }
    key->len = len;
}

bool memcached_key_write(struct memcached_key *key, const char *prefix,
                         const struct shared_item *item, memcached_digest *digest, void *arg)
{
    struct script_name name = {
        .prefix = span_of_text(prefix), .tag = item->key, .rule = item->name};
    char *joined = item->is_values ? malloc(3 * item->key.len + 1) : NULL, *whole = NULL;
    bool is_written = !item->is_values || joined != NULL;
    if (item->is_values && is_written) {
        name.tag.ptr = (const uint8_t *)joined;
        is_written = join_values(item->key, joined, &name.tag.len);
    }
    if (is_written) {
        key->len = script_key(item->quota, &name, key->text, sizeof(key->text));
        if (key->len > sizeof(key->text) && (whole = malloc(key->len)) == NULL)
            is_written = false;
    }
    if (whole != NULL) {
        size_t len = script_key(item->quota, &name, whole, key->len);
        write_hash(key, prefix, span_of(whole, len), digest, arg);
    }
    free(joined);
    free(whole);
    return is_written;
}

/* The same everywhere, so it has no secret: whoever picks keys for one server finds it slow. */
unsigned memcached_key_server(const struct store_url *url, struct span key)
{
    unsigned best = 0;
    uint64_t highest = 0;
    for (unsigned i = 0; i < url->n_hosts && url->n_hosts > 1; i++) {
        const struct store_host *host = &url->hosts[i];
        const uint64_t public[2] = {UINT64_C(0x6d656d6361636865), UINT64_C(0x7374696e74000000)};
        struct hash128 name = siphash13_128(public, host->port, host->name, strlen(host->name));
        const uint64_t own[2] = {name.lo, name.hi};
        uint64_t score = siphash13_128(own, 0, key.ptr, key.len).lo;
        if (i == 0 || score > highest) {
            best = i;
            highest = score;
        }
    }
    return best;
}
