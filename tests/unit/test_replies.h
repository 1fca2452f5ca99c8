/* SPDX-License-Identifier: MIT */
/* What callers were replied, as one line of text. */
#ifndef STINT_TESTS_TEST_REPLIES_H
#define STINT_TESTS_TEST_REPLIES_H

#include "unit/test.h"

#include "base/buf.h"

static char replied[4096]; /* since the last look */
static struct buf replied_line;

static inline void forget_replies(void)
{
    replied_line = buf_of(replied, sizeof(replied));
}

static inline void assert_replied(const char *expected)
{
    assert_string_equal(replied, expected);
    forget_replies();
}

#endif
