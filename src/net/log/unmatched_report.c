/* SPDX-License-Identifier: MIT */
#include "net/log/unmatched_report.h"

#include "service/service.h"
#include "service/unmatched.h"

#define AND_OTHERS "others are only counted in the metrics until a reload"

void unmatched_report(struct server_state *server_state, struct log *log)
{
    struct unmatched_name name;
    while (unmatched_next(server_state_unmatched(server_state),
                          server_state_generation(server_state), &name)) {
        bool is_domain = name.kind == UNMATCHED_DOMAIN;
        struct log_field fields[3];
        size_t n = 0;
        fields[n++] = LOG_TEXT("domain", name.domain);
        if (!is_domain)
            fields[n++] = LOG_TEXT("keys", name.keys);
        if (name.is_last)
            fields[n++] = LOG_TEXT("note", AND_OTHERS);
        log_write(log, is_domain ? LOG_DOMAIN_UNKNOWN : LOG_UNMATCHED, fields, n);
    }
}
