/* SPDX-License-Identifier: MIT */
/* Logs which domains and keys of requests no rule limits: each once. */
#ifndef STINT_NET_LOG_UNMATCHED_REPORT_H
#define STINT_NET_LOG_UNMATCHED_REPORT_H

#include "net/log/log.h"

struct server_state;

/* Call periodically. */
void unmatched_report(struct server_state *server_state, struct log *log);

#endif
