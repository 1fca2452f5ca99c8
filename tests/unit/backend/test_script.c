/* SPDX-License-Identifier: MIT */
/* The words of a store's scripts to the byte, parts of keys, and which replies are none. */
#include "unit/test_quota.h"

#include "algorithm/algorithm.h"
#include "backend/script/script.h"

static void assert_words(const struct script_command *command, size_t from, const char *expected)
{
    char text[1024];
    size_t len = 0;
    for (size_t i = from; i < command->n_words; i++) {
        assert_true(len + command->words[i].len + 2 < sizeof(text));
        memcpy(text + len, command->words[i].ptr, command->words[i].len);
        len += command->words[i].len;
        text[len++] = ' ';
    }
    text[len > 0 ? len - 1 : 0] = '\0';
    assert_string_equal(text, expected);
}

TEST(one_quota_in_words)
{
    static const struct {
        const char *spec, *words;
    } cases[] = {
        {"window 100/1m", "1 key 3 100 60000000"},
        {"window 100/1m resolution=12", "1 key 3 100 60000000 12"},
        {"buckets 500/10m time_slack=1m", "1 key 3 500 600000000 60000000"},
        {"buckets 500/10m count_slack=50", "1 key take 3 0 0 500 600000000 0 50"},
        {"log 5/1s", "1 key 3 5 1000000"},
        {"gcra 100/1m burst=20", "1 key 3 100 60000000 20"},
        {"gcra 100/1m burst=20 count_denied=true", "1 key take 3 0 0 100 60000000 20 1"},
        {"fixed_window 9/1h", "1 key 3 9 3600000000"},
        {"fixed_window 9/1d align=calendar utc_offset=-01:00",
         "1 key take 3 0 0 9 86400000000 2 -3600"},
        {"sliding_counter 9/1h", "1 key 3 9 3600000000"},
        {"concurrency 4 lease=3s", "1 key 3 4 3000000"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct stint_quota quota = quota_of(cases[i].spec);
        struct script_item item = {.quota = &quota, .key = span_of_text("key"), .cost = 3};
        struct script_ask ask = {.verb = REQUEST_TAKE};
        struct script_command command;
        script_command_one(&command, &item, &ask);
        assert_true(span_equals(command.words[0], "EVALSHA"));
        assert_int_equal(command.words[1].len, 40);
        assert_memory_equal(command.words[1].ptr, command.script->sha1, 40);
        assert_words(&command, 2, cases[i].words);
    }
}

TEST(a_counter_in_words)
{
    struct stint_quota quota = counter_quota();
    quota.period_ns = 3 * S;
    struct script_item item = {
        .quota = &quota, .key = span_of_text("stint:{hits}counter::"), .cost = UINT32_MAX};
    struct script_ask ask = {.verb = REQUEST_CHARGE};
    struct script_command command;
    script_command_one(&command, &item, &ask);
    assert_words(&command, 2, "1 stint:{hits}counter:: charge 4294967295 0 0 4294967295 3000000");
    assert_string_equal(command.script->name, "counter");
    ask.verb = REQUEST_RESET;
    script_command_one(&command, &item, &ask);
    assert_words(&command, 4, "reset 4294967295 0 0 4294967295 3000000");
}

TEST(times_in_words)
{
    struct stint_quota quota = quota_of("gcra 100/1m burst=20"), places;
    struct script_item item = {.quota = &quota, .key = span_of_text("key"), .cost = 1};
    struct script_command command;
    struct script_ask ask = {.verb = REQUEST_TAKE, .is_virtual = true, .now_ns = 7999};
    script_command_one(&command, &item, &ask);
    assert_words(&command, 4, "1 100 60000000 20 +7");
    ask = (struct script_ask){.verb = REQUEST_REFUND, .is_virtual = true, .at_ns = 1999};
    script_command_one(&command, &item, &ask);
    assert_words(&command, 4, "refund 1 +0 1 100 60000000 20");
    ask.now_ns = STINT_NOW_MAX;
    ask.at_ns = STINT_NEVER_NS;
    script_command_one(&command, &item, &ask);
    assert_words(&command, 4, "refund 1 +576460752303423 -1 100 60000000 20");
    ask.verb = REQUEST_BOOK;
    script_command_one(&command, &item, &ask);
    assert_words(&command, 4, "book 1 +576460752303423 9007199254740991 100 60000000 20");

    places = quota_of("concurrency 4 lease=3s");
    item.quota = &places;
    ask = (struct script_ask){.verb = REQUEST_RELEASE, .holder = {1790000000000000, 15999}};
    script_command_one(&command, &item, &ask);
    assert_words(&command, 4, "release 15999 0 1790000000000000 4 3000000");
}

TEST(a_list_in_words)
{
    struct stint_quota quotas[] = {quota_of("window 100/1m"), quota_of("gcra 7/1s burst=3")};
    struct script_item items[STINT_ITEMS_MAX];
    struct script_ask ask = {.verb = REQUEST_TAKE_UPTO};
    struct script_command command;
    for (size_t i = 0; i < STINT_ITEMS_MAX; i++)
        items[i] = (struct script_item){&quotas[i % 2], span_of_text(i % 2 ? "b" : "a"),
                                        UINT32_MAX - (uint32_t)i};
    script_command_list(&command, items, 2, &ask);
    assert_words(&command, 2,
                 "2 a b take_upto 0 0 window 4294967295 100 60000000 0 0 0 "
                 "gcra 4294967294 7 1000000 3 0 0");
    const struct script_id id = {
        .key = span_of_text("i"), .body = 1, .is_ticket = true, .ticket_ns = 1};
    ask.verb = REQUEST_TAKE;
    ask.id = &id;
    script_command_list(&command, items, STINT_ITEMS_MAX, &ask);
    assert_int_equal(command.n_words, SCRIPT_WORDS_MAX);
}

TEST(an_id_in_words)
{
    struct stint_quota quotas[] = {quota_of("sliding_counter 9/1h"), quota_of("gcra 7/1s burst=3")};
    const struct script_item items[] = {{&quotas[0], span_of_text("a"), 3},
                                        {&quotas[1], span_of_text("b"), 1}};
    const struct script_id id = {
        .key = span_of_text("i"), .body = UINT64_C(0x0123456789abcdef), .lifetime_ns = 1000001};
    struct script_ask ask = {.verb = REQUEST_TAKE, .id = &id};
    struct script_command command;
    script_command_one(&command, items, &ask);
    assert_memory_equal(command.words[1].ptr, lua_scripts_one[STINT_SLIDING_COUNTER][1]->sha1, 40);
    assert_words(&command, 2, "2 a i take 3 0 0 9 3600000000 0123456789ABCDEF 2");
    ask.verb = REQUEST_UNDO;
    script_command_list(&command, items, 2, &ask);
    assert_memory_equal(command.words[1].ptr, lua_script_list_once.sha1, 40);
    assert_words(&command, 2,
                 "3 a b i undo 0 0 sliding_counter 3 9 3600000000 0 0 0 "
                 "gcra 1 7 1000000 3 0 0 0123456789ABCDEF 2");
}

TEST(a_key_names_what_its_state_depends_on)
{
    static const struct {
        const char *spec, *text;
    } cases[] = {
        {"window 100/1m", "window,60000000,24"},
        {"gcra 100/1m burst=20", "gcra"},
        {"log 5/1s", "log"},
        {"buckets 5/1s count_slack=1", "buckets"},
        {"fixed_window 9/1d align=calendar utc_offset=-01:00", "fixed_window,86400000000,2,-3600"},
        {"sliding_counter 9/1h", "sliding_counter,3600000000"},
        {"concurrency 4 lease=3s", "concurrency"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct stint_quota quota = quota_of(cases[i].spec);
        char out[64];
        struct key_text text = {.out = out, .size = sizeof(out)};
        script_key_algorithm(&text, &quota);
        assert_true(span_equals(span_of(out, text.len), cases[i].text));
    }
}

TEST(a_tag_is_in_braces_that_no_text_has)
{
    static const char expected[] = "a:b{%7D%7B,%C3%A9%00}";
    static const uint8_t tag[] = "}{,\xc3\xa9";
    char text[64];
    size_t len = script_tag(span_of_text("a:b"), span_of(tag, sizeof(tag)), text, sizeof(text));
    assert_true(span_equals(span_of(text, len), expected));
    /* Too little room: nothing past it is written. */
    text[len / 2] = 'x';
    assert_int_equal(script_tag(span_of_text("a:b"), span_of(tag, sizeof(tag)), text, len / 2),
                     len);
    assert_int_equal(text[len / 2], 'x');
}

TEST(quotas_that_no_store_keeps)
{
    static const char *const refused[] = {
        "window 100/1000500ns",       "buckets 5/1s time_slack=1000001ns", "gcra 5/1s initial=0",
        "concurrency 1 lease=1001ns", "sliding_counter 5/1001ns",
    };
    struct stint_error error;
    for (size_t i = 0; i < N(refused); i++) {
        struct stint_quota quota = quota_of(refused[i]);
        assert_true(script_accepts(&quota, &error) < 0);
        assert_true(strlen(error.message) > 20);
    }
    struct stint_quota kept = quota_of("log 8189/1h");
    assert_int_equal(script_accepts(&kept, &error), STINT_OK);
}

TEST(replies_become_decisions)
{
    struct script_reply reply;
    int64_t denied[] = {1, 0, 100, 7, 250, 60000000, 0, 1790000000000000, 5, 6};
    assert_true(script_reply_read(&reply, 0, denied, 8));
    assert_int_equal(reply.decision.outcome, STINT_DENY);
    assert_int_equal(reply.decision.limit, 100);
    assert_int_equal(reply.decision.remaining, 7);
    assert_int_equal(reply.decision.binding, 0);
    assert_int_equal(reply.decision.stored, 1);
    assert_int_equal(reply.decision.retry_after_ns, 250000);
    assert_int_equal(reply.decision.reset_after_ns, 60 * S);
    assert_int_equal(reply.now_ns, UINT64_C(1790000000000000000));
    assert_int_equal(reply.n_holders, 0);
    assert_false(reply.is_replayed);
    assert_int_equal(reply.n_each, 1);
    assert_memory_equal(&reply.each[0], &reply.decision, sizeof(reply.decision));
    assert_true(script_reply_read(&reply, 0, denied, 10));
    assert_int_equal(reply.n_holders, 1);
    assert_int_equal(reply.holders[0].deadline_us, 5);
    assert_int_equal(reply.holders[0].count, 6);
    int64_t never[] = {2, 0, 100, 7, -1, 60000000, 0, 1};
    assert_true(script_reply_read(&reply, 0, never, 8));
    assert_int_equal(reply.decision.retry_after_ns, STINT_NEVER_NS);
    int64_t again[] = {4, 3, 100, 7, 0, 60000000, 0, 1};
    assert_true(script_reply_read(&reply, 0, again, 8));
    assert_true(reply.is_replayed);
    assert_int_equal(reply.decision.outcome, STINT_ALLOW);
    assert_int_equal(reply.decision.granted, 3);
}

TEST(lists_tell_how_each_stands)
{
    const int64_t values[] = {2,  0, 5, 1, -1, 9, 1, 7, /* the sum */
                              0,  0, 8, 6, 0,  3,       /* it alone would have been allowed */
                              2,  0, 5, 1, -1, 9,       /* and this one not */
                              11, 12};
    struct script_reply reply;
    assert_true(script_reply_read(&reply, 2, values, 22));
    assert_int_equal(reply.n_each, 2);
    assert_int_equal(reply.n_holders, 1);
    assert_int_equal(reply.holders[0].deadline_us, 11);
    assert_int_equal(reply.decision.outcome, STINT_NEVER);
    assert_int_equal(reply.decision.binding, 1);
    assert_int_equal(reply.each[0].outcome, STINT_ALLOW);
    assert_int_equal(reply.each[0].limit, 8);
    assert_int_equal(reply.each[0].remaining, 6);
    assert_int_equal(reply.each[0].reset_after_ns, 3000);
    assert_int_equal(reply.each[1].outcome, STINT_NEVER);
    assert_int_equal(reply.each[1].retry_after_ns, STINT_NEVER_NS);
    /* The same integers of another number of quotas. */
    assert_false(script_reply_read(&reply, 3, values, 22));
    assert_false(script_reply_read(&reply, 0, values, 22));
    assert_false(script_reply_read(&reply, 2, values, 21));
    assert_false(script_reply_read(&reply, 2, values, 19));
    int64_t wrong[22];
    for (size_t place = 8; place < 22; place++) {
        memcpy(wrong, values, sizeof(wrong));
        wrong[place] = INT64_MIN;
        assert_false(script_reply_read(&reply, 2, wrong, 22));
    }
    memcpy(wrong, values, sizeof(wrong));
    wrong[6] = 2; /* there is no third one that could bind */
    assert_false(script_reply_read(&reply, 2, wrong, 22));
}

TEST(other_integers_are_no_reply)
{
    static const int64_t good[] = {0, 1, 100, 99, 0, 5, 0, 7, 8, 9};
    static const struct {
        size_t place;
        int64_t value;
    } diagnostics[] = {
        {0, -1},
        {0, 3},
        {0, 5},
        {1, -1},
        {1, INT64_C(1) << 32},
        {2, -1},
        {2, INT64_C(1) << 32},
        {3, 101},
        {3, -1},
        {4, -1},
        {4, INT64_MAX},
        {5, INT64_MIN},
        {6, 1}, /* one quota was asked */
        {7, -1},
        {8, -1},
        {9, -1},
        {9, 65536},
        {6, -1},
        {5, INT64_MAX},
    };
    struct script_reply reply;
    assert_true(script_reply_read(&reply, 0, good, 10));
    for (size_t n = 0; n < 8; n++)
        assert_false(script_reply_read(&reply, 0, good, n));
    assert_false(script_reply_read(&reply, 0, good, 9));
    for (size_t i = 0; i < N(diagnostics); i++) {
        int64_t values[10];
        memcpy(values, good, sizeof(values));
        values[diagnostics[i].place] = diagnostics[i].value;
        assert_false(script_reply_read(&reply, 0, values, 10));
    }
    int64_t many[SCRIPT_REPLY_MAX + 2] = {0};
    assert_true(script_reply_read(&reply, STINT_ITEMS_MAX, many, SCRIPT_REPLY_MAX));
    assert_false(script_reply_read(&reply, STINT_ITEMS_MAX, many, SCRIPT_REPLY_MAX + 2));
}

TEST(tickets_in_words)
{
    struct stint_quota quotas[] = {quota_of("gcra 7/1s"), quota_of("concurrency 3 lease=2s")};
    const struct script_item items[] = {{&quotas[0], span_of_text("a"), 3},
                                        {&quotas[1], span_of_text("b"), 1}};
    struct script_id id = {
        .key = span_of_text("i"), .body = 1, .is_ticket = true, .ticket_ns = UINT64_C(2000000000)};
    struct script_ask ask = {.verb = REQUEST_TAKE, .id = &id};
    struct script_command command;
    script_command_one(&command, items, &ask);
    assert_words(&command, 2, "2 a i reserve 3 0 0 7 1000000 7 0000000000000001 0 2000000");
    script_command_list(&command, items, 2, &ask);
    assert_words(&command, 2,
                 "3 a b i reserve 0 0 gcra 3 7 1000000 7 0 0 concurrency 1 3 2000000 0 0 0 "
                 "0000000000000001 0 2000000");
    ask.verb = REQUEST_SETTLE;
    script_command_one(&command, items, &ask);
    assert_words(&command, 2, "2 a i settle 3 0 0 7 1000000 7 0000000000000001 0");
    ask.verb = REQUEST_EXTEND;
    id.lifetime_ns = UINT64_MAX;
    id.ticket_ns = UINT64_MAX;
    script_command_one(&command, &items[1], &ask);
    assert_words(&command, 2,
                 "2 b i extend 1 0 0 3 2000000 0000000000000001 3153600000000 3153600000000000");
    assert_true(script_is_gone(span_of_text("STINT GONE the ticket was used")));
    assert_false(script_is_gone(span_of_text("STINT CONFLICT the id")));
}

TEST(a_conflict_is_told_from_other_errors)
{
    assert_true(script_is_conflict(span_of_text("STINT CONFLICT the id was used")));
    assert_false(script_is_conflict(span_of_text("STINT CONFLICTS")));
    assert_false(script_is_conflict(span_of_text("STINT expected one key")));
    assert_false(script_is_conflict(span_of_text("STINT")));
    assert_false(script_is_conflict(span_of(NULL, 0)));
}
