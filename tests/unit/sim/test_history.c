/* SPDX-License-Identifier: MIT */
/* The history of a key against counts made in other ways, and what a picture shows of it. */
#include "unit/test_quota.h"

#include "algorithm/algorithm.h"
#include "base/ns.h"
#include "sim/judge/history.h"

enum { EVENTS_MAX = 400 };

/* Lets the quota decide over the events. */
static void decide(const struct stint_quota *quota, struct history_event *events, size_t n_events)
{
    void *state = aligned_alloc(16, (stint_state_size(quota) + 15) / 16 * 16);
    assert_non_null(state);
    stint_state_init(quota, state, 0);
    for (size_t i = 0; i < n_events; i++) {
        struct stint_ask ask = {.now_ns = events[i].at_ns, .cost = events[i].cost};
        events[i].granted = stint_state_ask(quota, state, &ask).granted;
    }
    free(state);
}

static size_t random_events(struct history_event *events, uint64_t seed, uint64_t mean_gap_ns)
{
    uint64_t now_ns = 0;
    for (size_t i = 0; i < EVENTS_MAX; i++) {
        if (next_random(&seed) % 3 > 0)
            now_ns += next_random(&seed) % (2 * mean_gap_ns);
        events[i] = (struct history_event){now_ns, 1 + (uint32_t)(next_random(&seed) % 12), 0, 0};
    }
    return EVENTS_MAX;
}

static struct history history_of(const struct stint_quota *quota,
                                 const struct history_event *events, size_t n_events)
{
    struct history history;
    assert_int_equal(history_init(&history, quota, events, n_events, NULL), 0);
    return history;
}

/* ---- The history ----------------------------------------------------------------------------- */

/* A unit is back exactly one period after its use, and not a nanosecond earlier. */
TEST(test_units_return_one_period_after_their_use)
{
    struct stint_quota quota = quota_of("log 500/10m");
    struct history_event events[] = {{5 * NS_PER_S, 300, 300, 0}, {9 * NS_PER_S, 200, 200, 0}};
    struct history history = history_of(&quota, events, 2);
    const struct history_row *row = history_at(&history, 605 * NS_PER_S - 1);
    assert_int_equal(row->used, 500);
    assert_int_equal(row->returned, 0);
    assert_int_equal(row->free_exactly, 0);
    row = history_at(&history, 605 * NS_PER_S);
    assert_int_equal(row->returned, 300);
    assert_int_equal(row->free_believed, 300);
    row = history_at(&history, 609 * NS_PER_S);
    assert_int_equal(row->returned, 500);
    assert_int_equal(history.rows[history.n_rows - 1].at_ns, 609 * NS_PER_S);
    assert_int_equal(history_at(&history, 0)->used, 0);
    assert_int_equal(history.n_groups, 0);
    history_deinit(&history);
}

/* Form A: the early units of a bucket are held until its last use is one period old. */
TEST(test_a_bucket_by_time)
{
    struct stint_quota quota = quota_of("buckets 500/10m time_slack=1m");
    struct history_event events[] = {
        {0, 100, 100, 0}, {30 * NS_PER_S, 100, 100, 0}, {60 * NS_PER_S, 7, 7, 0}};
    struct history history = history_of(&quota, events, 3);
    assert_int_equal(history.n_groups, 2);
    assert_int_equal(history.groups[0].first_ns, 0);
    assert_int_equal(history.groups[0].last_ns, 30 * NS_PER_S);
    assert_int_equal(history.groups[0].returns_ns, 630 * NS_PER_S);
    assert_int_equal(history.groups[0].units, 200);
    assert_int_equal(history.groups[1].below, 200);
    assert_int_equal(history.groups[1].units, 7);
    const struct history_row *row = history_at(&history, 600 * NS_PER_S);
    assert_int_equal(row->free_exactly, 393);
    assert_int_equal(row->free_believed, 293);
    assert_int_equal(history_at(&history, 630 * NS_PER_S - 1)->free_believed, 293);
    assert_int_equal(history_at(&history, 630 * NS_PER_S)->free_believed, 493);
    assert_int_equal(history_at(&history, 660 * NS_PER_S)->free_believed, 500);
    history_deinit(&history);
}

/* Form B: one take may fill several buckets, which lie on top of each other. */
TEST(test_buckets_by_count)
{
    struct stint_quota quota = quota_of("buckets 500/10m count_slack=50");
    struct history_event events[] = {{0, 120, 120, 0}, {NS_PER_MIN, 40, 40, 0}};
    struct history history = history_of(&quota, events, 2);
    static const struct history_group told[] = {
        {0, 0, 600 * NS_PER_S, 0, 50},
        {0, 0, 600 * NS_PER_S, 50, 50},
        {0, NS_PER_MIN, 660 * NS_PER_S, 100, 50},
        {NS_PER_MIN, NS_PER_MIN, 660 * NS_PER_S, 150, 10},
    };
    assert_int_equal(history.n_groups, 4);
    assert_memory_equal(history.groups, told, sizeof(told));
    assert_int_equal(history_at(&history, 600 * NS_PER_S)->free_exactly, 460);
    assert_int_equal(history_at(&history, 600 * NS_PER_S)->free_believed, 440);
    history_deinit(&history);
}

/* Units of the groups that are not back at an instant. */
static uint64_t units_held(const struct history *history, uint64_t at_ns)
{
    uint64_t units = 0;
    for (size_t i = 0; i < history->n_groups; i++)
        if (history->groups[i].first_ns <= at_ns && at_ns < history->groups[i].returns_ns)
            units += history->groups[i].units;
    return units;
}

/* Units of the groups are those in use, as soon as all of them have had their last use. */
static void check_groups(const struct history *history, const char *spec)
{
    uint64_t below = 0;
    for (size_t i = 0; i < history->n_groups; i++) {
        const struct history_group *group = &history->groups[i];
        assert_int_equal(group->below, below);
        below += group->units;
        if (group->first_ns > group->last_ns ||
            group->returns_ns < group->last_ns + history->period_ns)
            fail_msg("%s: group %zu returns early", spec, i);
        if (i > 0 && group->returns_ns < history->groups[i - 1].returns_ns)
            fail_msg("%s: group %zu overtakes", spec, i);
    }
    assert_int_equal(below, history->used);
}

/*
 * What the limiter says is free is the limit less the groups that are not back, at every instant at
 * which anything changes; and what is free exactly is what a count over all events says, which is
 * never less.
 */
TEST(test_belief_is_the_limit_less_the_groups)
{
    static const char *const specs[] = {
        "buckets 50/1m time_slack=7s",
        "buckets 50/1m count_slack=6",
        "buckets 50/1m time_slack=7s count_slack=6",
        "buckets 300/1m count_slack=2",
        "window 50/1m",
        "window 50/1m resolution=10",
        "window 7/1m",
        "window 500/1m resolution=12",
    };
    static struct history_event events[EVENTS_MAX];
    for (size_t s = 0; s < N(specs); s++)
        for (uint64_t seed = 1; seed <= 12; seed++) {
            struct stint_quota quota = quota_of(specs[s]);
            size_t n_events = random_events(events, seed, seed % 3 == 0 ? 20 * NS_PER_S : NS_PER_S);
            decide(&quota, events, n_events);
            struct history history = history_of(&quota, events, n_events);
            check_groups(&history, specs[s]);
            for (size_t i = 0; i < history.n_rows; i++) {
                const struct history_row *row = &history.rows[i];
                bool is_last = i + 1 == history.n_rows || history.rows[i + 1].at_ns != row->at_ns;
                uint64_t used = 0;
                for (size_t e = 0; e < n_events; e++)
                    if (events[e].at_ns <= row->at_ns && row->at_ns < events[e].at_ns + NS_PER_MIN)
                        used += events[e].granted;
                if (!is_last)
                    continue;
                assert_int_equal(row->free_exactly, (int64_t)quota.limit - (int64_t)used);
                assert_true((int64_t)row->free_believed <= row->free_exactly);
                /* A group that still grows holds less than it will. */
                if (row->at_ns > events[n_events - 1].at_ns)
                    assert_int_equal(row->free_believed,
                                     quota.limit - units_held(&history, row->at_ns));
                else
                    assert_true(row->free_believed + units_held(&history, row->at_ns) >=
                                quota.limit);
            }
            assert_int_equal(history.rows[history.n_rows - 1].free_believed, quota.limit);
            history_deinit(&history);
        }
}

/* What belief says next is true to the nanosecond: a peek on a state agrees between the rows too.
 */
TEST(test_belief_holds_until_the_next_row)
{
    static const char *const specs[] = {"gcra 20/1m burst=5", "sliding_counter 30/1m",
                                        "fixed_window 30/1m align=first_use", "log 30/1m",
                                        "window 30/1m"};
    static struct history_event events[EVENTS_MAX];
    for (size_t s = 0; s < N(specs); s++) {
        struct stint_quota quota = quota_of(specs[s]);
        size_t n_events = random_events(events, 7 + s, 2 * NS_PER_S), next = 0;
        decide(&quota, events, n_events);
        struct history history = history_of(&quota, events, n_events);
        struct stint_cell16 cell[512];
        assert_true(stint_state_size(&quota) <= sizeof(cell));
        stint_state_init(&quota, cell, 0);
        for (size_t i = 0; i + 1 < history.n_rows; i++) {
            const struct history_row *row = &history.rows[i];
            if (history.rows[i + 1].at_ns == row->at_ns)
                continue;
            for (; next < n_events && events[next].at_ns <= row->at_ns; next++) {
                struct stint_ask ask = {.now_ns = events[next].at_ns, .cost = events[next].cost};
                stint_state_ask(&quota, cell, &ask);
            }
            struct stint_ask peek = {.now_ns = history.rows[i + 1].at_ns - 1, .verb = STINT_PEEK};
            assert_int_equal(stint_state_ask(&quota, cell, &peek).remaining, row->free_believed);
        }
        history_deinit(&history);
    }
}

/* A window that is not strict is seen to admit twice its limit: less than nothing is free. */
TEST(test_what_is_given_too_early)
{
    struct stint_quota quota = quota_of("fixed_window 100/1m");
    struct history_event events[] = {{59 * NS_PER_S, 100, 100, 0}, {60 * NS_PER_S, 100, 100, 0}};
    struct history history = history_of(&quota, events, 2);
    assert_int_equal(history_at(&history, 60 * NS_PER_S)->free_exactly, -100);
    assert_int_equal(history_at(&history, 60 * NS_PER_S)->free_believed, 0);
    history_deinit(&history);
}

/* A denial is for want of room, by the slack of the algorithm, or somebody else's. */
TEST(test_why_it_was_denied)
{
    struct stint_quota quota = quota_of("buckets 10/1m count_slack=5");
    struct history_event events[] = {
        {0, 1, 1, 0},
        {NS_PER_S, 1, 0, 0}, /* would have been granted here */
        {30 * NS_PER_S, 9, 9, 0},
        {40 * NS_PER_S, 1, 0, 0}, /* all ten are in use */
        {60 * NS_PER_S, 1, 0, 0}, /* one is not, but its bucket is */
    };
    struct history history = history_of(&quota, events, 5);
    assert_int_equal(history.n_denials, 3);
    assert_int_equal(history.denials[0].why, HISTORY_ELSEWHERE);
    assert_int_equal(history.denials[1].why, HISTORY_NO_SPACE);
    assert_int_equal(history.denials[2].why, HISTORY_SLACK);
    assert_int_equal(history.n_no_space, 1);
    assert_int_equal(history.n_slack, 1);
    history_deinit(&history);
}

/* No event, no row; and a limit of 0 has a history without uses. */
TEST(test_nothing_to_tell)
{
    struct stint_quota quota = quota_of("window 0/1m");
    struct history_event event = {NS_PER_S, 1, 0, 0};
    struct history history = history_of(&quota, &event, 0);
    assert_int_equal(history.n_rows, 0);
    history_deinit(&history);
    history = history_of(&quota, &event, 1);
    assert_int_equal(history.used, 0);
    assert_int_equal(history.n_no_space, 1);
    history_deinit(&history);
}

/* ---- The groups of a state ------------------------------------------------------------------- */

/* Bunches that share a slot are groups of their own, and the short one holds what is left. */
TEST(test_bunches_of_a_window)
{
    struct stint_quota quota = quota_of("window 25/1m resolution=10");
    struct stint_cell16 cell = {{0, 0}};
    struct held_group groups[HELD_GROUPS_MAX];
    assert_int_equal(algorithm_groups(&quota, &cell, 0, groups), 0);
    struct stint_ask ask = {.now_ns = 3 * NS_PER_S, .cost = 25};
    assert_int_equal(stint_state_ask(&quota, &cell, &ask).granted, 25);
    assert_int_equal(algorithm_groups(&quota, &cell, 3 * NS_PER_S, groups), 9);
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(groups[i].units, i < 8 ? 3 : 1);
        assert_int_equal(groups[i].returns_ns, 66 * NS_PER_S); /* the slot ends at 6 s */
    }
    assert_int_equal(algorithm_groups(&quota, &cell, 66 * NS_PER_S - 1, groups), 9);
    assert_int_equal(algorithm_groups(&quota, &cell, 66 * NS_PER_S, groups), 0);
}

/* More buckets than HELD_RUNS_MAX are still told one by one. */
TEST(test_many_buckets)
{
    struct stint_quota quota = quota_of("buckets 500/10m count_slack=1");
    uint64_t *bytes = aligned_alloc(16, (stint_state_size(&quota) + 15) / 16 * 16);
    struct held_group groups[HELD_GROUPS_MAX];
    assert_non_null(bytes);
    stint_state_init(&quota, bytes, 0);
    for (uint64_t i = 0; i < 500; i++) {
        struct stint_ask ask = {.now_ns = i * NS_PER_S, .cost = 1};
        assert_int_equal(stint_state_ask(&quota, bytes, &ask).granted, 1);
    }
    assert_int_equal(algorithm_groups(&quota, bytes, 600 * NS_PER_S, groups), 499);
    assert_int_equal(groups[0].returns_ns, 601 * NS_PER_S);
    assert_int_equal(groups[498].units, 1);
    free(bytes);
}
