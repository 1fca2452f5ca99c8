/* SPDX-License-Identifier: MIT */
/* HTTP requests whose answer a shared store has: it comes later, in another order, or never. */
#include "unit/fake_store.h"
#include "unit/test_access.h"
#include "unit/test_http_client.h"

static const char *const yaml =
    "domain: shop\n"
    "descriptors:\n"
    "  - key: user\n"
    "    rate_limit: {unit: minute, requests_per_unit: 2, algorithm: fixed_window, store: red}\n"
    "  - key: open\n"
    "    rate_limit: {unit: minute, requests_per_unit: 2, store: red, on_store_error: allow}\n"
    "  - key: here\n"
    "    rate_limit: {unit: minute, requests_per_unit: 2}\n"
    "  - key: remote_address\n"
    "    rate_limit: {unit: minute, requests_per_unit: 1, algorithm: fixed_window, store: red}\n";

#define TAKE(key, value)                                                                           \
    "POST /v1/take" JSON "{\"domain\":\"shop\",\"descriptors\":[{\"entries\":[{\"key\":\"" key     \
    "\",\"value\":\"" value "\"}]}]"
#define TAKE_USER(value) TAKE("user", value) "}"

static struct http_client t;
static struct fake_store red;

static void open_with(const struct http_config_options *options, struct access_now *access)
{
    static struct backend *stores[1];
    http_open(&t, yaml, options, access);
    fake_store_begin(&red);
    stores[0] = &red.store;
    service_set_stores(t.s.service,
                       &(struct evaluation_stores){.stores = stores,
                                                   .n_stores = 1,
                                                   .items = 1,
                                                   .timeout_ns = 50 * MS,
                                                   .items_on_error = RULE_STORE_ERROR_ERROR});
}

SETUP
{
    open_with(&(struct http_config_options){.domain = "shop"}, NULL);
}

TEARDOWN
{
    http_close(&t);
    fake_store_end(&red);
}

/* A message on its way, as frontend/http/http.c has it. */
struct exchange {
    const char *text;
    uint64_t asked_ns, again_ns;
    struct pending *pending;
    bool is_ready; /* the store has answered */
    char answer[2048];
};

static void on_answers(void *arg, uint64_t now_ns)
{
    struct exchange *exchange = arg;
    assert_int_equal(now_ns, t.s.now_ns);
    exchange->is_ready = true;
}

/* Asks; whether it was answered. */
static bool go_on(struct exchange *exchange)
{
    t.asked_ns = exchange->asked_ns;
    t.pending = exchange->pending;
    exchange->is_ready = false;
    const char *answer = http_send_or_wait(&t, exchange->text, &exchange->again_ns);
    exchange->asked_ns = t.asked_ns;
    exchange->pending = t.pending;
    t.asked_ns = 0;
    t.pending = NULL;
    if (exchange->pending != NULL)
        service_on_answers(exchange->pending, on_answers, exchange);
    if (answer != NULL)
        snprintf(exchange->answer, sizeof(exchange->answer), "%s", answer);
    return answer != NULL;
}

static void begin(struct exchange *exchange, const char *text)
{
    *exchange = (struct exchange){.text = text};
    assert_false(go_on(exchange));
    assert_non_null(exchange->pending);
    assert_int_equal(exchange->again_ns, 0);
    assert_false(exchange->is_ready);
}

static void assert_answered(struct exchange *exchange, const char *piece)
{
    assert_true(exchange->is_ready);
    assert_true(go_on(exchange));
    assert_null(exchange->pending);
    if (strstr(exchange->answer, piece) == NULL)
        fail_msg("%s\n-- is answered --\n%s\n-- without --\n%s", exchange->text, exchange->answer,
                 piece);
}

/* ---- Answers that come ----------------------------------------------------------------------- */

TEST(a_message_is_answered_once_its_store_has)
{
    struct exchange first, second, third;
    begin(&first, TAKE_USER("ann"));
    assert_int_equal(red.n_asks, 1);
    t.s.now_ns += 3 * MS;
    fake_let(&red, 0, t.s.now_ns);
    assert_answered(&first, "200\n");
    assert_non_null(strstr(first.answer, "\"remaining\":1"));
    begin(&second, TAKE_USER("ann"));
    begin(&third, TAKE_USER("ann"));
    fake_let_all(&red, t.s.now_ns);
    assert_answered(&second, "200\n");
    assert_answered(&third, "429\n");
    assert_non_null(strstr(third.answer, "\nRetry-After: 60\n"));
    /* What was asked again was not asked of the store again. */
    assert_int_equal(red.n_asks, 3);
    assert_int_equal(red.n_forgotten, 0);
}

TEST(several_are_answered_in_the_order_of_their_answers)
{
    static const char *const texts[] = {TAKE_USER("ann"), TAKE_USER("bob"), TAKE_USER("eve"),
                                        TAKE_USER("bob")};
    static const size_t order[] = {2, 0, 3, 1};
    struct exchange visits[N(texts)];
    for (size_t i = 0; i < N(texts); i++)
        begin(&visits[i], texts[i]);
    for (size_t i = 0; i < N(order); i++) {
        assert_false(visits[order[i]].is_ready);
        fake_let(&red, order[i], t.s.now_ns);
        /* Others are asked in between, which need no store. */
        assert_int_equal(status_of(&t, TAKE("here", "x") ",\"cost\":0}"), 200);
        assert_answered(&visits[order[i]], "200\n");
    }
    assert_non_null(strstr(visits[3].answer, "\"remaining\":1"));
    assert_non_null(strstr(visits[1].answer, "\"remaining\":0"));
}

TEST(what_a_store_answers_at_once_is_not_waited_for)
{
    red.is_prompt = true;
    assert_int_equal(status_of(&t, TAKE_USER("ann")), 200);
    assert_int_equal(status_of(&t, TAKE_USER("ann")), 200);
    assert_int_equal(status_of(&t, TAKE_USER("ann")), 429);
}

TEST(every_way_to_ask_may_wait)
{
    static const struct {
        const char *text, *piece;
    } asked[] = {
        {"GET /auth\n", "200\nRateLimit-Policy: \"remote_address\";q=1;w=60\n"},
        {"GET /auth?deny_status=403\n", "403\n"},
        {"POST /json\n\n{\"domain\":\"shop\",\"descriptors\":[{\"entries\":"
         "[{\"key\":\"user\",\"value\":\"ann\"}]}]}",
         "\"overallCode\":\"OK\""},
        {"GET /v1/explain?domain=shop&user=ann\n", "\"remaining\":0"},
        {"POST /v1/take" JSON "{\"quota\":\"fixed_window 1/1m\",\"key\":\"k\"}", "200\n"},
        {"POST /v1/refund" JSON "{\"quota\":\"fixed_window 1/1m\",\"key\":\"k\"}", "200\n"},
    };
    for (size_t i = 0; i < N(asked); i++) {
        struct exchange exchange;
        begin(&exchange, asked[i].text);
        while (exchange.pending != NULL && fake_waiting(&red) > 0) {
            fake_let_all(&red, t.s.now_ns);
            assert_true(exchange.is_ready);
            if (go_on(&exchange))
                break;
        }
        if (strstr(exchange.answer, asked[i].piece) == NULL)
            fail_msg("%s: %s", asked[i].text, exchange.answer);
    }
}

TEST(who_waits_for_space_asks_the_store_anew_when_there_may_be_some)
{
    struct exchange exchange;
    begin(&exchange, TAKE("user", "ann") ",\"cost\":2}");
    fake_let(&red, 0, t.s.now_ns);
    assert_answered(&exchange, "200\n");
    begin(&exchange, TAKE("user", "ann") ",\"wait_ms\":90000}");
    fake_let(&red, 1, t.s.now_ns);
    assert_true(exchange.is_ready);
    assert_false(go_on(&exchange));
    assert_null(exchange.pending);
    assert_int_equal(exchange.again_ns, t.s.now_ns + 60 * S);
    t.s.now_ns = exchange.again_ns;
    assert_false(go_on(&exchange));
    assert_int_equal(red.n_asks, 3);
    fake_let(&red, 2, t.s.now_ns);
    assert_answered(&exchange, "200\n");
}

TEST(who_is_to_be_answered_now_still_hears_the_store)
{
    struct exchange exchange;
    begin(&exchange, TAKE("user", "ann") ",\"cost\":2}");
    fake_let(&red, 0, t.s.now_ns);
    assert_answered(&exchange, "200\n");
    t.is_urgent = true;
    begin(&exchange, TAKE("user", "ann") ",\"wait_ms\":90000}");
    fake_let(&red, 1, t.s.now_ns);
    assert_answered(&exchange, "429\n");
}

/* ---- Answers that do not come ---------------------------------------------------------------- */

TEST(a_store_that_fails_answers_as_the_rule_has_it)
{
    struct exchange exchange;
    begin(&exchange, TAKE_USER("ann"));
    fake_fail(&red, 0, t.s.now_ns);
    assert_answered(&exchange, "429\n");
    assert_non_null(strstr(exchange.answer, "\nRetry-After: "));
    begin(&exchange, TAKE("open", "x") "}");
    fake_fail(&red, 1, t.s.now_ns);
    assert_answered(&exchange, "200\n");
    begin(&exchange, "POST /v1/take" JSON "{\"quota\":\"1/1m\",\"key\":\"k\"}");
    fake_fail(&red, 2, t.s.now_ns);
    assert_answered(&exchange, "503\n");
    assert_non_null(strstr(exchange.answer, "the store did not answer in time"));
    red.is_failing = true;
    assert_int_equal(status_of(&t, TAKE_USER("ann")), 429);
}

TEST(who_has_left_is_forgotten)
{
    struct exchange gone, other;
    begin(&gone, TAKE_USER("ann"));
    begin(&other, TAKE_USER("ann"));
    service_drop(t.s.service, gone.pending);
    assert_int_equal(red.n_forgotten, 1);
    assert_true(red.asks[0].is_forgotten);
    fake_let(&red, 1, t.s.now_ns);
    assert_false(gone.is_ready);
    assert_answered(&other, "200\n");
}

#define ASKER "0123456789abcdef0123456789abcdef-asker"
#define OTHER "0123456789abcdef0123456789abcdef-other"

TEST(who_may_no_longer_ask_is_refused_and_forgotten)
{
    struct exchange exchange;
    tear_down();
    struct access_now *access = access_now_new(access_of("asker ask " ASKER));
    open_with(&(struct http_config_options){.domain = "shop"}, access);
    begin(&exchange, "GET /auth\nAuthorization: Bearer " ASKER "\n");
    access_now_set(access, access_of("asker ask " OTHER));
    assert_true(go_on(&exchange));
    assert_null(exchange.pending);
    assert_non_null(strstr(exchange.answer, "401\n"));
    assert_int_equal(red.n_forgotten, 1);
    tear_down();
    access_now_free(access);
    set_up();
}
