/* SPDX-License-Identifier: MIT */
/*
 * A table's file, damaged: opening it must be refused, or give a table that answers everything it
 * is asked, comes to an end, and can be closed.
 *
 * The file is a good one with all kinds of states in it. The input is a list of changes: a place
 * (in the head, the tickets, pools, overrides and answers, the blocks, or a generation), a length,
 * and the bytes to put there. What the head's checksum covers is made right again if the first byte
 * says so: else an input that touches it would never get behind it.
 */
#define _GNU_SOURCE
#include "bytes.h"
#include "stint.h"

#include "base/ns.h"
#include "table/overrides.h"
#include "table/region/region.h"
#include "table/requests.h"

#include <unistd.h>

#define PATCHES_MAX 64

static const char *const specs[] = {
    "gcra 5/1s burst=3",
    "window 9/1s resolution=12",
    "window 40/1s",
    "window 40/1s resolution=100",
    "log 6/1s",
    "buckets 20/1s time_slack=100ms count_slack=4",
    "fixed_window 7/1s",
    "sliding_counter 8/1s",
    "concurrency 4 lease=1s",
};
#define SPECS (sizeof(specs) / sizeof(*specs))

static struct stint_quota quotas[SPECS];
static uint8_t *good;
static size_t good_size;
static const uint64_t made_ns = 5 * NS_PER_S;

static struct stint_table_options options_for(const char *path)
{
    return (struct stint_table_options){
        .path = path,
        .keys = 12,
        .keys16 = 12,
        .keys_wide = 12,
        .wide_size = 256,
        .tickets = 32,
        .blocks = 4,
        .quotas = 12,
        .overrides = 2,
        .requests = 8,
        .hash_key = {3, 4},
        .clock = STINT_CLOCK_VIRTUAL,
    };
}

/* What a server keeps beside states: an answer is given as it was recorded, or not at all. */
static void use_answers(struct stint_table *table, uint64_t now_ns)
{
    for (uint64_t id = 0; id < 4; id++) {
        const struct requests_ask ask = {requests_hash(table, &id, sizeof(id)), id, now_ns,
                                         NS_PER_HOUR};
        struct requests_answer answer = {.at_ns = id, .decision = {.granted = (uint32_t)id}};
        struct requests_claim claim;
        enum requests_found found = requests_begin(table, &ask, &claim, &answer);
        MUST(found != REQUESTS_SAME || (answer.at_ns == id && answer.decision.granted == id));
        if (found == REQUESTS_NEW)
            requests_end(table, &claim, &answer);
    }
}

static void use_overrides(struct stint_table *table)
{
    struct stint_quota quota = quotas[0], found;
    quota.rule = 9;
    for (char key = 'a'; key < 'd'; key++) {
        struct hash128 hash = table_hash(table, &quota, &key, 1);
        if (overrides_find(table, hash, quota.rule, &found))
            MUST(found.limit == quota.limit);
        overrides_set(table, hash, &quota, NULL);
    }
    overrides_drop(table, table_hash(table, &quota, "a", 1), NULL);
}

static void use_counters(struct stint_table *table, uint64_t now_ns)
{
    struct stint_counter counter;
    for (int64_t amount = -2; amount <= 2; amount++) {
        char key = (char)('c' + amount);
        int code = stint_count(table, &key, 1, amount, NS_PER_S, now_ns, &counter, NULL);
        MUST(counter.count <= STINT_COUNT_MAX);
        MUST(code != 0 || amount <= 0 || counter.count >= (uint64_t)amount);
    }
    stint_count_reset(table, "e", 1, NULL);
}

static void use_keys(struct stint_table *table, uint64_t now_ns)
{
    use_answers(table, now_ns);
    use_overrides(table);

    struct stint_item items[SPECS];
    struct stint_ticket ticket;
    use_counters(table, now_ns);
    for (char key = 'a'; key < 'f'; key++)
        for (size_t i = 0; i < SPECS; i++)
            stint_take(table, &quotas[i], &key, 1, 1 + (uint32_t)i % 2, now_ns + (uint64_t)i);
    for (size_t i = 0; i < SPECS; i++)
        items[i] = (struct stint_item){&quotas[i], "list", 4, 1};
    stint_reserve(table, items, SPECS, NS_PER_S, now_ns, &ticket);
    stint_settle(table, ticket, 0, now_ns, NULL);
    stint_peek(table, items, SPECS, now_ns);
    stint_refund(table, items, SPECS, now_ns, now_ns);
    stint_book(table, items, 1, NS_PER_S, now_ns, &ticket);
    stint_cancel(table, ticket, now_ns, NULL);
    stint_set_quota(table, &quotas[0], &quotas[1], "a", 1, now_ns);
    stint_block(table, "blocked", 7, now_ns + NS_PER_S, now_ns);
    stint_take(table, &quotas[0], "blocked", 7, 1, now_ns);
    stint_reset(table, &quotas[3], "b", 1, now_ns);
}

static void make_good(const char *path)
{
    struct stint_table *table;
    unlink(path);
    struct stint_table_options options = options_for(path);
    for (size_t i = 0; i < SPECS; i++)
        MUST(stint_quota_parse(&quotas[i], specs[i], NULL) == 0);
    MUST(stint_table_open(&table, &options, NULL) == 0);
    stint_table_set_now(table, made_ns);
    use_keys(table, made_ns);
    stint_table_close(table);
    FILE *file = fopen(path, "rb");
    MUST(file != NULL && fseek(file, 0, SEEK_END) == 0);
    good_size = (size_t)ftell(file);
    good = malloc(good_size);
    MUST(good != NULL && fseek(file, 0, SEEK_SET) == 0);
    MUST(fread(good, 1, good_size, file) == good_size);
    fclose(file);
    unlink(path);
}

static const struct region_header *good_header(void)
{
    return (const struct region_header *)(const void *)good;
}

/* A stretch of the file that the input may change. */
struct stretch {
    uint64_t begin, len;
};

/*
 * The words of class 16 that tell whose a state is: the generation in the pair, or the mark in the
 * top bits of the state. Tags and the states themselves are not changed: an algorithm asserts what
 * it has written itself, and holds a state of other bytes for a mistake of ours.
 */
static struct stretch generation_at(uint16_t pick)
{
    const struct class_layout *layout = &good_header()->fixed.classes[CLASS_16];
    uint64_t set = pick / (2 * WAYS) % layout->sets, way = pick % WAYS;
    uint64_t begin = layout->offset + set * layout->set_size;
    if (pick / WAYS % 2 == 0)
        return (struct stretch){begin + way * sizeof(struct pair) + 8, 8};
    return (struct stretch){begin + layout->state_offset + way * layout->state_stride + 14, 2};
}

static struct stretch stretch_of(uint8_t kind, uint16_t pick)
{
    const struct region_fixed *fixed = &good_header()->fixed;
    const struct class_layout *blocks = &fixed->classes[CLASS_BLOCKS];
    switch (kind % 4) {
    case 0:
        return (struct stretch){0, sizeof(struct region_header)};
    case 1:
        return (struct stretch){fixed->tickets_offset,
                                fixed->classes[CLASS_8].offset - fixed->tickets_offset};
    case 2:
        return generation_at(pick);
    default:
        return (struct stretch){blocks->offset, blocks->sets * blocks->set_size};
    }
}

/* Applies the changes of the input; returns how long the file is to be. */
static size_t damage(uint8_t *bytes, struct span input)
{
    uint8_t how = bytes_u8(&input);
    size_t size = good_size;
    for (int i = 0; i < PATCHES_MAX && input.len > 0; i++) {
        uint8_t kind = bytes_u8(&input);
        uint16_t pick = bytes_u16(&input);
        struct stretch stretch = stretch_of(kind, pick);
        uint64_t from = kind % 4 == 2 ? 0 : pick % stretch.len;
        size_t n = 1 + kind / 4 % 16;
        for (uint64_t b = from; b < from + n && b < stretch.len && input.len > 0; b++) {
            uint8_t byte = bytes_u8(&input);
            uint8_t *at = &bytes[stretch.begin + b];
            *at = kind >= 128 ? byte : *at ^ byte;
        }
    }
    if (how % 2 == 0)
        memcpy(bytes, good, sizeof(struct region_fixed) + sizeof(uint64_t));
    if (how >= 240)
        size = good_size * (how - 240u) / 16;
    return size;
}

static bool visit(const struct stint_entry *entry, void *arg)
{
    uint64_t *sum = arg;
    *sum += entry->decision.remaining + entry->expires_at_ns + entry->quota.limit;
    return true;
}

static void use_table(struct stint_table *table, const char *copy_path)
{
    struct stint_table_info info;
    struct stint_entry entry;
    struct stint_table *copy;
    uint64_t sum = 0;
    stint_table_info(table, made_ns, &info);
    stint_table_each(table, made_ns, visit, &sum);
    for (size_t i = 0; i < SPECS; i++)
        stint_find(table, &quotas[i], "a", 1, made_ns, &entry);
    use_keys(table, made_ns + 1);
    use_keys(table, made_ns + NS_PER_S / 2);
    unlink(copy_path);
    if (stint_table_snapshot(table, copy_path, NULL) == 0) {
        struct stint_table_options options = options_for(copy_path);
        options.must_exist = true;
        if (stint_table_open(&copy, &options, NULL) == 0)
            stint_table_close(copy);
        unlink(copy_path);
    }
    use_keys(table, made_ns + 3 * NS_PER_S);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[64], copy_path[64];
    if (good == NULL) {
        snprintf(path, sizeof(path), "/dev/shm/stint-fuzz-%ld", (long)getpid());
        snprintf(copy_path, sizeof(copy_path), "/dev/shm/stint-fuzz-%ld-copy", (long)getpid());
        make_good(path);
    }
    uint8_t *bytes = bytes_copy(span_of(good, good_size));
    size_t file_size = damage(bytes, span_of(data, size));
    FILE *file = fopen(path, "wb");
    MUST(file != NULL && fwrite(bytes, 1, file_size, file) == file_size);
    fclose(file);
    free(bytes);

    struct stint_table_options options = options_for(path);
    struct stint_table *table;
    struct stint_error error;
    options.must_exist = true;
    int code = stint_table_open(&table, &options, &error);
    if (code == 0) {
        use_table(table, copy_path);
        stint_table_close(table);
    } else {
        MUST(error.code == code && error.message[0] != '\0');
    }
    unlink(path);
    return 0;
}
