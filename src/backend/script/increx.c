/* SPDX-License-Identifier: MIT */
/* INCREX in words, and its replies as a decision of fixed_window. */
#include "backend/script/increx.h"

#include "base/ns.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- Asking ---------------------------------------------------------------------------------- */

bool increx_decides(const struct backend_request *ask)
{
    const struct backend_item *item = &ask->items[0];
    const struct stint_quota *quota = item->quota;
    bool is_leased = item->rule != NULL && item->rule->store.lease != RULE_LEASE_NONE;
    return ask->verb == BACKEND_TAKE && ask->n_items == 1 && ask->id == NULL && !ask->is_virtual &&
           quota->algorithm == STINT_FIXED_WINDOW && quota->align == STINT_ALIGN_FIRST_USE &&
           !quota->count_denied && !is_leased && item->cost > 0 && item->cost <= quota->limit &&
           quota->period_ns % NS_PER_MS == 0;
}

static void add_word(struct increx_words *out, const char *word)
{
    out->words[out->n_words++] = span_of_text(word);
}

static size_t add_number(struct increx_words *out, size_t at, uint64_t number)
{
    int len = snprintf(out->digits + at, sizeof(out->digits) - at, "%" PRIu64, number);
    out->words[out->n_words++] = span_of(out->digits + at, (size_t)len);
    return at + (size_t)len;
}

/*
 * A key lives through the millisecond of its end, so PX of the period is a window no shorter than
 * it. ENX: the end stays where the first use has put it.
 */
void increx_write(struct increx_words *out, enum increx_command command,
                  const struct stint_quota *quota, struct span key, uint32_t cost)
{
    static const char *const names[INCREX_COMMANDS] = {"INCREX", "PTTL", "TIME"};
    out->n_words = 0;
    add_word(out, names[command]);
    if (command == INCREX_TIME)
        return;
    out->words[out->n_words++] = key;
    if (command == INCREX_LEFT)
        return;
    add_word(out, "BYINT");
    size_t at = add_number(out, 0, cost);
    add_word(out, "UBOUND");
    at = add_number(out, at, quota->limit);
    add_word(out, "PX");
    add_number(out, at, quota->period_ns / NS_PER_MS);
    add_word(out, "ENX");
}

/* ---- Replies --------------------------------------------------------------------------------- */

static bool begins_with(struct span text, const char *word)
{
    size_t len = strlen(word);
    return text.len >= len && memcmp(text.ptr, word, len) == 0;
}

static enum increx_reply meaning_of(struct span error)
{
    if (begins_with(error, "ERR value is not an integer") || begins_with(error, "WRONGTYPE"))
        return INCREX_FOREIGN;
    if (begins_with(error, "ERR unknown command") || begins_with(error, "ERR syntax error") ||
        begins_with(error, "ERR wrong number of arguments") || begins_with(error, "NOPERM"))
        return INCREX_UNKNOWN;
    return INCREX_REFUSED;
}

enum increx_reply increx_read_count(struct increx *increx, const struct redis_reply *reply)
{
    if (reply->type == REDIS_ERROR)
        return meaning_of(reply->text);
    if (reply->type != REDIS_ARRAY || reply->n_items != 2 ||
        reply->items[0].type != REDIS_INTEGER || reply->items[1].type != REDIS_INTEGER)
        return INCREX_BROKEN;
    increx->value = reply->items[0].number;
    increx->added = reply->items[1].number;
    bool is_whole = increx->added == 0 || increx->added == increx->cost;
    return is_whole && increx->value >= increx->added ? INCREX_COUNTED : INCREX_BROKEN;
}

bool increx_read_left(struct increx *increx, const struct redis_reply *reply)
{
    /* -2: it has ended meanwhile. One that never ends is not of INCREX, which was just asked. */
    bool is_right = reply->type == REDIS_INTEGER && (reply->number >= 0 || reply->number == -2);
    increx->left_ms = is_right && reply->number > 0 ? reply->number : 0;
    return is_right;
}

/* A number of digits alone; false for anything else. */
static bool read_digits(struct span text, int64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9' || i >= 15)
            return false;
        *number = 10 * *number + (text.ptr[i] - '0');
    }
    return text.len > 0;
}

bool increx_read_time(struct increx *increx, const struct redis_reply *reply)
{
    int64_t seconds, micros;
    if (reply->type != REDIS_ARRAY || reply->n_items != 2 || reply->items[0].type != REDIS_TEXT ||
        reply->items[1].type != REDIS_TEXT || !read_digits(reply->items[0].text, &seconds) ||
        !read_digits(reply->items[1].text, &micros) || seconds > INT64_C(9000000000) ||
        micros >= 1000000)
        return false;
    increx->now_us = seconds * 1000000 + micros;
    return true;
}

/*
 * As the script has it: the window ends a millisecond after the last that its key lives in. A first
 * use has its whole period, also where a redirect has brought PTTL to its server before INCREX.
 */
struct stint_decision increx_decision(const struct increx *increx)
{
    bool is_allowed = increx->added > 0, is_first = is_allowed && increx->value == increx->added;
    int64_t left_ms = is_first ? (int64_t)(increx->period_ns / NS_PER_MS) : increx->left_ms;
    uint64_t left_us = (uint64_t)((increx->now_us / 1000 + left_ms + 1) * 1000 - increx->now_us);
    return (struct stint_decision){
        .outcome = is_allowed ? STINT_ALLOW : STINT_DENY,
        .stored = 1,
        .granted = is_allowed ? increx->cost : 0,
        .limit = increx->limit,
        /* A charge may have driven it past the limit, or the limit was higher before. */
        .remaining = increx->value < increx->limit ? increx->limit - (uint32_t)increx->value : 0,
        .retry_after_ns = is_allowed ? 0 : left_us * NS_PER_US,
        .reset_after_ns = left_us * NS_PER_US,
    };
}

/* Servers without it reply an array of one nil; older ones an empty array. */
bool increx_is_there(const struct redis_reply *reply)
{
    return reply->type == REDIS_ARRAY && reply->n_items == 1 &&
           reply->items[0].type == REDIS_ARRAY && reply->items[0].n_items > 0;
}
