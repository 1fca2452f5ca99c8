/* SPDX-License-Identifier: MIT */
/* The name of a state in a shared store, quoted for redis-cli, and its content. */
#define _GNU_SOURCE
#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/rules/rules_explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LEASES_FIRST 0x81
#define LEASE_LEN 11 /* its end, and its units in the last four */

static void print_ttl(const struct explained_key *key)
{
    struct formatted formatted;
    if (key->ttl_ms >= 0)
        printf("%s s", format_wait(&formatted, (uint64_t)key->ttl_ms * 1000000));
    else
        fputs(key->ttl_ms == EXPLAINED_NO_TTL ? "none" : "it has just ended", stdout);
}

/* docs/store-scripts.md describes their format. */
static void print_leases(const struct explained_key *key)
{
    uint64_t units = 0;
    size_t n = 0;
    for (size_t at = 1; at + LEASE_LEN <= key->n_shown; at += LEASE_LEN, n++)
        for (uint64_t i = 0, number = 0; i < 4; i++) {
            number = number << 8 | key->bytes[at + LEASE_LEN - 4 + i];
            units += i == 3 ? number : 0;
        }
    printf("   units   %" PRIu64 " in %zu lease%s\n", units, n, n == 1 ? "" : "s");
}

/* Names of keys contain no quotes, but braces, which a shell would expand. */
void rules_explain_key_text(const struct explained_key *key, const char *title)
{
    printf("   %-7s '", title);
    print_escaped(stdout, span_of_text(key->name));
    fputs("'\n", stdout);
    if (!key->is_looked_at)
        return;
    printf("   node    %s", key->node);
    if (key->slot >= 0)
        printf(", slot %d", key->slot);
    putchar('\n');
    if (key->fault[0] != '\0') {
        fputs("   bytes   cannot be read: ", stdout);
        print_escaped(stdout, span_of_text(key->fault));
        putchar('\n');
        return;
    }
    if (!key->exists) {
        puts("   bytes   none");
        return;
    }
    printf("   bytes   %zu: ", key->len);
    for (size_t i = 0; i < key->n_shown; i++)
        printf("%02x", key->bytes[i]);
    puts(key->n_shown < key->len ? "..." : "");
    if (key->n_shown > 0 && key->bytes[0] == LEASES_FIRST)
        print_leases(key);
    fputs("   expiry  ", stdout);
    print_ttl(key);
    putchar('\n');
}

static json_t *bytes_json(const struct explained_key *key)
{
    char text[2 * EXPLAINED_BYTES_MAX + 1];
    for (size_t i = 0; i < key->n_shown; i++)
        snprintf(text + 2 * i, 3, "%02x", key->bytes[i]);
    text[2 * key->n_shown] = '\0';
    return key->exists ? json_string(text) : json_null();
}

json_t *rules_explain_key_json(const struct explained_key *key)
{
    if (key->name == NULL)
        return json_null();
    bool is_told = key->is_looked_at;
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o}", "name", key->name, "node",
        is_told ? json_text_key(span_of_text(key->node)) : json_null(), "slot",
        key->slot >= 0 ? json_integer(key->slot) : json_null(), "bytes", bytes_json(key), "ttl_ms",
        key->exists && key->ttl_ms >= 0 ? json_integer((json_int_t)key->ttl_ms) : json_null(),
        "fault", key->fault[0] != '\0' ? json_text_key(span_of_text(key->fault)) : json_null());
}
