/* SPDX-License-Identifier: MIT */
/*
 * A store over Redis on servers that this file plays: names of keys, one slot, several slots and
 * what goes back when one of them denies, ids, and what is told where answers are missing.
 */
#include "unit/test_quota.h"

#include "unit/test_dialer.h"

#include "algorithm/algorithm.h"
#include "backend/redis/cluster.h"
#include "backend/redis/redis_backend.h"
#include "backend/store_key.h"

static struct test_dialer net;
static struct store_url url;
static struct backend *store;
static unsigned n_answered, n_drained;

/* ---- Asking ---------------------------------------------------------------------------------- */

struct asked {
    struct backend_op op;
    struct stint_decision each[BACKEND_ITEMS_MAX];
    uint64_t answered_ns;
};

static void on_answered(struct backend_op *op, uint64_t now_ns)
{
    ((struct asked *)op->arg)->answered_ns = now_ns;
    n_answered++;
}

static void prepare(struct asked *asked)
{
    memset(asked, 0, sizeof(*asked));
    asked->op.answered = on_answered;
    asked->op.arg = asked;
    asked->op.answer.each = asked->each;
}

/* Items: keys by spaces, each with the same cost under the same quota. */
static void ask_with(struct asked *asked, struct backend_request ask, const char *keys,
                     uint32_t cost, const char *spec)
{
    static struct stint_quota quota;
    struct backend_item items[8];
    quota = quota_of(spec);
    for (const char *at = keys; *at != '\0'; at += *at == ' ') {
        size_t len = strcspn(at, " ");
        items[ask.n_items++] = (struct backend_item){
            .quota = &quota, .name = span_of_text("r"), .key = span_of(at, len), .cost = cost};
        at += len;
    }
    ask.items = items;
    if (ask.now_ns == 0)
        ask.now_ns = net.now_ns + 7 * MS; /* the clock of asks is another one */
    ask.deadline_ns = ask.now_ns + 50 * MS;
    prepare(asked);
    store->ops->ask(store, &ask, &asked->op);
}

static void take_3(struct asked *asked, const char *keys)
{
    ask_with(asked, (struct backend_request){.verb = REQUEST_TAKE}, keys, 3, "gcra 10/s");
    assert_int_equal(asked->op.answer.outcome, BACKEND_WAITS);
}

/* What was sent: words behind the hash, so that a test does not speak of it. */
static const char *words_to(const char *address)
{
    static char out[8192];
    struct buf buf = buf_of(out, sizeof(out));
    out[0] = '\0';
    const char *said = sent_to(&net, line_to(&net, address));
    for (const char *at; (at = strstr(said, "EVALSHA ")) != NULL;) {
        said = at + 8 + 41;
        size_t len = strcspn(said, ";");
        buf_add(&buf, "%s%.*s", buf.len > 0 ? "; " : "", (int)len, said);
    }
    return out;
}

/* outcome granted limit remaining retry reset binding now */
#define ALLOWED(remaining, at)                                                                     \
    "*8\r\n:0\r\n:3\r\n:10\r\n:" remaining "\r\n:0\r\n:500\r\n:0\r\n:" at "\r\n"
#define GRANTED(n, remaining, at)                                                                  \
    "*8\r\n:0\r\n:" n "\r\n:10\r\n:" remaining "\r\n:0\r\n:500\r\n:0\r\n:" at "\r\n"
#define DENIED "*8\r\n:1\r\n:0\r\n:10\r\n:2\r\n:100\r\n:800\r\n:0\r\n:9000\r\n"

static void begin(const char *text)
{
    struct stint_error error;
    test_dialer_begin(&net);
    n_answered = n_drained = 0;
    if (store_url_parse(&url, text, &error) != 0)
        fail_msg("%s", error.message);
    store = redis_backend_new(
        &(struct redis_backend_options){.router = {.url = &url, .dialer = &net.dialer}});
    assert_non_null(store);
    net.router = redis_backend_router(store);
    pass(&net, MS);
}

static void begin_single(void)
{
    begin("redis://a");
    meet(&net, "a:6379", "A");
}

/* "b" lies at a, "x" at b: as in test_router.c. */
static void begin_cluster(void)
{
    struct asked asked;
    begin("redis-cluster://a:1");
    meet(&net, "a:1", "A");
    (void)sent_to(&net, line_to(&net, "a:1"));
    say(&net, "a:1",
        "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n$1\r\na\r\n:1\r\n"
        "*3\r\n:8192\r\n:16383\r\n*2\r\n$1\r\nb\r\n:2\r\n");
    take_3(&asked, "x");
    meet(&net, "b:2", "B");
    (void)words_to("b:2");
    say(&net, "b:2", ALLOWED("7", "5000"));
    assert_int_equal(n_answered, 1);
    n_answered = 0;
}

TEARDOWN
{
    store->ops->free(store);
    assert_true(net.is_freed);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static const char *name_of(uint8_t tag, bool is_values, const char *key, size_t len)
{
    static char out[512];
    static struct stint_quota quota;
    struct rule rule = {.domain = "shop: 1", .store = {.tag = tag}};
    size_t tag_len, out_len;
    quota = quota_of("gcra 10/s");
    out_len = store_key(&(struct backend_item){.quota = &quota,
                                               .rule = &rule,
                                               .name = span_of_text("d|k%3A"),
                                               .key = span_of(key, len),
                                               .is_values = is_values},
                        span_of_text("p:"), out, sizeof(out) - 1, &tag_len);
    assert_true(out_len < sizeof(out) && tag_len < out_len);
    assert_int_equal(out[tag_len - 1], '}');
    out[out_len] = '\0';
    return out;
}
#define VALUES(bytes) true, "IIIIIIII" bytes, sizeof("IIIIIIII" bytes) - 1

TEST(keys_are_named_as_their_rules_say)
{
    begin_single();
    assert_string_equal(name_of(RULE_TAG_VALUES, VALUES("\0\0\0\001u\0\0\0\003a,b")),
                        "p:{u,a%2Cb}gcra:d|k%3A:");
    assert_string_equal(name_of(RULE_TAG_FIRST, VALUES("\0\0\0\001u\0\0\0\003a,b")),
                        "p:{u}gcra:d|k%3A:a%2Cb");
    assert_string_equal(name_of(RULE_TAG_DOMAIN, VALUES("\0\0\0\001u\0\0\0\001 ")),
                        "p:{shop:%201}gcra:d|k%3A:u,%20");
    /* Empty braces would be no tag. */
    assert_string_equal(name_of(RULE_TAG_VALUES, VALUES("\0\0\0\0")), "p:{%}gcra:d|k%3A:");
    assert_string_equal(name_of(RULE_TAG_VALUES, VALUES("\0\0\0\001%")), "p:{%25}gcra:d|k%3A:");
    assert_string_equal(name_of(RULE_TAG_VALUES, VALUES("\0\0\0\0\0\0\0\0")), "p:{,}gcra:d|k%3A:");
    /* A key that is one text. */
    assert_string_equal(name_of(RULE_TAG_VALUES, false, "a{,}", 4), "p:{a%7B%2C%7D}gcra:d|k%3A:");
    assert_string_equal(name_of(RULE_TAG_DOMAIN, false, "a", 1), "p:{shop:%201}gcra:d|k%3A:a");
    /* A length that is longer than what is there ends the list. */
    assert_string_equal(name_of(RULE_TAG_VALUES, VALUES("\0\0\0\001u\0\0\0\377a")),
                        "p:{u}gcra:d|k%3A:");
}

/* ---- One slot -------------------------------------------------------------------------------- */

TEST(one_item_is_its_algorithms_script)
{
    struct asked asked;
    begin_single();
    take_3(&asked, "k");
    assert_string_equal(words_to("a:6379"), "1 stint:{k}gcra:r: 3 10 1000000 10");
    say(&net, "a:6379", ALLOWED("7", "5000"));
    assert_int_equal(n_answered, 1);
    assert_int_equal(asked.answered_ns, net.now_ns + 7 * MS);
    const struct backend_answer *answer = &asked.op.answer;
    assert_int_equal(answer->outcome, BACKEND_DECIDED);
    assert_int_equal(answer->at_ns, 5000 * US);
    assert_int_equal(answer->sum.outcome, STINT_ALLOW);
    assert_int_equal(answer->sum.remaining, 7);
    assert_int_equal(asked.each[0].remaining, 7);
    assert_false(answer->is_replayed);
}

TEST(virtual_time_is_told)
{
    struct asked asked;
    begin_single();
    ask_with(
        &asked,
        (struct backend_request){.verb = REQUEST_PEEK, .is_virtual = true, .now_ns = 123456789},
        "k", 1, "gcra 10/s");
    assert_string_equal(words_to("a:6379"), "1 stint:{k}gcra:r: peek 1 +123456 0 10 1000000 10");
    say(&net, "a:6379", DENIED);
    assert_int_equal(asked.op.answer.sum.outcome, STINT_DENY);
}

/* The words that were sent. */
static const char *count(struct asked *asked, uint8_t verb, uint32_t cost)
{
    struct stint_quota quota = counter_quota();
    const struct backend_item item = {.quota = &quota, .key = span_of_text("k"), .cost = cost};
    const struct backend_request ask = {.verb = verb,
                                        .items = &item,
                                        .n_items = 1,
                                        .now_ns = net.now_ns + 7 * MS,
                                        .deadline_ns = net.now_ns + 57 * MS};
    prepare(asked);
    store->ops->ask(store, &ask, &asked->op);
    assert_int_equal(asked->op.answer.outcome, BACKEND_WAITS);
    return words_to("a:6379");
}

#define COUNTED ":0\r\n:3\r\n:4294967295\r\n:0\r\n:0\r\n:500\r\n:0\r\n:9000\r\n"

TEST(a_counter_is_told_with_its_count)
{
    struct asked asked;
    begin_single();
    assert_string_equal(count(&asked, REQUEST_CHARGE, 3),
                        "1 stint:{k}counter:: charge 3 0 0 4294967295 1000000");
    say(&net, "a:6379", "*10\r\n" COUNTED ":4503599627370495\r\n:0\r\n");
    assert_int_equal(asked.op.answer.outcome, BACKEND_DECIDED);
    assert_int_equal(asked.op.answer.count, STINT_COUNT_MAX);
    assert_int_equal(asked.op.answer.sum.reset_after_ns, 500 * US);
    count(&asked, REQUEST_RESET, 0);
    say(&net, "a:6379", "*8\r\n" COUNTED);
    assert_int_equal(asked.op.answer.outcome, BACKEND_DECIDED);
    assert_int_equal(asked.op.answer.count, 0);
}

TEST(a_counter_without_its_count_is_not_taken_for_one)
{
    static const char *const replies[] = {
        "*8\r\n" COUNTED, "*10\r\n" COUNTED ":4503599627370496\r\n:0\r\n",
        "*10\r\n" COUNTED ":-1\r\n:0\r\n", "*9\r\n" COUNTED ":1\r\n", ":1\r\n"};
    static const uint8_t verbs[] = {REQUEST_CHARGE, REQUEST_REFUND, REQUEST_PEEK};
    begin_single();
    for (size_t i = 0; i < N(replies) * N(verbs); i++) {
        struct asked asked;
        count(&asked, verbs[i % N(verbs)], 3);
        say(&net, "a:6379", replies[i / N(verbs)]);
        assert_int_equal(asked.op.answer.outcome, BACKEND_FAILED);
    }
}

TEST(what_a_store_cannot_keep_is_refused)
{
    struct asked asked;
    begin_single();
    ask_with(&asked, (struct backend_request){.verb = REQUEST_TAKE}, "k", 1, "gcra 3/1500ns");
    assert_int_equal(asked.op.answer.outcome, BACKEND_REFUSED);
    assert_non_null(strstr(asked.op.answer.error, "microseconds"));
    ask_with(&asked, (struct backend_request){.verb = REQUEST_TAKE, .is_ahead = true}, "k", 1,
             "gcra 3/1500ns");
    assert_int_equal(asked.op.answer.outcome, BACKEND_AHEAD);
    assert_int_equal(n_answered, 0);
}

TEST(diagnostics_are_told_apart)
{
    static const struct {
        const char *reply, *message;
        uint8_t outcome, fault;
    } cases[] = {
        {"-OOM command not allowed\r\n", "out of memory", BACKEND_FAILED, BACKEND_ERROR_OTHER},
        {"-STINT CONFLICT the id was used\r\n", NULL, BACKEND_CONFLICT, BACKEND_ERROR_OTHER},
        {"-NOPERM no\r\n", "NOPERM", BACKEND_FAILED, BACKEND_ERROR_OTHER},
        {"-MOVED 1 b:1\r\n", "redis-cluster://", BACKEND_FAILED, BACKEND_ERROR_OTHER},
        {"*1\r\n:1\r\n", "not that of a stint script", BACKEND_FAILED, BACKEND_ERROR_OTHER},
        {"*8\r\n:0\r\n:3\r\n:10\r\n:99\r\n:0\r\n:5\r\n:0\r\n:9\r\n", "not that of a stint script",
         BACKEND_FAILED, BACKEND_ERROR_OTHER},
        {"+OK\r\n", "not that of a stint script", BACKEND_FAILED, BACKEND_ERROR_OTHER},
        {NULL, "not answered", BACKEND_FAILED, BACKEND_ERROR_LATE},
    };
    begin_single();
    for (size_t i = 0; i < N(cases); i++) {
        struct asked asked;
        take_3(&asked, "k");
        (void)words_to("a:6379");
        if (cases[i].reply != NULL)
            say(&net, "a:6379", cases[i].reply);
        else
            pass(&net, 55 * MS);
        assert_int_equal(asked.op.answer.outcome, cases[i].outcome);
        assert_int_equal(asked.op.answer.fault, cases[i].fault);
        if (cases[i].message != NULL)
            assert_non_null(strstr(asked.op.answer.error, cases[i].message));
    }
    struct asked asked;
    take_3(&asked, "k"); /* nobody is there to be asked */
    pass(&net, 55 * MS);
    assert_int_equal(asked.op.answer.fault, BACKEND_ERROR_UNREACHABLE);
    assert_true(store->ops->unavailable_since_ns(store) > 0);
}

TEST(several_items_in_one_slot_are_one_list)
{
    struct asked asked;
    begin_single();
    take_3(&asked, "k l");
    assert_string_equal(words_to("a:6379"),
                        "2 stint:{k}gcra:r: stint:{l}gcra:r: take 0 0 gcra 3 10 "
                        "1000000 10 0 0 gcra 3 10 1000000 10 0 0");
    say(&net, "a:6379",
        "*20\r\n:1\r\n:0\r\n:10\r\n:2\r\n:100\r\n:800\r\n:1\r\n:9000\r\n"
        ":0\r\n:0\r\n:10\r\n:9\r\n:0\r\n:100\r\n:1\r\n:0\r\n:10\r\n:2\r\n:100\r\n:800\r\n");
    assert_int_equal(asked.op.answer.sum.outcome, STINT_DENY);
    assert_int_equal(asked.op.answer.sum.binding, 1);
    assert_int_equal(asked.each[0].outcome, STINT_ALLOW);
    assert_int_equal(asked.each[0].remaining, 9);
    assert_int_equal(asked.each[1].outcome, STINT_DENY);
}

TEST(nobody_hears_of_what_he_has_forgotten)
{
    struct asked asked, other;
    begin_single();
    take_3(&asked, "k");
    take_3(&other, "l");
    (void)words_to("a:6379");
    store->ops->forget(store, &asked.op);
    memset(&asked, 0xff, sizeof(asked));
    say(&net, "a:6379", ALLOWED("7", "5000") ALLOWED("6", "5000"));
    assert_int_equal(n_answered, 1);
    assert_int_equal(other.op.answer.sum.remaining, 6);
}

static const uint8_t an_id[BACKEND_ID_LEN] = {0xab, 1, 2};
#define ID_TEXT "ab010200000000000000000000000000"

/* ---- Several slots --------------------------------------------------------------------------- */

TEST(slots_are_asked_at_once_and_joined)
{
    struct asked asked;
    begin_cluster();
    take_3(&asked, "b x");
    assert_string_equal(words_to("a:1"), "1 stint:{b}gcra:r: 3 10 1000000 10");
    assert_string_equal(words_to("b:2"), "1 stint:{x}gcra:r: 3 10 1000000 10");
    say(&net, "b:2", ALLOWED("4", "6000"));
    assert_int_equal(n_answered, 0);
    say(&net, "a:1", ALLOWED("7", "5000"));
    assert_int_equal(n_answered, 1);
    assert_int_equal(asked.op.answer.sum.outcome, STINT_ALLOW);
    assert_int_equal(asked.op.answer.sum.binding, 1); /* has less left */
    assert_int_equal(asked.op.answer.sum.granted, 3);
    assert_int_equal(asked.op.answer.at_ns, 5000 * US); /* the earlier */
    assert_int_equal(asked.each[0].remaining, 7);
    assert_string_equal(words_to("a:1"), "");
    assert_string_equal(words_to("b:2"), "");
}

TEST(what_one_granted_goes_back_where_another_denies)
{
    struct asked asked;
    begin_cluster();
    take_3(&asked, "b x");
    (void)words_to("a:1");
    (void)words_to("b:2");
    say(&net, "a:1", ALLOWED("7", "5000"));
    say(&net, "b:2", DENIED);
    assert_int_equal(n_answered, 1);
    assert_int_equal(asked.op.answer.sum.outcome, STINT_DENY);
    assert_int_equal(asked.op.answer.sum.granted, 0);
    assert_int_equal(asked.op.answer.sum.retry_after_ns, 100 * US);
    assert_int_equal(asked.each[0].outcome, STINT_ALLOW);
    assert_int_equal(asked.each[0].granted, 0);
    assert_int_equal(asked.each[0].remaining, 10);
    /* At the instant of the grant; and once, whatever becomes of it. */
    assert_string_equal(words_to("a:1"), "1 stint:{b}gcra:r: refund 3 0 5000 10 1000000 10");
    lose(&net, "a:1");
    pass(&net, 20 * MS);
    meet(&net, "a:1", "A");
    pass(&net, 20 * MS);
    assert_string_equal(words_to("a:1"), "");
    assert_string_equal(words_to("b:2"), "");
    assert_int_equal(n_answered, 1);
}

TEST(a_return_that_was_not_done_is_tried_again)
{
    struct asked asked;
    begin_cluster();
    take_3(&asked, "b x");
    (void)words_to("a:1");
    (void)words_to("b:2");
    say(&net, "b:2", DENIED);
    say(&net, "a:1", ALLOWED("7", "5000"));
    (void)words_to("a:1");
    say(&net, "a:1", "-LOADING not now\r\n");
    for (int ms = 0; ms < 10 && words_to("a:1")[0] == '\0'; ms++)
        pass(&net, MS);
    say(&net, "a:1", ALLOWED("10", "5000"));
    pass(&net, MS);
    assert_string_equal(words_to("a:1"), "");
}

TEST(a_slot_that_is_silent_makes_the_list_fail)
{
    struct asked asked;
    begin_cluster();
    take_3(&asked, "b x");
    (void)words_to("a:1");
    (void)words_to("b:2");
    say(&net, "a:1", ALLOWED("7", "5000"));
    pass(&net, 51 * MS);
    assert_int_equal(n_answered, 1);
    assert_int_equal(asked.op.answer.outcome, BACKEND_FAILED);
    assert_int_equal(asked.op.answer.fault, BACKEND_ERROR_LATE);
    pass(&net, MS);
    /* Known to be granted: goes back. Not known: stays. */
    assert_string_equal(words_to("a:1"), "1 stint:{b}gcra:r: refund 3 0 5000 10 1000000 10");
}

/* It may have been charged: its numbers are not known, only its limit. */
TEST(a_slot_that_is_silent_is_shown_with_its_limit_where_another_denies)
{
    struct asked asked;
    begin_cluster();
    take_3(&asked, "b x");
    (void)words_to("a:1");
    (void)words_to("b:2");
    say(&net, "a:1", DENIED);
    pass(&net, 51 * MS);
    assert_int_equal(asked.op.answer.outcome, BACKEND_DECIDED);
    assert_int_equal(asked.op.answer.sum.outcome, STINT_DENY);
    assert_int_equal(asked.op.answer.sum.binding, 0);
    assert_int_equal(asked.each[1].outcome, STINT_ALLOW);
    assert_int_equal(asked.each[1].limit, 10);
}

/* One half of the ticket is gone: the sum is that of the other half. */
TEST(a_ticket_that_is_gone_in_one_slot_is_not_in_the_sum)
{
    struct asked asked;
    const struct backend_request ask = {.verb = REQUEST_SETTLE, .id = an_id, .is_ticket = true};
    begin_cluster();
    ask_with(&asked, ask, "b x", 1, "gcra 10/s");
    (void)words_to("a:1");
    (void)words_to("b:2");
    say(&net, "a:1", "-STINT GONE the ticket was used\r\n");
    say(&net, "b:2", ALLOWED("9", "5000"));
    assert_int_equal(asked.op.answer.outcome, BACKEND_DECIDED);
    assert_int_equal(asked.op.answer.sum.binding, 1);
    assert_int_equal(asked.op.answer.sum.limit, 10);
    assert_int_equal(asked.op.answer.sum.remaining, 9);
    assert_int_equal(asked.op.answer.sum.granted, 3);
    assert_int_equal(asked.each[0].limit, 10);
}

/* Each server has a bit: whom an ask goes to is told, who of them failed, and none is asked that is
 * not to be. */
TEST(servers_are_told_apart)
{
    struct asked low, both;
    begin_cluster();
    take_3(&low, "b");
    take_3(&both, "b x");
    uint64_t a = low.op.answer.servers, b = both.op.answer.servers & ~a;
    assert_true(a != 0 && b != 0 && both.op.answer.servers == (a | b));
    (void)words_to("a:1");
    (void)words_to("b:2");
    say(&net, "a:1", ALLOWED("7", "5000") ALLOWED("4", "5000"));
    pass(&net, 51 * MS);
    assert_true(low.op.answer.outcome == BACKEND_DECIDED && low.op.answer.failed == 0);
    assert_true(both.op.answer.outcome == BACKEND_FAILED && both.op.answer.failed == b);
    pass(&net, MS);
    (void)words_to("a:1");
    const struct backend_request ask = {.verb = REQUEST_TAKE, .stopped = b};
    ask_with(&both, ask, "b x", 3, "gcra 10/s");
    assert_int_equal(both.op.answer.outcome, BACKEND_FAILED);
    assert_int_equal(both.op.answer.fault, BACKEND_ERROR_STOPPED);
    assert_string_equal(words_to("a:1"), "");
    ask_with(&low, ask, "b", 3, "gcra 10/s");
    assert_int_equal(low.op.answer.outcome, BACKEND_WAITS);
    (void)words_to("a:1");
    say(&net, "a:1", ALLOWED("7", "5000") ALLOWED("4", "5000")); /* first what went back */
    assert_int_equal(low.op.answer.outcome, BACKEND_DECIDED);
}

TEST(the_least_of_partial_grants_is_kept)
{
    struct asked asked;
    begin_cluster();
    ask_with(&asked, (struct backend_request){.verb = REQUEST_TAKE_UPTO}, "b x", 8, "gcra 10/s");
    (void)words_to("a:1");
    (void)words_to("b:2");
    say(&net, "a:1", GRANTED("8", "2", "5000"));
    say(&net, "b:2", GRANTED("3", "0", "6000"));
    assert_int_equal(asked.op.answer.sum.granted, 3);
    assert_int_equal(asked.each[0].granted, 3);
    assert_int_equal(asked.each[0].remaining, 7);
    assert_string_equal(words_to("a:1"), "1 stint:{b}gcra:r: refund 5 0 5000 10 1000000 10");
    assert_string_equal(words_to("b:2"), "");
}

TEST(the_forgotten_half_still_goes_back)
{
    struct asked asked;
    begin_cluster();
    take_3(&asked, "b x");
    (void)words_to("a:1");
    (void)words_to("b:2");
    store->ops->forget(store, &asked.op);
    memset(&asked, 0xff, sizeof(asked));
    say(&net, "a:1", ALLOWED("7", "5000"));
    say(&net, "b:2", DENIED);
    assert_int_equal(n_answered, 0);
    assert_string_equal(words_to("a:1"), "1 stint:{b}gcra:r: refund 3 0 5000 10 1000000 10");
}

TEST(ids_lie_beside_their_keys_and_are_undone)
{
    struct asked asked;
    const struct backend_request ask = {
        .verb = REQUEST_TAKE, .id = an_id, .body = 255, .id_lifetime_ns = NS_PER_S};
    begin_cluster();
    ask_with(&asked, ask, "b x", 3, "gcra 10/s");
    assert_string_equal(words_to("a:1"), "2 stint:{b}gcra:r: stint:{b}id:" ID_TEXT
                                         " take 3 0 0 10 1000000 10 00000000000000FF 1000");
    (void)words_to("b:2");
    say(&net, "a:1", ALLOWED("7", "5000"));
    say(&net, "b:2", DENIED);
    assert_string_equal(words_to("a:1"), "2 stint:{b}gcra:r: stint:{b}id:" ID_TEXT
                                         " undo 3 0 0 10 1000000 10 00000000000000FF 1000");
    say(&net, "a:1", ALLOWED("10", "5000"));
    /* What the id was granted before was told to somebody, and stays. */
    ask_with(&asked, ask, "b x", 3, "gcra 10/s");
    (void)words_to("a:1");
    (void)words_to("b:2");
    say(&net, "a:1", "*8\r\n:4\r\n:3\r\n:10\r\n:7\r\n:0\r\n:500\r\n:0\r\n:5000\r\n");
    say(&net, "b:2", DENIED);
    assert_int_equal(asked.op.answer.sum.outcome, STINT_DENY);
    assert_string_equal(words_to("a:1"), "");
}

TEST(an_ask_with_an_id_is_sent_again)
{
    struct asked asked;
    begin_single();
    ask_with(&asked,
             (struct backend_request){
                 .verb = REQUEST_TAKE, .id = an_id, .body = 1, .id_lifetime_ns = NS_PER_S},
             "k", 3, "gcra 10/s");
    (void)words_to("a:6379");
    lose(&net, "a:6379");
    pass(&net, 11 * MS);
    meet(&net, "a:6379", "A");
    pass(&net, 5 * MS);
    assert_true(words_to("a:6379")[0] != '\0');
    say(&net, "a:6379", "*8\r\n:4\r\n:3\r\n:10\r\n:7\r\n:0\r\n:500\r\n:0\r\n:5000\r\n");
    assert_int_equal(asked.op.answer.sum.outcome, STINT_ALLOW);
    assert_true(asked.op.answer.is_replayed);
}

/* One rule's state under its own limit and under an override, which a script does not take. */
TEST(a_key_under_two_quotas_is_two_scripts)
{
    struct stint_quota quotas[] = {quota_of("gcra 10/s"), quota_of("gcra 20/s")};
    struct backend_item items[3];
    struct backend_request ask = {.verb = REQUEST_TAKE,
                                  .items = items,
                                  .n_items = N(items),
                                  .id = an_id,
                                  .body = 255,
                                  .id_lifetime_ns = NS_PER_S};
    struct asked asked;
    begin_single();
    for (size_t i = 0; i < N(items); i++)
        items[i] = (struct backend_item){.quota = &quotas[i % 2],
                                         .name = span_of_text("r"),
                                         .key = span_of_text(i < 2 ? "k" : "l"),
                                         .cost = 3};
    ask.now_ns = net.now_ns;
    ask.deadline_ns = net.now_ns + 50 * MS;
    prepare(&asked);
    store->ops->ask(store, &ask, &asked.op);
    assert_string_equal(words_to("a:6379"),
                        "3 stint:{k}gcra:r: stint:{l}gcra:r: stint:{k}id:" ID_TEXT
                        " take 0 0 gcra 3 10 1000000 10 0 0 gcra 3 10 1000000 10 0 0"
                        " 00000000000000FF 1000; "
                        "2 stint:{k}gcra:r: stint:{k}id:ab010200000000000000000000000001"
                        " take 3 0 0 20 1000000 20 00000000000000FF 1000");
    say(&net, "a:6379",
        "*20\r\n:0\r\n:3\r\n:10\r\n:7\r\n:0\r\n:300\r\n:0\r\n:5000\r\n:0\r\n:3\r\n:10\r\n:7\r\n:"
        "0\r\n"
        ":300\r\n:0\r\n:3\r\n:10\r\n:7\r\n:0\r\n:300\r\n" DENIED);
    assert_int_equal(asked.op.answer.sum.outcome, STINT_DENY);
    assert_int_equal(asked.op.answer.sum.binding, 1);
    assert_int_equal(asked.each[0].remaining, 10);
    assert_int_equal(asked.each[2].remaining, 10);
    assert_string_equal(words_to("a:6379"),
                        "3 stint:{k}gcra:r: stint:{l}gcra:r: stint:{k}id:" ID_TEXT
                        " undo 0 0 gcra 3 10 1000000 10 0 0 gcra 3 10 1000000 10 0 0"
                        " 00000000000000FF 1000");
}

/* ---- The end --------------------------------------------------------------------------------- */

static void on_drained(void *arg)
{
    (void)arg;
    n_drained++;
}

TEST(draining_waits_for_what_goes_back)
{
    struct asked asked;
    begin_cluster();
    take_3(&asked, "b x");
    (void)words_to("a:1");
    (void)words_to("b:2");
    say(&net, "a:1", ALLOWED("7", "5000"));
    say(&net, "b:2", DENIED);
    (void)words_to("a:1");
    store->ops->drain(store, net.now_ns + 7 * MS + 500 * MS, on_drained, NULL);
    assert_int_equal(n_drained, 0);
    say(&net, "a:1", ALLOWED("10", "5000"));
    assert_int_equal(n_drained, 1);
    store->ops->drain(store, net.now_ns, on_drained, NULL);
    assert_int_equal(n_drained, 2); /* there is nothing */
}

TEST(draining_ends_at_its_deadline)
{
    struct asked asked;
    begin_single();
    take_3(&asked, "k");
    (void)words_to("a:6379");
    store->ops->drain(store, net.now_ns + 7 * MS + 10 * MS, on_drained, NULL);
    pass(&net, 11 * MS);
    assert_int_equal(n_drained, 1);
    assert_int_equal(asked.op.answer.outcome, BACKEND_FAILED);
}

TEST(the_end_answers_what_waits)
{
    struct asked asked, other;
    begin_cluster();
    take_3(&asked, "b x");
    take_3(&other, "b");
    (void)words_to("a:1");
    say(&net, "a:1", ALLOWED("7", "5000"));
    store->ops->free(store);
    assert_int_equal(n_answered, 2);
    assert_int_equal(asked.op.answer.outcome, BACKEND_FAILED);
    assert_int_equal(other.op.answer.outcome, BACKEND_FAILED);
    begin_single();
}
