/* SPDX-License-Identifier: MIT */
/*
 * The front of a class and its main part: where new keys go, that all are found again wherever they
 * are, and which pages are in memory meanwhile.
 */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "base/ns.h"
#include "table/table.h"

#include <sys/mman.h>

#define KEYS 12288 /* 2048 sets */
#define FRONT_SLOTS (UINT64_C(128) * WAYS)
#define SPILLED_MAX (FRONT_SLOTS / 8)

SETUP
{
    name_path();
}

TEARDOWN
{
    remove_file();
}

static const struct form {
    const char *spec;
    enum slot_class class;
} forms[] = {{"gcra 2/1h burst=2", CLASS_8}, {"window 2/1h", CLASS_16}};

static struct stint_table *open_as(uint8_t memory, bool read_only)
{
    const struct stint_table_options options = {.keys = KEYS,
                                                .keys16 = KEYS,
                                                .memory = memory,
                                                .path = memory == STINT_MEMORY_FILE ? path : NULL,
                                                .read_only = read_only,
                                                .clock = STINT_CLOCK_VIRTUAL,
                                                .hash_key = {1, 2}};
    return must_open_table(&options);
}

static struct stint_decision take_key(struct stint_table *table, const struct stint_quota *quota,
                                      uint64_t key, uint32_t cost)
{
    return stint_take(table, quota, &key, sizeof(key), cost, NS_PER_S);
}

/* Where the key has its slot; NULL: nowhere. */
static struct pair *slot_of(const struct stint_table *table, const struct stint_quota *quota,
                            uint64_t key)
{
    const struct slots *slots = &table->slots[table_class(quota)];
    const struct home home = slots_home(slots, table_hash(table, quota, &key, sizeof(key)));
    return slots_find(slots, &home).at;
}

static bool is_in_main(const struct stint_table *table, const struct stint_quota *quota,
                       uint64_t key)
{
    struct pair *at = slot_of(table, quota, key);
    assert_non_null(at);
    return slots_is_main(&table->slots[table_class(quota)], at);
}

/* New keys from *key on, until so many have spilled. */
static void fill(struct stint_table *table, const struct stint_quota *quota, uint64_t *key,
                 uint64_t spilled)
{
    while (slots_spilled(&table->slots[table_class(quota)]) < spilled)
        assert_int_equal(take_key(table, quota, (*key)++, 1).outcome, STINT_ALLOW);
}

/* Every key so far has one unit left, and gets it back. */
static void check_keys(struct stint_table *table, const struct stint_quota *quota, uint64_t keys)
{
    for (uint64_t key = 0; key < keys; key++) {
        struct stint_entry entry;
        const struct stint_ask peek = {.now_ns = NS_PER_S, .cost = 1, .verb = STINT_PEEK};
        assert_int_equal(take_key(table, quota, key, 2).outcome, STINT_DENY);
        assert_int_equal(table_ask(table, quota, &key, sizeof(key), &peek, NULL, NULL).outcome,
                         STINT_ALLOW);
        assert_int_equal(stint_find(table, quota, &key, sizeof(key), NS_PER_S, &entry), 0);
    }
}

TEST(test_the_front_is_whole_pages_of_a_large_class)
{
    struct stint_table *table = open_as(STINT_MEMORY_HEAP, false);
    for (int class = 0; class < CLASSES; class ++) {
        const struct slots *slots = &table->slots[class];
        if (class >= FRONTS) {
            assert_int_equal(slots->front, slots->sets);
            continue;
        }
        assert_int_equal(slots->sets, KEYS / 6);
        assert_int_equal(slots->front, slots->sets / 16);
        assert_int_equal(slots->front * slots->set_size % REGION_PAGE, 0);
        assert_int_equal(slots->spilled_max, SPILLED_MAX);
    }
    stint_table_close(table);
    const struct stint_table_options small = {.keys = 6 * 1023, .keys16 = 6 * 1024};
    struct region_fixed fixed;
    assert_int_equal(region_layout(&fixed, &small, NULL), 0);
    assert_int_equal(fixed.classes[CLASS_8].front, fixed.classes[CLASS_8].sets);
    assert_int_equal(fixed.classes[CLASS_16].front, 64);
}

TEST(test_a_front_of_another_size_is_refused)
{
    struct region_fixed fixed;
    const struct stint_table_options options = {.keys = KEYS};
    assert_int_equal(region_layout(&fixed, &options, NULL), 0);
    assert_int_equal(region_layout_check(&fixed, fixed.bytes, "it", NULL), 0);
    fixed.classes[CLASS_8].front++;
    assert_int_equal(region_layout_check(&fixed, fixed.bytes, "it", NULL), STINT_E_CORRUPT);
}

/* Before the first spill, between, and when the front is left behind. */
TEST(test_keys_are_found_in_every_phase)
{
    for (size_t i = 0; i < N(forms); i++) {
        struct stint_table *table = open_as(STINT_MEMORY_HEAP, false);
        const struct stint_quota quota = quota_of(forms[i].spec);
        uint64_t keys = 0;
        while (keys < FRONT_SLOTS / 2)
            take_key(table, &quota, keys++, 1);
        assert_int_equal(slots_spilled(&table->slots[forms[i].class]), 0);
        check_keys(table, &quota, keys);
        fill(table, &quota, &keys, 1);
        assert_true(is_in_main(table, &quota, keys - 1));
        check_keys(table, &quota, keys);
        fill(table, &quota, &keys, SPILLED_MAX);
        check_keys(table, &quota, keys);
        while (keys < KEYS / 2)
            take_key(table, &quota, keys++, 1);
        check_keys(table, &quota, keys);
        assert_int_equal(slots_spilled(&table->slots[forms[i].class]), SPILLED_MAX);
        struct stint_table_info info;
        stint_table_info(table, NS_PER_S, &info);
        assert_int_equal(info.live[forms[i].class], keys);
        stint_table_close(table);
    }
}

/* A slot that becomes free in the front is used before the threshold, and not after it. */
TEST(test_new_keys_go_to_the_front_until_the_threshold)
{
    for (size_t i = 0; i < N(forms); i++) {
        struct stint_table *table = open_as(STINT_MEMORY_HEAP, false);
        const struct stint_quota quota = quota_of(forms[i].spec);
        uint64_t keys = 0;
        fill(table, &quota, &keys, SPILLED_MAX / 2);
        for (int phase = 0; phase < 2; phase++) {
            uint64_t gone = keys - 1, again = keys;
            /* The sets of the front then have a free slot or two each. */
            for (unsigned n = 0; n < 200; gone--)
                if (slot_of(table, &quota, gone) != NULL && !is_in_main(table, &quota, gone)) {
                    table_forget(table, &quota, table_hash(table, &quota, &gone, sizeof(gone)));
                    n++;
                }
            unsigned in_front = 0;
            for (; keys < again + 40; keys++) {
                take_key(table, &quota, keys, 1);
                in_front += !is_in_main(table, &quota, keys);
            }
            if (phase == 0)
                assert_true(in_front > 20);
            else
                assert_int_equal(in_front, 0);
            if (phase == 0)
                fill(table, &quota, &keys, SPILLED_MAX);
        }
        stint_table_close(table);
    }
}

/* Keys that have the same four sets, by their hash. */
static bool is_admitted(struct stint_table *table, const struct stint_quota *quota, uint64_t key)
{
    const struct stint_ask ask = {.now_ns = NS_PER_S, .cost = 1, .verb = STINT_TAKE};
    const struct hash128 hash = {.hi = 0, .lo = key << 16};
    return table_ask_hash(table, quota, hash, &ask, NULL, NULL).outcome == STINT_ALLOW;
}

static bool hash_is_in_main(const struct stint_table *table, const struct stint_quota *quota,
                            uint64_t key)
{
    const struct slots *slots = &table->slots[table_class(quota)];
    const struct home home = slots_home(slots, (struct hash128){.hi = 0, .lo = key << 16});
    return slots_is_main(slots, slots_find(slots, &home).at);
}

/* All slots of all four sets are used, in either order. */
TEST(test_no_capacity_is_lost)
{
    for (size_t i = 0; i < 2 * N(forms); i++) {
        const struct form *form = &forms[i / 2];
        struct stint_table *table = open_as(STINT_MEMORY_HEAP, false);
        struct stint_quota quota = quota_of(form->spec);
        quota.when_full = STINT_FULL_INHERIT;
        assert_int_equal(stint_quota_check(&quota, NULL), 0);
        const bool is_left_behind = i % 2 == 1;
        if (is_left_behind)
            *table->slots[form->class].spilled = SPILLED_MAX;
        for (uint64_t key = 1; key <= HOME_SETS * WAYS; key++) {
            assert_true(is_admitted(table, &quota, key));
            assert_int_equal(hash_is_in_main(table, &quota, key),
                             (key > PAIR_SETS * WAYS) != is_left_behind);
        }
        assert_false(is_admitted(table, &quota, HOME_SETS * WAYS + 1));
        for (uint64_t key = 1; key <= HOME_SETS * WAYS; key++) {
            assert_true(is_admitted(table, &quota, key));
            assert_false(is_admitted(table, &quota, key));
        }
        stint_table_close(table);
    }
}

/* Of four sets of live states the one with the smallest share in use is evicted. */
TEST(test_a_victim_is_chosen_in_both_parts)
{
    for (size_t i = 0; i < 2 * N(forms); i++) {
        const struct form *form = &forms[i / 2];
        struct stint_table *table = open_as(STINT_MEMORY_HEAP, false);
        const struct stint_quota quota =
            quota_of(form->class == CLASS_8 ? "gcra 9/1h burst=9 when_full=evict"
                                            : "window 9/1h when_full=evict");
        const uint64_t victim = i % 2 == 0 ? 3 : HOME_SETS * WAYS - 3;
        for (uint64_t key = 1; key <= HOME_SETS * WAYS; key++)
            for (unsigned n = 0; n < (key == victim ? 1 : 4); n++)
                assert_true(is_admitted(table, &quota, key));
        bool was_in_main = hash_is_in_main(table, &quota, victim);
        assert_true(is_admitted(table, &quota, HOME_SETS * WAYS + 1));
        assert_int_equal(hash_is_in_main(table, &quota, HOME_SETS * WAYS + 1), was_in_main);
        stint_table_close(table);
    }
}

/* A request that began before the first spill sees what was published since. */
TEST(test_an_old_home_finds_a_new_key_in_the_main_part)
{
    struct stint_table *table = open_as(STINT_MEMORY_HEAP, false);
    const struct stint_quota quota = quota_of(forms[0].spec);
    const struct slots *slots = &table->slots[CLASS_8];
    const struct hash128 hash = {.hi = 0, .lo = (PAIR_SETS * WAYS + 1) << 16};
    const struct home home = slots_home(slots, hash);
    for (uint64_t key = 1; key <= PAIR_SETS * WAYS + 1; key++)
        assert_true(is_admitted(table, &quota, key));
    struct seen seen = slots_find(slots, &home);
    assert_true(slots_is_main(slots, seen.at));
    assert_ptr_equal(slots_find_exact(slots, hash, seen.pair.first), seen.at);
    stint_table_close(table);
}

/* ---- Pages ----------------------------------------------------------------------------------- */

/* Those of the main part that are in memory. */
static uint64_t pages_of_main(const struct stint_table *table, enum slot_class class)
{
    const struct slots *slots = &table->slots[class];
    uint8_t *from = slots->base + slots->front * slots->set_size;
    size_t n = (slots->sets - slots->front) * slots->set_size / REGION_PAGE;
    unsigned char *resident = calloc(n, 1);
    assert_non_null(resident);
    assert_int_equal(mincore(from, n * REGION_PAGE, resident), 0);
    uint64_t pages = 0;
    for (size_t i = 0; i < n; i++)
        pages += resident[i] & 1;
    free(resident);
    return pages;
}

static bool visit(const struct stint_entry *entry, void *arg)
{
    (void)entry;
    ++*(uint64_t *)arg;
    return true;
}

/* Memory that processes share: a page that is only read is resident too. */
TEST(test_the_main_part_is_not_touched_before_a_spill)
{
    struct stint_table *table = open_as(STINT_MEMORY_SHARED, false);
    for (size_t i = 0; i < N(forms); i++) {
        const struct stint_quota quota = quota_of(forms[i].spec);
        struct stint_table_info info;
        uint64_t keys = 0, visited = 0;
        while (keys < FRONT_SLOTS / 2)
            take_key(table, &quota, keys++, 1);
        check_keys(table, &quota, keys);
        stint_table_info(table, NS_PER_S, &info);
        stint_table_each(table, NS_PER_S, visit, &visited);
        assert_int_equal(info.live[forms[i].class], keys);
        assert_int_equal(visited, keys * (i + 1));
        assert_int_equal(stint_table_snapshot(table, path, NULL), 0);
        assert_int_equal(pages_of_main(table, forms[i].class), 0);
    }
    for (size_t i = 0; i < N(forms); i++) {
        const struct stint_quota quota = quota_of(forms[i].spec);
        uint64_t keys = FRONT_SLOTS / 2;
        fill(table, &quota, &keys, 1);
        assert_int_equal(pages_of_main(table, forms[i].class), 2);
    }
    stint_table_close(table);
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* A snapshot of each phase opens with the same keys, also read-only. */
TEST(test_a_snapshot_has_both_parts)
{
    const uint64_t phases[] = {0, 1, SPILLED_MAX};
    for (size_t i = 0; i < N(forms) * N(phases); i++) {
        struct stint_table *table = open_as(STINT_MEMORY_HEAP, false);
        const struct stint_quota quota = quota_of(forms[i / N(phases)].spec);
        uint64_t keys = 0, visited = 0;
        while (keys < FRONT_SLOTS / 4)
            take_key(table, &quota, keys++, 1);
        fill(table, &quota, &keys, phases[i % N(phases)]);
        assert_int_equal(stint_table_snapshot(table, path, NULL), 0);
        stint_table_close(table);
        table = open_as(STINT_MEMORY_FILE, true);
        stint_table_each(table, NS_PER_S, visit, &visited);
        assert_int_equal(visited, keys);
        stint_table_close(table);
        table = open_as(STINT_MEMORY_FILE, false);
        check_keys(table, &quota, keys);
        stint_table_close(table);
        remove_file();
    }
}

static void set_spilled(enum slot_class class, uint64_t spilled)
{
    struct stint_table *table = open_as(STINT_MEMORY_FILE, false);
    table->region.header->spilled[class] = spilled;
    stint_table_close(table);
}

/* A head that lost the number, or never had it: the slots decide. */
TEST(test_a_wrong_number_of_spilled_keys_is_repaired)
{
    for (size_t i = 0; i < N(forms); i++) {
        struct stint_table *table = open_as(STINT_MEMORY_FILE, false);
        const struct stint_quota quota = quota_of(forms[i].spec);
        uint64_t keys = 0;
        while (keys < FRONT_SLOTS / 2)
            take_key(table, &quota, keys++, 1);
        stint_table_close(table);
        set_spilled(forms[i].class, UINT64_MAX);
        table = open_as(STINT_MEMORY_FILE, false);
        assert_int_equal(slots_spilled(&table->slots[forms[i].class]), 0);
        fill(table, &quota, &keys, 2);
        stint_table_close(table);
        set_spilled(forms[i].class, 0);
        table = open_as(STINT_MEMORY_FILE, false);
        assert_int_equal(slots_spilled(&table->slots[forms[i].class]), 1);
        check_keys(table, &quota, keys);
        stint_table_close(table);
        remove_file();
    }
}
