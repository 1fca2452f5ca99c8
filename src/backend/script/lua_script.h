/* SPDX-License-Identifier: MIT */
/* The scripts of lua/, as sent to a store; docs/store-scripts.md describes how to call them. */
#ifndef STINT_BACKEND_SCRIPT_LUA_SCRIPT_H
#define STINT_BACKEND_SCRIPT_LUA_SCRIPT_H

#include "base/span.h"

struct lua_script {
    const char *name;
    char sha1[41]; /* in hexadecimal: its name for EVALSHA */
    struct span text;
};

/* All of them; ends with NULL. */
extern const struct lua_script *const lua_scripts[];

/* One quota of an algorithm. */
extern const struct lua_script lua_script_window;
extern const struct lua_script lua_script_buckets;
extern const struct lua_script lua_script_log;
extern const struct lua_script lua_script_gcra;
extern const struct lua_script lua_script_fixed_window;
extern const struct lua_script lua_script_sliding_counter;
extern const struct lua_script lua_script_concurrency;

/* The same with an id, which charges once however often it is sent. */
extern const struct lua_script lua_script_window_once;
extern const struct lua_script lua_script_buckets_once;
extern const struct lua_script lua_script_log_once;
extern const struct lua_script lua_script_gcra_once;
extern const struct lua_script lua_script_fixed_window_once;
extern const struct lua_script lua_script_sliding_counter_once;
extern const struct lua_script lua_script_concurrency_once;
extern const struct lua_script lua_script_list_once;

/* One quota of which units are leased; and the same with an id. */
extern const struct lua_script lua_script_lease_window;
extern const struct lua_script lua_script_lease_buckets;
extern const struct lua_script lua_script_lease_log;
extern const struct lua_script lua_script_lease_gcra;
extern const struct lua_script lua_script_lease_fixed_window;
extern const struct lua_script lua_script_lease_sliding_counter;
extern const struct lua_script lua_script_lease_window_once;
extern const struct lua_script lua_script_lease_buckets_once;
extern const struct lua_script lua_script_lease_log_once;
extern const struct lua_script lua_script_lease_gcra_once;
extern const struct lua_script lua_script_lease_fixed_window_once;
extern const struct lua_script lua_script_lease_sliding_counter_once;

/* Several quotas, all or nothing; and the rolling window for redis-cli. */
extern const struct lua_script lua_script_list;
extern const struct lua_script lua_script_rolling_window;

/* Which key of a pool may be used: backend/redis/pool_backend.h. */
extern const struct lua_script lua_script_pool;

#endif
