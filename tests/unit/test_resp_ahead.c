/* SPDX-License-Identifier: MIT */
/*
 * Pipelines whose commands ask a shared store: all are on their way at once, and answered in their
 * order, whatever the order of the store's answers.
 */
#include "unit/fake_store.h"

#include "conn/resp_conn.h"

#include <stdio.h>
#include <stdlib.h>

struct fixture {
    struct stint_table *table;
    struct hub *hub;
    struct service *service;
    struct resp_door *door;
    struct conn *conn;
    struct fake_store fake;
    struct shared_store *stores[1];
    uint64_t now_ns;
    unsigned n_stirred;
};

static struct fixture fixture;

static void count_stir(void *owner, uint64_t now_ns)
{
    (void)owner, (void)now_ns;
    fixture.n_stirred++;
}

static int set_up(void **state)
{
    const struct stint_table_options table = {.keys = 64, .clock = STINT_CLOCK_VIRTUAL};
    (void)state;
    fixture = (struct fixture){.now_ns = 1000 * S};
    assert_int_equal(stint_table_open(&fixture.table, &table, NULL), 0);
    const struct hub_options hub = {.table = fixture.table, .workers = 1, .without_popular = true};
    assert_int_equal(hub_open(&fixture.hub, &hub, NULL), 0);
    fixture.service = service_new(fixture.hub, 0);
    fake_store_begin(&fixture.fake);
    fixture.stores[0] = &fixture.fake.store;
    service_set_stores(fixture.service,
                       &(struct question_stores){.stores = fixture.stores,
                                                 .n_stores = 1,
                                                 .items = 1,
                                                 .throttle = 1,
                                                 .timeout_ns = 50 * MS,
                                                 .items_on_error = QUESTION_TELLS_ERROR});
    stint_table_set_now(fixture.table, fixture.now_ns);
    fixture.door = resp_door_new(fixture.service, NULL, NULL);
    fixture.conn = resp_conn_new(fixture.door);
    assert_non_null(fixture.conn);
    fixture.conn->stirred = count_stir;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (fixture.conn != NULL)
        fixture.conn->ops->free(fixture.conn);
    assert_int_equal(fake_waiting(&fixture.fake), 0);
    resp_door_free(fixture.door);
    service_free(fixture.service);
    hub_close(fixture.hub);
    stint_table_close(fixture.table);
    fake_store_end(&fixture.fake);
    return 0;
}

static void feed(const char *text)
{
    fixture.conn->ops->feed(fixture.conn, span_of_text(text), fixture.now_ns);
}

static void assert_sent(const char *expected)
{
    struct span output = fixture.conn->ops->output(fixture.conn);
    if (output.len != strlen(expected) ||
        (output.len > 0 && memcmp(output.ptr, expected, output.len) != 0))
        fail_msg("sent: %.*s\nexpected: %s", (int)output.len, (const char *)output.ptr, expected);
    fixture.conn->ops->sent(fixture.conn, output.len, fixture.now_ns);
}

static void let(size_t i)
{
    fake_let(&fixture.fake, i, fixture.now_ns);
}

#define THROTTLE(key) "CL.THROTTLE " key " 1 60 60\r\n"
#define FIRST ":0\r\n:2\r\n:1\r\n:-1\r\n:1\r\n"
#define SECOND ":0\r\n:2\r\n:0\r\n:-1\r\n:2\r\n"
#define ARRAY "*5\r\n"

/* ---- Order ----------------------------------------------------------------------------------- */

static void all_of_a_pipeline_are_on_their_way(void **state)
{
    (void)state;
    feed(THROTTLE("a") THROTTLE("a") THROTTLE("b") "PING\r\n" THROTTLE("c"));
    assert_int_equal(fixture.fake.n_asks, 3); /* what answers at once stops the look ahead */
    assert_sent("");
    let(0);
    assert_sent(ARRAY FIRST);
    let(2);
    assert_sent("");
    assert_int_equal(fixture.n_stirred, 1);
    let(1);
    assert_sent(ARRAY SECOND ARRAY FIRST "+PONG\r\n");
    assert_int_equal(fixture.fake.n_asks, 4);
    assert_int_equal(fixture.n_stirred, 2);
    let(3);
    assert_sent(ARRAY FIRST);
    assert_false(fixture.conn->ops->is_busy(fixture.conn));
}

static void commands_may_come_in_pieces(void **state)
{
    static const char text[] = THROTTLE("a") THROTTLE("b") THROTTLE("c");
    (void)state;
    for (size_t i = 0; i + 1 < sizeof(text); i++)
        fixture.conn->ops->feed(fixture.conn, span_of(text + i, 1), fixture.now_ns);
    assert_int_equal(fixture.fake.n_asks, 3);
    let(2);
    let(1);
    let(0);
    assert_sent(ARRAY FIRST ARRAY FIRST ARRAY FIRST);
}

static void a_long_pipeline_is_begun_in_parts(void **state)
{
    (void)state;
    char *text = malloc(1000 * sizeof(THROTTLE("k")) + 1);
    size_t len = 0, n_answers = 0;
    for (unsigned i = 0; i < 1000; i++)
        len += (size_t)sprintf(text + len, "%s", THROTTLE("k"));
    fixture.conn->ops->feed(fixture.conn, span_of(text, len), fixture.now_ns);
    free(text);
    assert_int_equal(fixture.fake.n_asks, 256);
    while (fake_waiting(&fixture.fake) > 0) {
        fake_let_all(&fixture.fake, fixture.now_ns);
        struct span output = fixture.conn->ops->output(fixture.conn);
        for (size_t i = 0; i < output.len; i++)
            n_answers += output.ptr[i] == '*';
        fixture.conn->ops->sent(fixture.conn, output.len, fixture.now_ns);
    }
    assert_int_equal(n_answers, 1000);
    assert_int_equal(fixture.fake.n_asks, 1000);
}

static void mistakes_are_told_in_their_turn(void **state)
{
    (void)state;
    feed(THROTTLE("a") "CL.THROTTLE a nine 60 60\r\n" THROTTLE("a"));
    assert_int_equal(fixture.fake.n_asks, 1);
    assert_sent("");
    let(0);
    assert_int_equal(fixture.fake.n_asks, 2);
    struct span output = fixture.conn->ops->output(fixture.conn);
    assert_int_equal(output.ptr[sizeof(ARRAY FIRST) - 1], '-');
    let(1);
}

static void a_protocol_error_is_told_behind_what_waits(void **state)
{
    (void)state;
    feed(THROTTLE("a") "*x\r\n");
    assert_sent("");
    assert_false(fixture.conn->ops->is_over(fixture.conn));
    let(0);
    assert_true(fixture.conn->ops->is_over(fixture.conn));
}

/* ---- Waits of both kinds --------------------------------------------------------------------- */

static void a_denied_command_waits_and_is_asked_of_the_store_again(void **state)
{
    (void)state;
    feed(THROTTLE("a") THROTTLE("a"));
    let(0);
    let(1);
    assert_sent(ARRAY FIRST ARRAY SECOND);
    feed("STINT.TAKE QUOTA 1/1s k\r\nSTINT.TAKE QUOTA 1/1s k WAIT 5000\r\nPING\r\n");
    assert_int_equal(fixture.fake.n_asks, 4);
    let(2);
    let(3);
    assert_int_not_equal(fixture.conn->ops->deadline(fixture.conn), STINT_NEVER_NS);
    fixture.now_ns = fixture.conn->ops->deadline(fixture.conn);
    fixture.conn->ops->wake(fixture.conn, fixture.now_ns);
    assert_int_equal(fixture.fake.n_asks, 5);
    let(4);
    struct span output = fixture.conn->ops->output(fixture.conn);
    assert_memory_equal(output.ptr + output.len - 7, "+PONG\r\n", 7);
}

static void who_waits_for_a_time_leaves_the_others_their_answers(void **state)
{
    (void)state;
    feed("STINT.TAKE QUOTA 1/1s k\r\n");
    let(0);
    fixture.conn->ops->sent(fixture.conn, fixture.conn->ops->output(fixture.conn).len,
                            fixture.now_ns);
    feed("STINT.TAKE QUOTA 1/1s k WAIT 5000\r\n" THROTTLE("a") THROTTLE("b"));
    assert_int_equal(fixture.fake.n_asks, 4);
    let(3);
    let(1); /* denied: it waits for a time, with two behind it that were asked */
    assert_sent("");
    let(2);
    assert_sent("");
    fixture.now_ns = fixture.conn->ops->deadline(fixture.conn);
    fixture.conn->ops->wake(fixture.conn, fixture.now_ns);
    assert_int_equal(fixture.fake.n_asks, 5);
    let(4);
    struct span output = fixture.conn->ops->output(fixture.conn);
    size_t len = strlen(ARRAY FIRST ARRAY FIRST);
    assert_true(output.len > len);
    assert_memory_equal(output.ptr + output.len - len, ARRAY FIRST ARRAY FIRST, len);
    assert_int_equal(fixture.fake.n_asks, 5);
}

static void keys_are_asked_one_after_the_other(void **state)
{
    (void)state;
    feed(THROTTLE("a") THROTTLE("b"));
    let(0);
    let(1);
    assert_sent(ARRAY FIRST ARRAY FIRST);
    feed("EXISTS a b c\r\n");
    while (fake_waiting(&fixture.fake) > 0)
        fake_let_all(&fixture.fake, fixture.now_ns);
    assert_sent(":2\r\n");
    feed("DEL a c\r\nEXISTS a b\r\n");
    while (fake_waiting(&fixture.fake) > 0)
        fake_let_all(&fixture.fake, fixture.now_ns);
    assert_sent(":1\r\n:1\r\n");
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void who_leaves_is_forgotten(void **state)
{
    (void)state;
    feed(THROTTLE("a") THROTTLE("b"));
    fixture.conn->ops->free(fixture.conn);
    fixture.conn = NULL;
    assert_int_equal(fixture.fake.n_forgotten, 2);
}

static void a_drain_waits_for_the_store(void **state)
{
    (void)state;
    feed(THROTTLE("a") THROTTLE("b") "PING\r\n");
    fixture.conn->ops->drain(fixture.conn, fixture.now_ns);
    assert_false(fixture.conn->ops->is_over(fixture.conn));
    let(1);
    let(0);
    assert_sent(ARRAY FIRST ARRAY FIRST "+PONG\r\n");
    assert_true(fixture.conn->ops->is_over(fixture.conn));
}

static void a_store_that_fails_answers_that_command_alone(void **state)
{
    (void)state;
    feed(THROTTLE("a") THROTTLE("b"));
    fake_fail(&fixture.fake, 0, fixture.now_ns);
    struct span output = fixture.conn->ops->output(fixture.conn);
    assert_memory_equal(output.ptr, "-UNAVAILABLE ", 13);
    fixture.conn->ops->sent(fixture.conn, output.len, fixture.now_ns);
    let(1);
    assert_sent(ARRAY FIRST);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_of_a_pipeline_are_on_their_way),
        TEST(commands_may_come_in_pieces),
        TEST(a_long_pipeline_is_begun_in_parts),
        TEST(mistakes_are_told_in_their_turn),
        TEST(a_protocol_error_is_told_behind_what_waits),
        TEST(a_denied_command_waits_and_is_asked_of_the_store_again),
        TEST(who_waits_for_a_time_leaves_the_others_their_answers),
        TEST(keys_are_asked_one_after_the_other),
        TEST(who_leaves_is_forgotten),
        TEST(a_drain_waits_for_the_store),
        TEST(a_store_that_fails_answers_that_command_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
