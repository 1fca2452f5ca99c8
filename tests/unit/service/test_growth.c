/* SPDX-License-Identifier: MIT */
/*
 * When what is left grows, held against the states themselves: from the instant of a reply, the
 * clock is stepped, nanosecond by nanosecond where the period is short, and what could be used is
 * asked for at each step.
 */
#include "unit/one_server.h"

#define STEPS_MAX 6000

static struct request of_item(struct request_item *item, const char *spec, uint32_t cost)
{
    *item = (struct request_item){.quota = span_of_text(spec), .key = span_of_text("k")};
    return (struct request){
        .verb = REQUEST_TAKE, .cost = cost, .items = item, .n_items = 1, .wants_growth = true};
}

static uint32_t free_at(const struct stint_quota *quota, uint64_t now_ns)
{
    const struct stint_item item = {.quota = quota, .key = "k", .key_len = 1};
    return stint_take(s.table, item.quota, item.key, item.key_len, 0, now_ns).remaining;
}

/* Of a reply whose figures are those of the state. The clock goes on to what was looked at. */
static void assert_grows_then(const struct target *status)
{
    const struct stint_quota quota = *status->quota;
    uint32_t left = status->decision.remaining;
    uint64_t after_ns = status->grows_after_ns;
    if (left == status->decision.limit) {
        assert_int_equal(after_ns, 0);
        return;
    }
    uint64_t stride_ns = after_ns / STEPS_MAX + 1;
    assert_true(after_ns > 0 && after_ns < STINT_NOW_MAX - s.now_ns);
    for (uint64_t step_ns = 0; step_ns < after_ns; step_ns += stride_ns)
        assert_true(free_at(&quota, s.now_ns + step_ns) <= left);
    assert_true(free_at(&quota, s.now_ns + after_ns - 1) <= left);
    s.now_ns += after_ns;
    assert_true(free_at(&quota, s.now_ns) > left);
}

/* What a peek says of a take that it does not make is what the take says. */
static void assert_foreseen(struct request *request)
{
    request->verb = REQUEST_PEEK;
    const struct target foreseen = ask(&s, request)->statuses[0];
    request->verb = REQUEST_TAKE;
    const struct target *taken = &ask(&s, request)->statuses[0];
    assert_int_equal(taken->decision.outcome, foreseen.decision.outcome);
    assert_int_equal(taken->decision.remaining, foreseen.decision.remaining);
    assert_int_equal(taken->grows_after_ns, foreseen.grows_after_ns);
}

static void step_through(const char *spec, uint64_t seed)
{
    uint64_t pause_max_ns = quota_of(spec).period_ns / 5;
    serve(&s, NULL);
    for (unsigned i = 0; i < 600; i++) {
        struct request_item item;
        struct request request = of_item(&item, spec, (uint32_t)(next_random(&seed) % 4));
        uint64_t verb = next_random(&seed) % 8;
        if (verb > 2) {
            assert_foreseen(&request);
        } else {
            request.verb = verb == 0   ? REQUEST_TAKE_UPTO
                           : verb == 1 ? REQUEST_CHARGE
                                       : REQUEST_REFUND;
            ask(&s, &request);
        }
        if (next_random(&seed) % 4 == 0)
            assert_grows_then(&s.reply.statuses[0]);
        else
            s.now_ns += next_random(&seed) % pause_max_ns;
    }
    server_close(&s);
}

TEST(test_it_grows_when_it_is_said_to)
{
    static const char *const specs[] = {
        "window 7/5ms resolution=10",
        "window 25/3us",
        "buckets 9/2us time_slack=300ns",
        "buckets 9/2us count_slack=2",
        "buckets 9/2us time_slack=250ns count_slack=4",
        "log 6/2us",
        "gcra 7/2us",
        "gcra 7/2us burst=3",
        "gcra 8/2us",
        "gcra 2/2us burst=5",
        "fixed_window 5/2us",
        "fixed_window 5/2us align=first_use",
        "sliding_counter 6/2us",
        "concurrency 5 lease=2us",
    };
    for (size_t i = 0; i < N(specs); i++)
        for (uint64_t seed = 1; seed <= REPEATS(3, 1); seed++)
            step_through(specs[i], seed * 977 + i);
}

/* Every status by itself, whatever decided and whatever was charged. */
TEST(test_each_status_of_a_list_has_its_own)
{
    static const char *const specs[] = {"log 5/2us", "gcra 4/3us", "window 6/4us", "log 5/2us"};
    static const uint8_t verbs[] = {REQUEST_TAKE, REQUEST_RESERVE, REQUEST_CHARGE,
                                    REQUEST_TAKE_UPTO};
    uint64_t seed = 7;
    serve(&s, NULL);
    for (unsigned i = 0; i < 200; i++) {
        struct request_item items[N(specs)];
        struct request request = of_item(&items[0], specs[0], 1);
        for (size_t j = 0; j < N(specs); j++)
            of_item(&items[j], specs[j], 1);
        request.items = items;
        request.n_items = N(specs);
        request.verb = verbs[next_random(&seed) % N(verbs)];
        struct target statuses[N(specs)];
        memcpy(statuses, ask(&s, &request)->statuses, sizeof(statuses));
        uint64_t asked_ns = s.now_ns, latest_ns = asked_ns;
        for (size_t j = 0; j < N(specs) && i % 3 == 0; j++) {
            struct stint_quota quota = quota_of(specs[j]);
            quota.rule = quota.derived.params_hash[0];
            statuses[j].quota = &quota;
            s.now_ns = asked_ns;
            assert_grows_then(&statuses[j]);
            latest_ns = s.now_ns > latest_ns ? s.now_ns : latest_ns;
        }
        s.now_ns = latest_ns + next_random(&seed) % 600;
    }
}

TEST(test_what_never_fits_never_grows)
{
    struct request_item item;
    serve(&s, NULL);
    struct request request = of_item(&item, "log 0/1s", 1);
    assert_true(ask(&s, &request)->statuses[0].grows_after_ns == STINT_NEVER_NS);
    request = of_item(&item, "log 0/1s", 0);
    assert_true(ask(&s, &request)->statuses[0].grows_after_ns == STINT_NEVER_NS);
    request = of_item(&item, "log 3/1s", 4);
    assert_true(ask(&s, &request)->statuses[0].grows_after_ns == STINT_NEVER_NS);
}

TEST(test_a_block_ends_before_anything_grows)
{
    struct request_item item;
    serve(&s, NULL);
    struct request request = of_item(&item, "log 3/1s", 1);
    request.verb = REQUEST_BLOCK;
    request.lifetime_ns = 5 * S;
    assert_int_equal(ask(&s, &request)->error, REPLY_DECIDED);
    request.verb = REQUEST_TAKE;
    assert_int_equal(ask(&s, &request)->statuses[0].grows_after_ns, 5 * S);
}

/* Nobody pays for what he did not ask for. */
TEST(test_it_is_told_where_it_is_wanted)
{
    struct request_item item;
    serve(&s, NULL);
    struct request request = of_item(&item, "log 3/1s", 1);
    request.wants_growth = false;
    assert_int_equal(ask(&s, &request)->statuses[0].grows_after_ns, 0);
    request.wants_growth = true;
    assert_int_equal(ask(&s, &request)->statuses[0].grows_after_ns, S);
}

/* The answer to an id is that of then; by now all has come back, and to the figure of then a second
 * is as good as any other: what counts is that there is one, since it is not "never used". */
TEST(test_an_answer_from_memory_has_one_too)
{
    struct request_item item;
    serve(&s, NULL);
    struct request request = of_item(&item, "log 3/1s", 2);
    request.id = span_of_text("id");
    ask(&s, &request);
    s.now_ns += 400 * MS;
    const struct reply *reply = ask(&s, &request);
    assert_true(reply->replayed);
    assert_int_equal(reply->statuses[0].decision.remaining, 1);
    assert_int_equal(reply->statuses[0].grows_after_ns, 600 * MS);
    s.now_ns += 5 * S;
    reply = ask(&s, &request);
    assert_true(reply->replayed);
    assert_int_equal(reply->statuses[0].grows_after_ns, S);
}
