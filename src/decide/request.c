/* SPDX-License-Identifier: MIT */
#include "decide/request.h"

#define CHARGES .is_charging = true
#define ADMINISTERS .is_charging = true, .is_administrative = true
#define AHEAD .may_be_ahead = true
#define COUNTED .is_counted = true

const struct verb request_verbs[REQUEST_VERBS] = {
    [REQUEST_TAKE] = {"take", CHARGES, AHEAD, COUNTED},
    [REQUEST_PEEK] = {"peek", AHEAD},
    [REQUEST_TAKE_UPTO] = {"take_upto", CHARGES, AHEAD, COUNTED},
    [REQUEST_RESERVE] = {"reserve", CHARGES, COUNTED},
    [REQUEST_SETTLE] = {"settle", CHARGES},
    [REQUEST_CANCEL] = {"cancel", CHARGES},
    [REQUEST_RENEW] = {"renew", CHARGES},
    [REQUEST_REFUND] = {"refund", CHARGES, AHEAD},
    [REQUEST_CHARGE] = {"charge", CHARGES, AHEAD, COUNTED},
    [REQUEST_BOOK] = {"book", CHARGES, COUNTED},
    [REQUEST_BLOCK] = {"block", ADMINISTERS},
    [REQUEST_RESET] = {"reset", ADMINISTERS},
    [REQUEST_SET_QUOTA] = {"set_quota", ADMINISTERS},
    [REQUEST_EXPLAIN] = {"explain", AHEAD},
    [REQUEST_THROTTLE] = {"throttle", CHARGES, AHEAD},
    [REQUEST_FORGET] = {"forget", CHARGES},
    [REQUEST_FIND] = {.name = "find"},
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
