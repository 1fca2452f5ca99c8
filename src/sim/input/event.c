/* SPDX-License-Identifier: MIT */
/* Keys are runs of bytes without space or tab, NUL and UTF-8 included. */
#include "sim/input/event.h"

#include "base/limits.h"
#include "sim/input/timestamp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Traces ---------------------------------------------------------------------------------- */

/* Cuts the next word off the line; empty at its end. */
static struct span next_word(struct span *line)
{
    *line = span_trim(*line);
    struct span word = {line->ptr, 0};
    while (word.len < line->len && !byte_is_blank(word.ptr[word.len]))
        word.len++;
    line->ptr += word.len;
    line->len -= word.len;
    return word;
}

int trace_parse_cost(uint32_t *cost, struct span text, struct stint_error *error)
{
    uint64_t number = 0;
    size_t at = 0;
    for (; at < text.len && (uint8_t)(text.ptr[at] - '0') <= 9 && number <= UINT32_MAX; at++)
        number = number * 10 + (uint64_t)(text.ptr[at] - '0');
    if (number > UNIT_COUNT_MAX)
        return err_set(error, STINT_E_RANGE,
                       "'%.*s' is no cost: expected a whole number from 0 to " UNIT_COUNT_MAX_TEXT
                       "; " UNITS_ADVICE,
                       (int)(text.len < 40 ? text.len : 40), (const char *)text.ptr);
    if (text.len == 0 || at < text.len)
        return err_set(error, STINT_E_SYNTAX,
                       "'%.*s' is no cost: expected a whole number from 0 to 4294967295",
                       (int)(text.len < 40 ? text.len : 40), (const char *)text.ptr);
    *cost = (uint32_t)number;
    return 0;
}

int trace_parse(struct event *event, struct span line, struct stint_error *error)
{
    struct span time = next_word(&line);
    if (time.len == 0 || time.ptr[0] == '#')
        return EVENT_NONE;
    struct timestamp timestamp;
    int code = timestamp_parse_seconds(&timestamp, time, error);
    if (code != 0)
        return code;
    struct span key = next_word(&line);
    if (key.len == 0)
        return err_set(error, STINT_E_SYNTAX, "expected TIME KEY [COST], found no KEY");
    uint32_t cost = 1;
    struct span word = next_word(&line);
    if (word.len > 0 && word.ptr[0] != '#') {
        code = trace_parse_cost(&cost, word, error);
        if (code != 0)
            return code;
        word = next_word(&line);
    }
    if (word.len > 0 && word.ptr[0] != '#')
        return err_set(error, STINT_E_SYNTAX, "expected TIME KEY [COST], found more after COST");
    *event = (struct event){timestamp.ns, key, cost, timestamp.decimals};
    return EVENT_FOUND;
}

/* ---- Joined keys ----------------------------------------------------------------------------- */

/* Escapes and appends; never truncates. */

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

/* ---- Lists ----------------------------------------------------------------------------------- */

/* Merge sort from below. Logs are nearly sorted, so most merges have nothing to do. */

void event_list_deinit(struct event_list *list)
{
    free(list->entries);
    *list = (struct event_list){0};
}

int event_list_add(struct event_list *list, struct event_entry entry, struct stint_error *error)
{
    if (list->n_entries == list->size) {
        size_t size = list->size == 0 ? 4096 : list->size * 2;
        struct event_entry *entries = realloc(list->entries, size * sizeof(*entries));
        if (entries == NULL)
            return err_set(error, STINT_E_SYSTEM, "out of memory for sorting: %zu events so far",
                           list->n_entries);
        list->entries = entries;
        list->size = size;
    }
    list->entries[list->n_entries++] = entry;
    return 0;
}

/* Merges two sorted neighbours, [0, n_left) and [n_left, n), of `from` into `to`. */
static void merge(struct event_entry *to, const struct event_entry *from, size_t n_left, size_t n)
{
    if (n_left == n || from[n_left - 1].at_ns <= from[n_left].at_ns) {
        memcpy(to, from, n * sizeof(*to));
        return;
    }
    size_t left = 0, right = n_left;
    for (size_t i = 0; i < n; i++) {
        /* On equal times the left one goes first: this keeps their order. */
        bool take_left = right == n || (left < n_left && from[left].at_ns <= from[right].at_ns);
        to[i] = take_left ? from[left++] : from[right++];
    }
}

static bool is_sorted(const struct event_list *list)
{
    for (size_t i = 1; i < list->n_entries; i++)
        if (list->entries[i].at_ns < list->entries[i - 1].at_ns)
            return false;
    return true;
}

int event_list_sort(struct event_list *list, struct stint_error *error)
{
    size_t n = list->n_entries;
    if (is_sorted(list))
        return 0;
    struct event_entry *from = list->entries, *to = malloc(n * sizeof(*to));
    if (to == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for sorting %zu events", n);
    for (size_t half = 1; half < n; half *= 2) {
        for (size_t at = 0; at < n; at += 2 * half) {
            size_t n_here = n - at < 2 * half ? n - at : 2 * half;
            merge(to + at, from + at, half < n_here ? half : n_here, n_here);
        }
        struct event_entry *swap = from;
        from = to;
        to = swap;
    }
    free(to);
    list->entries = from;
    list->size = n;
    return 0;
}
