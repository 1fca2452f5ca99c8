/* SPDX-License-Identifier: MIT */
/*
 * A window of the first use counted by INCREX, where the server has it, in place of a script: one
 * command of the server's own, and two that say how long the window lasts and what time it is. The
 * state that it leaves is one that the scripts go on with (lua/fixed_window.lua), so anything else
 * may be asked of the same key by anybody. docs/decisions/0043.
 */
#ifndef STINT_BACKEND_SCRIPT_INCREX_H
#define STINT_BACKEND_SCRIPT_INCREX_H

#include "backend/wire/redis_reply.h"
#include "decide/backend.h"

#define INCREX_WORDS 9 /* of the longest command */
#define INCREX_DIGITS 64

/* The commands, in the order in which they are to be sent, over one connection. */
enum increx_command { INCREX_COUNT, INCREX_LEFT, INCREX_TIME, INCREX_COMMANDS };

struct increx_words {
    struct span words[INCREX_WORDS]; /* point into `digits`, and to the key */
    size_t n_words;
    char digits[INCREX_DIGITS];
};

/* What was replied so far. */
struct increx {
    uint32_t limit, cost;
    uint64_t period_ns;
    int64_t value, added, left_ms, now_us;
};

/*
 * Whether an ask is one that INCREX decides as the algorithm does: one take of 1 … limit units,
 * without an id, under a window of the first use that counts no denials and lasts whole
 * milliseconds.
 */
bool increx_decides(const struct backend_request *ask);

void increx_write(struct increx_words *out, enum increx_command command,
                  const struct stint_quota *quota, struct span key, uint32_t cost);

/* What a reply to the first command means. */
enum increx_reply {
    INCREX_COUNTED,
    INCREX_FOREIGN, /* a script keeps this window: it is to be asked, nothing was done */
    INCREX_UNKNOWN, /* no such command here, or not with these words; nothing was done */
    INCREX_REFUSED, /* an error that the script would meet, too; nothing was done */
    INCREX_BROKEN,  /* no reply of INCREX: it may have been done */
};

enum increx_reply increx_read_count(struct increx *increx, const struct redis_reply *reply);
/* False: no reply of PTTL, or of TIME. */
bool increx_read_left(struct increx *increx, const struct redis_reply *reply);
bool increx_read_time(struct increx *increx, const struct redis_reply *reply);
/* Once all three are read. */
struct stint_decision increx_decision(const struct increx *increx);

/* COMMAND INFO increx: whether the server that replied so has it. */
bool increx_is_there(const struct redis_reply *reply);

#endif
