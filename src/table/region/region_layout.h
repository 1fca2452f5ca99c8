/* SPDX-License-Identifier: MIT */
/* The size of a region and the offsets of its parts; pure arithmetic over the options. */
#ifndef STINT_TABLE_REGION_REGION_LAYOUT_H
#define STINT_TABLE_REGION_REGION_LAYOUT_H

#include "table/region/region.h"

struct quota_slot; /* one interned quota: intern.h */

/* Refuses sizes out of range; else sets every field but hash_key. */
int region_layout(struct region_fixed *fixed, const struct stint_table_options *options,
                  struct stint_error *error);

/* Whether region_layout() can have made a header that was read. */
int region_layout_check(const struct region_fixed *fixed, uint64_t file_size, const char *path,
                        struct stint_error *error);

#endif
