/* SPDX-License-Identifier: MIT */
#include "decide/request.h"

#define CHARGES(number) .is_charging = true, .digest = (number)
#define ADMINISTERS(number) CHARGES(number), .is_administrative = true
#define AHEAD .may_be_ahead = true
#define COUNTED .is_counted = true
#define OF_STORES .is_of_stores = true

const struct verb request_verbs[REQUEST_VERBS] = {
    [REQUEST_TAKE] = {"take", CHARGES(0), AHEAD, COUNTED},
    [REQUEST_TAKE_UPTO] = {"take_upto", CHARGES(2), AHEAD, COUNTED},
    [REQUEST_PEEK] = {"peek", AHEAD},
    [REQUEST_CHARGE] = {"charge", CHARGES(8), AHEAD, COUNTED},
    [REQUEST_REFUND] = {"refund", CHARGES(7), AHEAD},
    [REQUEST_BOOK] = {"book", CHARGES(9), COUNTED},
    [REQUEST_UNBOOK] = {"unbook", OF_STORES},
    [REQUEST_RESET] = {"reset", ADMINISTERS(11)},
    [REQUEST_LEASE] = {"lease", OF_STORES},
    [REQUEST_RETURN] = {"return", OF_STORES},
    [REQUEST_SETTLE] = {"settle", CHARGES(4)},
    [REQUEST_CANCEL] = {"cancel", CHARGES(5)},
    [REQUEST_EXTEND] = {"extend", OF_STORES},
    [REQUEST_EXPIRE] = {"expire", OF_STORES},
    [REQUEST_UNDO] = {"undo", OF_STORES},
    [REQUEST_RELEASE] = {"release", OF_STORES},
    [REQUEST_RENEW] = {"renew", CHARGES(6)},
    [REQUEST_RESERVE] = {"reserve", CHARGES(3), COUNTED},
    [REQUEST_BLOCK] = {"block", ADMINISTERS(10)},
    [REQUEST_SET_QUOTA] = {"set_quota", ADMINISTERS(12)},
    [REQUEST_EXPLAIN] = {"explain", AHEAD},
    [REQUEST_THROTTLE] = {"throttle", CHARGES(14), AHEAD},
    [REQUEST_FORGET] = {"forget", CHARGES(15)},
    [REQUEST_FIND] = {.name = "find"},
    /* Not AHEAD: a script that is not loaded yet, or a redirection, could change their order. */
    [REQUEST_COUNT] = {.name = "count"},
    [REQUEST_COUNT_RESET] = {.name = "count_reset"},
};

static bool is_text(struct span text)
{
    return text.ptr != NULL || text.len == 0;
}

bool request_is_valid(const struct request *request)
{
    return request->verb < REQUEST_VERBS && !request_verbs[request->verb].is_of_stores &&
           is_text(request->domain) && is_text(request->key) && is_text(request->quota) &&
           is_text(request->id) && is_text(request->ticket_text) &&
           (request->items != NULL || request->n_items == 0) &&
           (request->descriptors != NULL || request->n_descriptors == 0);
}
