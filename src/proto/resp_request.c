/* SPDX-License-Identifier: MIT */
/* Requests by position; those with words are read in resp_words.c. */
#include "proto/resp_request.h"

#include "base/err.h"
#include "base/limits.h"
#include "proto/resp_number.h"
#include "proto/resp_words.h"
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

bool resp_request_is_one(enum resp_command_id id)
{
    return verbs[id] != 0;
}

void resp_request_key(struct request *request, enum request_verb verb, struct span key)
{
    *request = (struct request){.verb = (uint8_t)verb, .cost = 1, .key = key};
}

/* Digits alone, of a number above max: not one that is malformed or below 0. */
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
    /* Units are what has this maximum; max_burst is one less. */
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

/* A number of CL.THROTTLE. */
static inline int read_positive(const char *what, struct span text, uint64_t min, uint64_t max,
                                uint64_t *number, struct stint_error *error)
{
    if (resp_number_read(text, max, number) && *number >= min)
        return STINT_OK;
    return resp_refuse_number(what, text, min, max, error);
}

int resp_request_throttle(const struct span *args, size_t n_args, struct request *request,
                          struct stint_error *error)
{
    struct request_throttle *throttle = &request->throttle;
    uint64_t quantity = 1;
    request->key = args[1];
    if (n_args > 6)
        return err_set(error, STINT_E_SYNTAX,
                       "usage: CL.THROTTLE key max_burst count_per_period period [quantity]");
    if (read_positive("max_burst", args[2], 0, UINT32_MAX - 1, &throttle->max_burst, error) != 0 ||
        read_positive("count_per_period", args[3], 1, INT64_MAX, &throttle->count_per_period,
                      error) != 0 ||
        read_positive("period", args[4], 1, INT64_MAX, &throttle->period_s, error) != 0)
        return STINT_E_RANGE;
    if (n_args == 6 && read_positive("quantity", args[5], 0, UINT32_MAX, &quantity, error) != 0)
        return STINT_E_RANGE;
    request->cost = (uint32_t)quantity;
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
    if (settles && read_positive("what was used", args[2], 0, UINT32_MAX, &actual, error) != 0)
        return STINT_E_RANGE;
    request->cost = (uint32_t)actual;
    return resp_words_read(args + at, n_args - at, NULL, request, error);
}

int resp_request_read(const struct resp_command *command, const struct span *args, size_t n_args,
                      struct resp_lists *lists, struct request *request, struct stint_error *error)
{
    enum resp_command_id id = resp_command_id(command);
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
