/* SPDX-License-Identifier: MIT */
/* What sentinels report on a master: its address, and a switch to another one. */
#ifndef STINT_BACKEND_REDIS_SENTINEL_H
#define STINT_BACKEND_REDIS_SENTINEL_H

#include "backend/url.h"
#include "backend/wire/redis_conn.h"

#define SENTINEL_CHANNEL "+switch-master"

/* The reply to SENTINEL GET-MASTER-ADDR-BY-NAME. STINT_E_GONE: no master has that name. */
int sentinel_read_master(struct store_host *master, const char *name,
                         const struct redis_reply *reply, struct stint_error *error);
/* A message of SENTINEL_CHANNEL; false: it is of another master, or none. */
bool sentinel_read_switch(struct store_host *master, const char *name,
                          const struct redis_reply *message);

#endif
