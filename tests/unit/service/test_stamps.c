/* SPDX-License-Identifier: MIT */
/* The time that a reply tells is the one under which its units stand, though workers' clocks
 * differ.
 */
#include "unit/test_server.h"

#define BEHIND_MAX (3 * S) /* more than a table puts up with: skew_max is 1 s */

/* Worker 1 has come to the key, or to all of them, so much later than worker 0 comes now. */
static void come_late(struct test_server *s, const struct request *request, uint64_t behind_ns)
{
    struct service *other = service_new(s->server_state, 1);
    struct request_item elsewhere = {.quota = span_of_text("gcra 1/1s"),
                                     .key = span_of_text("elsewhere")};
    struct request one = {.verb = REQUEST_TAKE, .cost = 1, .items = &elsewhere, .n_items = 1};
    struct reply reply;
    /* The table knows of this time; of one that is less than a millisecond later it will not. */
    ask(s, &one);
    one = *request;
    one.verb = REQUEST_TAKE;
    one.cost = 1;
    service_ask(other, &one, &anybody, s->now_ns + behind_ns, &reply);
    assert_int_equal(reply.decision.outcome, STINT_ALLOW);
    service_free(other);
}

/* What was charged comes back under the time that the reply has told, and what others use stays. */
static void assert_comes_back(uint8_t verb, struct request *request, uint64_t behind_ns)
{
    struct test_server s;
    serve(&s, NULL);
    come_late(&s, request, behind_ns);
    request->verb = verb;
    request->cost = 2;
    assert_int_equal(ask(&s, request)->decision.outcome, STINT_ALLOW);
    assert_int_equal(s.reply.decision.granted, 2);
    request->granted_at_ns = s.reply.at_ns;
    request->has_granted_at = true;
    request->verb = REQUEST_REFUND;
    ask(&s, request);
    for (size_t i = 0; i < request->n_items; i++)
        assert_int_equal(s.reply.statuses[i].decision.granted, 2);
    s.now_ns += behind_ns;
    request->verb = REQUEST_PEEK;
    request->cost = 0;
    ask(&s, request);
    for (size_t i = 0; i < request->n_items; i++)
        assert_int_equal(s.reply.statuses[i].decision.remaining, 9);
    *request = (struct request){.items = request->items, .n_items = request->n_items};
    server_close(&s);
}

TEST(test_a_refund_finds_its_units_though_clocks_differ)
{
    static const uint8_t verbs[] = {REQUEST_TAKE, REQUEST_TAKE_UPTO, REQUEST_CHARGE};
    struct request_item items[] = {
        {.quota = span_of_text("log 10/1m"), .key = span_of_text("k")},
        {.quota = span_of_text("buckets 10/1m time_slack=20s"), .key = span_of_text("k")},
        {.quota = span_of_text("gcra 10/10m"), .key = span_of_text("k")},
    };
    for (uint64_t behind_ns = 1; behind_ns <= BEHIND_MAX; behind_ns = behind_ns * 7 + 3)
        for (size_t v = 0; v < N(verbs); v++)
            for (size_t first = 0; first < N(items); first++)
                for (size_t n = 1; first + n <= N(items); n++) {
                    struct request request = {.items = &items[first], .n_items = n};
                    assert_comes_back(verbs[v], &request, behind_ns);
                }
}

TEST(test_a_ticket_finds_its_units_though_clocks_differ)
{
    struct request_item items[] = {
        {.quota = span_of_text("log 10/1m"), .key = span_of_text("k")},
        {.quota = span_of_text("gcra 10/10m"), .key = span_of_text("k")},
    };
    for (uint64_t behind_ns = 1; behind_ns <= BEHIND_MAX; behind_ns = behind_ns * 7 + 3) {
        struct request request = {.items = items, .n_items = N(items)};
        struct test_server s;
        serve(&s, NULL);
        come_late(&s, &request, behind_ns);
        request.verb = REQUEST_RESERVE;
        request.cost = 2;
        assert_true(ask(&s, &request)->has_ticket);
        struct request cancel = {.verb = REQUEST_CANCEL, .ticket = s.reply.ticket};
        assert_int_equal(ask(&s, &cancel)->decision.granted, 2);
        server_close(&s);
    }
}
