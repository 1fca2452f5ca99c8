/* SPDX-License-Identifier: MIT */
/* One server for the tests of a file: each serves what it wants, and it ends after each. */
#ifndef STINT_TESTS_SERVED_H
#define STINT_TESTS_SERVED_H

#include "unit/serving.h"

static struct serving s;

TEARDOWN
{
    serve_no_more(&s);
}

#endif
