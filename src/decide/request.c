/* SPDX-License-Identifier: MIT */
/* The names of verbs, and the roles that may use them. */
#include "decide/request.h"

#include <assert.h>

static const char *const names[REQUEST_VERBS] = {
    [REQUEST_TAKE] = "take",           [REQUEST_PEEK] = "peek",
    [REQUEST_TAKE_UPTO] = "take_upto", [REQUEST_RESERVE] = "reserve",
    [REQUEST_SETTLE] = "settle",       [REQUEST_CANCEL] = "cancel",
    [REQUEST_RENEW] = "renew",         [REQUEST_REFUND] = "refund",
    [REQUEST_CHARGE] = "charge",       [REQUEST_BOOK] = "book",
    [REQUEST_BLOCK] = "block",         [REQUEST_RESET] = "reset",
    [REQUEST_SET_QUOTA] = "set_quota", [REQUEST_EXPLAIN] = "explain",
    [REQUEST_THROTTLE] = "throttle",   [REQUEST_FORGET] = "forget",
    [REQUEST_FIND] = "find",
};

static bool is_text(struct span text)
{
    return text.ptr != NULL || text.len == 0;
}

bool request_is_valid(const struct request *request)
{
    return request->verb < REQUEST_VERBS && is_text(request->domain) && is_text(request->key) &&
           is_text(request->quota) && is_text(request->id) && is_text(request->ticket_text) &&
           (request->items != NULL || request->n_items == 0) &&
           (request->descriptors != NULL || request->n_descriptors == 0);
}

const char *request_verb_name(int verb)
{
    return verb >= 0 && verb < REQUEST_VERBS ? names[verb] : "unknown";
}

bool request_is_charging(int verb)
{
    assert(verb >= 0 && verb < REQUEST_VERBS);
    return verb != REQUEST_PEEK && verb != REQUEST_EXPLAIN && verb != REQUEST_FIND;
}

bool request_is_administrative(int verb)
{
    assert(verb >= 0 && verb < REQUEST_VERBS);
    return verb == REQUEST_BLOCK || verb == REQUEST_RESET || verb == REQUEST_SET_QUOTA;
}
