/* SPDX-License-Identifier: MIT */
/* A copy of a table in a file that opens as the table does: every slot valid and whole, or empty.
 */
#define _GNU_SOURCE
#include "table/slot/wide.h"

#include "table/clock.h"
#include "table/overrides.h"
#include "table/pool_records.h"
#include "table/requests.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Copies one set: every slot valid and whole, or empty. */
static void copy_set(struct asking *asking, uint8_t *from, uint8_t *to)
{
    assert(asking_is_valid(asking));
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
            *(struct pair *)slots_state(asking->slots, to, way) = (struct pair){
                state.as.word16.lo, state.as.word16.hi | state_mark(seen.pair.second)};
        else if (asking->slots->class == CLASS_WIDE)
            wide_paste(asking, slots_state(asking->slots, to, way), &state);
    }
}

static int write_class(const struct stint_table *table, enum slot_class class, uint64_t now_ns,
                       FILE *file)
{
    assert(class < CLASSES);
    struct asking asking = entry_looking(table, class, now_ns);
    uint8_t *copy = aligned_alloc(64, (asking.slots->set_size + 63u) / 64 * 64);
    int code =
        copy == NULL
            ? -1
            : fseeko(file, (off_t)(asking.slots->base - (uint8_t *)table->region.header), SEEK_SET);
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
    assert(size % sizeof(uint64_t) == 0);
    uint64_t *target = to;
    const uint64_t *source = from;
    for (size_t i = 0; i < size / sizeof(*target); i++)
        /* relaxed: the order in which parts are copied defines what must not be older. */
        target[i] = __atomic_load_n(&source[i], __ATOMIC_RELAXED);
}

static int write_tickets(const struct stint_table *table, FILE *file)
{
    const struct region_fixed *fixed = &table->region.fixed;
    uint64_t ticket[TICKET_SIZE / 8];
    int code = fseeko(file, (off_t)fixed->tickets_offset, SEEK_SET);
    for (uint64_t i = 0; code == 0 && i < fixed->tickets_max; i++) {
        copy_words(ticket, region_at(&table->region, fixed->tickets_offset + i * TICKET_SIZE),
                   sizeof(ticket));
        code = fwrite(ticket, sizeof(ticket), 1, file) == 1 ? 0 : -1;
    }
    return code;
}

static int write_pools(const struct stint_table *table, FILE *file)
{
    const struct region_fixed *fixed = &table->region.fixed;
    struct pool_record record;
    int code = fseeko(file, (off_t)fixed->pools_offset, SEEK_SET);
    for (uint32_t i = 0; code == 0 && i < fixed->pools_max; i++) {
        pool_records_copy(table, i, &record);
        code = fwrite(&record, sizeof(record), 1, file) == 1 ? 0 : -1;
    }
    return code;
}

static int write_overrides(const struct stint_table *table, FILE *file)
{
    const struct region_fixed *fixed = &table->region.fixed;
    uint8_t place[OVERRIDE_SIZE];
    int code = fseeko(file, (off_t)fixed->overrides_offset, SEEK_SET);
    for (uint64_t i = 0; code == 0 && i < overrides_places(fixed); i++) {
        overrides_copy(table, i, place);
        code = fwrite(place, sizeof(place), 1, file) == 1 ? 0 : -1;
    }
    return code;
}

static int write_requests(const struct stint_table *table, FILE *file)
{
    const struct region_fixed *fixed = &table->region.fixed;
    uint8_t set[REQUESTS_SET_SIZE];
    int code = fseeko(file, (off_t)fixed->requests_offset, SEEK_SET);
    for (uint64_t i = 0; code == 0 && i < fixed->request_sets; i++) {
        requests_copy_set(table, i, set);
        code = fwrite(set, sizeof(set), 1, file) == 1 ? 0 : -1;
    }
    return code;
}

static int write_quotas(const struct stint_table *table, FILE *file)
{
    const struct region_fixed *fixed = &table->region.fixed;
    int code = fseeko(file, (off_t)fixed->quotas_offset, SEEK_SET);
    for (uint32_t i = 0; code == 0 && i < fixed->quotas_max; i++) {
        const struct quota_slot *from = &table->intern.slots[i];
        struct quota_slot slot;
        memset(&slot, 0, sizeof(slot));
        /* acquire: the quota was written before the slot was marked ready. */
        if (__atomic_load_n(&from->state, __ATOMIC_ACQUIRE) == QUOTA_SLOT_READY) {
            slot.state = QUOTA_SLOT_READY;
            memcpy(&slot.quota, &from->quota, sizeof(slot.quota));
        }
        code = fwrite(&slot, sizeof(slot), 1, file) == 1 ? 0 : -1;
    }
    return code;
}

/* Counters, the mark and ends may be later than anything in the copy, never earlier. */
static int write_header(const struct stint_table *table, FILE *file)
{
    struct region_header header;
    copy_words(&header, table->region.header, sizeof(header));
    header.fixed = table->region.fixed;
    header.fixed_checksum = region_checksum(&header.fixed);
    header.epoch_ns = table->region.epoch_ns;
    header.clean = 1;
    header.heartbeat_ns = region_now(&table->region);
    header.heartbeat_wall_ns = clock_wall_ns();
    return fseeko(file, 0, SEEK_SET) == 0 && fwrite(&header, sizeof(header), 1, file) == 1 ? 0 : -1;
}

/*
 * Other processes decide meanwhile. Each ticket and each answer in the copy has its charge there,
 * since it was issued after the charge; each state and each override has its quota, and no time,
 * block or number is later than in the header. A pool that closes meanwhile is copied as it was
 * before: its units are in its pair.
 */
static int write_table(const struct stint_table *table, FILE *file)
{
    assert(table_is_valid(table));
    uint64_t now_ns = region_now(&table->region);
    if (write_tickets(table, file) != 0 || write_requests(table, file) != 0 ||
        write_pools(table, file) != 0 || write_overrides(table, file) != 0)
        return -1;
    for (int class = 0; class < CLASSES; class ++)
        if (write_class(table, (enum slot_class) class, now_ns, file) != 0)
            return -1;
    if (write_quotas(table, file) != 0 || write_header(table, file) != 0 || fflush(file) != 0 ||
        ftruncate(fileno(file), (off_t)table->region.fixed.bytes) != 0)
        return -1;
    return fsync(fileno(file));
}

int stint_table_snapshot(const struct stint_table *table, const char *path,
                         struct stint_error *error)
{
    assert(path != NULL);
    char making[REGION_PATH_SPACE];
    int fd = region_create_beside(path, making, error);
    if (fd < 0)
        return fd;
    FILE *file = fdopen(fd, "w");
    int code = file != NULL ? write_table(table, file) : -1;
    if (code == 0)
        code = rename(making, path);
    if (code != 0) {
        code = err_set(error, STINT_E_SYSTEM, "cannot write %s: %s", making, strerror(errno));
        unlink(making);
    }
    if (file != NULL)
        fclose(file);
    else
        close(fd);
    return code;
}
