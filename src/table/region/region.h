/* SPDX-License-Identifier: MIT */
/*
 * The one piece of memory that holds a table: its layout, how it is mapped, created, checked and
 * left. It holds no pointers, so that it means the same in every process and after a restart.
 *
 *   header | interned quotas | tickets | pools | overrides | answers to ids
 *          | sets of class 8 | class 16 | wide | blocks
 *
 * A set is WAYS slots. A slot is a pair of words that is swapped in one step; slots.h describes the
 * content of the pair, and where the state is. The first sets of a large class are its front, which
 * is used before the rest: a table far from full has few pages in memory.
 */
#ifndef STINT_TABLE_REGION_REGION_H
#define STINT_TABLE_REGION_REGION_H

#include "base/err.h"
#include "table/slot/cas16.h"

#include <assert.h>
#include <stddef.h>

#define WAYS 8
#define HALF_WAYS (WAYS / 2) /* the pairs of one cache line */
#define REGION_MAGIC UINT64_C(0x314e4f4954535453)
#define REGION_VERSION 6
#define REGION_PAGE 4096
#define TICKET_SIZE 64
#define POOL_RECORD_SIZE 64

enum slot_class {
    CLASS_8,      /* the pair is (tag, state) */
    CLASS_16,     /* the pair is (tag, generation); 16 bytes of state apart */
    CLASS_WIDE,   /* the pair is (tag, generation); lock word and bytes apart */
    CLASS_BLOCKS, /* as class 8; until when a key is blocked, or a pool's key cools down */
    CLASSES,
};

#define SPILLED_SHARE 8   /* of the front's slots: it is left behind after so many spilled */
#define FRONTS CLASS_WIDE /* classes before this one may have a front */

struct class_layout {
    uint64_t offset;       /* of the first set, from the header */
    uint64_t sets;         /* below 2^32; 0: the table has none of this class */
    uint64_t front;        /* sets that are used first: whole pages; all sets of a small class */
    uint32_t set_size;     /* bytes */
    uint32_t half_size;    /* from the first HALF_WAYS pairs of a set to the others */
    uint32_t state_offset; /* of the first state within a set; 0 where the pair holds it */
    uint32_t state_stride; /* from one state to the next in the same half */
    uint32_t state_half;   /* from the first HALF_WAYS states to the others */
    uint32_t state_size;   /* bytes a state may have */
};

/* Written once, when the region is created, and covered by a checksum. */
struct region_fixed {
    uint64_t magic;
    uint32_t version;
    uint32_t quota_size; /* sizeof(struct stint_quota): another machine or build differs */
    uint64_t bytes;
    struct class_layout classes[CLASSES];
    uint64_t quotas_offset, tickets_offset, pools_offset, overrides_offset, requests_offset;
    uint32_t quotas_max, tickets_max, pools_max, overrides_max;
    uint64_t request_sets; /* 0: no answers are kept */
    uint64_t hash_key[2];
    uint64_t skew_max_ns;
    uint8_t clock; /* enum stint_clock */
    uint8_t pad[7];
};

/* Counters of rare events; see struct stint_table_info. */
struct region_counters {
    uint64_t evictions_lossless, evictions_inherit, evictions_evict;
    uint64_t full_denied, full_allowed;
    uint64_t undo_kept_units, tickets_dropped, owners_displaced, states_damaged;
    uint64_t requests_dropped;
    uint64_t forgotten_units;
    uint64_t reservations_expired[3]; /* by enum stint_expiry */
    uint64_t expiry_kept_units;
};

/* Lines of 128 bytes: frequent writers must not invalidate the lines of readers. */
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
struct region_header {
    struct region_fixed fixed;
    uint64_t fixed_checksum;
    /* The latest now seen, written at most once a millisecond, read by every decision: a line of
     * its own, together with values that rarely change. */
    _Alignas(128) uint64_t mark_ns;
    uint64_t blocks_until_ns;    /* no block ends later: most tables never search for one */
    uint64_t cooldowns_until_ns; /* the same for the cooldowns of pools */
    uint64_t booked_until_ns;    /* no booking begins later */
    uint64_t spilled[FRONTS];    /* new keys that found no free slot in the front: slots.h */
    int64_t epoch_ns;            /* wall clock at region time 0 */
    uint64_t overrides;          /* keys with a quota of their own; changes rarely too */
    uint64_t overrides_moves;    /* counts those that moved to another place */
    /* How region time continues: written at open, once a second, and at close. */
    _Alignas(128) int64_t clock_offset_ns; /* region time - CLOCK_BOOTTIME */
    uint64_t heartbeat_ns;
    int64_t heartbeat_wall_ns;
    uint64_t boot_id;
    uint64_t virtual_now_ns;
    uint64_t clean;      /* 1: closed by its last user */
    uint64_t pid_space;  /* PID namespace of the processes that use it */
    uint64_t filled;     /* times that an unclean boot made all live states full */
    uint64_t time_space; /* time namespace of these processes; 0: not known */
    _Alignas(128) uint64_t nonce_next;
    uint64_t ticket_next;
    uint64_t quotas;            /* entries in use, ready or being written */
    uint64_t overrides_owner;   /* owner word of the process that sets or drops one */
    uint64_t expiries_until_ns; /* no reservation that charges units ends later */
    _Alignas(128) struct region_counters counters;
};

struct region {
    struct region_header *header;
    /*
     * This process's own copy of the part that is written once, checked when it was copied: other
     * processes can write to the header, so offsets and sizes are never read there again.
     */
    struct region_fixed fixed;
    int64_t epoch_ns; /* a copy of the header's */
    uint64_t opening; /* random: unlike that of any other opening */
    size_t map_size;
    int fd;      /* -1 for memory without a file */
    long opener; /* process that opened it; a forked one shares the locks of its file */
    bool huge_pages, made, read_only;
    bool alone;       /* no other process had it open */
    bool is_settled;  /* a file whose states are repaired; until then it is as the last boot left it
                       */
    bool after_crash; /* a reboot passed without a clean close */
    uint8_t memory;
};

/* Refuses sizes out of range; else sets every field but hash_key. */
int region_layout(struct region_fixed *fixed, const struct stint_table_options *options,
                  struct stint_error *error);

/* Whether region_layout() can have made a header that was read. */
int region_layout_check(const struct region_fixed *fixed, uint64_t file_size, const char *path,
                        struct stint_error *error);

/*
 * Maps an existing region or creates one. Waits while another process opens or leaves it. Other
 * processes wait until region_settle(), so that the repair after a crash ends before they decide.
 */
int region_open(struct region *region, const struct stint_table_options *options,
                struct stint_error *error);
void region_settle(struct region *region);
void region_close(struct region *region);

/*
 * Creates a new file of `bytes` zeros, all of them allocated, beside the path that it will replace,
 * under a name that no other process and no other thread uses; files left behind by killed
 * processes do not matter. Returns its descriptor, or a negative code.
 */
#define REGION_PATH_SPACE 4096
int region_create_beside(const char *path, uint64_t bytes, char making[REGION_PATH_SPACE],
                         struct stint_error *error);

/* Whether a path leads to the file of the region. */
bool region_is_at(const struct region *region, const char *path);

/* Region time now by the real clock, and the heartbeat by which it continues after a reboot. */
uint64_t region_now(const struct region *region);

/*
 * A page of this process's own that is empty in a forked child, so that the child never acts as its
 * parent. NULL if the system refuses.
 */
void *region_map_private(struct stint_error *error);
void region_unmap_private(void *page);

/* Removes pages of a file from this process's memory. The file still has their content. */
void region_unmap_pages(const struct region *region, uint64_t from, uint64_t to);

/* Checksum of the part that is written once. */
uint64_t region_checksum(const struct region_fixed *fixed);

/*
 * Whether this process's own copy of the layout is one that was checked. Other processes can write
 * to the memory behind it: that is not read here.
 */
static inline bool region_is_valid(const struct region *region)
{
    return region->header != NULL && region->fixed.magic == REGION_MAGIC &&
           region->fixed.version == REGION_VERSION && region->map_size >= region->fixed.bytes &&
           region->fixed.quotas_max > 0 && region->fixed.tickets_max > 0 && region->fd >= -1;
}

static inline void *region_at(const struct region *region, uint64_t offset)
{
    assert(region_is_valid(region) && offset <= region->map_size);
    return (char *)region->header + offset;
}

/*
 * Raises an instant of the header that never decreases. release: a thread that acquires it sees
 * what was done before; what it announces is published only after.
 */
static inline void region_raise(uint64_t *instant, uint64_t to_ns)
{
    uint64_t seen = __atomic_load_n(instant, __ATOMIC_RELAXED);
    while (seen < to_ns && !__atomic_compare_exchange_n(instant, &seen, to_ns, true,
                                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
}

#endif
