/* SPDX-License-Identifier: MIT */
/* Events come out in the order of time, those of one instant in the order of the input. */
#include "unit/test.h"

#include "base/splitmix.h"
#include "sim/input/event.h"

TEST(test_sorts_by_time_and_keeps_the_order_within_an_instant)
{
    for (uint32_t n = 0; n < 260; n++) {
        struct event_list list = {0};
        uint64_t seed = n + 1;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t random = splitmix_next(&seed);
            struct event_entry entry = {.at_ns = (random >> 40) % (n / 3 + 1), .key = i};
            assert_int_equal(event_list_add(&list, entry, NULL), 0);
        }
        uint64_t key_sum = 0;
        assert_int_equal(event_list_sort(&list, NULL), 0);
        assert_int_equal(list.n_entries, n);
        for (uint32_t i = 0; i < n; i++) {
            key_sum += list.entries[i].key;
            if (i > 0) {
                const struct event_entry *a = &list.entries[i - 1], *b = a + 1;
                assert_true(a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->key < b->key));
            }
        }
        assert_int_equal(key_sum, n == 0 ? 0 : (uint64_t)n * (n - 1) / 2);
        event_list_deinit(&list);
    }
}
