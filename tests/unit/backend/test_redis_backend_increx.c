/* SPDX-License-Identifier: MIT */
/*
 * Takes by INCREX on a server that this file plays: when it is tried, what is asked with it, and
 * when the script is asked after all.
 */
#include "unit/asking.h"

#include "unit/dialling.h"

#include "backend/redis/redis_backend.h"

#define A "a:6379"
#define SPEC "fixed_window 10/2s align=first_use"
#define KEY "stint:{k}fixed_window,2000000,1,0:r:"
#define IT_IS_THERE "*1\r\n*2\r\n$6\r\nincrex\r\n:-2\r\n"
#define IT_IS_NOT "*1\r\n*-1\r\n"
#define BY_INCREX "INCREX " KEY " BYINT 3 UBOUND 10 PX 2000 ENX; PTTL " KEY "; TIME"
#define TIME "*2\r\n$10\r\n1700000000\r\n$3\r\n500\r\n"
#define SCRIPT_ALLOWS "*8\r\n:0\r\n:3\r\n:10\r\n:4\r\n:0\r\n:500\r\n:0\r\n:9000\r\n"

static struct dialling net;
static struct store_url url;
static struct backend *store;
static unsigned n_answered;

struct asked {
    struct backend_op op;
    struct stint_decision each[1];
};

static void on_answered(struct backend_op *op, uint64_t now_ns)
{
    (void)op, (void)now_ns;
    n_answered++;
}

static void take_three(struct asked *asked)
{
    static struct stint_quota quota;
    quota = quota_of(SPEC);
    const struct backend_item item = {
        .quota = &quota, .name = span_of_text("r"), .key = span_of_text("k"), .cost = 3};
    const struct backend_request ask = {.verb = BACKEND_TAKE,
                                        .items = &item,
                                        .n_items = 1,
                                        .now_ns = net.now_ns + 7 * MS,
                                        .deadline_ns = net.now_ns + 57 * MS};
    *asked = (struct asked){.op = {.answered = on_answered}};
    asked->op.answer.each = asked->each;
    store->ops->ask(store, &ask, &asked->op);
    assert_int_equal(asked->op.answer.outcome, BACKEND_WAITS);
}

static const char *sent(void)
{
    return sent_to(&net, line_to(&net, A));
}

/* Whether it was the script that was asked, and once. */
static void assert_script_was_asked(void)
{
    const char *said = strstr(sent(), "EVALSHA ");
    assert_non_null(said);
    assert_non_null(strstr(said, " 1 " KEY " take 3 0 0 10 2000000 1"));
    assert_null(strstr(said + 1, "EVALSHA"));
}

/* The first take asks what there is, and goes by the script. */
static void begin(const char *info)
{
    struct asked asked;
    struct stint_error error;
    dialling_begin(&net);
    n_answered = 0;
    assert_int_equal(store_url_parse(&url, "redis://a", &error), 0);
    store = redis_backend_new(
        &(struct redis_backend_options){.router = {.url = &url, .dialer = &net.dialer}});
    assert_non_null(store);
    net.router = redis_backend_router(store);
    pass(&net, MS);
    meet(&net, A, "A");
    (void)sent();
    take_three(&asked);
    const char *said = sent();
    assert_non_null(strstr(said, "COMMAND INFO increx; EVALSHA "));
    say(&net, A, info);
    say(&net, A, SCRIPT_ALLOWS);
    assert_int_equal(n_answered, 1);
    n_answered = 0;
}

static int end(void **state)
{
    (void)state;
    store->ops->free(store);
    assert_true(net.is_freed);
    return 0;
}

static void a_server_that_has_it_is_asked_with_it(void **state)
{
    struct asked allowed, denied;
    (void)state;
    begin(IT_IS_THERE);
    take_three(&allowed);
    take_three(&denied);
    assert_string_equal(sent(), BY_INCREX "; " BY_INCREX);
    say(&net, A, "*2\r\n:9\r\n:3\r\n:1499\r\n");
    assert_int_equal(n_answered, 0); /* what time it is is not known yet */
    say(&net, A, TIME "*2\r\n:9\r\n:0\r\n:1499\r\n" TIME);
    assert_int_equal(n_answered, 2);
    assert_int_equal(allowed.op.answer.outcome, BACKEND_DECIDED);
    assert_int_equal(allowed.op.answer.sum.outcome, STINT_ALLOW);
    assert_int_equal(allowed.op.answer.sum.granted, 3);
    assert_int_equal(allowed.op.answer.sum.remaining, 1);
    assert_true(allowed.op.answer.sum.reset_after_ns == 1499500 * US);
    assert_true(allowed.op.answer.at_ns == UINT64_C(1700000000000500) * US);
    assert_memory_equal(&allowed.each[0], &allowed.op.answer.sum, sizeof(allowed.each[0]));
    assert_int_equal(denied.op.answer.sum.outcome, STINT_DENY);
    assert_true(denied.op.answer.sum.retry_after_ns == 1499500 * US);
}

static void a_server_that_has_it_not_is_asked_by_script(void **state)
{
    struct asked asked;
    (void)state;
    begin(IT_IS_NOT);
    take_three(&asked);
    assert_script_was_asked();
    say(&net, A, SCRIPT_ALLOWS);
    assert_int_equal(asked.op.answer.sum.remaining, 4);
}

/* Nothing was done by what was refused, so the script may do it. */
static void the_script_does_what_it_could_not(void **state)
{
    static const struct {
        const char *error;
        bool is_tried_again;
    } cases[] = {
        {"-ERR value is not an integer or out of range\r\n", true},
        {"-ERR syntax error\r\n", false},
    };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        static struct asked asked, next; /* it is answered when the store goes */
        begin(IT_IS_THERE);
        take_three(&asked);
        assert_string_equal(sent(), BY_INCREX);
        say(&net, A, cases[i].error);
        say(&net, A, ":-2\r\n" TIME);
        assert_script_was_asked();
        assert_int_equal(n_answered, 0);
        say(&net, A, SCRIPT_ALLOWS);
        assert_int_equal(n_answered, 1);
        assert_int_equal(asked.op.answer.sum.remaining, 4);
        take_three(&next);
        if (cases[i].is_tried_again)
            assert_string_equal(sent(), BY_INCREX);
        else
            assert_script_was_asked();
        if (i == 0)
            end(NULL);
    }
}

/* It may have been done: so it is not done again, by whatever way. */
static void what_was_not_answered_is_lost(void **state)
{
    struct asked late, broken;
    (void)state;
    begin(IT_IS_THERE);
    take_three(&broken);
    (void)sent();
    say(&net, A, "*2\r\n:9\r\n:3\r\n-ERR no\r\n" TIME);
    assert_int_equal(broken.op.answer.outcome, BACKEND_FAILED);
    assert_int_equal(broken.op.answer.fault, BACKEND_ERROR_LOST);
    take_three(&late);
    assert_string_equal(sent(), BY_INCREX);
    pass(&net, 60 * MS);
    assert_int_equal(late.op.answer.outcome, BACKEND_FAILED);
    assert_int_equal(late.op.answer.fault, BACKEND_ERROR_LATE);
    assert_int_equal(n_answered, 2);
}

static void nobody_hears_of_what_he_has_forgotten(void **state)
{
    struct asked asked;
    (void)state;
    begin(IT_IS_THERE);
    take_three(&asked);
    (void)sent();
    say(&net, A, "*2\r\n:9\r\n:3\r\n");
    store->ops->forget(store, &asked.op);
    memset(&asked, 0xff, sizeof(asked));
    say(&net, A, ":1499\r\n" TIME);
    assert_int_equal(n_answered, 0);
}

static void what_is_on_its_way_fails_when_the_store_goes(void **state)
{
    struct asked asked;
    (void)state;
    begin(IT_IS_THERE);
    take_three(&asked);
    end(NULL);
    assert_int_equal(n_answered, 1);
    assert_int_equal(asked.op.answer.outcome, BACKEND_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_server_that_has_it_is_asked_with_it, end),
        cmocka_unit_test_teardown(a_server_that_has_it_not_is_asked_by_script, end),
        cmocka_unit_test_teardown(the_script_does_what_it_could_not, end),
        cmocka_unit_test_teardown(what_was_not_answered_is_lost, end),
        cmocka_unit_test_teardown(nobody_hears_of_what_he_has_forgotten, end),
        cmocka_unit_test(what_is_on_its_way_fails_when_the_store_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
