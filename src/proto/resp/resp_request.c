/* SPDX-License-Identifier: MIT */
/* Arguments by position; resp_words.c reads options. */
#include "proto/resp/resp_request.h"

#include <assert.h>

#include "base/err.h"
#include "base/limits.h"
#include "base/number.h"
#include "proto/resp/resp_words.h"
#include "proto/ticket_text.h"

#define SHOWN_MAX 60 /* bytes of an argument in an error */

static const int8_t verbs[RESP_COMMANDS] = {
    [RESP_THROTTLE] = REQUEST_THROTTLE + 1, [RESP_TAKE] = REQUEST_TAKE + 1,
    [RESP_PEEK] = REQUEST_PEEK + 1,         [RESP_TAKEUPTO] = REQUEST_TAKE_UPTO + 1,
    [RESP_RESERVE] = REQUEST_RESERVE + 1,   [RESP_SETTLE] = REQUEST_SETTLE + 1,
    [RESP_CANCEL] = REQUEST_CANCEL + 1,     [RESP_RENEW] = REQUEST_RENEW + 1,
    [RESP_REFUND] = REQUEST_REFUND + 1,     [RESP_CHARGE] = REQUEST_CHARGE + 1,
    [RESP_BOOK] = REQUEST_BOOK + 1,         [RESP_BLOCK] = REQUEST_BLOCK + 1,
    [RESP_RESET] = REQUEST_RESET + 1,       [RESP_SETQUOTA] = REQUEST_SET_QUOTA + 1,
    [RESP_EXPLAIN] = REQUEST_EXPLAIN + 1,
};

void resp_request_key(struct request *request, enum request_verb verb, struct span key)
{
    *request = (struct request){.verb = (uint8_t)verb, .cost = 1, .key = key};
}

/* Only digits, of a number above max: neither malformed nor below 0. */
static bool is_larger(struct span text, uint64_t max)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        number = number > max ? number : number * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    return number > max;
}

int resp_refuse_number(const char *what, struct span text, uint64_t min, uint64_t max,
                       struct stint_error *error)
{
    int shown = text.len < SHOWN_MAX ? (int)text.len : SHOWN_MAX;
    /* The maximum is that of units; max_burst is one less. */
    bool has_advice = (max == UNIT_COUNT_MAX || max == UNIT_COUNT_MAX - 1) && is_larger(text, max);
    return err_set(error, STINT_E_RANGE,
                   "%s must be a whole number from %llu to %llu, not '%.*s'%s", what,
                   (unsigned long long)min, (unsigned long long)max, shown, (const char *)text.ptr,
                   has_advice ? "; " UNITS_ADVICE : "");
}

int resp_refuse_word(const char *expected, struct span text, struct stint_error *error)
{
    int shown = text.len < SHOWN_MAX ? (int)text.len : SHOWN_MAX;
    return err_set(error, STINT_E_SYNTAX, "expected %s, not '%.*s'", expected, shown,
                   (const char *)text.ptr);
}

static int read_whole(const char *what, struct span text, uint64_t min, uint64_t max,
                      uint64_t *number, struct stint_error *error)
{
    if (resp_number_read(text, max, number) && *number >= min)
        return STINT_OK;
    return resp_refuse_number(what, text, min, max, error);
}

/* ---- CL.THROTTLE ----------------------------------------------------------------------------- */

#define THROTTLE_NUMBERS 4

struct throttle_number {
    const char *name;
    int64_t min, max;
};

static const struct throttle_number throttle_numbers[THROTTLE_NUMBERS] = {
    {"max_burst", -1, (int64_t)UINT32_MAX - 1},
    {"count_per_period", 1, INT64_MAX},
    {"period", 1, INT64_MAX},
    {"quantity", 0, UINT32_MAX},
};

/* An integer of 64 bits with or without a sign, in redis-cell's format. */
static inline bool read_integer(struct span text, int64_t *number)
{
    uint64_t magnitude;
    bool is_negative = text.len > 0 && *text.ptr == '-';
    if (text.len > 0 && (is_negative || *text.ptr == '+'))
        text = (struct span){text.ptr + 1, text.len - 1};
    if (!resp_number_read(text, (uint64_t)INT64_MAX, &magnitude))
        return false;
    *number = is_negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

static int refuse_throttle(const struct span *args, size_t n_args,
                           const int64_t numbers[THROTTLE_NUMBERS], struct stint_error *error)
{
    int64_t number;
    for (size_t i = 0; i + 2 < n_args; i++)
        if (!read_integer(args[i + 2], &number))
            return err_set(error, STINT_E_SYNTAX,
                           RESP_CELL_ERROR "Couldn't parse as integer: %.*s: %s is an integer",
                           args[i + 2].len < SHOWN_MAX ? (int)args[i + 2].len : SHOWN_MAX,
                           (const char *)args[i + 2].ptr, throttle_numbers[i].name);
    if (numbers[1] == 0 || numbers[2] == 0)
        return err_set(error, STINT_E_SYNTAX,
                       RESP_CELL_ERROR "Zero rates are not supported: count_per_period and period "
                                       "are at least 1");
    size_t i = 0;
    while (numbers[i] >= throttle_numbers[i].min && numbers[i] <= throttle_numbers[i].max)
        i++;
    assert(i < THROTTLE_NUMBERS);
    bool is_above = numbers[i] > throttle_numbers[i].max;
    return err_set(error, STINT_E_RANGE, "%s must be a whole number from %lld to %lld, not %lld%s",
                   throttle_numbers[i].name, (long long)throttle_numbers[i].min,
                   (long long)throttle_numbers[i].max, (long long)numbers[i],
                   is_above ? "; " UNITS_ADVICE : "");
}

int resp_request_throttle(const struct span *args, size_t n_args, struct request *request,
                          struct stint_error *error)
{
    int64_t numbers[THROTTLE_NUMBERS] = {[3] = 1};
    bool is_good = n_args == 5 || n_args == 6;
    if (!is_good)
        return err_set(error, STINT_E_SYNTAX, RESP_CELL_USAGE);
    for (size_t i = 0; is_good && i + 2 < n_args; i++)
        is_good = read_integer(args[i + 2], &numbers[i]);
    for (size_t i = 0; is_good && i < THROTTLE_NUMBERS; i++)
        is_good = numbers[i] >= throttle_numbers[i].min && numbers[i] <= throttle_numbers[i].max;
    if (!is_good)
        return refuse_throttle(args, n_args, numbers, error);
    request->key = args[1];
    request->throttle = (struct request_throttle){
        .max_burst = numbers[0],
        .count_per_period = (uint64_t)numbers[1],
        .period_s = (uint64_t)numbers[2],
    };
    request->cost = (uint32_t)numbers[3];
    return STINT_OK;
}

static int read_ticket(const struct span *args, size_t n_args, struct request *request,
                       struct stint_error *error)
{
    bool settles = request->verb == REQUEST_SETTLE;
    size_t at = settles ? 3 : 2;
    uint64_t actual = 0;
    if (!ticket_text_read(args[1], request))
        return resp_refuse_word("a ticket, 32 digits or more", args[1], error);
    if (settles && read_whole("what was used", args[2], 0, UINT32_MAX, &actual, error) != 0)
        return STINT_E_RANGE;
    request->cost = (uint32_t)actual;
    return resp_words_read(args + at, n_args - at, NULL, request, error);
}

int resp_request_read(const struct resp_command *command, const struct span *args, size_t n_args,
                      struct resp_lists *lists, struct request *request, struct stint_error *error)
{
    enum resp_command_id id = resp_command_id(command);
    assert(verbs[id] != 0);
    *request = (struct request){.verb = (uint8_t)(verbs[id] - 1), .cost = 1};
    switch (id) {
    case RESP_THROTTLE:
        return resp_request_throttle(args, n_args, request, error);
    case RESP_SETTLE:
    case RESP_CANCEL:
    case RESP_RENEW:
        return read_ticket(args, n_args, request, error);
    default:
        return resp_words_read(args + 1, n_args - 1, lists, request, error);
    }
}
