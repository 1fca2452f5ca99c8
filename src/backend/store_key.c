/* SPDX-License-Identifier: MIT */
/* Bytes are counted whether they fit or not, so that the caller can get enough memory. */
#include "backend/store_key.h"

#include "backend/script/script.h"
#include "base/siphash.h"

#include <assert.h>
#include <stdlib.h>

#define RULE_ID_SIZE 8 /* before the values of rules_match() */
#define LENGTH_SIZE 4  /* before each of them */

struct text {
    char *out;
    size_t size, len;
};

static void add(struct text *text, char c)
{
    if (text->len < text->size)
        text->out[text->len] = c;
    text->len++;
}

static void add_plain(struct text *text, struct span span)
{
    for (size_t i = 0; i < span.len; i++)
        add(text, (char)span.ptr[i]);
}

static void add_hex(struct text *text, uint8_t byte, const char digits[16])
{
    add(text, digits[byte >> 4]);
    add(text, digits[byte & 15]);
}

static bool is_plain(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("-._~/@+=:*", c) != NULL);
}

static void add_escaped(struct text *text, struct span span)
{
    for (size_t i = 0; i < span.len; i++) {
        if (is_plain(span.ptr[i])) {
            add(text, (char)span.ptr[i]);
            continue;
        }
        add(text, '%');
        add_hex(text, span.ptr[i], "0123456789ABCDEF");
    }
}

size_t store_key_escape(struct span span, char *out, size_t size)
{
    struct text text = {.out = out, .size = size};
    add_escaped(&text, span);
    return text.len;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* The next value, which is removed from the rest; false: there is none. */
static bool cut_value(struct span *values, struct span *value)
{
    size_t len = 0;
    if (values->len < LENGTH_SIZE)
        return false;
    for (size_t i = 0; i < LENGTH_SIZE; i++)
        len = len << 8 | values->ptr[i];
    if (len > values->len - LENGTH_SIZE)
        return false;
    *value = span_of(values->ptr + LENGTH_SIZE, len);
    *values = span_of(value->ptr + len, values->len - LENGTH_SIZE - len);
    return true;
}

static void add_values(struct text *text, struct span values)
{
    struct span value;
    for (bool is_first = true; cut_value(&values, &value); is_first = false) {
        if (!is_first)
            add(text, ',');
        add_escaped(text, value);
    }
}

/* The text in the braces, and the text after them. If it is one text, that is the one value. */
static struct span add_tag(struct text *text, const struct backend_item *item)
{
    unsigned mode = item->rule != NULL ? item->rule->store.tag : RULE_TAG_VALUES;
    const struct span nothing = {NULL, 0};
    struct span rest = item->key, value;
    if (mode == RULE_TAG_DOMAIN) {
        add_escaped(text, span_of_text(item->rule->domain));
        return rest;
    }
    if (!item->is_values) {
        add_escaped(text, rest);
        return nothing;
    }
    if (mode == RULE_TAG_VALUES) {
        add_values(text, rest);
        return nothing;
    }
    if (cut_value(&rest, &value))
        add_escaped(text, value);
    return rest;
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* ALGORITHM, as script_key() has it between "{}" and "::". */
static void add_algorithm(struct text *text, const struct stint_quota *quota)
{
    char key[SCRIPT_ALGORITHM_MAX + 8];
    const struct script_name nothing = {.prefix = {NULL, 0}};
    size_t len = script_key(quota, &nothing, key, sizeof(key));
    assert(len > 4 && len <= sizeof(key));
    add_plain(text, span_of(key + 2, len - 4));
}

size_t store_key(const struct backend_item *item, struct span prefix, char *out, size_t size,
                 size_t *tag_len)
{
    struct text text = {.out = out, .size = size};
    struct backend_item inner = *item;
    if (item->is_values) {
        assert(item->key.len >= RULE_ID_SIZE);
        inner.key = span_of(item->key.ptr + RULE_ID_SIZE, item->key.len - RULE_ID_SIZE);
    }
    add_plain(&text, prefix);
    add(&text, '{');
    size_t begin = text.len;
    struct span rest = add_tag(&text, &inner);
    /* Empty braces are no tag, and no text is written like this. */
    if (text.len == begin)
        add(&text, '%');
    add(&text, '}');
    *tag_len = text.len;
    add_algorithm(&text, item->quota);
    add(&text, ':');
    add_plain(&text, item->name);
    add(&text, ':');
    if (item->is_values)
        add_values(&text, rest);
    else
        add_escaped(&text, rest);
    return text.len;
}

size_t store_id_key(struct span head, const uint8_t id[BACKEND_ID_LEN], char *out, size_t size)
{
    struct text text = {.out = out, .size = size};
    add_plain(&text, head);
    add_plain(&text, span_of_text("id:"));
    for (size_t i = 0; i < BACKEND_ID_LEN; i++)
        add_hex(&text, id[i], "0123456789abcdef");
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
