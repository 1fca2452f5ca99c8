/* SPDX-License-Identifier: MIT */
/*
 * Layouts of regions: room for what was asked, nothing over anything else, and no header accepted
 * that would lead out of its file.
 */
#include "unit/test_quota.h"

#include "table/intern.h"
#include "table/overrides.h"
#include "table/region/region.h"
#include "table/requests.h"
#include "table/slot/slots.h"

#define LOCK_SIZE 16 /* in front of the bytes of a wide state */

static const struct stint_table_options layouts[] = {
    {.keys = 0},
    {.keys = 1, .keys16 = 1, .tickets = 1, .blocks = 1, .quotas = 1},
    {.keys = 6, .keys16 = 7, .keys_wide = 1, .wide_size = 1},
    {.keys = 1000, .keys16 = 12, .keys_wide = 100, .wide_size = 300, .tickets = 3, .quotas = 100},
    {.keys = 99, .keys_wide = 2, .wide_size = 65536, .blocks = 100, .quotas = 32704, .pools = 9},
    {.overrides = 1, .requests = 1},
    {.overrides = 1000, .requests = 65536},
    {.keys = 4000000000, .keys16 = 3000000000, .tickets = 1u << 26, .blocks = 1u << 26},
};
#define N_LAYOUTS (N(layouts))

static struct region_fixed layout_of(const struct stint_table_options *options)
{
    struct region_fixed fixed;
    struct stint_error error;
    if (region_layout(&fixed, options, &error) != 0)
        fail_msg("%s", error.message);
    return fixed;
}

static uint64_t or_default(uint64_t asked, uint64_t otherwise)
{
    return asked > 0 ? asked : otherwise;
}

/* The keys asked for fill three quarters of their places, and not a set more is taken than needed.
 */
TEST(test_there_is_space_for_what_was_asked)
{
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        const struct stint_table_options *options = &layouts[i];
        struct region_fixed fixed = layout_of(options);
        const uint64_t keys[CLASSES] = {
            [CLASS_8] = or_default(options->keys, 65536),
            [CLASS_16] = or_default(options->keys16, 65536),
            [CLASS_WIDE] = or_default(options->keys_wide, 1024),
            [CLASS_BLOCKS] = or_default(options->blocks, 4096),
        };
        for (int class = 0; class < CLASSES; class ++) {
            uint64_t sets = fixed.classes[class].sets;
            assert_true(sets * WAYS * 3 >= keys[class] * 4);
            assert_true(sets > 0 && (sets - 1) * WAYS * 3 < keys[class] * 4);
        }
        assert_int_equal(fixed.classes[CLASS_WIDE].state_size,
                         or_default(options->wide_size, 4096));
        uint64_t quotas = or_default(options->keys, 65536) / 16;
        quotas = quotas < 1024 ? 1024 : quotas > 32704 ? 32704 : quotas;
        assert_int_equal(fixed.quotas_max, or_default(options->quotas, quotas));
        assert_int_equal(fixed.tickets_max, or_default(options->tickets, 65536));
        assert_int_equal(fixed.pools_max, or_default(options->pools, 16));
        assert_int_equal(fixed.overrides_max, or_default(options->overrides, 4096));
        assert_true(fixed.request_sets * REQUESTS_WAYS >= options->requests);
        assert_int_equal(fixed.skew_max_ns, S);
    }
}

/* The parts of a region follow one another: each begins on a page, behind the end of the last. */
TEST(test_no_part_lies_over_another)
{
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        struct region_fixed fixed = layout_of(&layouts[i]);
        struct {
            uint64_t offset, size;
        } parts[CLASSES + 5] = {
            {fixed.quotas_offset, fixed.quotas_max * sizeof(struct quota_slot)},
            {fixed.tickets_offset, (uint64_t)fixed.tickets_max * TICKET_SIZE},
            {fixed.pools_offset, (uint64_t)fixed.pools_max * POOL_RECORD_SIZE},
            {fixed.overrides_offset, overrides_places(&fixed) * OVERRIDE_SIZE},
            {fixed.requests_offset, fixed.request_sets * REQUESTS_SET_SIZE},
        };
        for (int class = 0; class < CLASSES; class ++) {
            parts[class + 5].offset = fixed.classes[class].offset;
            parts[class + 5].size = fixed.classes[class].sets * fixed.classes[class].set_size;
        }
        uint64_t end = sizeof(struct region_header);
        for (size_t part = 0; part < CLASSES + 5; part++) {
            assert_true(parts[part].offset >= end);
            assert_int_equal(parts[part].offset % REGION_PAGE, 0);
            end = parts[part].offset + parts[part].size;
        }
        assert_true(fixed.bytes >= end);
        assert_int_equal(fixed.bytes % REGION_PAGE, 0);
    }
}

static void claim(uint8_t *owned, size_t set_size, const uint8_t *set, const void *at, size_t size)
{
    size_t first = (size_t)((const uint8_t *)at - set);
    assert_true(first + size <= set_size);
    for (size_t i = first; i < first + size; i++)
        assert_int_equal(owned[i]++, 0);
}

/* Within a set every byte belongs to one pair or one state at most, and no pair straddles a line.
 */
TEST(test_no_slot_lies_over_another)
{
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        struct region_fixed fixed = layout_of(&layouts[i]);
        for (int class = 0; class < CLASSES; class ++) {
            const struct class_layout *layout = &fixed.classes[class];
            struct slots slots = {.half_size = layout->half_size,
                                  .state_offset = layout->state_offset,
                                  .state_stride = layout->state_stride,
                                  .state_half = layout->state_half};
            uint8_t *set = test_calloc(2, layout->set_size), *owned = set + layout->set_size;
            size_t state_size =
                layout->state_stride == 0
                    ? 0
                    : layout->state_size + (size_t)(class == CLASS_WIDE ? LOCK_SIZE : 0);
            for (unsigned way = 0; way < WAYS; way++) {
                uint8_t *pair = (uint8_t *)slots_pair(&slots, set, way);
                assert_int_equal((size_t)(pair - set) % sizeof(struct pair), 0);
                claim(owned, layout->set_size, set, pair, sizeof(struct pair));
                if (state_size > 0)
                    claim(owned, layout->set_size, set, slots_state(&slots, set, way), state_size);
            }
            assert_int_equal(layout->set_size % 64, 0);
            test_free(set);
        }
    }
}

static void assert_refused(struct stint_table_options options, int code)
{
    struct region_fixed fixed;
    struct stint_error error = {.code = 0};
    assert_int_equal(region_layout(&fixed, &options, &error), code);
    assert_int_equal(error.code, code);
    assert_true(error.message[0] != '\0');
}

/* Sizes that cannot be are refused one past the greatest that can. */
TEST(test_sizes_that_cannot_be_are_refused)
{
    const uint64_t most = UINT64_C(1) << 33;
    const int64_t far = INT64_C(1) << 62;
    layout_of(&(struct stint_table_options){.keys = most, .keys16 = most, .epoch_ns = far});
    assert_refused((struct stint_table_options){.keys = most + 1}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.keys16 = most + 1}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.keys_wide = most + 1, .wide_size = 8},
                   STINT_E_RANGE);
    assert_refused((struct stint_table_options){.keys_wide = 1, .wide_size = 65537}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.quotas = 32705}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.pools = 65537}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.overrides = (1u << 24) + 1}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.requests = (1u << 26) + 1}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.tickets = (1u << 26) + 1}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.blocks = (1u << 26) + 1}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.epoch_ns = far + 1}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.epoch_ns = -far - 1}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.clock = 2}, STINT_E_RANGE);
    assert_refused((struct stint_table_options){.memory = 3}, STINT_E_RANGE);
}

static void assert_check(const struct region_fixed *fixed, uint64_t file_size, int code)
{
    struct stint_error error = {.code = 0};
    assert_int_equal(region_layout_check(fixed, file_size, "the-file", &error), code);
    if (code != 0)
        assert_non_null(strstr(error.message, "the-file"));
}

/* What was laid out is accepted as it is; another kind, version or length is told apart by code. */
TEST(test_a_header_of_another_kind_is_refused)
{
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        const struct region_fixed good = layout_of(&layouts[i]);
        struct region_fixed bad = good;
        assert_check(&good, good.bytes, 0);
        assert_check(&good, good.bytes - 1, STINT_E_CORRUPT);
        assert_check(&good, good.bytes + 1, STINT_E_CORRUPT);
        bad.magic ^= 1;
        bad.version++; /* of a file that is no table, no version is told */
        assert_check(&bad, good.bytes, STINT_E_CORRUPT);
        bad = good;
        bad.version++;
        assert_check(&bad, good.bytes, STINT_E_VERSION);
        bad = good;
        bad.quota_size -= 8;
        assert_check(&bad, good.bytes, STINT_E_VERSION);
    }
}

/* Whether some byte of a part is not in the file, or is one of another part. */
static bool leads_astray(const struct region_fixed *fixed)
{
    const uint64_t quotas_size = fixed->quotas_max * sizeof(struct quota_slot);
    const uint64_t tickets_size = (uint64_t)fixed->tickets_max * TICKET_SIZE;
    unsigned __int128 end = sizeof(struct region_header);
    if (fixed->quotas_offset < end || fixed->quotas_max == 0 || fixed->quotas_max > 32767)
        return true;
    end = (unsigned __int128)fixed->quotas_offset + quotas_size;
    if (fixed->tickets_offset < end || fixed->tickets_max == 0)
        return true;
    end = (unsigned __int128)fixed->tickets_offset + tickets_size;
    if (fixed->pools_offset < end || fixed->pools_max == 0)
        return true;
    end = (unsigned __int128)fixed->pools_offset + (uint64_t)fixed->pools_max * POOL_RECORD_SIZE;
    if (fixed->overrides_offset < end || fixed->overrides_max == 0)
        return true;
    end = (unsigned __int128)fixed->overrides_offset + overrides_places(fixed) * OVERRIDE_SIZE;
    if (fixed->requests_offset < end)
        return true;
    end = fixed->requests_offset + (unsigned __int128)fixed->request_sets * REQUESTS_SET_SIZE;
    for (int class = 0; class < CLASSES; class ++) {
        const struct class_layout *layout = &fixed->classes[class];
        uint64_t last_pair = layout->half_size + HALF_WAYS * sizeof(struct pair);
        uint64_t last_state = (uint64_t)layout->state_offset + layout->state_half +
                              (HALF_WAYS - 1) * (uint64_t)layout->state_stride;
        if (layout->state_stride > 0)
            last_state += layout->state_size + (uint64_t)(class == CLASS_WIDE ? LOCK_SIZE : 0);
        if (layout->offset < end || layout->offset % REGION_PAGE != 0 ||
            last_pair > layout->set_size || last_state > layout->set_size ||
            layout->set_size % sizeof(struct pair) != 0 ||
            layout->state_stride % sizeof(struct pair) != 0 ||
            (layout->sets == 0 && class != CLASS_WIDE))
            return true;
        end = layout->offset + (unsigned __int128)layout->sets * layout->set_size;
    }
    return end > fixed->bytes;
}

/* A layout that leads out of its part, or of the file, is refused, whichever bit is another: the
 * checksum is no secret, so these numbers may be anybody's. */
TEST(test_a_layout_that_leads_astray_is_refused)
{
    const size_t first = offsetof(struct region_fixed, classes);
    const size_t end = offsetof(struct region_fixed, hash_key);
    unsigned astray = 0;
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        const struct region_fixed good = layout_of(&layouts[i]);
        for (size_t bit = first * 8; bit < end * 8; bit++) {
            struct region_fixed bad = good;
            ((unsigned char *)&bad)[bit / 8] ^= (unsigned char)(1u << bit % 8);
            if (!leads_astray(&bad))
                continue;
            astray++;
            assert_check(&bad, good.bytes, STINT_E_CORRUPT);
        }
    }
    assert_true(astray > N_LAYOUTS * 500);
    struct region_fixed none = layout_of(&layouts[0]);
    none.classes[CLASS_BLOCKS].sets = 0; /* the last, so that the rest is as it would be */
    none.bytes = none.classes[CLASS_BLOCKS].offset;
    assert_check(&none, none.bytes, STINT_E_CORRUPT);
}
