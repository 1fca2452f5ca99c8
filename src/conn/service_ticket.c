/* SPDX-License-Identifier: MIT */
/* Verbs on tickets: whoever has one needs no key. */
#include "conn/service_parts.h"

void service_ticket(struct service *service, const struct request *request, uint64_t now_ns,
                    struct reply *reply)
{
    struct stint_table *table = service->table;
    int code;
    if (request->verb == REQUEST_SETTLE)
        code = stint_settle(table, request->ticket, request->cost, now_ns, &reply->decision);
    else if (request->verb == REQUEST_CANCEL)
        code = stint_cancel(table, request->ticket, now_ns, &reply->decision);
    else
        code = stint_renew(table, request->ticket, now_ns);
    if (code == STINT_E_GONE)
        service_refuse_as(reply, REPLY_GONE, "the ticket was used, has ended, or never was");
    else if (code != 0)
        service_refuse_as(
            reply, REPLY_BAD_REQUEST,
            "the ticket holds no place: only those of concurrency quotas are renewed");
}
