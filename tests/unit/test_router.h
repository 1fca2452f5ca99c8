/* SPDX-License-Identifier: MIT */
/* For tests of a router: asks by their keys, and what became of them as one line of text. */
#ifndef STINT_TESTS_TEST_ROUTER_H
#define STINT_TESTS_TEST_ROUTER_H

#include "unit/test_dialer.h"
#include "unit/test_replies.h"

#include "backend/redis/cluster.h"

static struct test_dialer net;
static struct store_url url;

/* ---- Asking ---------------------------------------------------------------------------------- */

static inline void note(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                        uint64_t now_ns)
{
    static const char *const names[] = {"done", "refused", "failed", "late", "lost"};
    buf_add(&replied_line, "%s%s %s", replied_line.len > 0 ? "; " : "", (const char *)arg,
            names[outcome]);
    if (reply != NULL && reply->text.len > 0)
        buf_add(&replied_line, " %.*s", (int)reply->text.len, (const char *)reply->text.ptr);
    assert_int_equal(now_ns, net.now_ns);
}

static inline struct router_ask *ask_as(const char *key, uint64_t timeout_ns, bool is_repeatable)
{
    const struct span words[] = {span_of_text("GET"), span_of_text(key)};
    return router_ask(net.router,
                      &(struct router_command){.slot = cluster_slot_of(span_of_text(key)),
                                               .words = words,
                                               .n_words = 2,
                                               .deadline_ns = net.now_ns + timeout_ns,
                                               .is_repeatable = is_repeatable,
                                               .answered = note,
                                               .arg = (void *)(uintptr_t)key},
                      net.now_ns);
}

static inline struct router_ask *ask(const char *key)
{
    struct router_ask *asked = ask_as(key, 50 * MS, false);
    assert_non_null(asked);
    return asked;
}

static inline uint64_t metric(const _Atomic uint64_t *value)
{
    return atomic_load(value);
}
#define FIGURE(name) metric(&router_metrics(net.router)->name)

/* ---- Set-up ---------------------------------------------------------------------------------- */

static inline void begin_with(const char *text, struct router_options options)
{
    struct stint_error error;
    test_dialer_begin(&net);
    forget_replies();
    if (store_url_parse(&url, text, &error) != 0)
        fail_msg("%s", error.message);
    options.url = &url;
    options.dialer = &net.dialer;
    net.router = router_new(&options);
    assert_non_null(net.router);
    pass(&net, MS);
}

static inline void begin(const char *text)
{
    begin_with(text, (struct router_options){.asks_max = 8});
}

TEARDOWN
{
    router_free(net.router);
    net.router = NULL;
    assert_true(net.is_freed);
    for (size_t i = 0; i < net.n_lines; i++)
        assert_false(net.lines[i].is_open);
}

#endif
