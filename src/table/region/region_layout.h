/* SPDX-License-Identifier: MIT */
/* How many bytes a region needs and what lies where; pure arithmetic over the options. */
#ifndef STINT_TABLE_REGION_REGION_LAYOUT_H
#define STINT_TABLE_REGION_REGION_LAYOUT_H

#include "table/region/region.h"

struct quota_slot; /* one interned quota: intern.h */

/* Refuses sizes that cannot be; else fills everything but hash_key. */
int region_layout(struct region_fixed *fixed, const struct stint_table_options *options,
                  struct stint_error *error);

/* Whether a header that was read can be one that region_layout made. */
int region_layout_check(const struct region_fixed *fixed, uint64_t file_size, const char *path,
                        struct stint_error *error);

#endif
