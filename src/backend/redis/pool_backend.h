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

#define POOL_STORE_KEYS_MAX 1024 /* all names are words of every command */
#define POOL_STORE_STATUS 8      /* integers of each key in the reply to status */

struct pool_backend;

struct pool_backend_options {
    struct span prefix; /* of the store's keys; the pool's is PREFIX{NAME}pool */
    struct span name;
    uint8_t order; /* enum stint_pool_order */
    /*
     * In the order in which they were added. Their quotas have passed stint_quota_check(). Copied.
     */
    const struct stint_pool_key *keys;
    size_t n_keys;
};

/*
 * STINT_E_RANGE for too many keys, STINT_E_MISMATCH for a repeated name and for quotas that a store
 * cannot keep, STINT_E_SYSTEM without memory.
 */
int pool_backend_new(struct pool_backend **store, const struct pool_backend_options *options,
                     struct stint_error *error);
void pool_backend_free(struct pool_backend *store); /* NULL is fine */

size_t pool_backend_n_keys(const struct pool_backend *store);
/* The only key of every command, for its slot. */
struct span pool_backend_key(const struct pool_backend *store);

/* ---- Requests -------------------------------------------------------------------------------- */

/* EVALSHA and its words; reused. Zero it before the first. Words are valid as long as the pool. */
struct pool_command {
    struct span *words;
    size_t n_words, words_max;
    const struct lua_script *script;
    char digits[3 * SCRIPT_DIGITS_MAX];
};

void pool_command_deinit(struct pool_command *command);

/* The time of the request: the store's own, or a virtual one. */
struct pool_time {
    bool is_virtual;
    uint64_t now_ns;
};

/*
 * The commands of stint_pool_next(), _each(), _give_back(), _report() and the lifting of
 * STINT_POOL_OUT by _remove(). False: no memory; for those with a name also an unknown name.
 */
bool pool_command_next(struct pool_command *command, const struct pool_backend *store,
                       uint32_t cost, bool probe, struct pool_time time);
bool pool_command_status(struct pool_command *command, const struct pool_backend *store,
                         struct pool_time time);
bool pool_command_give_back(struct pool_command *command, const struct pool_backend *store,
                            struct span name, uint32_t cost, uint64_t granted_at_ns,
                            struct pool_time time);
/* `outcome` and cooldown_ns have passed the checks of stint_pool_report(). */
bool pool_command_report(struct pool_command *command, const struct pool_backend *store,
                         struct span name, uint8_t outcome, uint64_t cooldown_ns,
                         struct pool_time time);
bool pool_command_let_in(struct pool_command *command, const struct pool_backend *store,
                         struct span name, struct pool_time time);

/* ---- Answers --------------------------------------------------------------------------------- */

/* False for integers that the script never replies. The name belongs to the pool. */
bool pool_backend_read_next(const struct pool_backend *store, const int64_t *values,
                            size_t n_values, struct stint_pool_answer *answer);
/* `statuses` has space for all keys, and gets them in the order in which they were added. */
bool pool_backend_read_status(const struct pool_backend *store, const int64_t *values,
                              size_t n_values, struct stint_pool_status *statuses);
bool pool_backend_read_given_back(const int64_t *values, size_t n_values, uint32_t *given_back);

#endif
