/* SPDX-License-Identifier: MIT */
/* Parses a SPEC once for as long as requests use it. */
#include "service/spec_cache.h"

#include "base/err.h"
#include "base/siphash.h"
#include "table/table.h"

static struct spec_entry *place_of(struct spec_cache *cache, struct span text)
{
    return &cache
                ->entries[siphash13_128(cache->secret, 0, text.ptr, text.len).lo % SPEC_CACHE_SIZE];
}

static bool is_of(const struct spec_entry *entry, struct span text)
{
    return entry->text_len == text.len && memcmp(entry->text, text.ptr, text.len) == 0;
}

static int check_text(struct span text, struct stint_error *error)
{
    if (text.len == 0)
        return err_set(error, STINT_E_SYNTAX,
                       "a quota is missing, such as \"window 100/1m\" or \"gcra 10/1s burst=20\"");
    if (text.len > SPEC_TEXT_MAX)
        return err_set(error, STINT_E_RANGE, "a quota has at most %d bytes; this has %zu",
                       SPEC_TEXT_MAX, text.len);
    if (memchr(text.ptr, '\0', text.len) != NULL)
        return err_set(error, STINT_E_SYNTAX, "a quota is text; this has a byte 0x00 in it");
    return 0;
}

/* The name is set last: an entry that failed to parse stays without one. */
static const struct stint_quota *fill(struct spec_entry *entry, struct stint_table *table,
                                      struct span text, struct stint_error *error)
{
    entry->text_len = 0;
    memcpy(entry->text, text.ptr, text.len);
    entry->text[text.len] = '\0';
    if (stint_quota_parse(&entry->quota, entry->text, error) != 0 ||
        table_stores(table, &entry->quota, error) != 0)
        return NULL;
    entry->text_len = text.len;
    return &entry->quota;
}

const struct stint_quota *spec_cache_find(struct spec_cache *cache, struct stint_table *table,
                                          struct span text, struct stint_error *error)
{
    if (check_text(text, error) != 0)
        return NULL;
    /* Most requests use the same SPEC as the one before, which is found without hashing it. */
    struct spec_entry *entry = &cache->entries[cache->last];
    if (is_of(entry, text))
        return &entry->quota;
    entry = place_of(cache, text);
    cache->last = (size_t)(entry - cache->entries);
    return is_of(entry, text) ? &entry->quota : fill(entry, table, text, error);
}
