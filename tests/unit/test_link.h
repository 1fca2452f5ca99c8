/* SPDX-License-Identifier: MIT */
/* A link whose other end is the test: what is sent, what comes back, and what callers hear. */
#ifndef STINT_TESTS_TEST_LINK_H
#define STINT_TESTS_TEST_LINK_H

#include "unit/test_replies.h"

#include "backend/wire/backend_link.h"
#include "base/ns.h"

#define MS NS_PER_MS

static struct link *link;

static inline void assert_output(const char *expected)
{
    struct span output = link_output(link);
    if (!span_equals(output, expected))
        fail_msg("output: %.*s\nexpected: %s", (int)output.len, (const char *)output.ptr, expected);
    link_sent(link, output.len);
}

static inline void feed(const char *bytes, uint64_t now_ns)
{
    link_feed(link, span_of_text(bytes), now_ns);
}

static inline void connect_at(uint64_t now_ns)
{
    link_dialling(link, now_ns);
    link_connected(link, now_ns);
}

/* Connected, and greeted as it has to be. */
static inline void connect_greeted(const char *hello, const char *greeted)
{
    connect_at(0);
    assert_output(hello);
    feed(greeted, 1 * MS);
    assert_true(link_is_ready(link));
    assert_int_equal(link_deadline(link), STINT_NEVER_NS);
}

#endif
