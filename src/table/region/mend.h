/* SPDX-License-Identifier: MIT */
/* Makes a table whole that comes from a file, before anybody decides on it. */
#ifndef STINT_TABLE_REGION_MEND_H
#define STINT_TABLE_REGION_MEND_H

#include "table/slot/entry.h"

/* For a table that nobody else has open. `after_crash`: all live states are full for one period. */
void mend_table(struct stint_table *table, bool after_crash);

#endif
