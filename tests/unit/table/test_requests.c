/* SPDX-License-Identifier: MIT */
/* Answers to requests with an id: the same is said again, and what cannot be said is not made up.
 */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "table/requests.h"

#define LIFETIME (10 * MINUTE)

static struct stint_table *open_table(uint32_t requests, const char *file)
{
    const struct stint_table_options options = {.path = file,
                                                .keys = 48,
                                                .keys16 = 48,
                                                .tickets = 4,
                                                .requests = requests,
                                                .hash_key = {1, 2},
                                                .clock = STINT_CLOCK_VIRTUAL};
    return must_open_table(&options);
}

/* Who comes with an id at a time, and what it found. */
struct exchange {
    enum requests_found found;
    struct requests_claim claim;
    struct requests_answer answer;
};

static struct exchange come(struct stint_table *table, uint64_t id, uint64_t fingerprint,
                            uint64_t now_ns)
{
    struct exchange exchange = {0};
    const struct requests_ask ask = {requests_hash(table, &id, sizeof(id)), fingerprint, now_ns,
                                     LIFETIME};
    exchange.found = requests_begin(table, &ask, &exchange.claim, &exchange.answer);
    return exchange;
}

static struct requests_answer answer_of(uint32_t granted)
{
    return (struct requests_answer){
        .decision = {.outcome = STINT_ALLOW, .granted = granted, .limit = 100, .remaining = 7},
        .ticket = {granted, 2},
        .at_ns = 3,
    };
}

static void record(struct stint_table *table, uint64_t id, uint32_t granted, uint64_t now_ns)
{
    struct exchange exchange = come(table, id, 1, now_ns);
    const struct requests_answer answer = answer_of(granted);
    assert_int_equal(exchange.found, REQUESTS_NEW);
    assert_true(requests_end(table, &exchange.claim, &answer));
}

static void assert_same(struct stint_table *table, uint64_t id, uint32_t granted, uint64_t now_ns)
{
    const struct requests_answer expected = answer_of(granted);
    struct exchange exchange = come(table, id, 1, now_ns);
    assert_int_equal(exchange.found, REQUESTS_SAME);
    assert_memory_equal(&exchange.answer, &expected, sizeof(expected));
}

SETUP
{
    name_path();
}

TEARDOWN
{
    remove_file();
}

TEST(test_a_retry_gets_the_same_answer_for_its_lifetime)
{
    struct stint_table *table = open_table(100, NULL);
    record(table, 5, 3, S);
    assert_same(table, 5, 3, S);
    assert_same(table, 5, 3, S + LIFETIME - 1);
    assert_int_equal(come(table, 6, 1, S).found, REQUESTS_NEW);
    assert_int_equal(come(table, 5, 1, S + LIFETIME).found, REQUESTS_NEW);
    stint_table_close(table);
}

TEST(test_another_body_is_told_so)
{
    struct stint_table *table = open_table(100, NULL);
    struct exchange first = come(table, 5, 1, S);
    assert_int_equal(come(table, 5, 2, S).found, REQUESTS_OTHER_BODY); /* decided or not */
    const struct requests_answer answer = answer_of(1);
    assert_true(requests_end(table, &first.claim, &answer));
    assert_int_equal(come(table, 5, 2, S).found, REQUESTS_OTHER_BODY);
    assert_same(table, 5, 1, S);
    stint_table_close(table);
}

TEST(test_while_one_decides_the_others_are_told_so)
{
    struct stint_table *table = open_table(100, NULL);
    struct exchange first = come(table, 5, 1, S);
    assert_int_equal(first.found, REQUESTS_NEW);
    assert_int_equal(come(table, 5, 1, S).found, REQUESTS_BUSY);
    assert_int_equal(come(table, 5, 1, S + MINUTE).found, REQUESTS_BUSY); /* however long */
    assert_true(requests_end(table, &first.claim, NULL));
    assert_false(requests_end(table, &first.claim, NULL));
    struct exchange second = come(table, 5, 2, S); /* nothing is left of the first */
    assert_int_equal(second.found, REQUESTS_NEW);
    const struct requests_answer answer = answer_of(1);
    assert_false(requests_end(table, &first.claim, &answer));
    assert_true(requests_end(table, &second.claim, &answer));
    assert_false(requests_end(table, &second.claim, &answer));
    stint_table_close(table);
}

TEST(test_a_table_without_space_keeps_nothing)
{
    struct stint_table *table = open_table(0, NULL);
    struct stint_table_info info;
    assert_int_equal(come(table, 5, 1, S).found, REQUESTS_NONE);
    assert_int_equal(come(table, 5, 1, S).found, REQUESTS_NONE);
    stint_table_info(table, S, &info);
    assert_int_equal(info.requests_max, 0);
    assert_int_equal(info.requests, 0);
    stint_table_close(table);
}

/* Ten times as many as there is room for: the newest are there, what went is counted. */
TEST(test_where_it_is_full_the_oldest_goes)
{
    const uint64_t n = 5000;
    struct stint_table *table = open_table(500, NULL);
    struct stint_table_info info;
    for (uint64_t id = 0; id < n; id++)
        record(table, id, (uint32_t)id, S + id);
    stint_table_info(table, S + n, &info);
    assert_true(info.requests_max >= 500);
    assert_int_equal(info.requests + info.requests_dropped, n);
    assert_true(info.requests <= info.requests_max);
    assert_true(info.requests >= info.requests_max * 9 / 10);
    for (uint64_t id = n - 50; id < n; id++)
        assert_same(table, id, (uint32_t)id, S + n);
    stint_table_info(table, S + n + LIFETIME, &info);
    assert_int_equal(info.requests, 0);
    stint_table_close(table);
}

/* What is being decided is not pushed out: one more would be charged a second time. */
TEST(test_claims_stay_where_it_is_full)
{
    struct stint_table *table = open_table(1, NULL);
    struct exchange visits[REQUESTS_WAYS];
    for (uint64_t id = 0; id < REQUESTS_WAYS; id++) {
        visits[id] = come(table, id, 1, S);
        assert_int_equal(visits[id].found, REQUESTS_NEW);
    }
    assert_int_equal(come(table, 99, 1, S).found, REQUESTS_BUSY);
    assert_true(requests_end(table, &visits[3].claim, NULL));
    assert_int_equal(come(table, 99, 1, S).found, REQUESTS_NEW);
    for (uint64_t id = 0; id < REQUESTS_WAYS; id++)
        assert_int_equal(come(table, id, 1, S).found, REQUESTS_BUSY);
    stint_table_close(table);
}

TEST(test_answers_outlive_their_process_claims_do_not)
{
    struct stint_table *table = open_table(100, path);
    record(table, 5, 3, S);
    assert_int_equal(come(table, 6, 1, S).found, REQUESTS_NEW);
    stint_table_close(table);
    table = open_table(0, path); /* an existing file keeps its sizes */
    assert_same(table, 5, 3, S);
    assert_int_equal(come(table, 6, 1, S).found, REQUESTS_NEW);
    stint_table_close(table);
    unlink(path);
}

TEST(test_a_copy_of_the_table_has_the_answers)
{
    char copy[80];
    snprintf(copy, sizeof(copy), "%s-copy", path);
    struct stint_table *table = open_table(100, NULL);
    for (uint64_t id = 0; id < 60; id++)
        record(table, id, (uint32_t)id, S);
    assert_int_equal(come(table, 99, 1, S).found, REQUESTS_NEW);
    assert_int_equal(stint_table_snapshot(table, copy, NULL), 0);
    stint_table_close(table);
    table = open_table(0, copy);
    for (uint64_t id = 0; id < 60; id++)
        assert_same(table, id, (uint32_t)id, S);
    assert_int_equal(come(table, 99, 1, S).found, REQUESTS_NEW);
    stint_table_close(table);
    unlink(copy);
}

/* Every bit of the answers in turn: an answer is given as it was, or not at all. */
TEST(test_a_damaged_answer_is_not_given)
{
    const uint64_t n = 8;
    struct stint_table *table = open_table(1, path);
    for (uint64_t id = 0; id < n; id++)
        record(table, id, (uint32_t)id, S);
    uint64_t offset = table->region.header->fixed.requests_offset;
    stint_table_close(table);
    unsigned forgotten = 0;
    for (uint64_t bit = 0; bit < REQUESTS_SET_SIZE * 8; bit += 13) {
        flip_bit(8 * offset + bit);
        table = open_table(0, path);
        for (uint64_t id = 0; id < n; id++) {
            struct exchange exchange = come(table, id, 1, S);
            const struct requests_answer answer = answer_of((uint32_t)id);
            if (exchange.found == REQUESTS_SAME) {
                assert_memory_equal(&exchange.answer, &answer, sizeof(answer));
                continue;
            }
            assert_int_equal(exchange.found, REQUESTS_NEW);
            assert_true(requests_end(table, &exchange.claim, &answer));
            forgotten++;
        }
        stint_table_close(table);
    }
    assert_true(forgotten > 100);
    unlink(path);
}
