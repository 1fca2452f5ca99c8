/* SPDX-License-Identifier: MIT */
/* Repairs a table that comes from a file, before any decision on it. */
#ifndef STINT_TABLE_REGION_REPAIR_H
#define STINT_TABLE_REGION_REPAIR_H

#include "table/slot/entry.h"

/* For a sole user of the table. `after_crash`: all live states are full for one period. */
void repair_table(struct stint_table *table, bool after_crash);

#endif
