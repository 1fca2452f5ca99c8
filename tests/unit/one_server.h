/* SPDX-License-Identifier: MIT */
/* One server for the tests of a file: each serves what it wants, and it ends after each. */
#ifndef STINT_TESTS_ONE_SERVER_H
#define STINT_TESTS_ONE_SERVER_H

#include "unit/test_server.h"

static struct test_server s;

TEARDOWN
{
    server_close(&s);
}

#endif
