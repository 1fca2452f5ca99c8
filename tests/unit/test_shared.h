/* SPDX-License-Identifier: MIT */
/* A server whose rules have their states in a shared store that answers when the test lets it. */
#ifndef STINT_TESTS_TEST_SHARED_H
#define STINT_TESTS_TEST_SHARED_H

#include "unit/fake_store.h"
#include "unit/test_server.h"

#define RULE(key, options)                                                                         \
    "  - key: " key "\n"                                                                           \
    "    rate_limit: {unit: minute, requests_per_unit: 3" options "}\n"

/* The same rules twice: with their states in the store, and in the table. */
#define RULES(store)                                                                               \
    "domain: d\n"                                                                                  \
    "descriptors:\n" RULE("ip", store) RULE("here", "") RULE(                                      \
        "open", store ", on_store_error: allow") RULE("share", store ", on_store_error: local")    \
        RULE("sums", store ", algorithm: fixed_window")                                            \
            RULE("soft", store) "    quota_mode: true\n" RULE(                                     \
                "try", store) "    shadow_mode: true\n" RULE("next",                               \
                                                             store) "    shadow: {unit: minute, "  \
                                                                    "requests_per_unit: "          \
                                                                    "2}\n" RULE("angry",           \
                                                                                store) "    ban: " \
                                                                                       "{after: "  \
                                                                                       "2, for: "  \
                                                                                       "1m}\n"

struct shared_serving {
    struct test_server s;
    struct fake_store fake;
    struct backend *stores[1];
    struct evaluation_stores evaluation_stores;
};

static struct shared_serving shared;

static inline void shared_begin(void)
{
    serve(&shared.s, RULES(", store: red"));
    fake_store_begin(&shared.fake);
    shared.stores[0] = &shared.fake.store;
    shared.evaluation_stores = (struct evaluation_stores){.stores = shared.stores,
                                                          .n_stores = 1,
                                                          .items = 1,
                                                          .throttle = 1,
                                                          .counters = 1,
                                                          .timeout_ns = 50 * MS,
                                                          .items_on_error = RULE_STORE_ERROR_ERROR};
    service_set_stores(shared.s.service, &shared.evaluation_stores);
}

static inline void shared_end(void)
{
    assert_int_equal(fake_waiting(&shared.fake), 0);
    server_close(&shared.s);
    fake_store_end(&shared.fake);
}

/* Asked again for as long as it waits, as a frontend does; how often it was asked in all. */
static inline unsigned ask_until_answered(const struct request *request)
{
    struct request again = *request;
    unsigned n = 1;
    while (ask(&shared.s, &again)->error == REPLY_WAITS) {
        again.pending = shared.s.reply.pending;
        assert_true(fake_waiting(&shared.fake) > 0);
        fake_let_all(&shared.fake, shared.s.now_ns);
        assert_true(++n < 20);
    }
    return n;
}

static inline const struct reply *decided(const char *text)
{
    struct asked asked;
    ask_until_answered(descriptors_of(&asked, text));
    if (shared.s.reply.error != REPLY_DECIDED)
        fail_msg("%s: %s", text, shared.s.reply.message);
    return &shared.s.reply;
}

#endif
