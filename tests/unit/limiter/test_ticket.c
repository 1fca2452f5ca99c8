/* SPDX-License-Identifier: MIT */
/*
 * Tickets: good once and until their deadline, gone for good afterwards, and never mistaken for
 * one another, however often the ring has turned and whatever has become of its bytes.
 */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "limiter/ticket.h"
#include "table/table.h"

#include <pthread.h>

#define NOW (1000 * MINUTE)
#define RING 4u

struct fixture {
    struct stint_table *table;
    struct stint_quota gcra, fixed, log, places;
};

static struct stint_table *open_table(uint32_t tickets)
{
    const struct stint_table_options options = {.path = path,
                                                .keys = 64,
                                                .keys16 = 64,
                                                .keys_wide = 64,
                                                .wide_size = 256,
                                                .tickets = tickets,
                                                .blocks = 4,
                                                .quotas = 8,
                                                .clock = STINT_CLOCK_VIRTUAL};
    return must_open_table(&options);
}

static struct fixture fixture[1];

SETUP
{
    name_path();
    fixture->table = open_table(RING);
    fixture->gcra = quota_of("gcra 20/20h"); /* slow: what flows back does not count here */
    fixture->fixed = quota_of("fixed_window 20/20h");
    fixture->log = quota_of("log 20/20h");
    fixture->places = quota_of("concurrency 20 lease=1m");
}

TEARDOWN
{
    stint_table_close(fixture->table);
    remove_file();
}

static uint32_t used(const struct stint_quota *quota, const char *key, uint64_t now_ns)
{
    const struct stint_item asked = item(quota, key, 0);
    return 20 - stint_peek(fixture->table, &asked, 1, now_ns).remaining;
}

/* A reservation of five units that lives for a minute. */
static struct stint_ticket reserve(const struct stint_quota *quota, const char *key,
                                   uint64_t now_ns)
{
    const struct stint_item asked = item(quota, key, 5);
    struct stint_ticket ticket;
    struct stint_decision decision =
        stint_reserve(fixture->table, &asked, 1, MINUTE, now_ns, &ticket);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    assert_int_equal(decision.granted, 5);
    assert_true(ticket.nonce != 0);
    return ticket;
}

/* Every verb answers GONE, and nothing is charged or given back. */
static void assert_gone(struct stint_ticket ticket, uint64_t now_ns)
{
    struct stint_decision untouched = {.granted = 12345}, decision = untouched;
    assert_int_equal(stint_settle(fixture->table, ticket, 0, now_ns, &decision), STINT_E_GONE);
    assert_int_equal(stint_settle(fixture->table, ticket, 9, now_ns, &decision), STINT_E_GONE);
    assert_int_equal(stint_cancel(fixture->table, ticket, now_ns, &decision), STINT_E_GONE);
    assert_int_equal(stint_renew(fixture->table, ticket, now_ns), STINT_E_GONE);
    assert_memory_equal(&decision, &untouched, sizeof(decision));
}

static uint64_t dropped(void)
{
    struct stint_table_info info;
    stint_table_info(fixture->table, NOW, &info);
    return info.tickets_dropped;
}

static uint8_t *ring_slot(uint64_t slot)
{
    const struct region_fixed *fixed = &fixture->table->region.header->fixed;
    return region_at(&fixture->table->region,
                     fixed->tickets_offset + slot % fixed->tickets_max * TICKET_SIZE);
}

/* A ticket is good once: whatever was done with it, the next verb finds it gone. */
TEST(test_a_ticket_is_good_once)
{
    struct stint_ticket ticket = reserve(&fixture->fixed, "key", NOW);
    assert_int_equal(stint_settle(fixture->table, ticket, 3, NOW, NULL), 0);
    assert_gone(ticket, NOW);
    assert_int_equal(used(&fixture->fixed, "key", NOW), 3);
    ticket = reserve(&fixture->fixed, "key", NOW);
    assert_int_equal(stint_cancel(fixture->table, ticket, NOW, NULL), 0);
    assert_gone(ticket, NOW);
    assert_int_equal(used(&fixture->fixed, "key", NOW), 3);
}

/* Settling gives back what was not used, charges what was used beyond, and says how much. */
TEST(test_settling_corrects_the_estimate)
{
    static const struct {
        uint32_t actual, moved, used;
    } cases[] = {{0, 5, 0}, {2, 3, 2}, {5, 0, 5}, {6, 1, 6}, {11, 6, 11}};
    const struct stint_quota *quotas[] = {&fixture->gcra, &fixture->fixed, &fixture->log};
    for (size_t q = 0; q < N(quotas); q++) {
        for (size_t i = 0; i < N(cases); i++) {
            const char key[] = {(char)('a' + i), '\0'};
            struct stint_ticket ticket = reserve(quotas[q], key, NOW);
            struct stint_decision decision;
            assert_int_equal(stint_settle(fixture->table, ticket, cases[i].actual, NOW, &decision),
                             0);
            assert_int_equal(decision.granted, cases[i].moved);
            assert_int_equal(used(quotas[q], key, NOW), cases[i].used);
        }
    }
}

/* What was used beyond a strict quota's limit takes the place of what is older, the estimate too.
 */
TEST(test_a_charge_above_the_limit_is_all_that_is_used)
{
    struct stint_ticket ticket = reserve(&fixture->log, "key", NOW);
    struct stint_decision decision;
    assert_int_equal(stint_settle(fixture->table, ticket, UINT32_MAX, NOW, &decision), 0);
    assert_int_equal(decision.granted, 20);
    assert_int_equal(used(&fixture->log, "key", NOW), 20);
    /* Twice as many for two equal items: more than there are numbers. */
    const struct stint_item twice[] = {item(&fixture->log, "k", 5), item(&fixture->log, "k", 5)};
    stint_reserve(fixture->table, twice, 2, MINUTE, NOW, &ticket);
    assert_int_equal(stint_settle(fixture->table, ticket, UINT32_MAX / 2 + 2, NOW, NULL), 0);
    assert_int_equal(used(&fixture->log, "k", NOW), 20);
}

/* A ticket is good until its deadline, not at it; never settled, it stays charged as estimated. */
TEST(test_a_ticket_ends_at_its_deadline)
{
    struct stint_ticket ticket = reserve(&fixture->fixed, "a", NOW);
    assert_gone(ticket, NOW + MINUTE);
    assert_gone(ticket, NOW + DAY);
    assert_int_equal(used(&fixture->fixed, "a", NOW), 5);
    ticket = reserve(&fixture->fixed, "b", NOW);
    assert_int_equal(stint_settle(fixture->table, ticket, 1, NOW + MINUTE - 1, NULL), 0);
    assert_int_equal(used(&fixture->fixed, "b", NOW), 1);
    const struct stint_item asked = item(&fixture->fixed, "c", 5);
    stint_reserve(fixture->table, &asked, 1, 0, NOW, &ticket); /* no life at all */
    assert_gone(ticket, NOW);
    stint_reserve(fixture->table, &asked, 1, UINT64_MAX, NOW, &ticket); /* and all there is */
    assert_int_equal(stint_cancel(fixture->table, ticket, STINT_NOW_MAX, NULL), 0);
}

/* A refused reservation gives no ticket, takes no place in the ring, and charges nothing. */
TEST(test_open_tickets_are_counted)
{
    assert_int_equal(tickets_open(fixture->table, NOW), 0);
    struct stint_ticket first = reserve(&fixture->gcra, "a", NOW);
    reserve(&fixture->gcra, "b", NOW + S);
    assert_int_equal(tickets_open(fixture->table, NOW + S), 2);
    assert_int_equal(stint_cancel(fixture->table, first, NOW + S, NULL), 0);
    assert_int_equal(tickets_open(fixture->table, NOW + S), 1);
    assert_int_equal(tickets_open(fixture->table, NOW + S + MINUTE - 1), 1);
    assert_int_equal(tickets_open(fixture->table, NOW + S + MINUTE), 0);
    const struct stint_item list[] = {item(&fixture->gcra, "c", 1), item(&fixture->fixed, "c", 1)};
    struct stint_ticket both;
    stint_reserve(fixture->table, list, 2, MINUTE, NOW + 60 * MINUTE, &both);
    assert_int_equal(tickets_open(fixture->table, NOW + 60 * MINUTE), 1); /* of two slots */
}

TEST(test_a_refused_reservation_gives_no_ticket)
{
    struct stint_ticket first = reserve(&fixture->fixed, "key", NOW), none;
    const struct stint_item items[] = {item(&fixture->fixed, "other", 1),
                                       item(&fixture->fixed, "key", 16)};
    for (unsigned i = 0; i < 2 * RING; i++) {
        none = (struct stint_ticket){9, 9};
        struct stint_decision decision =
            stint_reserve(fixture->table, items, 2, MINUTE, NOW, &none);
        assert_int_equal(decision.outcome, STINT_DENY);
        assert_int_equal(none.slot + none.nonce, 0);
        assert_gone(none, NOW);
    }
    assert_int_equal(dropped(), 0);
    assert_int_equal(used(&fixture->fixed, "other", NOW), 0);
    assert_int_equal(stint_cancel(fixture->table, first, NOW, NULL), 0);
}

/* When the ring has turned, the oldest unsettled ticket is closed as estimated, and counted; one
 * that was settled or is over is not. */
TEST(test_a_full_ring_closes_the_oldest)
{
    struct stint_ticket tickets[RING + 1];
    for (size_t i = 0; i < RING + 1; i++)
        tickets[i] = reserve(&fixture->fixed, (char[]){(char)('a' + i), '\0'}, NOW);
    assert_int_equal(dropped(), 1);
    assert_gone(tickets[0], NOW);
    assert_int_equal(used(&fixture->fixed, "a", NOW), 5);
    for (size_t i = 1; i < RING + 1; i++)
        assert_int_equal(stint_settle(fixture->table, tickets[i], 1, NOW, NULL), 0);
    for (size_t i = 0; i < RING; i++) { /* over those that were settled */
        reserve(&fixture->fixed, (char[]){(char)('h' + i), '\0'}, NOW);
        assert_int_equal(dropped(), 1);
    }
    for (size_t i = 0; i < RING; i++) { /* over those that have ended */
        reserve(&fixture->fixed, (char[]){(char)('n' + i), '\0'}, NOW + MINUTE);
        assert_int_equal(dropped(), 1);
    }
}

/* Tickets that are open stay so, however many others are issued and closed meanwhile, and wherever
 * they are in the ring: in a small one as long as one slot is free. */
TEST(test_an_open_ticket_outlives_turns_of_the_ring)
{
    static const struct {
        uint32_t ring, n_open;
    } cases[] = {{RING, 1}, {RING, RING - 1}, {64, 63}, {1000, 1}, {1000, 500}, {1000, 960}};
    struct stint_quota many = quota_of("fixed_window 1000000/20h");
    for (size_t i = 0; i < N(cases); i++) {
        struct stint_ticket open[1000], passing;
        const struct stint_item one = item(&many, "key", 1);
        stint_table_close(fixture->table);
        remove_file();
        fixture->table = open_table(cases[i].ring);
        for (uint32_t j = 0; j < cases[i].n_open; j++)
            stint_reserve(fixture->table, &one, 1, DAY, NOW, &open[j]);
        for (uint32_t j = 0; j < 3 * cases[i].ring; j++) {
            stint_reserve(fixture->table, &one, 1, MINUTE, NOW, &passing);
            assert_int_equal(stint_cancel(fixture->table, passing, NOW, NULL), 0);
        }
        assert_int_equal(dropped(), 0);
        assert_int_equal(tickets_open(fixture->table, NOW), cases[i].n_open);
        for (uint32_t j = 0; j < cases[i].n_open; j++)
            assert_int_equal(stint_cancel(fixture->table, open[j], NOW, NULL), 0);
    }
}

/* A list's ticket gets neighbouring slots without an open ticket. If there are none, each ticket
 * of which it takes a slot is closed as one. */
TEST(test_a_list_ticket_skips_open_ones)
{
    const struct stint_item two[] = {item(&fixture->gcra, "a", 1), item(&fixture->gcra, "b", 1)};
    const struct stint_item three[] = {two[0], two[1], item(&fixture->gcra, "c", 1)};
    struct stint_ticket open = reserve(&fixture->fixed, "key", NOW), pair, longer;
    stint_cancel(fixture->table, reserve(&fixture->fixed, "x", NOW), NOW, NULL);
    for (unsigned i = 0; i < 2 * RING; i++) {
        stint_reserve(fixture->table, two, 2, MINUTE, NOW, &pair);
        assert_int_equal(stint_cancel(fixture->table, pair, NOW, NULL), 0);
    }
    assert_int_equal(dropped(), 0);
    assert_int_equal(stint_cancel(fixture->table, open, NOW, NULL), 0);
    stint_table_close(fixture->table);
    remove_file();
    fixture->table = open_table(RING);
    open = reserve(&fixture->fixed, "key", NOW);
    stint_reserve(fixture->table, three, 3, MINUTE, NOW, &longer);
    stint_reserve(fixture->table, two, 2, MINUTE, NOW, &pair); /* a slot of each */
    assert_int_equal(dropped(), 2);
    assert_gone(open, NOW);
    assert_gone(longer, NOW);
    stint_reserve(fixture->table, two, 2, MINUTE, NOW, &longer); /* what is left of the longer */
    assert_int_equal(dropped(), 2);
    assert_int_equal(stint_cancel(fixture->table, pair, NOW, NULL), 0);
    assert_int_equal(stint_cancel(fixture->table, longer, NOW, NULL), 0);
}

/* A slot that is used again has another nonce: the old ticket cannot touch the new one. */
TEST(test_the_nonce_protects_a_slot_used_again)
{
    struct stint_ticket ticket = reserve(&fixture->fixed, "old", NOW), old = ticket;
    for (unsigned turn = 0; turn < 50; turn++) {
        stint_cancel(fixture->table, ticket, NOW, NULL);
        ticket = reserve(&fixture->fixed, "new", NOW);
        assert_true(ticket.nonce != old.nonce);
        assert_gone(old, NOW);
        assert_gone((struct stint_ticket){ticket.slot, old.nonce}, NOW);
        assert_int_equal(used(&fixture->fixed, "new", NOW), 5);
    }
}

/* A ticket that never was is gone: another nonce, an empty slot with none, a slot of nobody. */
TEST(test_a_ticket_that_never_was_is_gone)
{
    struct stint_ticket ticket = reserve(&fixture->fixed, "key", NOW);
    for (unsigned bit = 0; bit < 64; bit++)
        assert_gone((struct stint_ticket){ticket.slot, ticket.nonce ^ UINT64_C(1) << bit}, NOW);
    for (uint64_t slot = 0; slot <= RING; slot++) {
        assert_gone((struct stint_ticket){slot, 0}, NOW);
        assert_gone((struct stint_ticket){UINT64_MAX - slot, 1}, NOW);
    }
    assert_int_equal(used(&fixture->fixed, "key", NOW), 5);
    assert_int_equal(stint_cancel(fixture->table, ticket, NOW, NULL), 0);
}

/* A record of which any bit is another is gone, and so harms nobody; whole again, it is good. */
TEST(test_a_damaged_record_is_gone)
{
    struct stint_ticket ticket = reserve(&fixture->fixed, "key", NOW);
    uint8_t *record = ring_slot(ticket.slot);
    for (unsigned bit = 0; bit < 8 * TICKET_SIZE; bit++) {
        record[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(stint_settle(fixture->table, ticket, 0, NOW, NULL), STINT_E_GONE);
        record[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(used(&fixture->fixed, "key", NOW), 5);
    assert_int_equal(stint_settle(fixture->table, ticket, 1, NOW, NULL), 0);
    assert_int_equal(used(&fixture->fixed, "key", NOW), 1);
}

/* Tickets outlive a reopening of the file, each good once as before. */
TEST(test_tickets_outlive_a_reopening)
{
    struct stint_ticket open = reserve(&fixture->fixed, "a", NOW);
    struct stint_ticket over = reserve(&fixture->fixed, "b", NOW);
    assert_int_equal(stint_settle(fixture->table, over, 2, NOW, NULL), 0);
    stint_table_close(fixture->table);
    fixture->table = open_table(RING);
    assert_gone(over, NOW);
    assert_int_equal(stint_cancel(fixture->table, open, NOW, NULL), 0);
    assert_gone(open, NOW);
    assert_int_equal(used(&fixture->fixed, "a", NOW), 0);
}

/* A copy of the file goes on to issue tickets where the table did: they are others. */
TEST(test_a_restored_table_issues_other_tickets)
{
    char copy[80];
    snprintf(copy, sizeof(copy), "%s-copy", path);
    assert_int_equal(stint_table_snapshot(fixture->table, copy, NULL), 0);
    struct stint_ticket lost = reserve(&fixture->fixed, "a", NOW);
    stint_table_close(fixture->table);
    assert_int_equal(rename(copy, path), 0);
    fixture->table = open_table(RING);
    struct stint_ticket ticket = reserve(&fixture->fixed, "b", NOW);
    assert_int_equal(ticket.slot, lost.slot);
    assert_gone(lost, NOW);
    assert_int_equal(used(&fixture->fixed, "b", NOW), 5);
    assert_int_equal(stint_cancel(fixture->table, ticket, NOW, NULL), 0);
}

/* A reservation over a list gives one ticket, which settles every quota; equal items count double.
 */
TEST(test_one_ticket_settles_a_list)
{
    const struct stint_item items[] = {item(&fixture->fixed, "k", 5), item(&fixture->log, "k", 4),
                                       item(&fixture->fixed, "k", 5)};
    static const struct {
        uint32_t actual, moved, fixed, log;
    } cases[] = {{0, 4, 0, 0}, {3, 1, 6, 3}, {7, 3, 14, 7}};
    for (size_t i = 0; i < N(cases); i++) {
        struct stint_ticket ticket;
        struct stint_decision decision;
        stint_reserve(fixture->table, items, 3, MINUTE, NOW, &ticket);
        assert_int_equal(used(&fixture->fixed, "k", NOW), 10);
        assert_int_equal(used(&fixture->log, "k", NOW), 4);
        assert_int_equal(stint_settle(fixture->table, ticket, cases[i].actual, NOW, &decision), 0);
        assert_int_equal(decision.granted, cases[i].moved); /* the least that any moved */
        assert_int_equal(used(&fixture->fixed, "k", NOW), cases[i].fixed);
        assert_int_equal(used(&fixture->log, "k", NOW), cases[i].log);
        assert_gone(ticket, NOW);
        stint_reset(fixture->table, &fixture->fixed, "k", 1, NOW);
        stint_reset(fixture->table, &fixture->log, "k", 1, NOW);
    }
}

/* A list's ticket is whole or gone: with any one of its records lost, none of it is given back. */
TEST(test_a_list_ticket_is_whole_or_gone)
{
    const struct stint_item items[] = {item(&fixture->fixed, "a", 5), item(&fixture->fixed, "b", 5),
                                       item(&fixture->fixed, "c", 5)};
    struct stint_ticket ticket;
    stint_reserve(fixture->table, items, 3, MINUTE, NOW, &ticket);
    for (uint64_t part = 0; part < 3; part++) {
        ring_slot(ticket.slot + part)[40] ^= 1;
        assert_gone(ticket, NOW);
        ring_slot(ticket.slot + part)[40] ^= 1;
        /* Its records are not tickets of their own, and do not stand in for one another. */
        if (part > 0)
            assert_gone((struct stint_ticket){ticket.slot + part, ticket.nonce}, NOW);
    }
    uint8_t kept[TICKET_SIZE];
    memcpy(kept, ring_slot(ticket.slot + 1), TICKET_SIZE);
    memcpy(ring_slot(ticket.slot + 1), ring_slot(ticket.slot + 2), TICKET_SIZE);
    assert_gone(ticket, NOW);
    memcpy(ring_slot(ticket.slot + 1), kept, TICKET_SIZE);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(used(&fixture->fixed, items[i].key, NOW), 5);
    assert_int_equal(stint_cancel(fixture->table, ticket, NOW, NULL), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(used(&fixture->fixed, items[i].key, NOW), 0);
}

/* A list's ticket that stands across the end of the ring is as good as another; one that is longer
 * than the ring is refused before anything is charged. */
TEST(test_a_list_ticket_fits_the_ring_or_is_refused)
{
    struct stint_item items[RING + 1];
    char keys[RING + 1][2];
    struct stint_ticket ticket;
    for (size_t i = 0; i < N(items); i++) {
        memcpy(keys[i], (char[]){(char)('a' + i), '\0'}, 2);
        items[i] = item(&fixture->gcra, keys[i], 5);
    }
    assert_int_equal(stint_reserve(fixture->table, items, RING + 1, MINUTE, NOW, &ticket).outcome,
                     STINT_NEVER);
    assert_int_equal(stint_book(fixture->table, items, RING + 1, DAY, NOW, &ticket).outcome,
                     STINT_NEVER);
    for (size_t i = 0; i < N(items); i++)
        assert_int_equal(used(&fixture->gcra, keys[i], NOW), 0);
    for (unsigned turn = 0; turn < RING; turn++) {
        stint_cancel(fixture->table, reserve(&fixture->fixed, "x", NOW), NOW, NULL);
        assert_int_equal(stint_reserve(fixture->table, items, RING, MINUTE, NOW, &ticket).outcome,
                         STINT_ALLOW);
        assert_int_equal(stint_cancel(fixture->table, ticket, NOW, NULL), 0);
        for (size_t i = 0; i < RING; i++)
            assert_int_equal(used(&fixture->gcra, keys[i], NOW), 0);
    }
    assert_int_equal(dropped(), 0);
}

/* A list's ticket that the ring closes counts as the one ticket that it was, and one that was
 * settled, or is over, does not count. */
TEST(test_a_closed_list_ticket_counts_once)
{
    const struct stint_item items[] = {item(&fixture->fixed, "a", 1), item(&fixture->fixed, "b", 1),
                                       item(&fixture->fixed, "c", 1),
                                       item(&fixture->fixed, "d", 1)};
    struct stint_ticket ticket;
    stint_reserve(fixture->table, items, RING, MINUTE, NOW, &ticket);
    for (size_t i = 0; i < RING; i++) {
        struct stint_ticket single = reserve(&fixture->fixed, (char[]){(char)('h' + i), '\0'}, NOW);
        assert_int_equal(dropped(), 1);
        assert_gone(ticket, NOW);
        assert_int_equal(stint_settle(fixture->table, single, 0, NOW, NULL), 0);
    }
    for (int settled = 0; settled < 2; settled++) {
        stint_reserve(fixture->table, items, RING, settled ? MINUTE : 0, NOW, &ticket);
        if (settled)
            assert_int_equal(stint_settle(fixture->table, ticket, 0, NOW, NULL), 0);
        stint_reserve(fixture->table, items, RING, 0, NOW, &ticket);
        assert_int_equal(dropped(), 1);
    }
}

static struct stint_decision book(const struct stint_quota *quota, uint64_t now_ns,
                                  struct stint_ticket *ticket)
{
    const struct stint_item asked = item(quota, "job", 20);
    return stint_book(fixture->table, &asked, 1, DAY, now_ns, ticket);
}

/* A booked place can be cancelled until it starts, and is then free for the next who books. */
TEST(test_a_booking_is_cancelled_until_it_starts)
{
    const struct stint_quota *quotas[] = {&fixture->gcra, &fixture->log};
    for (size_t q = 0; q < N(quotas); q++) {
        const uint64_t now_ns = NOW + q * 10 * DAY, wait_ns = 20 * 60 * MINUTE;
        struct stint_ticket now, later, again;
        assert_int_equal(book(quotas[q], now_ns, &now).retry_after_ns, 0);
        assert_gone(now, now_ns); /* it has started */
        assert_int_equal(book(quotas[q], now_ns, &later).retry_after_ns, wait_ns);
        assert_gone(later, now_ns + wait_ns);
        assert_int_equal(stint_cancel(fixture->table, later, now_ns, NULL), 0);
        assert_gone(later, now_ns);
        assert_int_equal(book(quotas[q], now_ns, &again).retry_after_ns, wait_ns);
        assert_int_equal(stint_cancel(fixture->table, again, now_ns + wait_ns - 1, NULL), 0);
    }
}

/* A place over a list starts with the last of them, and is given back where each was charged. */
TEST(test_a_booking_over_a_list_is_cancelled_in_all_of_it)
{
    struct stint_quota quick = quota_of("gcra 5/10s"), slow = quota_of("gcra 1/60s");
    const struct stint_item both[] = {item(&quick, "k", 2), item(&slow, "k", 1)};
    const struct stint_item none[] = {item(&quick, "k", 0), item(&slow, "k", 0)};
    static const uint32_t used[] = {0, 2, 5}; /* quick is free now, after the call, in 4 s */
    for (size_t i = 0; i < N(used); i++) {
        uint64_t now_ns = NOW + i * DAY;
        struct stint_ticket ticket;
        stint_take(fixture->table, &quick, "k", 1, used[i], now_ns);
        stint_take(fixture->table, &slow, "k", 1, 1, now_ns);
        struct stint_decision decision = stint_book(fixture->table, both, 2, DAY, now_ns, &ticket);
        assert_int_equal(decision.retry_after_ns, MINUTE);
        assert_int_equal(stint_cancel(fixture->table, ticket, now_ns, &decision), 0);
        assert_int_equal(decision.granted, 1);
        assert_int_equal(stint_peek(fixture->table, none, 1, now_ns).remaining, 5 - used[i]);
        assert_int_equal(stint_peek(fixture->table, none + 1, 1, now_ns).reset_after_ns, MINUTE);
    }
}

/* Too long a wait is refused for all of a list: no ticket, and no place kept in the others. */
TEST(test_a_refused_booking_keeps_no_place)
{
    struct stint_quota slower = quota_of("gcra 20/40h");
    const struct stint_item items[] = {item(&fixture->gcra, "job", 20), item(&slower, "job", 20)};
    struct stint_ticket ticket;
    assert_int_equal(stint_book(fixture->table, items, 2, 0, NOW, &ticket).outcome, STINT_ALLOW);
    struct stint_decision decision = stint_book(fixture->table, items, 2, DAY, NOW, &ticket);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_int_equal(ticket.nonce, 0);
    decision = stint_book(fixture->table, items, 1, DAY, NOW, &ticket);
    assert_int_equal(decision.outcome, STINT_ALLOW); /* the first had its place given back */
    decision = stint_book(fixture->table, items + 1, 1, 2 * DAY, NOW, &ticket);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    const struct stint_item never[] = {item(&fixture->fixed, "k", 1), item(&fixture->gcra, "k", 1),
                                       item(&fixture->log, "k", 1)};
    assert_int_equal(stint_book(fixture->table, never, 1, DAY, NOW, &ticket).outcome, STINT_NEVER);
    assert_int_equal(stint_book(fixture->table, never + 1, 2, DAY, NOW, &ticket).outcome,
                     STINT_NEVER);
    assert_int_equal(used(&fixture->gcra, "k", NOW), 0);
}

/* The ticket of a hold lives as long as its lease, and then its places are free; until then
 * cancelling frees them, once. */
TEST(test_a_hold_lives_by_its_lease)
{
    const struct stint_item asked = item(&fixture->places, "k", 5);
    struct stint_ticket ticket;
    stint_reserve(fixture->table, &asked, 1, 0, NOW, &ticket);
    assert_int_equal(used(&fixture->places, "k", NOW + MINUTE - 1), 5);
    assert_gone(ticket, NOW + MINUTE);
    assert_int_equal(used(&fixture->places, "k", NOW + MINUTE), 0);
    stint_reserve(fixture->table, &asked, 1, 0, NOW + MINUTE, &ticket);
    assert_int_equal(stint_cancel(fixture->table, ticket, NOW + 2 * MINUTE - 1, NULL), 0);
    assert_int_equal(used(&fixture->places, "k", NOW + 2 * MINUTE - 1), 0);
    assert_gone(ticket, NOW + 2 * MINUTE - 1);
}

/* A ticket that outlives the lease, or whose key was reset, has nothing to give back. */
TEST(test_a_ticket_whose_places_are_free_is_gone)
{
    const struct stint_item asked = item(&fixture->places, "k", 5);
    const struct stint_item mixed[] = {asked, item(&fixture->gcra, "k", 5)};
    struct stint_decision decision;
    struct stint_ticket ticket;
    for (int verb = 0; verb < 2; verb++) {
        const uint64_t now_ns = NOW + (uint64_t)verb * 60 * MINUTE;
        stint_reserve(fixture->table, &asked, 1, 10 * MINUTE, now_ns, &ticket);
        assert_int_equal(stint_renew(fixture->table, ticket, now_ns + MINUTE), STINT_E_GONE);
        assert_int_equal(verb == 0 ? stint_cancel(fixture->table, ticket, now_ns + MINUTE, NULL)
                                   : stint_settle(fixture->table, ticket, 0, now_ns + MINUTE, NULL),
                         STINT_E_GONE);
        assert_gone(ticket, now_ns + MINUTE);
        stint_reserve(fixture->table, &asked, 1, 10 * MINUTE, now_ns + MINUTE, &ticket);
        stint_reset(fixture->table, &fixture->places, "k", 1, now_ns + MINUTE);
        assert_int_equal(stint_cancel(fixture->table, ticket, now_ns + MINUTE, NULL), STINT_E_GONE);
        /* What else it was charged comes back all the same. */
        stint_reserve(fixture->table, mixed, 2, 10 * MINUTE, now_ns + 2 * MINUTE, &ticket);
        assert_int_equal(stint_cancel(fixture->table, ticket, now_ns + 3 * MINUTE, &decision), 0);
        assert_int_equal(decision.granted, 0);
    }
}

/* Renewing moves the end of a hold, again and again; a renewed ticket is as good as it was. */
TEST(test_renewing_moves_the_end_of_a_hold)
{
    const struct stint_item asked = item(&fixture->places, "k", 5);
    struct stint_ticket ticket, plain = reserve(&fixture->fixed, "k", NOW);
    assert_int_equal(stint_renew(fixture->table, plain, NOW), STINT_E_MISMATCH);
    assert_int_equal(stint_cancel(fixture->table, plain, NOW, NULL), 0);
    for (uint64_t times = 1; times < 4; times++) {
        uint64_t now_ns = NOW + times * 10 * MINUTE;
        stint_reserve(fixture->table, &asked, 1, 0, now_ns, &ticket);
        for (uint64_t i = 0; i < times; i++) {
            now_ns += MINUTE - 1;
            assert_int_equal(stint_renew(fixture->table, ticket, now_ns), 0);
        }
        now_ns += MINUTE - 1;
        assert_int_equal(used(&fixture->places, "k", now_ns), 5);
        if (times == 1) {
            assert_gone(ticket, now_ns + 1);
        } else {
            assert_int_equal(stint_cancel(fixture->table, ticket, now_ns, NULL), 0);
            assert_gone(ticket, now_ns);
        }
        assert_int_equal(used(&fixture->places, "k", now_ns + (times == 1)), 0);
    }
}

/* Of two places with different leases one has ended: the ticket stays good for the other. */
TEST(test_renewing_what_is_left_of_a_ticket)
{
    struct stint_quota longer = quota_of("concurrency 20 lease=2m");
    const struct stint_item items[] = {item(&longer, "k", 5), item(&fixture->places, "k", 5)};
    for (size_t first = 0; first < 2; first++) {
        const struct stint_item turned[] = {items[first], items[1 - first]};
        const uint64_t now_ns = NOW + first * 10 * MINUTE;
        struct stint_ticket ticket;
        stint_reserve(fixture->table, turned, 2, 0, now_ns, &ticket);
        assert_int_equal(stint_renew(fixture->table, ticket, now_ns + 90 * S), STINT_E_GONE);
        assert_int_equal(used(&longer, "k", now_ns + 3 * MINUTE), 5);
        assert_int_equal(stint_cancel(fixture->table, ticket, now_ns + 3 * MINUTE, NULL), 0);
        assert_int_equal(used(&longer, "k", now_ns + 3 * MINUTE), 0);
    }
}

/* Under another limit of the rule the holders are the same ones, and their tickets stay good. */
TEST(test_tickets_outlive_a_change_of_the_limit)
{
    static const char *const specs[] = {"concurrency 2 lease=1m", "concurrency 3 lease=1m",
                                        "concurrency 4 lease=1m"};
    struct stint_quota quotas[N(specs)];
    for (size_t i = 0; i < N(specs); i++) {
        quotas[i] = quota_of(specs[i]);
        quotas[i].rule = 7;
    }
    for (size_t i = 0; i < N(specs) * N(specs); i++) {
        const struct stint_quota *from = &quotas[i / N(specs)], *to = &quotas[i % N(specs)];
        const uint64_t now_ns = NOW + i * 10 * MINUTE;
        const struct stint_item before = item(from, "k", 1), after = item(to, "k", 1);
        struct stint_ticket tickets[RING];
        uint32_t held = 0;
        for (; held < 2; held++)
            assert_int_equal(
                stint_reserve(fixture->table, &before, 1, 0, now_ns, &tickets[held]).outcome,
                STINT_ALLOW);
        for (; held < to->limit; held++)
            assert_int_equal(
                stint_reserve(fixture->table, &after, 1, 0, now_ns, &tickets[held]).outcome,
                STINT_ALLOW);
        assert_int_equal(stint_renew(fixture->table, tickets[0], now_ns + 30 * S), 0);
        assert_int_equal(stint_peek(fixture->table, &after, 1, now_ns + 30 * S).outcome,
                         STINT_DENY);
        for (uint32_t left = held; left > 0; left--) {
            const struct stint_item none = item(to, "k", 0);
            struct stint_decision decision = stint_peek(fixture->table, &none, 1, now_ns + 30 * S);
            assert_int_equal(to->limit - decision.remaining, left);
            assert_int_equal(stint_cancel(fixture->table, tickets[left - 1], now_ns + 30 * S, NULL),
                             0);
        }
    }
}

/* A ticket of places does not read the state of what has come in their place. */
TEST(test_a_ticket_leaves_another_algorithm_alone)
{
    struct stint_quota places = quota_of("concurrency 3 lease=1m"), log = quota_of("log 10/1h");
    places.rule = log.rule = 7;
    const struct stint_item held = item(&places, "k", 1), taken = item(&log, "k", 9);
    struct stint_ticket ticket;
    stint_reserve(fixture->table, &held, 1, 0, NOW, &ticket);
    assert_int_equal(stint_take_all(fixture->table, &taken, 1, NOW).outcome, STINT_ALLOW);
    assert_int_equal(stint_cancel(fixture->table, ticket, NOW, NULL), STINT_E_GONE);
    struct stint_entry entry;
    assert_int_equal(stint_find(fixture->table, &log, "k", 1, NOW + MINUTE, &entry), 0);
    assert_int_equal(entry.decision.remaining, 0);
}

/* The units of a ticket follow its key to the state that another quota of the rule has made. */
TEST(test_a_ticket_follows_its_key_to_another_quota_of_the_rule)
{
    struct stint_quota narrow = quota_of("window 20/1h resolution=12");
    struct stint_quota wide = quota_of("window 20/1h"), log = quota_of("log 20/1h");
    narrow.rule = wide.rule = log.rule = 7;
    const struct stint_quota *const others[] = {&wide, &log};
    for (size_t i = 0; i < N(others); i++) {
        const struct stint_item one = item(&narrow, "k", 1);
        struct stint_ticket ticket, second;
        stint_reserve(fixture->table, &one, 1, MINUTE, NOW, &ticket);
        stint_reserve(fixture->table, &one, 1, MINUTE, NOW, &second);
        assert_int_equal(stint_take(fixture->table, others[i], "k", 1, 17, NOW).outcome,
                         STINT_ALLOW);
        assert_int_equal(used(others[i], "k", NOW), 19);
        assert_int_equal(stint_settle(fixture->table, ticket, 2, NOW, NULL), 0);
        assert_int_equal(used(others[i], "k", NOW), 20);
        assert_int_equal(stint_take(fixture->table, &narrow, "k", 1, 1, NOW).outcome, STINT_DENY);
        assert_int_equal(stint_cancel(fixture->table, second, NOW, NULL), 0);
        assert_int_equal(used(others[i], "k", NOW), 19);
        assert_int_equal(used(&narrow, "k", NOW), 19);
        stint_reset(fixture->table, &narrow, "k", 1, NOW);
    }
}

/* A list that holds places has one end, that of the longest lease or the lifetime that was given,
 * wherever in the list the places stand. */
TEST(test_a_list_with_a_hold_has_one_end)
{
    struct stint_quota longer = quota_of("concurrency 20 lease=2m");
    const struct stint_item items[] = {item(&fixture->places, "k", 5),
                                       item(&fixture->fixed, "k", 5), item(&longer, "k", 5)};
    for (size_t first = 0; first < 3; first++) {
        for (int given = 0; given < 2; given++) {
            const uint64_t now_ns = NOW + (2 * first + (uint64_t)given) * 10 * MINUTE;
            const uint64_t life_ns = given ? 90 * S : 2 * MINUTE;
            struct stint_item turned[3];
            struct stint_ticket ticket;
            for (size_t i = 0; i < 3; i++)
                turned[i] = items[(first + i) % 3];
            stint_reserve(fixture->table, turned, 3, given ? life_ns : 0, now_ns, &ticket);
            assert_gone(ticket, now_ns + life_ns);
            assert_int_equal(stint_cancel(fixture->table, ticket, now_ns + life_ns - 1, NULL), 0);
            assert_int_equal(used(&longer, "k", now_ns + life_ns - 1), 0);
            assert_int_equal(used(&fixture->fixed, "k", now_ns + life_ns - 1), 0);
        }
    }
}

#define RACED 64u
#define ROUNDS 100u

struct racer {
    struct stint_table *table;
    pthread_barrier_t *start;
    const struct stint_ticket *tickets;
    unsigned won;
};

static void *race(void *arg)
{
    struct racer *racer = arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(racer->start);
        for (unsigned i = 0; i < RACED; i++)
            racer->won += stint_cancel(racer->table, racer->tickets[i], NOW, NULL) == 0;
        pthread_barrier_wait(racer->start);
    }
    return NULL;
}

/* Of two who cancel one ticket at once, one does. */
TEST(test_one_of_two_gets_a_ticket)
{
    const struct stint_item asked = item(&fixture->fixed, "key", 0);
    struct stint_ticket tickets[RACED];
    struct racer racers[2];
    pthread_barrier_t start;
    pthread_t threads[2];
    unlink(path);
    stint_table_close(fixture->table);
    fixture->table = open_table(RACED);
    assert_int_equal(pthread_barrier_init(&start, NULL, 3), 0);
    for (size_t i = 0; i < 2; i++) {
        racers[i] = (struct racer){fixture->table, &start, tickets, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < RACED; i++)
            stint_reserve(fixture->table, &asked, 1, MINUTE, NOW, &tickets[i]);
        pthread_barrier_wait(&start);
        pthread_barrier_wait(&start);
    }
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    assert_int_equal(racers[0].won + racers[1].won, ROUNDS * RACED);
}
