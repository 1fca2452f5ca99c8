/* SPDX-License-Identifier: MIT */
/*
 * What the file of a table holds, for `stint table` and `stint top`. The file is read as it is: no
 * lock is taken, and nothing is written, so that reading needs no more than read permission, and
 * does not disturb the processes that use the table.
 */
#ifndef STINT_CMD_LIB_TABLE_VIEW_H
#define STINT_CMD_LIB_TABLE_VIEW_H

#include "algorithm/spec.h"
#include "stint.h"

#include <jansson.h>
#include <stddef.h>

#define TABLE_VIEW_KEYS_MAX (1u << 20)
#define TABLE_VIEW_QUOTAS_MAX 64 /* listed one by one; further quotas are counted together */

enum table_view_order { TABLE_VIEW_LEAST_LEFT, TABLE_VIEW_MOST_USED };

struct table_view_quota {
    char spec[SPEC_SIZE];
    uint64_t live, denying; /* states */
    uint64_t used;          /* units that these states count; of counters: their counts */
};

struct table_view {
    struct stint_table_info info;
    uint64_t now_ns;  /* of the table */
    uint64_t idle_ns; /* since the last decision; STINT_NEVER_NS: there was none */
    uint64_t tickets_open;
    struct table_view_quota quotas[TABLE_VIEW_QUOTAS_MAX];
    size_t n_quotas;
    uint64_t others;          /* live states of further quotas */
    struct stint_entry *keys; /* the first in the order */
    size_t n_keys;
};

/* n_keys: how many to keep, at most TABLE_VIEW_KEYS_MAX. Call table_view_free() after success. */
int table_view_read(struct table_view *view, const char *path, size_t n_keys,
                    enum table_view_order order, struct stint_error *error);
void table_view_free(struct table_view *view);

/* Units of the state that are in use; of a counter, its count. */
uint64_t table_view_used(const struct stint_entry *entry);

/* NULL: no memory. */
json_t *table_view_json(const struct table_view *view);

#endif
