/* SPDX-License-Identifier: MIT */
/* Makes a table whole that comes from a file, before anybody decides on it. */
#ifndef STINT_TABLE_REGION_REPAIR_H
#define STINT_TABLE_REGION_REPAIR_H

#include "table/slot/entry.h"

/* For a table that nobody else has open. `after_crash`: all live states are full for one period. */
void repair_table(struct stint_table *table, bool after_crash);

#endif
