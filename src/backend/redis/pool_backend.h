/* SPDX-License-Identifier: MIT */
/*
 * A key pool whose states are on Redis or Valkey: the words that request its next key, and answers
 * from the integers of the reply. The list of keys is fixed: to add or remove one, make another
 * list; it finds all that was used. Sans I/O: the caller sends the words.
 *
 * Many threads may use a pool_backend; commands and answers belong to their caller.
 */
#ifndef STINT_BACKEND_REDIS_POOL_BACKEND_H
#define STINT_BACKEND_REDIS_POOL_BACKEND_H

#include "backend/script/script.h"
#include "decide/backend_pool.h"

#include <stdlib.h>

#define POOL_STORE_KEYS_MAX 1024 /* all names are words of every command */
#define POOL_STORE_STATUS 8      /* integers of each key in the reply to status */

/*
 * The prefix is that of the store's keys; the pool's key is PREFIX{NAME}pool. STINT_E_RANGE for too
 * many keys, STINT_E_MISMATCH for a repeated name and for quotas that a store cannot keep,
 * STINT_E_SYSTEM without memory.
 */
int pool_backend_new(struct backend_pool_list **pool, struct span prefix,
                     const struct backend_pool_definition *given, struct stint_error *error);
void pool_backend_free(struct backend_pool_list *pool); /* NULL is fine */

size_t pool_backend_n_keys(const struct backend_pool_list *pool);

/* ---- Requests -------------------------------------------------------------------------------- */

/* EVALSHA and its words; reused. Zero it before the first. Words are valid as long as the pool. */
struct pool_command {
    struct span *words;
    size_t n_words, words_max;
    const struct lua_script *script;
    char digits[3 * SCRIPT_DIGITS_MAX];
};

static inline void pool_command_deinit(struct pool_command *command)
{
    free(command->words);
    *command = (struct pool_command){0};
}

/* The time of the request: the store's own, or a virtual one. */
struct pool_time {
    bool is_virtual;
    uint64_t now_ns;
};

/*
 * Of a request to its list. A report has passed the checks of stint_pool_report(). False: no
 * memory; for verbs with a key also an unknown key.
 */
bool pool_command_make(struct pool_command *command, const struct backend_pool_request *ask,
                       struct pool_time time);

/* ---- Answers --------------------------------------------------------------------------------- */

/*
 * What the answer to the verb has: `next`, whose name belongs to the pool, `statuses` or
 * `given_back`. False for integers that the script never replies.
 */
bool pool_backend_read(const struct backend_pool_list *pool, uint8_t verb, const int64_t *values,
                       size_t n_values, struct backend_pool_answer *answer);

#endif
