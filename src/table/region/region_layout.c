/* SPDX-License-Identifier: MIT */
/* Sizes and offsets of the parts of a region. */
#include "table/region/region_layout.h"

#include "base/limits.h"
#include "base/wide_int.h"
#include "table/intern.h"
#include "table/overrides.h"
#include "table/requests.h"

#include <assert.h>
#include <string.h>

#define KEYS_DEFAULT 65536
/*
 * Wide enough for any buckets, and a log of 509: memory that no wide state has touched stays with
 * the kernel, but in a file it is allocated.
 */
#define WIDE_KEYS_DEFAULT 1024
#define WIDE_SIZE_DEFAULT 4096
#define TICKETS_DEFAULT 65536
#define BLOCKS_DEFAULT 4096
#define QUOTAS_DEFAULT 1024 /* at the least */
#define KEYS_PER_QUOTA 16
#define POOLS_DEFAULT 16
#define OVERRIDES_DEFAULT 4096
#define SETS_MAX (UINT64_C(1) << 31)
#define TICKETS_MAX (1u << 26)
#define BLOCKS_MAX (1u << 26)
#define POOLS_MAX 65536u
#define OVERRIDES_MAX (1u << 24)
#define REQUESTS_MAX (1u << 26)
#define REQUEST_SETS_MAX (REQUESTS_MAX / REQUESTS_MEAN)
#define PAIRS_SIZE (WAYS * sizeof(struct pair))
#define LINE_SIZE (HALF_WAYS * sizeof(struct pair))
/* Mean answers per set of REQUESTS_WAYS slots: with as many answers as were configured, one set
 * in 16 has more answers than slots, and drops one early. */
#define REQUESTS_MEAN 8
#define LOCK_SIZE 16 /* a wide state's owner word; keeps the bytes after it aligned to 16 */

static uint64_t round_up(uint64_t n, uint64_t to)
{
    assert(to > 0);
    return (n + to - 1) / to * to;
}

/* Enough sets that `keys` live keys fill three quarters: one in 10^5 then finds no free slot. */
static uint64_t sets_for(uint64_t keys)
{
    uint64_t sets = (keys + WAYS * 3 / 4 - 1) / (WAYS * 3 / 4);
    return sets > 0 ? sets : 1;
}

/*
 * A set begins with its pairs, followed by its states. In class 16 each half of the pairs, one
 * cache line, is followed by its own states, the adjacent line, which the processor fetches with
 * it. The number of sets and the size of a state are given; returns the end of the class.
 */
static uint64_t place_class(struct class_layout *layout, enum slot_class class, uint64_t offset)
{
    assert(offset % REGION_PAGE == 0);
    bool interleaved = class == CLASS_16;
    uint32_t stride = 0; /* the pair holds the state */
    if (interleaved)
        stride = sizeof(struct pair);
    else if (class == CLASS_WIDE)
        stride = (uint32_t)round_up(LOCK_SIZE + layout->state_size, 64);
    layout->offset = offset;
    layout->half_size = interleaved ? 2 * LINE_SIZE : LINE_SIZE;
    layout->state_offset = interleaved ? LINE_SIZE : PAIRS_SIZE;
    layout->state_stride = stride;
    layout->state_half = interleaved ? layout->half_size : HALF_WAYS * stride;
    layout->set_size = PAIRS_SIZE + WAYS * stride;
    return round_up(offset + layout->sets * layout->set_size, REGION_PAGE);
}

/* Computes all offsets from the counts. */
static void place_parts(struct region_fixed *fixed)
{
    uint64_t at = round_up(sizeof(struct region_header), REGION_PAGE);
    fixed->quotas_offset = at;
    at = round_up(at + fixed->quotas_max * sizeof(struct quota_slot), REGION_PAGE);
    fixed->tickets_offset = at;
    at = round_up(at + (uint64_t)fixed->tickets_max * TICKET_SIZE, REGION_PAGE);
    fixed->pools_offset = at;
    at = round_up(at + (uint64_t)fixed->pools_max * POOL_RECORD_SIZE, REGION_PAGE);
    fixed->overrides_offset = at;
    at = round_up(at + overrides_places(fixed) * OVERRIDE_SIZE, REGION_PAGE);
    fixed->requests_offset = at;
    at = round_up(at + fixed->request_sets * REQUESTS_SET_SIZE, REGION_PAGE);
    for (int class = 0; class < CLASSES; class ++)
        at = place_class(&fixed->classes[class], (enum slot_class) class, at);
    fixed->bytes = at;
}

static int check_options(const struct stint_table_options *options, struct stint_error *error)
{
    uint64_t most = SETS_MAX * WAYS / 2;
    if (options->keys > most || options->keys16 > most || options->keys_wide > most)
        return err_set(error, STINT_E_RANGE, "a table holds at most %llu keys of a size",
                       (unsigned long long)most);
    if (options->wide_size > WIDE_STATE_MAX)
        return err_set(error, STINT_E_RANGE, "wide_size is %u; a state has at most %u bytes",
                       options->wide_size, WIDE_STATE_MAX);
    if (options->quotas > TABLE_QUOTAS_MAX)
        return err_set(error, STINT_E_RANGE, "a table holds at most %u different quotas",
                       (unsigned)TABLE_QUOTAS_MAX);
    if (options->tickets > TICKETS_MAX || options->blocks > BLOCKS_MAX)
        return err_set(error, STINT_E_RANGE, "at most %u tickets and %u blocks", TICKETS_MAX,
                       BLOCKS_MAX);
    if (options->pools > POOLS_MAX)
        return err_set(error, STINT_E_RANGE, "a table holds at most %u pools", POOLS_MAX);
    if (options->overrides > OVERRIDES_MAX || options->requests > REQUESTS_MAX)
        return err_set(error, STINT_E_RANGE, "at most %u overrides and %u answers to requests",
                       OVERRIDES_MAX, REQUESTS_MAX);
    if (options->epoch_ns < -EPOCH_MAX_NS || options->epoch_ns > EPOCH_MAX_NS)
        return err_set(error, STINT_E_RANGE, "epoch is more than 146 years away from 1970");
    if (options->clock > STINT_CLOCK_VIRTUAL || options->memory > STINT_MEMORY_FILE)
        return err_set(error, STINT_E_RANGE, "clock or memory is not one of its enum's values");
    return 0;
}

static uint32_t quotas_for(uint64_t keys)
{
    return (uint32_t)min_u64(max_u64(keys / KEYS_PER_QUOTA, QUOTAS_DEFAULT), TABLE_QUOTAS_MAX);
}

int region_layout(struct region_fixed *fixed, const struct stint_table_options *options,
                  struct stint_error *error)
{
    int code = check_options(options, error);
    if (code != 0)
        return code;
    uint64_t keys8 = options->keys > 0 ? options->keys : KEYS_DEFAULT;
    *fixed = (struct region_fixed){
        .magic = REGION_MAGIC,
        .version = REGION_VERSION,
        .quota_size = sizeof(struct stint_quota),
        .quotas_max = options->quotas > 0 ? options->quotas : quotas_for(keys8),
        .tickets_max = options->tickets > 0 ? options->tickets : TICKETS_DEFAULT,
        .pools_max = options->pools > 0 ? options->pools : POOLS_DEFAULT,
        .overrides_max = options->overrides > 0 ? options->overrides : OVERRIDES_DEFAULT,
        .request_sets = (options->requests + REQUESTS_MEAN - 1) / REQUESTS_MEAN,
        .skew_max_ns = options->skew_max_ns > 0 ? options->skew_max_ns : NS_PER_S,
        .clock = options->clock,
    };
    uint64_t keys16 = options->keys16 > 0 ? options->keys16 : KEYS_DEFAULT;
    uint64_t keys_wide = options->keys_wide > 0 ? options->keys_wide : WIDE_KEYS_DEFAULT;
    uint32_t wide_size = options->wide_size > 0 ? options->wide_size : WIDE_SIZE_DEFAULT;
    uint32_t blocks = options->blocks > 0 ? options->blocks : BLOCKS_DEFAULT;
    struct class_layout *classes = fixed->classes;
    classes[CLASS_8] = (struct class_layout){.sets = sets_for(keys8), .state_size = 8};
    classes[CLASS_16] = (struct class_layout){.sets = sets_for(keys16), .state_size = 16};
    classes[CLASS_WIDE] =
        (struct class_layout){.sets = sets_for(keys_wide), .state_size = wide_size};
    classes[CLASS_BLOCKS] = (struct class_layout){.sets = sets_for(blocks), .state_size = 8};
    place_parts(fixed);
    assert(fixed->bytes % REGION_PAGE == 0 && fixed->quotas_max <= TABLE_QUOTAS_MAX);
    return 0;
}

/* Whether all counts are within their ranges. */
static bool counts_fit(const struct region_fixed *fixed)
{
    static const uint32_t state_sizes[CLASSES] = {
        [CLASS_8] = 8, [CLASS_16] = 16, [CLASS_BLOCKS] = 8};
    for (int class = 0; class < CLASSES; class ++) {
        const struct class_layout *layout = &fixed->classes[class];
        bool fits = class == CLASS_WIDE
                        ? layout->state_size <= WIDE_STATE_MAX
                        : layout->sets > 0 && layout->state_size == state_sizes[class];
        if (!fits || layout->sets > SETS_MAX)
            return false;
    }
    /* QUOTA_ID_MASK: tables of earlier versions. */
    return fixed->quotas_max > 0 && fixed->quotas_max <= QUOTA_ID_MASK && fixed->tickets_max > 0 &&
           fixed->tickets_max <= TICKETS_MAX && fixed->pools_max > 0 &&
           fixed->pools_max <= POOLS_MAX && fixed->overrides_max > 0 &&
           fixed->overrides_max <= OVERRIDES_MAX && fixed->request_sets <= REQUEST_SETS_MAX;
}

/*
 * A checksum without a secret does not show who wrote it, and every access to the region uses these
 * numbers: they are accepted only if they equal those computed here.
 */
static bool parts_fit(const struct region_fixed *fixed)
{
    struct region_fixed made;
    memcpy(&made, fixed, sizeof(made));
    place_parts(&made);
    return memcmp(&made, fixed, sizeof(made)) == 0;
}

int region_layout_check(const struct region_fixed *fixed, uint64_t file_size, const char *path,
                        struct stint_error *error)
{
    if (fixed->magic != REGION_MAGIC)
        return err_set(error, STINT_E_CORRUPT, "%s is not a stint table", path);
    if (fixed->version != REGION_VERSION || fixed->quota_size != sizeof(struct stint_quota))
        return err_set(error, STINT_E_VERSION,
                       "%s was made by another version or kind of machine (layout %u, this one "
                       "reads %u)",
                       path, fixed->version, REGION_VERSION);
    if (fixed->bytes != file_size)
        return err_set(error, STINT_E_CORRUPT, "%s is cut: %llu bytes of %llu", path,
                       (unsigned long long)file_size, (unsigned long long)fixed->bytes);
    if (!counts_fit(fixed) || !parts_fit(fixed))
        return err_set(error, STINT_E_CORRUPT, "%s is damaged: its layout does not fit", path);
    return 0;
}
