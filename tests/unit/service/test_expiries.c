/* SPDX-License-Identifier: MIT */
/* Tickets of stores that may expire, as a worker keeps them: found by their ids, and bounded. */
#include "decide/backend.h"
#include "service/expiries.h"
#include "unit/test_quota.h"

#define TICKET_LEN 60
#define MANY (EXPIRIES_MAX + 10)

/* A ticket whose id is a number. */
static struct span ticket_of(uint32_t number, uint8_t bytes[TICKET_LEN])
{
    memset(bytes, 7, TICKET_LEN);
    memset(bytes + 1, 0, BACKEND_ID_LEN);
    memcpy(bytes + 1, &number, sizeof(number));
    return span_of(bytes, TICKET_LEN);
}

static struct expiry *find(const struct expiries *expiries, uint32_t number)
{
    uint8_t bytes[TICKET_LEN];
    ticket_of(number, bytes);
    return expiries_find(expiries, bytes + 1);
}

static void assert_there(const struct expiries *expiries, uint32_t number)
{
    uint8_t bytes[TICKET_LEN];
    const struct expiry *entry = find(expiries, number);
    assert_non_null(entry);
    assert_int_equal(entry->len, TICKET_LEN);
    assert_memory_equal(entry->ticket, ticket_of(number, bytes).ptr, TICKET_LEN);
    assert_int_equal(entry->due.at_ns, number);
}

TEST(test_what_was_added_is_found_until_it_is_removed)
{
    struct expiries expiries = {.tree = NULL};
    uint8_t bytes[TICKET_LEN];
    assert_null(find(&expiries, 1));
    for (uint32_t i = 0; i < 1000; i++)
        assert_true(expiries_add(&expiries, ticket_of(i, bytes), i, 2 * i));
    for (uint32_t i = 0; i < 1000; i++)
        assert_there(&expiries, i);
    for (uint32_t i = 0; i < 1000; i += 2)
        expiries_remove(&expiries, find(&expiries, i));
    for (uint32_t i = 1; i < 1000; i += 2) {
        assert_null(find(&expiries, i - 1));
        assert_there(&expiries, i);
    }
    for (uint32_t i = 5000; i < 5500; i++)
        assert_true(expiries_add(&expiries, ticket_of(i, bytes), i, 0));
    for (uint32_t i = 5000; i < 5500; i++)
        assert_there(&expiries, i);
    assert_int_equal(expiries.n_open, 1000);
    expiries_deinit(&expiries);
    assert_null(find(&expiries, 1));
}

TEST(test_there_is_an_end_to_them)
{
    struct expiries expiries = {.tree = NULL};
    uint8_t bytes[TICKET_LEN];
    uint32_t added = 0;
    for (uint32_t i = 0; i < MANY; i++)
        added += expiries_add(&expiries, ticket_of(i, bytes), i, 0);
    assert_int_equal(added, EXPIRIES_MAX);
    expiries_remove(&expiries, find(&expiries, 17));
    assert_true(expiries_add(&expiries, ticket_of(MANY, bytes), MANY, 0));
    assert_there(&expiries, MANY);
    expiries_deinit(&expiries);
}
