/* SPDX-License-Identifier: MIT */
/* What is in a table: figures, every live state, one key; and a copy of it all in a file. */
#define _GNU_SOURCE
#include "store/entry.h"

#include "store/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct asking looking(const struct stint_table *table, enum slot_class class,
                             uint64_t now_ns)
{
    /* Reading a wide state takes its owner word, which is no change of the table's meaning. */
    struct stint_table *mutable_table = (struct stint_table *)(uintptr_t)table;
    return (struct asking){
        .table = mutable_table, .slots = &table->slots[class], .ask = {.now_ns = now_ns}};
}

/* The live state in a slot; false for an empty, dead or pending one. */
static bool read_live(struct asking *asking, const struct seen *seen, struct entry_state *state)
{
    return entry_read(asking, seen, state) && entry_dies_at(state) > asking->ask.now_ns;
}

static uint64_t count_live(const struct stint_table *table, enum slot_class class, uint64_t now_ns)
{
    struct asking asking = looking(table, class, now_ns);
    struct entry_state state;
    uint64_t live = 0;
    for (uint64_t slot = 0; slot < asking.slots->sets * WAYS; slot++) {
        uint8_t *set = asking.slots->base + slot / WAYS * asking.slots->set_size;
        struct seen seen = slots_see(asking.slots, set, (unsigned)(slot % WAYS));
        if (class == CLASS_BLOCKS)
            live += seen.pair.first != 0 && (seen.pair.first & TAG_PENDING) == 0 &&
                    seen.pair.second > now_ns;
        else if (class == CLASS_WIDE && seen.pair.first != 0)
            live += wide_dies_at(&seen) > now_ns;
        else
            live += read_live(&asking, &seen, &state);
    }
    return live;
}

void stint_table_info(const struct stint_table *table, uint64_t now_ns,
                      struct stint_table_info *info)
{
    const struct region *region = &table->region;
    const struct region_header *header = region->header;
    const struct region_counters *counters = &header->counters;
    *info = (struct stint_table_info){
        .bytes = header->fixed.bytes,
        .blocked = count_live(table, CLASS_BLOCKS, now_ns),
        .quotas = (uint32_t)__atomic_load_n(&header->quotas, __ATOMIC_RELAXED),
        .quotas_max = header->fixed.quotas_max,
        .tickets = header->fixed.tickets_max,
        .wide_size = header->fixed.classes[CLASS_WIDE].state_size,
        .skew_max_ns = header->fixed.skew_max_ns,
        .mark_ns = __atomic_load_n(&header->mark_ns, __ATOMIC_RELAXED),
        .evictions_lossless = __atomic_load_n(&counters->evictions_lossless, __ATOMIC_RELAXED),
        .evictions_inherit = __atomic_load_n(&counters->evictions_inherit, __ATOMIC_RELAXED),
        .evictions_evict = __atomic_load_n(&counters->evictions_evict, __ATOMIC_RELAXED),
        .full_denied = __atomic_load_n(&counters->full_denied, __ATOMIC_RELAXED),
        .full_allowed = __atomic_load_n(&counters->full_allowed, __ATOMIC_RELAXED),
        .undo_kept_units = __atomic_load_n(&counters->undo_kept_units, __ATOMIC_RELAXED),
        .tickets_dropped = __atomic_load_n(&counters->tickets_dropped, __ATOMIC_RELAXED),
        .owners_displaced = __atomic_load_n(&counters->owners_displaced, __ATOMIC_RELAXED),
        .states_damaged = __atomic_load_n(&counters->states_damaged, __ATOMIC_RELAXED),
        .memory = region->memory,
        .clock = header->fixed.clock,
        .huge_pages = region->huge_pages,
        .restored = region->memory == STINT_MEMORY_FILE && !region->made,
        .filled = table->filled,
    };
    for (int class = 0; class < 3; class++) {
        info->slots[class] = table->slots[class].sets * WAYS;
        info->live[class] = count_live(table, (enum slot_class)class, now_ns);
    }
}

static void describe(const struct seen *seen, struct entry_state *state, uint64_t now_ns,
                     struct stint_entry *entry)
{
    entry->quota = *state->quota;
    entry->key_hash = seen->pair.first >> 16;
    entry->dies_at_ns = entry_dies_at(state);
    entry->decision = entry_peek(state, now_ns);
}

void stint_table_each(const struct stint_table *table, uint64_t now_ns,
                      bool (*visit)(const struct stint_entry *entry, void *arg), void *arg)
{
    struct entry_state state;
    struct stint_entry entry;
    for (int class = 0; class < 3; class++) {
        struct asking asking = looking(table, (enum slot_class)class, now_ns);
        for (uint64_t slot = 0; slot < asking.slots->sets * WAYS; slot++) {
            uint8_t *set = asking.slots->base + slot / WAYS * asking.slots->set_size;
            struct seen seen = slots_see(asking.slots, set, (unsigned)(slot % WAYS));
            if (!read_live(&asking, &seen, &state))
                continue;
            describe(&seen, &state, now_ns, &entry);
            if (!visit(&entry, arg))
                return;
        }
    }
}

int stint_find(const struct stint_table *table, const struct stint_quota *quota, const void *key,
               size_t key_len, uint64_t now_ns, struct stint_entry *entry)
{
    struct entry_state state;
    struct asking asking = looking(table, table_class(quota), now_ns);
    if (asking.slots->sets == 0)
        return STINT_E_GONE;
    asking.hash = table_hash(table, quota, key, key_len);
    asking.home = slots_home(asking.slots, asking.hash);
    struct seen seen = slots_find(asking.slots, &asking.home);
    if (seen.at == NULL || !read_live(&asking, &seen, &state))
        return STINT_E_GONE;
    describe(&seen, &state, now_ns, entry);
    return 0;
}

/* ---- Snapshot -------------------------------------------------------------------------------- */

/* One set as it may stand in a file: every slot valid and whole, or empty. */
static void copy_set(struct asking *asking, uint8_t *from, uint8_t *to)
{
    struct entry_state state;
    memset(to, 0, asking->slots->set_size);
    for (unsigned way = 0; way < WAYS; way++) {
        struct seen seen = slots_see(asking->slots, from, way);
        seen.pair = cas16_load_stable(seen.at);
        bool is_block = asking->slots->class == CLASS_BLOCKS &&
                        (seen.pair.first & TAG_PENDING) == 0 && seen.pair.first != 0;
        if (!is_block && !entry_read(asking, &seen, &state))
            continue;
        *slots_pair(asking->slots, to, way) = seen.pair;
        if (asking->slots->class == CLASS_16)
            *(struct pair *)slots_state(asking->slots, to, way) =
                (struct pair){state.as.word16.lo,
                              state.as.word16.hi | state_mark(seen.pair.second)};
        else if (asking->slots->class == CLASS_WIDE)
            wide_paste(asking, slots_state(asking->slots, to, way), &state);
    }
}

static int write_class(const struct stint_table *table, enum slot_class class, uint64_t now_ns,
                       FILE *file)
{
    struct asking asking = looking(table, class, now_ns);
    uint8_t *copy = aligned_alloc(64, (asking.slots->set_size + 63u) / 64 * 64);
    int code = copy == NULL ? -1 : fseeko(file, (off_t)(asking.slots->base -
                                                 (uint8_t *)table->region.header), SEEK_SET);
    for (uint64_t set = 0; code == 0 && set < asking.slots->sets; set++) {
        copy_set(&asking, asking.slots->base + set * asking.slots->set_size, copy);
        code = fwrite(copy, asking.slots->set_size, 1, file) == 1 ? 0 : -1;
    }
    free(copy);
    return code;
}

/* Words that others write meanwhile, each whole. */
static void copy_words(void *to, const void *from, size_t size)
{
    uint64_t *target = to;
    const uint64_t *source = from;
    for (size_t i = 0; i < size / sizeof(*target); i++)
        /* relaxed: what must not be older than what, the order of the copying says. */
        target[i] = __atomic_load_n(&source[i], __ATOMIC_RELAXED);
}

static int write_tickets(const struct stint_table *table, FILE *file)
{
    const struct region_fixed *fixed = &table->region.header->fixed;
    uint64_t ticket[TICKET_SIZE / 8];
    int code = fseeko(file, (off_t)fixed->tickets_offset, SEEK_SET);
    for (uint64_t i = 0; code == 0 && i < fixed->tickets_max; i++) {
        copy_words(ticket, region_at(&table->region, fixed->tickets_offset + i * TICKET_SIZE),
                   sizeof(ticket));
        code = fwrite(ticket, sizeof(ticket), 1, file) == 1 ? 0 : -1;
    }
    return code;
}

static int write_quotas(const struct stint_table *table, FILE *file)
{
    const struct region_fixed *fixed = &table->region.header->fixed;
    int code = fseeko(file, (off_t)fixed->quotas_offset, SEEK_SET);
    for (uint32_t i = 0; code == 0 && i < fixed->quotas_max; i++) {
        const struct quota_slot *from = &table->intern.slots[i];
        struct quota_slot slot;
        memset(&slot, 0, sizeof(slot));
        /* acquire: the quota was written before the slot was called ready. */
        if (__atomic_load_n(&from->state, __ATOMIC_ACQUIRE) == QUOTA_SLOT_READY) {
            slot.state = QUOTA_SLOT_READY;
            memcpy(&slot.quota, &from->quota, sizeof(slot.quota));
        }
        code = fwrite(&slot, sizeof(slot), 1, file) == 1 ? 0 : -1;
    }
    return code;
}

/* Its numbers, marks and ends may be later than anything in the copy, never earlier. */
static int write_header(const struct stint_table *table, FILE *file)
{
    struct region_header header;
    copy_words(&header, table->region.header, sizeof(header));
    header.clean = 1;
    header.heartbeat_ns = region_now(&table->region);
    header.heartbeat_wall_ns = clock_wall_ns();
    return fseeko(file, 0, SEEK_SET) == 0 && fwrite(&header, sizeof(header), 1, file) == 1 ? 0 : -1;
}

/*
 * Others decide meanwhile. Each ticket in the copy has its charge there, since it was issued after
 * it; each state has its quota, and no time, block or number is later than the header says.
 */
static int write_table(const struct stint_table *table, FILE *file)
{
    uint64_t now_ns = region_now(&table->region);
    if (write_tickets(table, file) != 0)
        return -1;
    for (int class = 0; class < CLASSES; class++)
        if (write_class(table, (enum slot_class)class, now_ns, file) != 0)
            return -1;
    if (write_quotas(table, file) != 0 || write_header(table, file) != 0 || fflush(file) != 0 ||
        ftruncate(fileno(file), (off_t)table->region.header->fixed.bytes) != 0)
        return -1;
    return fsync(fileno(file));
}

int stint_table_snapshot(const struct stint_table *table, const char *path,
                         struct stint_error *error)
{
    char making[4096];
    int length = snprintf(making, sizeof(making), "%s.%ld.making", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof(making))
        return err_set(error, STINT_E_SYNTAX, "the path is too long");
    int fd = open(making, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    int code = file != NULL ? write_table(table, file) : -1;
    if (code == 0)
        code = rename(making, path);
    if (code != 0) {
        code = err_set(error, STINT_E_SYSTEM, "cannot write %s: %s", making, strerror(errno));
        unlink(making);
    }
    if (file != NULL)
        fclose(file);
    else if (fd >= 0)
        close(fd);
    return code;
}
