/* SPDX-License-Identifier: MIT */
/* The names of verbs, and the roles that may use them. */
#include "decide/request.h"

#include <assert.h>

enum right {
    RIGHT_LOOK = 0, /* moves no units */
    RIGHT_CHARGE,
    RIGHT_ADMINISTER,
};

static const struct {
    const char *name;
    enum right right;
} verbs[REQUEST_VERBS] = {
    [REQUEST_TAKE] = {"take", RIGHT_CHARGE},
    [REQUEST_PEEK] = {"peek", RIGHT_LOOK},
    [REQUEST_TAKE_UPTO] = {"take_upto", RIGHT_CHARGE},
    [REQUEST_RESERVE] = {"reserve", RIGHT_CHARGE},
    [REQUEST_SETTLE] = {"settle", RIGHT_CHARGE},
    [REQUEST_CANCEL] = {"cancel", RIGHT_CHARGE},
    [REQUEST_RENEW] = {"renew", RIGHT_CHARGE},
    [REQUEST_REFUND] = {"refund", RIGHT_CHARGE},
    [REQUEST_CHARGE] = {"charge", RIGHT_CHARGE},
    [REQUEST_BOOK] = {"book", RIGHT_CHARGE},
    [REQUEST_BLOCK] = {"block", RIGHT_ADMINISTER},
    [REQUEST_RESET] = {"reset", RIGHT_ADMINISTER},
    [REQUEST_SET_QUOTA] = {"set_quota", RIGHT_ADMINISTER},
    [REQUEST_EXPLAIN] = {"explain", RIGHT_LOOK},
    [REQUEST_THROTTLE] = {"throttle", RIGHT_CHARGE},
    [REQUEST_FORGET] = {"forget", RIGHT_CHARGE},
    [REQUEST_FIND] = {"find", RIGHT_LOOK},
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
    return verb >= 0 && verb < REQUEST_VERBS ? verbs[verb].name : "unknown";
}

bool request_is_charging(int verb)
{
    assert(verb >= 0 && verb < REQUEST_VERBS);
    return verbs[verb].right != RIGHT_LOOK;
}

bool request_is_administrative(int verb)
{
    assert(verb >= 0 && verb < REQUEST_VERBS);
    return verbs[verb].right == RIGHT_ADMINISTER;
}
