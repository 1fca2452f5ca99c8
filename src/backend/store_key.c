/* SPDX-License-Identifier: MIT */
/* Bytes are counted whether they fit or not, so that the caller can get enough memory. */
#include "backend/store_key.h"

#include "backend/script/script.h"
#include "base/siphash.h"

#include <assert.h>
#include <stdlib.h>

#define RULE_ID_SIZE 8 /* before the values of rules_match() */
#define LENGTH_SIZE 4  /* before each of them */

#define PLAIN "-._~/@+=:*"

size_t store_key_escape(struct span span, char *out, size_t size)
{
    struct key_text text = {.out = out, .size = size};
    key_text_escape(&text, span, PLAIN);
    return text.len;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Adds up to so many values, joined by commas; returns the rest. */
static struct span add_values(struct key_text *text, struct span values, size_t most)
{
    for (size_t i = 0; i < most && values.len >= LENGTH_SIZE; i++) {
        const uint8_t *at = values.ptr;
        size_t len = (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
        if (len > values.len - LENGTH_SIZE)
            break;
        if (i > 0)
            key_text_add(text, ",", 1);
        key_text_escape(text, span_of(at + LENGTH_SIZE, len), PLAIN);
        values = span_after(values, LENGTH_SIZE + len);
    }
    return values;
}

/* The text in the braces, and the text after them. If it is one text, that is the one value. */
static struct span add_tag(struct key_text *text, const struct backend_item *item)
{
    unsigned mode = item->rule != NULL ? item->rule->store.tag : RULE_TAG_VALUES;
    const struct span nothing = {NULL, 0};
    struct span rest = item->key;
    if (mode == RULE_TAG_DOMAIN) {
        key_text_escape(text, span_of_text(item->rule->domain), PLAIN);
        return rest;
    }
    if (!item->is_values) {
        key_text_escape(text, rest, PLAIN);
        return nothing;
    }
    if (mode != RULE_TAG_VALUES)
        return add_values(text, rest, 1);
    add_values(text, rest, SIZE_MAX);
    return nothing;
}

/* ---- Keys ------------------------------------------------------------------------------------ */

size_t store_key(const struct backend_item *item, struct span prefix, char *out, size_t size,
                 size_t *tag_len)
{
    struct key_text text = {.out = out, .size = size};
    struct backend_item inner = *item;
    if (item->is_values) {
        assert(item->key.len >= RULE_ID_SIZE);
        inner.key = span_of(item->key.ptr + RULE_ID_SIZE, item->key.len - RULE_ID_SIZE);
    }
    key_text_add(&text, prefix.ptr, prefix.len);
    key_text_add(&text, "{", 1);
    size_t begin = text.len;
    struct span rest = add_tag(&text, &inner);
    /* Empty braces are no tag, and no text is written like this. */
    if (text.len == begin)
        key_text_add(&text, "%", 1);
    key_text_add(&text, "}", 1);
    *tag_len = text.len;
    script_key_algorithm(&text, item->quota);
    key_text_add(&text, ":", 1);
    key_text_add(&text, item->name.ptr, item->name.len);
    key_text_add(&text, ":", 1);
    if (item->is_values)
        add_values(&text, rest, SIZE_MAX);
    else
        key_text_escape(&text, rest, PLAIN);
    return text.len;
}

size_t store_id_key(struct span head, const uint8_t id[BACKEND_ID_LEN], char *out, size_t size)
{
    static const char hexadecimal[] = "0123456789abcdef";
    struct key_text text = {.out = out, .size = size};
    key_text_add(&text, head.ptr, head.len);
    key_text_add(&text, "id:", 3);
    for (size_t i = 0; i < BACKEND_ID_LEN; i++) {
        const char digits[] = {hexadecimal[id[i] >> 4], hexadecimal[id[i] & 15]};
        key_text_add(&text, digits, sizeof(digits));
    }
    return text.len;
}

/* ---- memcached ------------------------------------------------------------------------------- */

/* Nearly every name is short enough to be written directly to its destination. */

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
