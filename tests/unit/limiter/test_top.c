/* SPDX-License-Identifier: MIT */
/* Lists of the keys used most, as a program that embeds the library has them. */
#include "unit/test_quota.h"

#include <math.h>
#include <pthread.h>

#define MOST 16

static struct stint_top_key keys[MOST];

static struct stint_top *list_of(size_t n_keys, uint64_t half_life_ns)
{
    struct stint_top *top;
    const struct stint_top_options options = {.keys = n_keys, .half_life_ns = half_life_ns};
    assert_int_equal(stint_top_open(&top, &options, NULL), 0);
    return top;
}

static void note(struct stint_top *top, const char *key, uint32_t units, bool is_denied,
                 uint64_t now_ns)
{
    stint_top_note(top, key, strlen(key), units, is_denied, now_ns);
}

static void assert_near(double told, double expected)
{
    assert_true(fabs(told - expected) <= 1e-5 * (1 + expected));
}

static void assert_key(const struct stint_top_key *key, const char *text, double units,
                       double denied)
{
    assert_int_equal(key->key_len, strlen(text));
    assert_memory_equal(key->key, text, key->key_len);
    assert_near(key->units, units);
    assert_near(key->denied, denied);
}

TEST(test_a_score_halves_with_any_half_life)
{
    static const uint64_t half_lives[] = {S, 10 * S + 1, 60 * S, 60 * MINUTE, DAY, 365 * DAY};
    for (size_t i = 0; i < N(half_lives); i++) {
        uint64_t half_life_ns = half_lives[i];
        struct stint_top *top = list_of(8, half_life_ns);
        note(top, "k", 64, true, S);
        for (int halved = 0; halved < 5; halved++) {
            uint64_t now_ns = S + (uint64_t)halved * half_life_ns;
            assert_int_equal(stint_top_read(&top, 1, STINT_TOP_UNITS, now_ns, keys, MOST), 1);
            assert_key(&keys[0], "k", 64 / pow(2, halved), 64 / pow(2, halved));
        }
        /* One unit in each hundredth of a half-life, for ever. */
        for (int n = 0; n < 3000; n++)
            note(top, "steady", 1, false, S + (uint64_t)n * (half_life_ns / 100));
        stint_top_read(&top, 1, STINT_TOP_UNITS, S + 30 * half_life_ns, keys, MOST);
        double per_s = 100 * (double)S / (double)half_life_ns;
        assert_true(fabs(keys[0].units_per_s / per_s - 1) < 0.01);
        stint_top_close(top);
    }
}

TEST(test_lists_are_added_up)
{
    struct stint_top *tops[] = {list_of(64, 0), list_of(8, 0), list_of(0, 60 * MINUTE)};
    for (uint32_t i = 0; i < 3; i++)
        note(tops[i], "shared", i + 1, i == 2, S + i);
    note(tops[0], "own", 5, false, S);
    assert_int_equal(stint_top_read(tops, 3, STINT_TOP_UNITS, S + 2, keys, MOST), 2);
    assert_key(&keys[0], "shared", 6, 3);
    assert_int_equal(keys[0].last_ns, S + 2);
    assert_key(&keys[1], "own", 5, 0);
    assert_int_equal(stint_top_read(tops, 3, STINT_TOP_DENIED, S + 2, keys, MOST), 1);
    assert_key(&keys[0], "shared", 6, 3);
    assert_int_equal(stint_top_read(tops, 3, STINT_TOP_UNITS, S + 2, keys, 1), 1);
    assert_int_equal(stint_top_read(tops, 3, STINT_TOP_UNITS, S + 2, NULL, 0), 0);
    assert_int_equal(stint_top_read(tops, 0, STINT_TOP_UNITS, S + 2, keys, MOST), 0);
    for (size_t i = 0; i < 3; i++)
        stint_top_close(tops[i]);
}

TEST(test_keys_are_any_bytes_and_told_apart_by_all)
{
    static char long_keys[2][STINT_KEY_MAX];
    struct stint_top *top = list_of(64, 0);
    memset(long_keys, 'x', sizeof(long_keys));
    long_keys[1][STINT_KEY_MAX - 1] = 'y';
    for (int i = 0; i < 2; i++)
        stint_top_note(top, long_keys[i], STINT_KEY_MAX, 2, false, S);
    stint_top_note(top, "a\0b", 3, 1, false, S);
    stint_top_note(top, NULL, 0, 0, true, S); /* the empty key; 0 units count as one */
    assert_int_equal(stint_top_read(&top, 1, STINT_TOP_UNITS, S, keys, MOST), 4);
    for (int i = 0; i < 2; i++)
        assert_true(keys[i].is_cut && keys[i].key_len == STINT_TOP_KEY_MAX);
    assert_int_equal(keys[2].key_len + keys[3].key_len, 3);
    assert_false(keys[2].is_cut || keys[3].is_cut);
    assert_near(keys[2].units + keys[3].units, 2);
    stint_top_close(top);
}

/* What a score has too much is bounded by over_by, with 8 places for 1,000 keys. */
TEST(test_a_score_is_never_too_low_and_over_by_bounds_it)
{
    struct stint_top *top = list_of(8, 0);
    double used[1000] = {0}, sum = 0;
    uint64_t seed = 5;
    for (int i = 0; i < 20000; i++) {
        char text[16];
        unsigned key = (unsigned)(next_random(&seed) % 1000);
        key = i % 3 == 0 ? 7 : key;
        snprintf(text, sizeof(text), "%u", key);
        note(top, text, 1, false, S);
        used[key]++;
    }
    assert_int_equal(stint_top_read(&top, 1, STINT_TOP_UNITS, S, keys, MOST), 8);
    assert_int_equal(atoi((const char *)keys[0].key), 7);
    for (int i = 0; i < 8; i++) {
        double really = used[atoi((const char *)keys[i].key)];
        assert_true(keys[i].units >= really - 1e-6);
        assert_true(keys[i].units - keys[i].over_by <= really + 1e-6);
        sum += keys[i].units;
    }
    assert_near(sum, 20000); /* places hand their scores on */
    stint_top_close(top);
}

TEST(test_what_is_out_of_range_is_refused)
{
    static const struct stint_top_options refused[] = {
        {.keys = STINT_TOP_KEYS_MAX + 1},
        {.half_life_ns = STINT_TOP_HALF_LIFE_MIN_NS - 1},
        {.half_life_ns = STINT_TOP_HALF_LIFE_MAX_NS + 1},
        {.half_life_ns = UINT64_MAX},
    };
    struct stint_top *top = NULL;
    struct stint_error error;
    for (size_t i = 0; i < N(refused); i++) {
        assert_int_equal(stint_top_open(&top, &refused[i], &error), STINT_E_RANGE);
        assert_int_equal(error.code, STINT_E_RANGE);
        assert_non_null(strstr(error.message, i == 0 ? "65536" : "365 days"));
        assert_null(top);
    }
    assert_int_equal(stint_top_open(&top, NULL, NULL), 0);
    note(top, "late", 1, false, 100 * S);
    note(top, "late", 1, false, 1); /* a time that is earlier counts as the latest */
    assert_int_equal(stint_top_read(&top, 1, STINT_TOP_UNITS, 0, keys, MOST), 1);
    assert_key(&keys[0], "late", 2, 0);
    stint_top_close(top);
    stint_top_close(NULL);
}

#define NOTES 200000

static void *note_many(void *arg)
{
    for (uint64_t i = 0; i < NOTES; i++)
        stint_top_note(arg, &i, 1, 1, false, S); /* 256 keys */
    return NULL;
}

static double units_of_all(struct stint_top *tops[2], struct stint_top_key some[300])
{
    int n = stint_top_read(tops, 2, STINT_TOP_UNITS, S, some, 300);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += some[i].units;
    return sum;
}

/* Two threads note, each in its own list; a third reads. */
TEST(test_lists_are_read_while_they_are_noted_in)
{
    struct stint_top *tops[] = {list_of(1024, 0), list_of(1024, 0)};
    struct stint_top_key some[300];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, note_many, tops[i]), 0);
    for (int i = 0; i < 50; i++)
        assert_in_range(stint_top_read(tops, 2, STINT_TOP_UNITS, S, some, 300), 0, 256);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    /* Notes that met a reading are left out: how many depends on the scheduler. */
    double sum = units_of_all(tops, some);
    assert_true(sum <= 2 * NOTES + 0.5);
    for (uint64_t i = 0; i < 256; i++)
        stint_top_note(tops[i % 2], &i, 1, 1, false, S);
    assert_float_equal(units_of_all(tops, some), sum + 256, 0.5);
    for (int i = 0; i < 2; i++)
        stint_top_close(tops[i]);
}
