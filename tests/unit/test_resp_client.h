/* SPDX-License-Identifier: MIT */
/*
 * For tests that talk to a service through the frontend of RESP, over a table in virtual time: one
 * connection, for a whole test program.
 */
#ifndef STINT_TESTS_TEST_RESP_CLIENT_H
#define STINT_TESTS_TEST_RESP_CLIENT_H

#include "unit/test_quota.h"

#include "frontend/resp/resp_conn.h"

struct resp_client {
    struct stint_table *table;
    struct server_state *server_state;
    struct service *service;
    struct access_now *access;
    struct resp_frontend *frontend;
    struct conn *conn;
    uint64_t now_ns;
};

static struct resp_client resp;
static const struct traces_options *resp_traces; /* NULL: none */

/* There is a service; a frontend is yet to be opened. */
static inline void resp_open(void)
{
    const struct stint_table_options table = {.keys = 64, .clock = STINT_CLOCK_VIRTUAL};
    resp = (struct resp_client){.now_ns = 1000 * S};
    assert_int_equal(stint_table_open(&resp.table, &table, NULL), 0);
    const struct server_state_options server_state = {
        .table = resp.table, .workers = 1, .without_top_keys = true, .traces = resp_traces};
    assert_int_equal(server_state_open(&resp.server_state, &server_state, NULL), 0);
    resp.service = service_new(resp.server_state, 0);
    assert_non_null(resp.service);
    stint_table_set_now(resp.table, resp.now_ns);
}

/* Quotas that callers bring along are in the first of the stores; without it they are an error. */
static inline void resp_use_stores(struct backend *const *stores,
                                   struct backend_pools *const *pools, size_t n_stores)
{
    service_set_stores(resp.service,
                       &(struct evaluation_stores){.stores = stores,
                                                   .pools = pools,
                                                   .n_stores = n_stores,
                                                   .items = 1,
                                                   .throttle = 1,
                                                   .timeout_ns = 50 * NS_PER_MS,
                                                   .items_on_error = RULE_STORE_ERROR_ERROR});
}

static inline void dial(void)
{
    resp.conn = resp_conn_new(resp.frontend, span_of(NULL, 0));
    assert_non_null(resp.conn);
}

/* NULL: anybody may ask; the limits are the default. */
static inline void open_frontend(struct access *access, const struct resp_limits *limits)
{
    resp.access = access_now_new(access);
    assert_non_null(resp.access);
    resp.frontend = resp_frontend_new(resp.service, resp.access, limits);
    assert_non_null(resp.frontend);
    dial();
}

static inline void hang_up(void)
{
    if (resp.conn != NULL)
        resp.conn->ops->free(resp.conn);
    resp.conn = NULL;
}

static inline void resp_close(void)
{
    hang_up();
    resp_frontend_free(resp.frontend);
    access_now_free(resp.access);
    service_free(resp.service);
    server_state_close(resp.server_state);
    stint_table_close(resp.table);
}

static inline void feed_bytes(const char *bytes, size_t len)
{
    resp.conn->ops->feed(resp.conn, span_of(bytes, len), resp.now_ns);
}

static inline void feed(const char *text)
{
    feed_bytes(text, strlen(text));
}

static inline struct span output(void)
{
    return resp.conn->ops->output(resp.conn);
}

/* Takes what is to be sent. */
static inline void assert_sent(const char *expected)
{
    struct span sent = output();
    if (sent.len != strlen(expected) || (sent.len > 0 && memcmp(sent.ptr, expected, sent.len) != 0))
        fail_msg("sent: %.*s\nexpected: %s", (int)sent.len, (const char *)sent.ptr, expected);
    resp.conn->ops->sent(resp.conn, sent.len, resp.now_ns);
}

#endif
