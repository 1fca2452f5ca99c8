/* SPDX-License-Identifier: MIT */
/* INCREX in words, and its replies as decisions: as Redis 8.8 documents it. */
#include "unit/asking.h"

#include "backend/script/increx.h"

#define FIRST_USE "fixed_window 10/1s align=first_use"

static bool decides(const char *spec, struct backend_request ask, uint32_t cost)
{
    struct stint_quota quota = quota_of(spec);
    struct backend_item item = {.quota = &quota, .key = span_of_text("k"), .cost = cost};
    ask.items = &item;
    ask.n_items = 1;
    return increx_decides(&ask);
}

static void only_what_it_decides_as_the_algorithm_does_is_asked(void **state)
{
    static const uint8_t id[BACKEND_ID_LEN];
    const struct backend_request take = {.verb = BACKEND_TAKE};
    (void)state;
    assert_true(decides(FIRST_USE, take, 1));
    assert_true(decides(FIRST_USE, take, 10));
    assert_false(decides(FIRST_USE, take, 0));
    assert_false(decides(FIRST_USE, take, 11)); /* NEVER, with figures of a state */
    assert_false(decides("fixed_window 10/1s", take, 1));
    assert_false(decides("window 10/1s", take, 1));
    assert_false(decides(FIRST_USE " count_denied=true", take, 1));
    assert_false(decides("fixed_window 10/1500us align=first_use", take, 1));
    assert_false(decides(FIRST_USE, (struct backend_request){.verb = BACKEND_TAKE_UPTO}, 1));
    assert_false(decides(FIRST_USE, (struct backend_request){.verb = BACKEND_PEEK}, 1));
    assert_false(decides(FIRST_USE, (struct backend_request){.verb = BACKEND_TAKE, .id = id}, 1));
    assert_false(
        decides(FIRST_USE, (struct backend_request){.verb = BACKEND_TAKE, .is_virtual = true}, 1));
    struct rule leased = {.store.lease = RULE_LEASE_FAST};
    struct stint_quota quota = quota_of(FIRST_USE);
    struct backend_item items[2] = {{.quota = &quota, .cost = 1}, {.quota = &quota, .cost = 1}};
    struct backend_request ask = {.verb = BACKEND_TAKE, .items = items, .n_items = 2};
    assert_false(increx_decides(&ask));
    ask.n_items = 1;
    assert_true(increx_decides(&ask));
    items[0].rule = &leased;
    assert_false(increx_decides(&ask));
}

static void assert_words(enum increx_command command, const char *const *wanted, size_t n)
{
    struct increx_words out;
    struct stint_quota quota = quota_of("fixed_window 4294967295/3650d align=first_use");
    increx_write(&out, command, &quota, span_of("a key", 5), 4294967295);
    assert_int_equal(out.n_words, n);
    for (size_t i = 0; i < n; i++)
        assert_true(span_equals(out.words[i], wanted[i]));
}

static void commands_are_these_words(void **state)
{
    static const char *const count[] = {"INCREX",     "a key",        "BYINT",
                                        "4294967295", "UBOUND",       "4294967295",
                                        "PX",         "315360000000", "ENX"};
    static const char *const left[] = {"PTTL", "a key"};
    static const char *const time[] = {"TIME"};
    (void)state;
    assert_words(INCREX_COUNT, count, 9);
    assert_words(INCREX_LEFT, left, 2);
    assert_words(INCREX_TIME, time, 1);
}

/* ---- Replies --------------------------------------------------------------------------------- */

static struct redis_reply integer(int64_t number)
{
    return (struct redis_reply){.type = REDIS_INTEGER, .number = number};
}

static struct redis_reply text(enum redis_type type, const char *text)
{
    return (struct redis_reply){.type = type, .text = span_of_text(text)};
}

static struct redis_reply array(const struct redis_reply *items, size_t n)
{
    return (struct redis_reply){.type = REDIS_ARRAY, .items = items, .n_items = n};
}

static enum increx_reply count_of(struct increx *increx, int64_t value, int64_t added)
{
    const struct redis_reply items[] = {integer(value), integer(added)};
    const struct redis_reply reply = array(items, 2);
    return increx_read_count(increx, &reply);
}

static bool time_of(struct increx *increx, const char *seconds, const char *micros)
{
    const struct redis_reply items[] = {text(REDIS_TEXT, seconds), text(REDIS_TEXT, micros)};
    const struct redis_reply reply = array(items, 2);
    return increx_read_time(increx, &reply);
}

static struct increx read_all(int64_t value, int64_t added, int64_t left_ms)
{
    struct increx increx = {.limit = 10, .cost = 3, .period_ns = 2 * S};
    const struct redis_reply left = integer(left_ms);
    assert_int_equal(count_of(&increx, value, added), INCREX_COUNTED);
    assert_true(increx_read_left(&increx, &left));
    assert_true(time_of(&increx, "1700000000", "000250"));
    return increx;
}

static void replies_are_decisions_of_the_algorithm(void **state)
{
    (void)state;
    struct increx increx = read_all(7, 3, 999);
    struct stint_decision decision = increx_decision(&increx);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    assert_int_equal(decision.granted, 3);
    assert_int_equal(decision.limit, 10);
    assert_int_equal(decision.remaining, 3);
    assert_true(decision.retry_after_ns == 0);
    assert_true(decision.reset_after_ns == 999750 * US); /* a whole ms less what of it is over */
    assert_true(increx.now_us == 1700000000000250);
    increx = read_all(8, 0, 400);
    decision = increx_decision(&increx);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_int_equal(decision.granted, 0);
    assert_int_equal(decision.remaining, 2);
    assert_true(decision.retry_after_ns == 400750 * US);
    assert_true(decision.reset_after_ns == decision.retry_after_ns);
    increx = read_all(17, 0, 400); /* charged, or the limit is a new one */
    assert_int_equal(increx_decision(&increx).remaining, 0);
    increx = read_all(6, 3, -2); /* it ended between the two commands */
    assert_true(increx_decision(&increx).reset_after_ns == 750 * US);
    increx = read_all(3, 3, -2); /* a redirect has turned the two around */
    assert_true(increx_decision(&increx).reset_after_ns == 2 * S + 750 * US);
}

static void errors_say_whom_to_ask(void **state)
{
    static const struct {
        const char *text;
        enum increx_reply meaning;
    } errors[] = {
        {"ERR value is not an integer or out of range", INCREX_FOREIGN},
        {"WRONGTYPE Operation against a key holding the wrong kind of value", INCREX_FOREIGN},
        {"ERR unknown command 'INCREX', with args beginning with: 'k'", INCREX_UNKNOWN},
        {"ERR syntax error", INCREX_UNKNOWN}, /* one that knows no bounds */
        {"NOPERM User a has no permissions to run the 'increx' command", INCREX_UNKNOWN},
        {"OOM command not allowed when used memory > 'maxmemory'.", INCREX_REFUSED},
        {"READONLY You can't write against a read only replica.", INCREX_REFUSED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct increx increx = {.limit = 10, .cost = 1};
        const struct redis_reply reply = text(REDIS_ERROR, errors[i].text);
        assert_int_equal(increx_read_count(&increx, &reply), errors[i].meaning);
    }
}

static void what_is_no_reply_is_not_read(void **state)
{
    (void)state;
    struct increx increx = {.limit = 10, .cost = 3};
    const struct redis_reply number = integer(3), forever = integer(-1), nil = {.type = REDIS_NIL};
    const struct redis_reply mixed[] = {integer(3), text(REDIS_TEXT, "3")};
    const struct redis_reply wrong = array(mixed, 2), short_one = array(mixed, 1);
    assert_int_equal(increx_read_count(&increx, &number), INCREX_BROKEN);
    assert_int_equal(increx_read_count(&increx, &wrong), INCREX_BROKEN);
    assert_int_equal(increx_read_count(&increx, &short_one), INCREX_BROKEN);
    assert_int_equal(count_of(&increx, 5, 2), INCREX_BROKEN); /* a part of what was asked */
    assert_int_equal(count_of(&increx, 2, 3), INCREX_BROKEN);
    assert_int_equal(count_of(&increx, -1, 0), INCREX_BROKEN);
    assert_false(increx_read_left(&increx, &forever));
    assert_false(increx_read_left(&increx, &nil));
    assert_false(increx_read_time(&increx, &number));
    assert_false(increx_read_time(&increx, &wrong));
    assert_false(time_of(&increx, "17000x", "1"));
    assert_false(time_of(&increx, "", "1"));
    assert_false(time_of(&increx, "1", "1000000"));
    assert_false(time_of(&increx, "99999999999999999999", "1"));
}

static void a_server_says_whether_it_has_it(void **state)
{
    (void)state;
    const struct redis_reply name = text(REDIS_TEXT, "increx"), nil = {.type = REDIS_NIL};
    const struct redis_reply known = array(&name, 1), nothing = array(NULL, 0);
    const struct redis_reply has = array(&known, 1), has_not = array(&nil, 1);
    const struct redis_reply empty_one = array(&nothing, 1);
    const struct redis_reply error = text(REDIS_ERROR, "NOPERM");
    assert_true(increx_is_there(&has));
    assert_false(increx_is_there(&has_not));
    assert_false(increx_is_there(&nothing));
    assert_false(increx_is_there(&empty_one));
    assert_false(increx_is_there(&error));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_it_decides_as_the_algorithm_does_is_asked),
        cmocka_unit_test(commands_are_these_words),
        cmocka_unit_test(replies_are_decisions_of_the_algorithm),
        cmocka_unit_test(errors_say_whom_to_ask),
        cmocka_unit_test(what_is_no_reply_is_not_read),
        cmocka_unit_test(a_server_says_whether_it_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
