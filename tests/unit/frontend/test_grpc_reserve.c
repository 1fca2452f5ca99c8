/* SPDX-License-Identifier: MIT */
/*
 * Kuadrant's service over a gRPC connection in virtual time: what its four methods take from a
 * budget that Envoy's method asks too.
 */
#include "unit/fake_store.h"
#include "unit/test_access.h"
#include "unit/test_grpc_client.h"

#include "proto/grpc/kuadrant.h"

#define KUADRANT "/kuadrant.service.ratelimit.v1.RateLimitService/"
#define BUDGET 1000
#define YAML                                                                                       \
    "domain: d\n"                                                                                  \
    "descriptors:\n"                                                                               \
    "  - key: team\n"                                                                              \
    "    rate_limit: {unit: hour, requests_per_unit: 1000, algorithm: fixed_window}\n"             \
    "  - key: user\n"                                                                              \
    "    rate_limit: {unit: hour, requests_per_unit: 100, algorithm: fixed_window}\n"              \
    "  - key: model\n"                                                                             \
    "    rate_limit: {unlimited: true}\n"                                                          \
    "  - key: loose\n"                                                                             \
    "    rate_limit: {unit: hour, requests_per_unit: 1000, algorithm: fixed_window,"               \
    "                 on_expiry: release}\n"                                                       \
    "  - key: shared\n"                                                                            \
    "    rate_limit: {unit: hour, requests_per_unit: 1000, store: red}\n"

static struct grpc_client *grpc;

SETUP
{
    grpc = grpc_open(YAML, NULL, NULL);
}

TEARDOWN
{
    grpc_close(grpc);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

enum { AMOUNT = 3, TTL, ID = 3, ACTUAL };

/* What a client keeps of a Reserve. */
struct held {
    unsigned code;
    char id[64];
};

static struct heard *call_wire(const char *method, const struct wire *wire)
{
    char path[128];
    snprintf(path, sizeof(path), KUADRANT "%s", method);
    struct heard *heard = call_path(grpc, path, wired(wire));
    exchange(grpc);
    return heard;
}

static struct held held_of(const struct heard *heard)
{
    struct held held = {0};
    assert_status(heard, GRPC_OK, "");
    struct span answer = message_of(heard), id = wire_bytes_of(answer, 2, 0);
    assert_true(id.len < sizeof(held.id));
    memcpy(held.id, id.ptr, id.len);
    held.code = (unsigned)wire_number_of(answer, 1);
    return held;
}

static struct wire reserve_wire(const char *text, uint64_t amount, uint64_t ttl_s)
{
    struct wire wire = wire_request("d", text), ttl = {.len = 0};
    wire_number(&wire, AMOUNT, amount);
    wire_number(&ttl, 1, ttl_s);
    if (ttl_s > 0)
        wire_message(&wire, TTL, &ttl);
    return wire;
}

static struct held reserve(const char *text, uint64_t amount)
{
    struct wire wire = reserve_wire(text, amount, 30);
    return held_of(call_wire("Reserve", &wire));
}

static const struct heard *commit(const char *text, const char *id, uint64_t actual)
{
    struct wire wire = {.len = 0};
    if (text != NULL)
        wire = wire_request("d", text);
    wire_text(&wire, ID, id);
    wire_number(&wire, ACTUAL, actual);
    return call_wire("Commit", &wire);
}

static void assert_committed(const struct heard *heard, bool is_released)
{
    assert_status(heard, GRPC_OK, "");
    assert_int_equal(wire_number_of(message_of(heard), 1), is_released);
}

/* CheckRateLimit, Report: the overall code. */
static unsigned envoy(const char *method, const char *text, uint32_t hits)
{
    struct wire wire = wire_request("d", text);
    wire_number(&wire, 3, hits);
    const struct heard *heard = call_wire(method, &wire);
    assert_status(heard, GRPC_OK, "");
    return (unsigned)wire_number_of(message_of(heard), 1);
}

static unsigned take_hits(const char *text, uint32_t hits)
{
    struct wire wire = wire_request("d", text);
    wire_number(&wire, 3, hits);
    struct heard *heard = call_path(grpc, SHOULD_RATE_LIMIT, wired(&wire));
    exchange(grpc);
    assert_status(heard, GRPC_OK, "");
    return (unsigned)wire_number_of(message_of(heard), 1);
}

#define assert_left(text, n) assert_int_equal(left(&grpc->s, text), n)

/* ---- Reservations ---------------------------------------------------------------------------- */

TEST(an_estimate_is_charged_at_once)
{
    struct held first = reserve("team=a", 700);
    assert_int_equal(first.code, RLS_CODE_OK);
    assert_int_equal(strlen(first.id), 48);
    assert_left("team=a", 300);
    assert_int_equal(take_hits("team=a", 301), RLS_OVER_LIMIT);
    struct held second = reserve("team=a", 301);
    assert_int_equal(second.code, RLS_OVER_LIMIT);
    assert_string_equal(second.id, "");
    assert_int_equal(take_hits("team=a", 300), RLS_CODE_OK);
    assert_left("team=a", 0);
    assert_int_equal(reserve("team=b", BUDGET).code, RLS_CODE_OK);
}

TEST(a_commit_corrects_the_estimate)
{
    struct held down = reserve("team=a", 700), up = reserve("team=b", 200);
    struct held same = reserve("team=c", 500), none = reserve("team=e", 500);
    assert_committed(commit("team=a", down.id, 150), true);
    assert_left("team=a", 850);
    assert_committed(commit(NULL, up.id, 650), true);
    assert_left("team=b", 350);
    assert_committed(commit("team=c", same.id, 500), true);
    assert_left("team=c", 500);
    assert_committed(commit("team=e", none.id, 0), true);
    assert_left("team=e", BUDGET);
    /* Use that went past the budget is a debt, and nothing fits until it is gone. */
    struct held over = reserve("team=f", 900);
    assert_committed(commit("team=f", over.id, 1200), true);
    assert_int_equal(take_hits("team=f", 1), RLS_OVER_LIMIT);
}

TEST(every_descriptor_is_charged_or_none)
{
    assert_int_equal(reserve("team=a; user=u", 101).code, RLS_OVER_LIMIT);
    assert_left("team=a", BUDGET);
    assert_left("user=u", 100);
    struct held held = reserve("team=a; user=u; model=m; other=x", 90);
    assert_int_equal(held.code, RLS_CODE_OK);
    assert_left("team=a", 910);
    assert_left("user=u", 10);
    assert_committed(commit("team=a; user=u; model=m; other=x", held.id, 40), true);
    assert_left("team=a", 960);
    assert_left("user=u", 60);
}

TEST(a_commit_is_good_once)
{
    struct held held = reserve("team=a", 700);
    assert_committed(commit("team=a", held.id, 100), true);
    for (unsigned i = 0; i < 3; i++)
        assert_status(commit("team=a", held.id, 900), GRPC_NOT_FOUND,
                      "was committed, has ended, or never was; nothing was charged");
    assert_left("team=a", 900);
    held.id[40] ^= 1; /* another nonce, or no digit */
    assert_true(commit("team=a", held.id, 1)->status != GRPC_OK);
    assert_left("team=a", 900);
}

TEST(what_is_not_committed_stays_charged)
{
    struct wire wire = reserve_wire("team=a", 700, 0);
    struct held long_one = reserve("team=a", 100),
                by_default = held_of(call_wire("Reserve", &wire));
    pass(grpc, 30 * NS_PER_S - 1);
    assert_committed(commit("team=a", long_one.id, 50), true);
    long_one = reserve("team=a", 100);
    pass(grpc, 30 * NS_PER_S);
    assert_status(commit("team=a", long_one.id, 0), GRPC_NOT_FOUND, "has ended");
    pass(grpc, 1); /* a minute after it was made */
    assert_status(commit("team=a", by_default.id, 0), GRPC_NOT_FOUND, "has ended");
    assert_left("team=a", BUDGET - 50 - 100 - 700);
}

TEST(what_a_rule_releases_comes_back)
{
    struct held held = reserve("loose=a; team=a", 700);
    pass(grpc, 30 * NS_PER_S);
    stint_expire(grpc->s.table, grpc->s.now_ns, 64);
    assert_left("loose=a", BUDGET);
    assert_left("team=a", 300);
    assert_status(commit("loose=a; team=a", held.id, 1), GRPC_NOT_FOUND, "has ended");
    assert_left("loose=a", BUDGET);
}

TEST(a_commit_of_other_descriptors_changes_nothing)
{
    struct held held = reserve("team=a", 700);
    assert_status(commit("team=b", held.id, 0), GRPC_INVALID_ARGUMENT, "other descriptors");
    assert_left("team=a", 300);
    assert_left("team=b", BUDGET);
    assert_committed(commit("team=a", held.id, 200), true);
    assert_left("team=a", 800);
}

TEST(an_amount_of_0_asks_and_its_commit_charges)
{
    struct held held = reserve("team=a", 0);
    assert_int_equal(held.code, RLS_CODE_OK);
    assert_string_equal(held.id, "");
    assert_committed(commit("team=a", held.id, 1000), false);
    assert_left("team=a", 0);
    assert_int_equal(reserve("team=a", 0).code, RLS_OVER_LIMIT);
    assert_committed(commit("team=a", "", 0), false);
}

TEST(what_nothing_limits_is_granted_without_an_id)
{
    struct held held = reserve("model=m; other=x", UINT32_MAX);
    assert_int_equal(held.code, RLS_CODE_OK);
    assert_string_equal(held.id, "");
    assert_committed(commit("model=m; other=x", held.id, 5), false);
}

TEST(what_can_never_fit_is_over_the_limit)
{
    assert_int_equal(reserve("team=a", BUDGET + 1).code, RLS_OVER_LIMIT);
    struct wire wire = reserve_wire("team=a", UINT32_MAX + UINT64_C(1), 1);
    assert_status(call_wire("Reserve", &wire), GRPC_INVALID_ARGUMENT, "0 to 4294967295 (");
    wire = reserve_wire("team=a", 1, 31536001);
    assert_status(call_wire("Reserve", &wire), GRPC_INVALID_ARGUMENT, "365 days");
    assert_left("team=a", BUDGET);
}

/* ---- Check and report ------------------------------------------------------------------------ */

TEST(check_takes_nothing_and_report_is_not_refused)
{
    assert_int_equal(envoy("CheckRateLimit", "team=a", 1000), RLS_CODE_OK);
    assert_int_equal(envoy("CheckRateLimit", "team=a", 1001), RLS_OVER_LIMIT);
    assert_left("team=a", BUDGET);
    assert_int_equal(envoy("Report", "team=a", 400), RLS_CODE_OK);
    assert_left("team=a", 600);
    envoy("Report", "team=a; user=u", 900);
    assert_int_equal(envoy("CheckRateLimit", "team=a", 0), RLS_OVER_LIMIT);
    assert_int_equal(envoy("CheckRateLimit", "user=u", 1), RLS_OVER_LIMIT);
    assert_int_equal(take_hits("team=a", 1), RLS_OVER_LIMIT);
}

/* A wrapped 0, as gateways ask before a request whose tokens are not known yet. */
TEST(a_check_of_0_asks_for_one_unit)
{
    struct wire wire = {.len = 0}, descriptor = wire_descriptor("team=a");
    wire_hits(&descriptor, 0);
    wire_text(&wire, 1, "d");
    wire_message(&wire, 2, &descriptor);
    assert_code(call_wire("CheckRateLimit", &wire), RLS_CODE_OK);
    envoy("Report", "team=a", BUDGET);
    assert_code(call_wire("CheckRateLimit", &wire), RLS_OVER_LIMIT);
}

TEST(a_negative_report_gives_back)
{
    struct wire wire = {.len = 0}, descriptor = wire_descriptor("team=a");
    assert_int_equal(take_hits("team=a", 400), RLS_CODE_OK);
    wire_hits(&descriptor, 100);
    wire_number(&descriptor, 4, 1);
    wire_text(&wire, 1, "d");
    wire_message(&wire, 2, &descriptor);
    assert_code(call_wire("Report", &wire), RLS_CODE_OK);
    assert_left("team=a", 700);
}

/* ---- A thousand at once ---------------------------------------------------------------------- */

#define EACH 17 /* few enough tickets for the table of these tests */

/*
 * On one connection, with Envoy's calls between them: what is granted is never more than the
 * budget, and what is committed less comes back.
 */
TEST(a_thousand_reservations_stay_within_the_budget)
{
    static struct heard *asked[1000], *takes[500];
    uint64_t granted = 0, taken = 0, used = 0;
    struct wire wire = reserve_wire("team=a", EACH, 30);
    exchange(grpc);
    for (size_t i = 0; i < N(asked); i++) {
        asked[i] = call_path(grpc, KUADRANT "Reserve", wired(&wire));
        if (i % 2 == 0)
            takes[i / 2] = call_limit(grpc, "team=a", NULL);
    }
    exchange(grpc);
    static struct held held[1000];
    for (size_t i = 0; i < N(asked); i++) {
        held[i] = held_of(asked[i]);
        granted += held[i].code == RLS_CODE_OK ? EACH : 0;
        assert_int_equal(held[i].id[0] != '\0', held[i].code == RLS_CODE_OK);
    }
    for (size_t i = 0; i < N(takes); i++)
        taken += wire_number_of(message_of(takes[i]), 1) == RLS_CODE_OK;
    assert_int_equal(granted + taken, BUDGET);
    forget_calls(grpc);
    for (size_t i = 0; i < N(held); i++) {
        if (held[i].id[0] == '\0')
            continue;
        assert_committed(commit("team=a", held[i].id, i % (EACH + 1)), true);
        used += i % (EACH + 1);
    }
    assert_true(used < granted);
    assert_left("team=a", BUDGET - taken - used);
}

/* ---- A store that answers later -------------------------------------------------------------- */

/* What waits is read again from bytes that the connection has kept; its id is of a store. */
TEST(a_reservation_waits_for_its_store)
{
    static struct backend *stores[1];
    static struct fake_store red;
    const struct field soon[] = {{"grpc-timeout", "5m"}, {NULL, NULL}};
    struct wire wire = reserve_wire("shared=a", 700, 30);
    fake_store_begin(&red);
    stores[0] = &red.store;
    service_set_stores(
        grpc->s.service,
        &(struct evaluation_stores){.stores = stores, .n_stores = 1, .timeout_ns = 50 * NS_PER_MS});
    struct heard *heard = call_wire("Reserve", &wire);
    struct heard *late = call_bytes(grpc, KUADRANT "Reserve", framed(wired(&wire)), soon);
    exchange(grpc);
    assert_int_equal(red.n_asks, 2);
    assert_false(heard->is_closed || late->is_closed);
    pass(grpc, 5 * NS_PER_MS);
    exchange(grpc);
    assert_status(late, GRPC_DEADLINE_EXCEEDED, "the store has not answered in time");
    fake_let(&red, 0, grpc->s.now_ns);
    exchange(grpc);
    assert_code(heard, RLS_CODE_OK);
    assert_true(wire_bytes_of(message_of(heard), 2, 0).len > 48);
    struct heard *over = call_wire("Reserve", &wire);
    fake_let(&red, 2, grpc->s.now_ns);
    exchange(grpc);
    assert_code(over, RLS_OVER_LIMIT);
    /* A drained connection ends when the last of them is answered. */
    struct heard *last = call_wire("Report", &wire);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    exchange(grpc);
    assert_false(is_over(grpc));
    fake_let(&red, 3, grpc->s.now_ns);
    exchange(grpc);
    assert_status(last, GRPC_OK, "");
    grpc_close(grpc);
    fake_store_end(&red);
    grpc = grpc_open(YAML, NULL, NULL);
}

/* ---- Who may --------------------------------------------------------------------------------- */

TEST(every_method_wants_a_token)
{
    static const char *const methods[] = {"CheckRateLimit", "Report", "Reserve", "Commit"};
    struct access *access = access_of("m metrics 0123456789abcdef0123456789abcdef");
    grpc_close(grpc);
    grpc = grpc_open(YAML, NULL, access);
    struct wire wire = wire_request("d", "team=a");
    const struct field more[] = {{"authorization", "Bearer 0123456789abcdef0123456789abcdef"},
                                 {NULL, NULL}};
    for (size_t i = 0; i < N(methods); i++) {
        char path[128];
        assert_status(call_wire(methods[i], &wire), GRPC_UNAUTHENTICATED, "a token is required");
        snprintf(path, sizeof(path), KUADRANT "%s", methods[i]);
        struct heard *heard = call_bytes(grpc, path, framed(wired(&wire)), more);
        exchange(grpc);
        assert_status(heard, GRPC_PERMISSION_DENIED, "roles");
    }
    assert_left("team=a", BUDGET);
}
