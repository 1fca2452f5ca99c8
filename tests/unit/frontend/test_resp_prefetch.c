/* SPDX-License-Identifier: MIT */
/*
 * Pipelines whose commands ask a shared store: all are on their way at once, and answered in their
 * order, whatever the order of the store's answers.
 */
#include "unit/fake_store.h"
#include "unit/test_access.h"
#include "unit/test_resp_client.h"

static struct fake_store fake;
static struct backend *stores[1];
static unsigned n_stirred;

static void count_stir(void *owner, uint64_t now_ns)
{
    (void)owner, (void)now_ns;
    n_stirred++;
}

SETUP
{
    n_stirred = 0;
    fake_store_begin(&fake);
    stores[0] = &fake.store;
    resp_open();
    resp_use_stores(stores, NULL, 1);
    open_frontend(NULL, NULL);
    resp.conn->woken = count_stir;
}

TEARDOWN
{
    hang_up();
    assert_int_equal(fake_waiting(&fake), 0);
    resp_close();
    fake_store_end(&fake);
}

static void let(size_t i)
{
    fake_let(&fake, i, resp.now_ns);
}

#define THROTTLE(key) "CL.THROTTLE " key " 1 60 60\r\n"
#define FIRST ":0\r\n:2\r\n:1\r\n:-1\r\n:1\r\n"
#define SECRET "shop-shop-shop-shop-shop-shop-shop"
#define SECOND ":0\r\n:2\r\n:0\r\n:-1\r\n:2\r\n"
#define ARRAY "*5\r\n"

/* ---- Order ----------------------------------------------------------------------------------- */

TEST(all_of_a_pipeline_are_on_their_way)
{
    feed(THROTTLE("a") THROTTLE("a") THROTTLE("b") "PING\r\n" THROTTLE("c"));
    assert_int_equal(fake.n_asks, 3); /* what answers at once stops the look ahead */
    assert_sent("");
    let(0);
    assert_sent(ARRAY FIRST);
    let(2);
    assert_sent("");
    assert_int_equal(n_stirred, 1);
    let(1);
    assert_sent(ARRAY SECOND ARRAY FIRST "+PONG\r\n");
    assert_int_equal(fake.n_asks, 4);
    assert_int_equal(n_stirred, 2);
    let(3);
    assert_sent(ARRAY FIRST);
    assert_false(resp.conn->ops->is_busy(resp.conn));
}

TEST(commands_may_come_in_pieces)
{
    static const char text[] = THROTTLE("a") THROTTLE("b") THROTTLE("c");
    for (size_t i = 0; i + 1 < sizeof(text); i++)
        resp.conn->ops->feed(resp.conn, span_of(text + i, 1), resp.now_ns);
    assert_int_equal(fake.n_asks, 3);
    let(2);
    let(1);
    let(0);
    assert_sent(ARRAY FIRST ARRAY FIRST ARRAY FIRST);
}

TEST(a_long_pipeline_is_begun_in_parts)
{
    char *text = malloc(1000 * sizeof(THROTTLE("k")) + 1);
    size_t len = 0, n_answers = 0;
    for (unsigned i = 0; i < 1000; i++)
        len += (size_t)sprintf(text + len, "%s", THROTTLE("k"));
    resp.conn->ops->feed(resp.conn, span_of(text, len), resp.now_ns);
    free(text);
    assert_int_equal(fake.n_asks, 256);
    while (fake_waiting(&fake) > 0) {
        fake_let_all(&fake, resp.now_ns);
        struct span output = resp.conn->ops->output(resp.conn);
        for (size_t i = 0; i < output.len; i++)
            n_answers += output.ptr[i] == '*';
        resp.conn->ops->sent(resp.conn, output.len, resp.now_ns);
    }
    assert_int_equal(n_answers, 1000);
    assert_int_equal(fake.n_asks, 1000);
}

TEST(mistakes_are_told_in_their_turn)
{
    feed(THROTTLE("a") "CL.THROTTLE a nine 60 60\r\n" THROTTLE("a"));
    assert_int_equal(fake.n_asks, 1);
    assert_sent("");
    let(0);
    assert_int_equal(fake.n_asks, 2);
    struct span output = resp.conn->ops->output(resp.conn);
    assert_int_equal(output.ptr[sizeof(ARRAY FIRST) - 1], '-');
    let(1);
}

TEST(a_protocol_error_is_told_behind_what_waits)
{
    feed(THROTTLE("a") "*x\r\n");
    assert_sent("");
    assert_false(resp.conn->ops->is_over(resp.conn));
    let(0);
    assert_true(resp.conn->ops->is_over(resp.conn));
}

/* ---- Waits of both kinds --------------------------------------------------------------------- */

TEST(a_denied_command_waits_and_is_asked_of_the_store_again)
{
    feed(THROTTLE("a") THROTTLE("a"));
    let(0);
    let(1);
    assert_sent(ARRAY FIRST ARRAY SECOND);
    feed("STINT.TAKE QUOTA 1/1s k\r\nSTINT.TAKE QUOTA 1/1s k WAIT 5000\r\nPING\r\n");
    assert_int_equal(fake.n_asks, 4);
    let(2);
    let(3);
    assert_int_not_equal(resp.conn->ops->deadline(resp.conn), STINT_NEVER_NS);
    resp.now_ns = resp.conn->ops->deadline(resp.conn);
    resp.conn->ops->wake(resp.conn, resp.now_ns);
    assert_int_equal(fake.n_asks, 5);
    let(4);
    struct span output = resp.conn->ops->output(resp.conn);
    assert_memory_equal(output.ptr + output.len - 7, "+PONG\r\n", 7);
}

TEST(who_waits_for_a_time_leaves_the_others_their_answers)
{
    feed("STINT.TAKE QUOTA 1/1s k\r\n");
    let(0);
    resp.conn->ops->sent(resp.conn, resp.conn->ops->output(resp.conn).len, resp.now_ns);
    feed("STINT.TAKE QUOTA 1/1s k WAIT 5000\r\n" THROTTLE("a") THROTTLE("b"));
    assert_int_equal(fake.n_asks, 4);
    let(3);
    let(1); /* denied: it waits for a time, with two behind it that were asked */
    assert_sent("");
    let(2);
    assert_sent("");
    resp.now_ns = resp.conn->ops->deadline(resp.conn);
    resp.conn->ops->wake(resp.conn, resp.now_ns);
    assert_int_equal(fake.n_asks, 5);
    let(4);
    struct span output = resp.conn->ops->output(resp.conn);
    size_t len = strlen(ARRAY FIRST ARRAY FIRST);
    assert_true(output.len > len);
    assert_memory_equal(output.ptr + output.len - len, ARRAY FIRST ARRAY FIRST, len);
    assert_int_equal(fake.n_asks, 5);
}

TEST(keys_are_asked_one_after_the_other)
{
    feed(THROTTLE("a") THROTTLE("b"));
    let(0);
    let(1);
    assert_sent(ARRAY FIRST ARRAY FIRST);
    feed("EXISTS a b c\r\n");
    while (fake_waiting(&fake) > 0)
        fake_let_all(&fake, resp.now_ns);
    assert_sent(":2\r\n");
    feed("DEL a c\r\nEXISTS a b\r\n");
    while (fake_waiting(&fake) > 0)
        fake_let_all(&fake, resp.now_ns);
    assert_sent(":1\r\n:1\r\n");
}

/* What it has counted is not part of the next command. */
TEST(a_caller_that_is_gone_leaves_no_count)
{
    feed(THROTTLE("a") THROTTLE("b"));
    let(0);
    let(1);
    assert_sent(ARRAY FIRST ARRAY FIRST);
    feed("EXISTS a b c\r\n");
    let(2); /* a was found, and b is asked for */
    access_now_set(resp.access, access_of("shop ask " SECRET));
    let(3);
    assert_sent("-NOAUTH Authentication required.\r\n");
    feed("AUTH " SECRET "\r\nPTTL a\r\nEXISTS b c\r\n");
    while (fake_waiting(&fake) > 0)
        fake_let_all(&fake, resp.now_ns);
    assert_sent("+OK\r\n:1000\r\n:1\r\n");
}

/* ---- Ends ------------------------------------------------------------------------------------ */

TEST(who_leaves_is_forgotten)
{
    feed(THROTTLE("a") THROTTLE("b"));
    resp.conn->ops->free(resp.conn);
    resp.conn = NULL;
    assert_int_equal(fake.n_forgotten, 2);
}

TEST(a_drain_waits_for_the_store)
{
    feed(THROTTLE("a") THROTTLE("b") "PING\r\n");
    resp.conn->ops->drain(resp.conn, resp.now_ns);
    assert_false(resp.conn->ops->is_over(resp.conn));
    let(1);
    let(0);
    assert_sent(ARRAY FIRST ARRAY FIRST "+PONG\r\n");
    assert_true(resp.conn->ops->is_over(resp.conn));
}

TEST(a_store_that_fails_answers_that_command_alone)
{
    feed(THROTTLE("a") THROTTLE("b"));
    fake_fail(&fake, 0, resp.now_ns);
    struct span output = resp.conn->ops->output(resp.conn);
    assert_memory_equal(output.ptr, "-UNAVAILABLE ", 13);
    resp.conn->ops->sent(resp.conn, output.len, resp.now_ns);
    let(1);
    assert_sent(ARRAY FIRST);
}
