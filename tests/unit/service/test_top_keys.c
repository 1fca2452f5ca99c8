/* SPDX-License-Identifier: MIT */
/* Keys asked and denied most: found by name, however many others come by, and forgotten in time. */
#include "unit/test_quota.h"

#include "service/top_keys.h"

#include <math.h>

#define HALF_LIFE TOP_KEYS_HALF_LIFE_NS
#define MOST 20

static struct top_key keys[MOST];

static void note(struct top_keys *top_keys, unsigned worker, const char *name, uint32_t units,
                 bool denied, uint64_t now_ns)
{
    top_keys_note(
        top_keys, worker,
        &(struct top_keys_ask){
            .key = span_of_text(name), .units = units, .denied = denied, .now_ns = now_ns});
}

static void assert_key(const struct top_key *key, const char *name, double asked, double denied)
{
    assert_int_equal(key->name_len, strlen(name));
    assert_memory_equal(key->name, name, key->name_len);
    assert_true(fabs(key->asked - asked) < 1e-6 * (1 + asked));
    assert_true(fabs(key->denied - denied) < 1e-6 * (1 + denied));
}

TEST(test_the_most_asked_come_first)
{
    struct top_keys *top_keys = top_keys_new(1, 64, 0);
    assert_int_equal(top_keys_read(top_keys, TOP_KEYS_ASKED, S, keys, MOST), 0);
    note(top_keys, 0, "seldom", 1, false, S);
    for (int i = 0; i < 9; i++)
        note(top_keys, 0, "often", 1, i < 2, S);
    note(top_keys, 0, "dear", 0, true, S); /* a question counts as one unit */
    note(top_keys, 0, "dear", 4, true, S);
    assert_int_equal(top_keys_read(top_keys, TOP_KEYS_ASKED, S, keys, MOST), 3);
    assert_key(&keys[0], "often", 9, 2);
    assert_key(&keys[1], "dear", 5, 5);
    assert_key(&keys[2], "seldom", 1, 0);
    assert_int_equal(top_keys_read(top_keys, TOP_KEYS_DENIED, S, keys, MOST), 2);
    assert_key(&keys[0], "dear", 5, 5);
    assert_key(&keys[1], "often", 9, 2);
    assert_int_equal(top_keys_read(top_keys, TOP_KEYS_ASKED, S, keys, 1), 1);
    top_keys_free(top_keys);
}

TEST(test_a_score_halves_with_time)
{
    struct top_keys *top_keys = top_keys_new(1, 64, 0);
    note(top_keys, 0, "old", 64, true, S);
    for (int halved = 1; halved < 5; halved++) {
        uint64_t now_ns = S + (uint64_t)halved * HALF_LIFE;
        assert_int_equal(top_keys_read(top_keys, TOP_KEYS_ASKED, now_ns, keys, MOST), 1);
        assert_key(&keys[0], "old", 64 / pow(2, halved), 64 / pow(2, halved));
    }
    note(top_keys, 0, "new", 5, false, S + 4 * HALF_LIFE);
    assert_int_equal(top_keys_read(top_keys, TOP_KEYS_ASKED, S + 4 * HALF_LIFE, keys, MOST), 2);
    assert_key(&keys[0], "new", 5, 0);
    assert_key(&keys[1], "old", 4, 4);
    top_keys_free(top_keys);
}

/* Days of it: the factor is taken back now and then, and nothing overflows. */
TEST(test_scores_stay_right_over_weeks)
{
    struct top_keys *top_keys = top_keys_new(1, 64, 0);
    uint64_t now_ns = S;
    for (; now_ns < 30 * DAY; now_ns += HALF_LIFE)
        note(top_keys, 0, "steady", 8, false, now_ns);
    top_keys_read(top_keys, TOP_KEYS_ASKED, now_ns - HALF_LIFE, keys, MOST);
    assert_key(&keys[0], "steady", 16, 0); /* 8 + 4 + 2 + … */
    assert_int_equal(top_keys_read(top_keys, TOP_KEYS_ASKED, now_ns + 365 * DAY, keys, MOST), 1);
    assert_true(keys[0].asked < 1e-6);
    top_keys_free(top_keys);
}

/* A caller of 10 units a second has the score of one who asks 10 a second for ever. */
TEST(test_a_score_tells_a_rate)
{
    struct top_keys *top_keys = top_keys_new(1, 64, 0);
    for (uint64_t i = 0; i < 6000; i++)
        note(top_keys, 0, "ten", 1, true, S + i * S / 10);
    top_keys_read(top_keys, TOP_KEYS_ASKED, S + 600 * S, keys, MOST);
    assert_true(fabs(keys[0].asked_per_s - 10) < 0.2);
    assert_true(fabs(keys[0].denied_per_s - 10) < 0.2);
    top_keys_free(top_keys);
}

/* Ten that are asked a lot among 100,000 that come once, with room for 200 names. */
TEST(test_a_flood_hides_nobody)
{
    struct top_keys *top_keys = top_keys_new(1, 200, 0);
    uint64_t seed = 7;
    for (unsigned i = 0; i < 100000; i++) {
        char name[32];
        unsigned who = (unsigned)(next_random(&seed) % 20);
        snprintf(name, sizeof(name), who < 10 ? "heavy %u" : "other %u-%u", who, i);
        note(top_keys, 0, name, 1, false, S + i * MS);
    }
    assert_int_equal(top_keys_read(top_keys, TOP_KEYS_ASKED, 101 * S, keys, 10), 10);
    for (int i = 0; i < 10; i++) {
        assert_memory_equal(keys[i].name, "heavy ", 6);
        assert_true(keys[i].over_by <= keys[i].asked);
    }
    top_keys_free(top_keys);
}

TEST(test_workers_are_added_up_and_rules_told_apart)
{
    struct top_keys *top_keys = top_keys_new(3, 64, 0);
    const struct rule rule = {.domain = "shop", .path = "user", .id = 5};
    for (unsigned worker = 0; worker < 3; worker++)
        note(top_keys, worker, "k", worker + 1, worker == 2, S);
    top_keys_note(top_keys, 1,
                  &(struct top_keys_ask){&rule, span_of_text("k"), .units = 2, .now_ns = S});
    assert_int_equal(top_keys_read(top_keys, TOP_KEYS_ASKED, S, keys, MOST), 2);
    assert_key(&keys[0], "k", 6, 3);
    assert_string_equal(keys[0].domain, "");
    assert_key(&keys[1], "k", 2, 0);
    assert_string_equal(keys[1].domain, "shop");
    assert_string_equal(keys[1].rule, "user");
    top_keys_free(top_keys);
}

TEST(test_long_names_are_cut_and_told_apart)
{
    struct top_keys *top_keys = top_keys_new(1, 64, 0);
    char name[2][TOP_KEYS_NAME_MAX + 2];
    for (int i = 0; i < 2; i++) {
        memset(name[i], 'x', TOP_KEYS_NAME_MAX);
        name[i][TOP_KEYS_NAME_MAX] = (char)('a' + i);
        name[i][TOP_KEYS_NAME_MAX + 1] = '\0';
        note(top_keys, 0, name[i], 1, false, S);
    }
    assert_int_equal(top_keys_read(top_keys, TOP_KEYS_ASKED, S, keys, MOST), 2);
    assert_int_equal(keys[0].name_len, TOP_KEYS_NAME_MAX);
    assert_true(keys[0].cut && keys[1].cut);
    top_keys_free(top_keys);
}

/* At a million a second one of several is noted, and the sums come out right all the same. */
TEST(test_much_is_noted_in_part_and_counted_in_full)
{
    struct top_keys *top_keys = top_keys_new(1, 64, 0);
    uint64_t seed = 3;
    for (unsigned i = 0; i < 1000000; i++)
        note(top_keys, 0, next_random(&seed) % 4 == 0 ? "quarter" : "rest", 1, i % 2 == 0,
             S + i * US);
    assert_int_equal(top_keys_read(top_keys, TOP_KEYS_ASKED, 2 * S, keys, MOST), 2);
    assert_memory_equal(keys[0].name, "rest", 4);
    assert_true(fabs(keys[0].asked - 750000) < 30000);
    assert_true(fabs(keys[1].asked - 250000) < 20000);
    assert_true(fabs(keys[0].denied - 375000) < 20000);
    top_keys_free(top_keys);
}
