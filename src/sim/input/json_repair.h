/* SPDX-License-Identifier: MIT */
/*
 * Lines of real logs that are not quite JSON. A client chooses what is in its User-Agent, and must
 * not take its requests out of a log by that.
 */
#ifndef STINT_SIM_INPUT_JSON_REPAIR_H
#define STINT_SIM_INPUT_JSON_REPAIR_H

#include "base/span.h"

/* A byte may become U+FFFD. */
#define JSON_REPAIR_GROWTH 3

/*
 * Writes the line to `text`, which has space for JSON_REPAIR_GROWTH * line.len bytes, and returns
 * its length. In strings a byte that is no UTF-8, and half of a surrogate pair, become U+FFFD. A
 * number that jansson cannot hold becomes a string of the same digits. All else is as it was.
 */
size_t json_repair(struct span line, char *text);

#endif
