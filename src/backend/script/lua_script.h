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

/*
 * One quota, by enum stint_algorithm: alone; with an id, which charges once however often it is
 * sent; where units of it are leased; and that with an id. concurrency has no leases.
 */
extern const struct lua_script *const lua_scripts_one[][4];

/* Several quotas, all or nothing; the same with an id. */
extern const struct lua_script lua_script_list, lua_script_list_once;

/* Which key of a pool may be used: backend/redis/pool_backend.h. */
extern const struct lua_script lua_script_pool;

#endif
