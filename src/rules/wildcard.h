/* SPDX-License-Identifier: MIT */
/* Patterns in which each `*` stands for any bytes, none included. */
#ifndef STINT_RULES_WILDCARD_H
#define STINT_RULES_WILDCARD_H

#include "base/span.h"

#include <stdbool.h>

bool wildcard_is(struct span pattern); /* has a `*` */
bool wildcard_matches(struct span pattern, struct span text);

#endif
