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

/*
 * What the copy has of a slot. A wide state whose owner is stuck cannot be read: it is full for a
 * period, as it would be for the next request.
 */
static bool read_state(struct asking *asking, struct seen *seen, struct entry_state *state)
{
    if (entry_await(asking, seen, state))
        return true;
    const struct slots *slots = asking->slots;
    bool is_stuck = slots->class == CLASS_WIDE && (seen->pair.first & TAG_PENDING) == 0 &&
                    pair_equals(cas16_load_stable(seen->at), seen->pair);
    state->quota = is_stuck ? entry_quota(asking, seen->pair.first) : NULL;
    if (state->quota == NULL || state->quota->limit == 0)
        return false;
    uint64_t latest_ns = table_latest_ns(asking->table, asking->ask.now_ns);
    memset(state->as.bytes, 0, slots->state_size);
    algorithm_fill(state->quota, &state->as, add_sat(latest_ns, state->quota->period_ns));
    return true;
}

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
        if (!is_block && !read_state(asking, &seen, &state))
            continue;
        *slots_pair(asking->slots, to, way) = seen.pair;
        if (asking->slots->class == CLASS_16)
            *(struct pair *)slots_state(asking->slots, to, way) = (struct pair){
                state.as.word16.lo, state.as.word16.hi | state_mark(seen.pair.second)};
        if (asking->slots->class == CLASS_WIDE) {
            struct wide_state *wide = slots_state(asking->slots, to, way);
            memcpy(wide->bytes, state.as.bytes, asking->slots->state_size);
            wide->expires_at_ns = algorithm_expires_at(state.quota, &state.as);
        }
    }
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

static void copy_ticket(const struct stint_table *table, uint64_t i, void *to)
{
    uint64_t offset = table->region.fixed.tickets_offset + i * TICKET_SIZE;
    copy_words(to, region_at(&table->region, offset), TICKET_SIZE);
}

static void copy_quota(const struct stint_table *table, uint64_t i, void *to)
{
    const struct quota_slot *from = &table->intern.slots[i];
    struct quota_slot slot;
    memset(&slot, 0, sizeof(slot));
    /* acquire: the quota was written before the slot was marked ready. */
    if (__atomic_load_n(&from->state, __ATOMIC_ACQUIRE) == QUOTA_SLOT_READY) {
        slot.state = QUOTA_SLOT_READY;
        memcpy(&slot.quota, &from->quota, sizeof(slot.quota));
    }
    memcpy(to, &slot, sizeof(slot));
}

/* An array of the region: where it is, and how one of its elements is copied. */
struct part {
    uint64_t offset, n;
    size_t size;
    void (*copy)(const struct stint_table *table, uint64_t i, void *to);
};

static int write_part(const struct stint_table *table, const struct part *part, FILE *file)
{
    _Alignas(16) uint8_t copy[REQUESTS_SET_SIZE];
    assert(part->size <= sizeof(copy));
    int code = fseeko(file, (off_t)part->offset, SEEK_SET);
    for (uint64_t i = 0; code == 0 && i < part->n; i++) {
        part->copy(table, i, copy);
        code = fwrite(copy, part->size, 1, file) == 1 ? 0 : -1;
    }
    return code;
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
    const uint64_t sets = slots_used(asking.slots); /* of a class that has not spilled, the front */
    for (uint64_t set = 0; code == 0 && set < sets; set++) {
        copy_set(&asking, asking.slots->base + set * asking.slots->set_size, copy);
        code = fwrite(copy, asking.slots->set_size, 1, file) == 1 ? 0 : -1;
    }
    free(copy);
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
 * before: its units are in its pair. A key that moves to another class meanwhile may be in neither,
 * or in both: docs/embedding.md.
 */
static int write_whole(const struct stint_table *table, FILE *file)
{
    assert(table_is_valid(table));
    const struct region_fixed *fixed = &table->region.fixed;
    const struct part parts[] = {
        {fixed->tickets_offset, fixed->tickets_max, TICKET_SIZE, copy_ticket},
        {fixed->requests_offset, fixed->request_sets, REQUESTS_SET_SIZE, requests_copy_set},
        {fixed->pools_offset, fixed->pools_max, POOL_RECORD_SIZE, pool_records_copy},
        {fixed->overrides_offset, overrides_places(fixed), OVERRIDE_SIZE, overrides_copy},
    };
    const struct part quotas = {fixed->quotas_offset, fixed->quotas_max, sizeof(struct quota_slot),
                                copy_quota};
    uint64_t now_ns = region_now(&table->region);
    int code = 0;
    for (size_t i = 0; code == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
        code = write_part(table, &parts[i], file);
    for (int class = 0; code == 0 && class < CLASSES; class ++)
        code = write_class(table, (enum slot_class) class, now_ns, file);
    if (code != 0 || write_part(table, &quotas, file) != 0 || write_header(table, file) != 0 ||
        fflush(file) != 0)
        return -1;
    return fsync(fileno(file));
}

int table_write(const struct stint_table *table, int fd)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *file = own >= 0 ? fdopen(own, "w") : NULL;
    bool is_sized = file != NULL && ftruncate(own, (off_t)table->region.fixed.bytes) == 0;
    int code = is_sized ? write_whole(table, file) : -1, why = errno;
    if (file != NULL)
        fclose(file);
    else if (own >= 0)
        close(own);
    errno = why;
    return code;
}

int stint_table_snapshot(const struct stint_table *table, const char *path,
                         struct stint_error *error)
{
    assert(path != NULL);
    char making[REGION_PATH_SPACE];
    if (region_is_at(&table->region, path))
        return err_set(error, STINT_E_MISMATCH,
                       "%s is the file of this table; copy it to another path",
                       err_path(path).text);
    int fd = region_create_beside(path, table->region.fixed.bytes, making, error);
    if (fd < 0)
        return fd;
    int code = table_write(table, fd);
    if (code == 0)
        code = rename(making, path);
    if (code != 0) {
        code = err_set(error, STINT_E_SYSTEM, "cannot write %s: %s", err_path(making).text,
                       strerror(errno));
        unlink(making);
    }
    close(fd);
    return code;
}
