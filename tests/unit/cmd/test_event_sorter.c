/* SPDX-License-Identifier: MIT */
/* Whatever fits in memory, events come out as a stable sort of them all has them. */
#define _GNU_SOURCE
#include "unit/test.h"

#include "base/splitmix.h"
#include "cmd/lib/event_sorter.h"

#define EVENTS_MAX 40000

static uint64_t draw(uint64_t *random)
{
    return splitmix_next(random) >> 33;
}

/* Sorts n events of which each is up to `disorder` early, with `held` of them in memory. */
static void check(size_t n, size_t held, uint64_t disorder)
{
    struct event_sorter sorter;
    struct event_list all = {0};
    struct event_entry entry;
    uint64_t random = n * 31 + held;
    event_sorter_init(&sorter, held);
    for (uint32_t i = 0; i < n; i++) {
        entry = (struct event_entry){
            .at_ns = disorder + i / 4 - draw(&random) % (disorder + 1), .key = i, .cost = i % 7};
        assert_int_equal(event_sorter_add(&sorter, entry, NULL), 0);
        assert_int_equal(event_list_add(&all, entry, NULL), 0);
    }
    assert_int_equal(event_list_sort(&all, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(event_sorter_next(&sorter, &entry, NULL), 1);
        assert_int_equal(entry.at_ns, all.entries[i].at_ns);
        assert_int_equal(entry.key, all.entries[i].key);
        assert_int_equal(entry.cost, all.entries[i].cost);
    }
    assert_int_equal(event_sorter_next(&sorter, &entry, NULL), 0);
    assert_int_equal(event_sorter_next(&sorter, &entry, NULL), 0);
    assert_true((sorter.n_runs > 0) == (n > held));
    event_sorter_deinit(&sorter);
    event_list_deinit(&all);
}

TEST(test_sorts_in_memory_and_in_a_file)
{
    static const size_t sizes[] = {0, 1, 2, 99, 100, 101, 250, 5000};
    static const uint64_t disorders[] = {0, 3, 100, 100000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (size_t k = 0; k < sizeof(disorders) / sizeof(disorders[0]); k++) {
            check(sizes[i], 100, disorders[k]);
            check(sizes[i], 1000000, disorders[k]);
        }
    check(EVENTS_MAX, 9000, 30000); /* runs are longer than what is read of one at once */
    check(EVENTS_MAX, 9000, 0);
}

TEST(test_says_which_folder_has_no_space_for_the_file)
{
    struct event_sorter sorter;
    struct stint_error error;
    assert_int_equal(setenv("TMPDIR", "/proc/none", 1), 0);
    event_sorter_init(&sorter, 2);
    assert_int_equal(event_sorter_add(&sorter, (struct event_entry){.at_ns = 2}, &error), 0);
    assert_int_equal(event_sorter_add(&sorter, (struct event_entry){.at_ns = 1}, &error), 0);
    assert_int_equal(event_sorter_add(&sorter, (struct event_entry){.at_ns = 3}, &error),
                     STINT_E_SYSTEM);
    assert_non_null(strstr(error.message, "/proc/none"));
    assert_non_null(strstr(error.message, "TMPDIR"));
    event_sorter_deinit(&sorter);
    assert_int_equal(unsetenv("TMPDIR"), 0);
}
