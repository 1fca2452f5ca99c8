/* SPDX-License-Identifier: MIT */
/* Cutting in place: a part is never longer than its written form. */
#include "cmd/lib/descriptor_word.h"

#include <stdbool.h>

/*
 * Cuts the first part off a word, up to an `until` or the end; a backslash escapes the next byte.
 * *found is whether `until` was there.
 */
static struct span cut(char **word, char until, bool *found)
{
    char *part = *word, *to = part, *from = part;
    for (; *from != '\0' && *from != until; from++) {
        if (*from == '\\' && from[1] != '\0')
            from++;
        *to++ = *from;
    }
    *found = *from == until;
    *word = from + *found;
    return span_of(part, (size_t)(to - part));
}

int descriptor_word_cut(char *word, struct descriptor_entry entries[ENTRIES_MAX], size_t *n_entries,
                        struct stint_error *error)
{
    bool goes_on = true;
    for (*n_entries = 0; goes_on; (*n_entries)++) {
        bool has_value;
        if (*n_entries == ENTRIES_MAX)
            return err_set(error, STINT_E_RANGE, "more than %d entries in a descriptor",
                           ENTRIES_MAX);
        struct descriptor_entry *entry = &entries[*n_entries];
        /* The name ends at the first `=`; a comma before it would begin another entry. */
        entry->key = cut(&word, '=', &has_value);
        if (!has_value || entry->key.len == 0 || memchr(entry->key.ptr, ',', entry->key.len))
            return err_set(error, STINT_E_SYNTAX,
                           "expected a descriptor NAME=VALUE[,NAME=VALUE...], found '%.*s'",
                           (int)entry->key.len, (const char *)entry->key.ptr);
        entry->value = cut(&word, ',', &goes_on);
    }
    return 0;
}
