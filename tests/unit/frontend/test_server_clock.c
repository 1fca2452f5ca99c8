/* SPDX-License-Identifier: MIT */
/* The time of I/O and the time of decisions: apart under a virtual clock, one under a real one. */
#include "unit/test_http_client.h"

#include "frontend/http/http.h"
#include "service/server_clock.h"

#define TAKE                                                                                       \
    "POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"              \
    "Content-Length: 46\r\n\r\n{\"quota\":\"gcra 1/1s\",\"key\":\"k\",\"wait_ms\":1500}"

static unsigned n_moves;

static void count_move(void *arg)
{
    (void)arg;
    n_moves++;
}

static struct stint_table *open_table(uint8_t kind)
{
    struct stint_table *table;
    const struct stint_table_options options = {.keys = 64, .clock = kind, .skew_max_ns = 1};
    assert_int_equal(stint_table_open(&table, &options, NULL), 0);
    return table;
}

/* ---- The clock ------------------------------------------------------------------------------- */

TEST(a_virtual_clock_stands_until_it_is_moved)
{
    struct stint_table *table = open_table(STINT_CLOCK_VIRTUAL);
    struct server_clock clock;
    struct stint_error error;
    n_moves = 0;
    server_clock_init(&clock, table, true);
    server_clock_on_move(&clock, count_move, NULL);
    uint64_t io_ns = server_clock_io_now(&clock);
    assert_true(io_ns > 0);
    assert_int_equal(server_clock_now(&clock, io_ns), 0);
    assert_int_equal(server_clock_io_deadline(&clock, 0), 0);
    assert_true(server_clock_io_deadline(&clock, 1) == SERVER_CLOCK_STANDS);
    assert_true(server_clock_io_deadline(&clock, STINT_NEVER_NS) == STINT_NEVER_NS);

    assert_int_equal(server_clock_set(&clock, (60 * MINUTE), &error), 0);
    assert_int_equal(server_clock_advance(&clock, 1, &error), 0);
    assert_int_equal(n_moves, 2);
    assert_int_equal(server_clock_now(&clock, io_ns), (60 * MINUTE) + 1);
    assert_int_equal(server_clock_io_deadline(&clock, (60 * MINUTE) + 1), 0);
    assert_true(server_clock_io_deadline(&clock, (60 * MINUTE) + 2) == SERVER_CLOCK_STANDS);

    assert_int_equal(server_clock_set(&clock, (60 * MINUTE), &error), STINT_E_MISMATCH);
    assert_non_null(strstr(error.message, "never goes back"));
    assert_int_equal(server_clock_advance(&clock, STINT_NOW_MAX, &error), STINT_E_RANGE);
    assert_int_equal(server_clock_advance(&clock, UINT64_MAX, &error), STINT_E_RANGE);
    assert_int_equal(n_moves, 2);
    assert_int_equal(stint_now(table), (60 * MINUTE) + 1);
    assert_int_equal(server_clock_set(&clock, STINT_NOW_MAX, &error), 0);
    server_clock_deinit(&clock);
    stint_table_close(table);
}

TEST(a_real_clock_is_one_for_both_and_not_moved)
{
    struct stint_table *table = open_table(STINT_CLOCK_REAL);
    struct server_clock clock;
    struct stint_error error;
    n_moves = 0;
    server_clock_init(&clock, table, false);
    server_clock_on_move(&clock, count_move, NULL);
    uint64_t before_ns = stint_now(table), now_ns = server_clock_io_now(&clock);
    assert_in_range(now_ns, before_ns, stint_now(table));
    assert_int_equal(server_clock_now(&clock, now_ns), now_ns);
    assert_int_equal(server_clock_io_deadline(&clock, 5), 5);
    assert_int_equal(server_clock_set(&clock, STINT_NOW_MAX, &error), STINT_E_MISMATCH);
    assert_int_equal(server_clock_advance(&clock, 0, &error), STINT_E_MISMATCH);
    assert_non_null(strstr(error.message, "start the server with --clock virtual"));
    assert_int_equal(n_moves, 0);
    server_clock_deinit(&clock);
    stint_table_close(table);
}

/* One that began before the move, over half of the ring, does not leave out the other half. */
TEST(a_pass_that_was_under_way_does_not_hide_what_ended)
{
    struct stint_table *table = open_table(STINT_CLOCK_VIRTUAL);
    struct server_clock clock;
    struct stint_quota quota;
    struct stint_ticket ticket;
    const uint32_t kept = 0;
    assert_int_equal(stint_quota_parse(&quota, "log 2/1d", NULL), 0);
    const struct stint_item item = {.quota = &quota, .key = "k", .key_len = 1, .cost = 1};
    server_clock_init(&clock, table, true);
    for (int i = 0; i < 2; i++) {
        stint_reserve_expiring(table, &item, 1, MINUTE, &kept, 0, &ticket);
        server_clock_expire(&clock, 1);
    }
    assert_int_equal(server_clock_advance(&clock, MINUTE, NULL), 0);
    assert_int_equal(stint_take(table, &quota, "k", 1, 2, MINUTE).outcome, STINT_ALLOW);
    server_clock_deinit(&clock);
    stint_table_close(table);
}

/* ---- A connection ---------------------------------------------------------------------------- */

struct world {
    struct stint_table *table;
    struct server_state *server_state;
    struct service *service;
    struct http_config *config;
    struct http_frontend *frontend;
    struct stint_quota quota;
    uint64_t io_ns;
};

static struct world w;

static int busy(void *arg, uint64_t *number, struct stint_error *error)
{
    (void)arg, (void)number;
    return err_set(error, STINT_E_BUSY, "not yet");
}

SETUP
{
    struct stint_error error;
    w = (struct world){.table = open_table(STINT_CLOCK_VIRTUAL), .io_ns = 77 * S};
    const struct server_state_options server_state = {
        .table = w.table, .workers = 1, .has_virtual_clock = true};
    assert_int_equal(server_state_open(&w.server_state, &server_state, &error), 0);
    w.service = service_new(w.server_state, 0);
    assert_int_equal(http_config_new(&w.config, &(struct http_config_options){0}, &error), 0);
    w.frontend = http_frontend_new(
        &(struct http_frontend_options){.service = w.service, .config = w.config, .reload = busy});
    assert_non_null(w.frontend);
    assert_int_equal(stint_quota_parse(&w.quota, "gcra 1/1s", NULL), 0);
}

TEARDOWN
{
    http_frontend_free(w.frontend);
    http_config_free(w.config);
    service_free(w.service);
    server_state_close(w.server_state);
    stint_table_close(w.table);
}

static struct conn *dial(const char *text)
{
    struct conn *conn = http_conn_new(w.frontend, span_of_text("127.0.0.1"));
    assert_non_null(conn);
    conn->ops->feed(conn, span_of_text(text), w.io_ns);
    return conn;
}

static bool is_answered(struct conn *conn, const char *status)
{
    struct span output = conn->ops->output(conn);
    return output.len > 12 && memcmp((const char *)output.ptr + 9, status, 3) == 0;
}

/* Asked first at the time 0, which is a time like any other. */
TEST(who_waits_is_asked_again_by_the_time_of_decisions)
{
    struct stint_error error;
    struct conn *conn = dial(TAKE);
    assert_true(is_answered(conn, "200"));
    conn->ops->free(conn);
    conn = dial(TAKE);
    assert_true(conn->ops->deadline(conn) == SERVER_CLOCK_STANDS);
    w.io_ns += (60 * MINUTE);
    conn->ops->wake(conn, w.io_ns);
    assert_int_equal(conn->ops->output(conn).len, 0);
    assert_int_equal(server_clock_set(server_state_clock(w.server_state), S - 1, &error), 0);
    assert_true(conn->ops->deadline(conn) == SERVER_CLOCK_STANDS);
    assert_int_equal(server_clock_set(server_state_clock(w.server_state), S, &error), 0);
    assert_int_equal(conn->ops->deadline(conn), 0);
    /* Another is faster: the next unit comes at 2 s, and the patience ends at 1.5 s. */
    assert_int_equal(stint_take(w.table, &w.quota, "k", 1, 1, S).outcome, STINT_ALLOW);
    conn->ops->wake(conn, w.io_ns);
    assert_true(is_answered(conn, "429"));
    conn->ops->free(conn);
}

TEST(what_waits_for_the_server_itself_goes_by_the_time_of_io)
{
    struct conn *conn = dial("POST /v1/reload HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Length: 0\r\n\r\n");
    uint64_t deadline_ns = conn->ops->deadline(conn);
    assert_in_range(deadline_ns, w.io_ns + 1, w.io_ns + S);
    w.io_ns = deadline_ns;
    conn->ops->wake(conn, w.io_ns);
    assert_in_range(conn->ops->deadline(conn), w.io_ns + 1, w.io_ns + S);
    conn->ops->free(conn);
}
