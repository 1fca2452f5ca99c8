/* SPDX-License-Identifier: MIT */
/* Splits at blanks: a key is any run of bytes without space or tab, NUL and UTF-8 included. */
#include "sim/input/trace.h"

#include "base/limits.h"
#include "sim/input/timestamp.h"

static bool is_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}

/* Cuts the next word off the line; empty at its end. */
static struct span next_word(struct span *line)
{
    while (line->len > 0 && is_blank(line->ptr[0])) {
        line->ptr++;
        line->len--;
    }
    struct span word = {line->ptr, 0};
    while (word.len < line->len && !is_blank(word.ptr[word.len]))
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
