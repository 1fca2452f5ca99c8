/* SPDX-License-Identifier: MIT */
/* Nearly every name is short enough to be written directly to its destination. */
#include "backend/memcached/memcached_key.h"

#include "backend/store_key.h"
#include "base/siphash.h"

#include <assert.h>
#include <stdlib.h>

static void write_hash(struct memcached_key *key, struct span prefix, struct span name,
                       memcached_digest *digest, void *arg)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t hash[MEMCACHED_DIGEST_LEN];
    assert(prefix.len + 1 + 2 * sizeof(hash) <= sizeof(key->text));
    digest(arg, name, hash);
    memcpy(key->text, prefix.ptr, prefix.len);
    key->len = prefix.len;
    key->text[key->len++] = '#';
    for (size_t i = 0; i < sizeof(hash); i++) {
        key->text[key->len++] = digits[hash[i] >> 4];
        key->text[key->len++] = digits[hash[i] & 15];
    }
}

bool memcached_key_write(struct memcached_key *key, struct span prefix,
                         const struct backend_item *item, memcached_digest *digest, void *arg)
{
    size_t tag_len;
    key->len = store_key(item, prefix, key->text, sizeof(key->text), &tag_len);
    if (key->len <= sizeof(key->text))
        return true;
    char *whole = malloc(key->len);
    if (whole == NULL)
        return false;
    size_t len = store_key(item, prefix, whole, key->len, &tag_len);
    write_hash(key, prefix, span_of(whole, len), digest, arg);
    free(whole);
    return true;
}

/* The same on every node, so without a secret: a client with keys of one server slows itself. */
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
