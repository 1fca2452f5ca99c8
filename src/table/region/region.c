/* SPDX-License-Identifier: MIT */
/*
 * Maps regions, creates their files whole or not at all, and carries their time over restarts.
 *
 * Every process that has a file open holds a read lock on byte 0, so that the one that gets the
 * write lock is alone; a process that opens or leaves holds a write lock on byte 1. The locks
 * belong to the open file and end with it, also by kill -9.
 */
#define _GNU_SOURCE
#include "table/region/region.h"

#include "base/limits.h"
#include "base/siphash.h"
#include "base/wide_int.h"
#include "table/clock.h"
#include "table/intern.h"
#include "table/overrides.h"
#include "table/region/system.h"
#include "table/requests.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HUGE_PAGE (UINT64_C(2) << 20)
#define MAKING_MAX 1000 /* at once, by one process, under one name */
#define KEYS_DEFAULT 65536
#define WIDE_KEYS_DEFAULT 1024
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
#define FRONT_SHARE 16      /* of a class, what its front takes */
#define FRONT_SETS_MIN 1024 /* a class with fewer sets has no other part */
#define PAIRS_SIZE (WAYS * sizeof(struct pair))
#define LINE_SIZE (HALF_WAYS * sizeof(struct pair))
/* Mean answers per set of REQUESTS_WAYS slots: with as many answers as were configured, one set
 * in 16 has more answers than slots, and drops one early. */
#define REQUESTS_MEAN 8
#define LOCK_SIZE 16 /* a wide state's owner word; keeps the bytes after it aligned to 16 */

/* ---- Sizes and offsets ----------------------------------------------------------------------- */

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
    layout->front = layout->sets;
    if (class < FRONTS && layout->sets >= FRONT_SETS_MIN)
        layout->front = round_up(layout->sets / FRONT_SHARE, REGION_PAGE / layout->set_size);
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

int region_layout(struct region_fixed *fixed, const struct stint_table_options *options,
                  struct stint_error *error)
{
    int code = check_options(options, error);
    if (code != 0)
        return code;
    uint64_t keys8 = options->keys > 0 ? options->keys : KEYS_DEFAULT;
    uint64_t quotas = min_u64(max_u64(keys8 / KEYS_PER_QUOTA, QUOTAS_DEFAULT), TABLE_QUOTAS_MAX);
    *fixed = (struct region_fixed){
        .magic = REGION_MAGIC,
        .version = REGION_VERSION,
        .quota_size = sizeof(struct stint_quota),
        .quotas_max = options->quotas > 0 ? options->quotas : (uint32_t)quotas,
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

/* ---- Every region ---------------------------------------------------------------------------- */

enum { LOCK_USERS = 0, LOCK_FRONTEND = 1 };

static int lock_byte(int fd, short type, off_t byte, bool wait)
{
    assert(fd >= 0 && (byte == LOCK_USERS || byte == LOCK_FRONTEND));
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
}

static int system_error(struct stint_error *error, const char *what, const char *path)
{
    int reason = errno;
    return err_set(error, STINT_E_SYSTEM, "cannot %s %s: %s%s", what, err_path(path).text,
                   strerror(reason), err_advice(reason));
}

uint64_t region_checksum(const struct region_fixed *fixed)
{
    static const uint64_t secret[2] = {REGION_MAGIC, REGION_VERSION};
    return siphash13_128(secret, 0, fixed, sizeof(*fixed)).lo;
}

/* The header of a new region; all bytes after it are zero, which is "never used". */
static int format(struct region_header *header, const struct region_fixed *fixed,
                  const struct stint_table_options *options, struct stint_error *error)
{
    assert(fixed->magic == REGION_MAGIC);
    header->fixed = *fixed;
    uint64_t *secret = header->fixed.hash_key;
    secret[0] = options->hash_key[0];
    secret[1] = options->hash_key[1];
    if (secret[0] == 0 && secret[1] == 0 && getentropy(secret, sizeof(header->fixed.hash_key)) != 0)
        return system_error(error, "get random bytes from", "the system");
    header->fixed_checksum = region_checksum(&header->fixed);
    header->boot_id = clock_boot_id();
    header->heartbeat_wall_ns = clock_wall_ns();
    header->clock_offset_ns = -(int64_t)clock_boot_ns();
    header->epoch_ns =
        fixed->clock == STINT_CLOCK_VIRTUAL ? options->epoch_ns : header->heartbeat_wall_ns;
    return 0;
}

/* ---- Memory without a file ------------------------------------------------------------------- */

static void *map_anonymous(struct region *region, size_t size, int flags, bool huge)
{
    assert(size > 0);
    void *at = MAP_FAILED;
    flags |= MAP_ANONYMOUS;
    if (huge) {
        region->map_size = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        at = mmap(NULL, region->map_size, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0);
        if (at != MAP_FAILED) {
            region->huge_pages = true;
            return at;
        }
    } else {
        region->map_size = size;
    }
    at = mmap(NULL, region->map_size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED && huge)
        region->huge_pages = madvise(at, region->map_size, MADV_HUGEPAGE) == 0;
    return at;
}

static int open_memory(struct region *region, const struct stint_table_options *options,
                       struct stint_error *error)
{
    struct region_fixed fixed;
    int code = region_layout(&fixed, options, error);
    if (code != 0)
        return code;
    int flags = options->memory == STINT_MEMORY_SHARED ? MAP_SHARED : MAP_PRIVATE;
    bool huge = options->huge_pages && SYSTEM_IS_LINUX;
    void *at = map_anonymous(region, fixed.bytes, flags, huge);
    if (at == MAP_FAILED)
        return err_set(error, STINT_E_SYSTEM, "cannot map %llu bytes: %s",
                       (unsigned long long)fixed.bytes, strerror(errno));
    region->header = at;
    region->made = true;
    code = format(region->header, &fixed, options, error);
    region->fixed = region->header->fixed;
    region->epoch_ns = region->header->epoch_ns;
    if (code != 0)
        munmap(at, region->map_size);
    return code;
}

void *region_map_private(struct stint_error *error)
{
    void *at = mmap(NULL, REGION_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || madvise(at, REGION_PAGE, MADV_WIPEONFORK) != 0) {
        err_set(error, STINT_E_SYSTEM, "cannot map a page that fork wipes: %s", strerror(errno));
        if (at != MAP_FAILED)
            munmap(at, REGION_PAGE);
        return NULL;
    }
    return at;
}

void region_unmap_private(void *page)
{
    assert(page != NULL);
    munmap(page, REGION_PAGE);
}

void region_unmap_pages(const struct region *region, uint64_t from, uint64_t to)
{
    assert(from % REGION_PAGE == 0 && to % REGION_PAGE == 0);
    assert(from <= to && to <= region->fixed.bytes && region->fd >= 0);
    madvise(region_at(region, from), to - from, MADV_DONTNEED);
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* A hole would be found by a write to the map, which ends the process on a full disk. */
static int allocate(int fd, const char *path, uint64_t bytes, struct stint_error *error)
{
    int refused = posix_fallocate(fd, 0, (off_t)bytes);
    return refused == 0
               ? 0
               : err_set(error, STINT_E_SYSTEM, "no space for %llu bytes at %s: %s",
                         (unsigned long long)bytes, err_path(path).text, strerror(refused));
}

int region_create_beside(const char *path, uint64_t bytes, char making[REGION_PATH_SPACE],
                         struct stint_error *error)
{
    assert(path != NULL && bytes > 0);
    for (unsigned number = 0; number < MAKING_MAX; number++) {
        int length =
            snprintf(making, REGION_PATH_SPACE, "%s.%ld.%u.making", path, (long)getpid(), number);
        if (length < 0 || length >= REGION_PATH_SPACE)
            return err_set(error, STINT_E_SYNTAX, "the path is longer than %d bytes",
                           REGION_PATH_SPACE - 32);
        int fd = open(making, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0) {
            int code = allocate(fd, path, bytes, error);
            if (code == 0)
                return fd;
            close(fd);
            unlink(making);
            return code;
        }
        if (errno != EEXIST)
            break;
    }
    return system_error(error, "make", making);
}

bool region_is_at(const struct region *region, const char *path)
{
    struct stat own, other;
    return region->fd >= 0 && fstat(region->fd, &own) == 0 && stat(path, &other) == 0 &&
           own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

/*
 * Writes the whole file under another name, then links it to its own: no process sees a part of
 * it. *made stays false if another process was faster.
 */
static int make_file(const char *path, const struct stint_table_options *options, bool *made,
                     struct stint_error *error)
{
    char making[REGION_PATH_SPACE];
    struct region_fixed fixed;
    struct region_header header;
    memset(&header, 0, sizeof(header));
    int code = region_layout(&fixed, options, error);
    if (code != 0)
        return code;
    code = format(&header, &fixed, options, error);
    if (code != 0)
        return code;
    int fd = region_create_beside(path, fixed.bytes, making, error);
    if (fd < 0)
        return fd;
    if (pwrite(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) || fsync(fd) != 0)
        code = system_error(error, "write", making);
    else if (link(making, path) == 0)
        *made = true;
    else if (errno != EEXIST)
        code = system_error(error, "make", path);
    close(fd);
    unlink(making);
    return code;
}

static int open_or_make(struct region *region, const struct stint_table_options *options,
                        struct stint_error *error)
{
    /* O_NONBLOCK: a named pipe is refused instead of waited for. */
    int flags = (options->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK;
    region->fd = open(options->path, flags);
    if (region->fd < 0 && errno == ENOENT && !options->must_exist && !options->read_only) {
        int code = make_file(options->path, options, &region->made, error);
        if (code != 0)
            return code;
        region->fd = open(options->path, flags);
    }
    return region->fd < 0 ? system_error(error, "open", options->path) : 0;
}

/* Reads the part that is written once, and checks it. */
static int check_file(struct region *region, const struct stint_table_options *options,
                      struct stint_error *error)
{
    assert(region->fd >= 0);
    const struct err_path shown = err_path(options->path);
    const char *path = shown.text;
    struct stat status;
    struct region_header header;
    if (fstat(region->fd, &status) != 0)
        return system_error(error, "read", path);
    if (!S_ISREG(status.st_mode))
        return err_set(error, STINT_E_CORRUPT, "%s is not a regular file", path);
    if (pread(region->fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        return err_set(error, STINT_E_CORRUPT, "%s is not a stint table: it has only %lld bytes",
                       path, (long long)status.st_size);
    int code = region_layout_check(&header.fixed, (uint64_t)status.st_size, path, error);
    if (code != 0)
        return code;
    if (header.fixed_checksum != region_checksum(&header.fixed))
        return err_set(error, STINT_E_CORRUPT, "%s is damaged: the checksum of its head is wrong",
                       path);
    if (header.fixed.clock != options->clock && !options->read_only)
        return err_set(error, STINT_E_MISMATCH,
                       "%s was made under a %s clock, and is not opened under a %s one", path,
                       header.fixed.clock == STINT_CLOCK_VIRTUAL ? "virtual" : "real",
                       options->clock == STINT_CLOCK_VIRTUAL ? "virtual" : "real");
    if (header.mark_ns > STINT_NOW_MAX || header.epoch_ns < -EPOCH_MAX_NS ||
        header.epoch_ns > EPOCH_MAX_NS)
        return err_set(error, STINT_E_CORRUPT, "%s is damaged: its times cannot be", path);
    region->fixed = header.fixed;
    region->epoch_ns = header.epoch_ns;
    return 0;
}

static uint64_t pid_space(void)
{
    struct stat status;
    return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

static int other_time_space(const char *path, struct stint_error *error)
{
    return err_set(error, STINT_E_BUSY,
                   "%s belongs to another time namespace, whose clocks differ from those here; use "
                   "it from there, or after its users there have ended",
                   path);
}

/*
 * After a reboot, region time continues by the wall clock since the last heartbeat. If the last
 * heartbeat is in the future (the wall clock was set back), no time has passed.
 */
static void carry_time(struct region *region)
{
    assert(region->alone);
    struct region_header *header = region->header;
    int64_t wall = clock_wall_ns();
    uint64_t unavailable =
        wall > header->heartbeat_wall_ns ? (uint64_t)wall - (uint64_t)header->heartbeat_wall_ns : 0;
    uint64_t last = max_u64(header->heartbeat_ns, header->mark_ns);
    uint64_t now = min_u64(add_sat(last, unavailable), STINT_NOW_MAX);
    int64_t epoch = wall - (int64_t)now;
    region->epoch_ns = epoch > -EPOCH_MAX_NS ? epoch : -EPOCH_MAX_NS;
    header->clock_offset_ns = (int64_t)now - (int64_t)clock_boot_ns();
    header->epoch_ns = region->epoch_ns;
    header->heartbeat_ns = now;
    header->heartbeat_wall_ns = wall;
}

/* In another time namespace CLOCK_BOOTTIME differs. An unknown namespace counts as the same. */
static bool is_other_time_space(const struct region_header *header)
{
    uint64_t ours = clock_space_id();
    return header->time_space != 0 && ours != 0 && header->time_space != ours;
}

/*
 * A sole user may set what depends on this boot and these namespaces. The clock of another time
 * namespace is like that of another boot, but no state was lost in between.
 */
static int enter(struct region *region, const char *path, struct stint_error *error)
{
    assert(region->fd >= 0 && !region->read_only);
    struct region_header *header = region->header;
    if (lock_byte(region->fd, F_WRLCK, LOCK_USERS, false) == 0) {
        region->alone = true;
        header->pid_space = pid_space();
        if (region->fixed.clock == STINT_CLOCK_REAL) {
            bool rebooted = header->boot_id != clock_boot_id();
            region->after_crash = rebooted && header->clean == 0;
            if (rebooted || is_other_time_space(header))
                carry_time(region);
            uint64_t now_ns = region_now(region);
            if (now_ns > STINT_NOW_MAX ||
                header->mark_ns > add_sat(now_ns, region->fixed.skew_max_ns))
                return err_set(error, STINT_E_CORRUPT,
                               "%s is damaged: its states are from the future, or its time is over",
                               path);
        }
        header->time_space = clock_space_id();
    } else if (header->pid_space != pid_space()) {
        return err_set(error, STINT_E_BUSY,
                       "%s is in use by another PID namespace; whether an owner has ended cannot "
                       "be seen from here",
                       path);
    } else if (region->fixed.clock == STINT_CLOCK_REAL && is_other_time_space(header)) {
        return other_time_space(path, error);
    }
    if (lock_byte(region->fd, F_RDLCK, LOCK_USERS, false) != 0)
        return system_error(error, "lock", path);
    return 0;
}

static int map_file(struct region *region, const struct stint_table_options *options,
                    struct stint_error *error)
{
    int code = check_file(region, options, error);
    if (code != 0)
        return code;
    const struct err_path shown = err_path(options->path);
    uint64_t bytes = region->fixed.bytes;
    int protection = options->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    void *at = mmap(NULL, bytes, protection, MAP_SHARED, region->fd, 0);
    if (at == MAP_FAILED)
        return system_error(error, "map", options->path);
    region->header = at;
    region->map_size = bytes;
    if (options->huge_pages && !options->read_only)
        region->huge_pages = madvise(at, bytes, MADV_HUGEPAGE) == 0;
    if (!options->read_only)
        code = enter(region, shown.text, error);
    else if (region->fixed.clock == STINT_CLOCK_REAL && is_other_time_space(region->header) &&
             region->header->boot_id == clock_boot_id())
        code = other_time_space(shown.text, error);
    if (code != 0)
        munmap(at, bytes);
    return code;
}

static int open_file(struct region *region, const struct stint_table_options *options,
                     struct stint_error *error)
{
    assert(options->path != NULL);
    int code = open_or_make(region, options, error);
    if (code != 0)
        return code;
    if (!options->read_only && lock_byte(region->fd, F_WRLCK, LOCK_FRONTEND, true) != 0)
        code = system_error(error, "lock", options->path);
    if (code == 0)
        code = map_file(region, options, error);
    if (code != 0) {
        close(region->fd);
        return code;
    }
    return 0;
}

/* ---- Both ------------------------------------------------------------------------------------ */

int region_open(struct region *region, const struct stint_table_options *options,
                struct stint_error *error)
{
    assert(options != NULL);
    memset(region, 0, sizeof(*region));
    region->fd = -1;
    region->opener = (long)getpid();
    region->read_only = options->read_only;
    region->memory = options->path != NULL ? STINT_MEMORY_FILE : options->memory;
    if (region->memory == STINT_MEMORY_FILE && options->path == NULL)
        return err_set(error, STINT_E_MISMATCH, "a table in a file needs a path");
    if (options->read_only && options->path == NULL)
        return err_set(error, STINT_E_MISMATCH, "read_only is for tables in files");
    if (!CAS16_LOCK_FREE && region->memory != STINT_MEMORY_HEAP && !region->read_only)
        return err_set(error, STINT_E_MISMATCH,
                       "this machine has no 16-byte swap: a table stays within one process here");
    if (!SYSTEM_IS_LINUX && region->memory != STINT_MEMORY_HEAP)
        return err_set(error, STINT_E_MISMATCH,
                       "files and shared memory need Linux: a table stays within one process here");
    if (getentropy(&region->opening, sizeof(region->opening)) != 0)
        return system_error(error, "get random bytes from", "the system");
    return region->memory == STINT_MEMORY_FILE ? open_file(region, options, error)
                                               : open_memory(region, options, error);
}

void region_settle(struct region *region)
{
    assert(region_is_valid(region));
    if (region->fd < 0 || region->read_only)
        return;
    region->header->boot_id = clock_boot_id();
    region->header->clean = 0;
    region->is_settled = true;
    lock_byte(region->fd, F_UNLCK, LOCK_FRONTEND, false);
}

static void heartbeat(struct region_header *header, uint64_t now_ns)
{
    /* relaxed: each is of use alone, and a reader after a crash expects them a second old. */
    __atomic_store_n(&header->heartbeat_ns, now_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&header->heartbeat_wall_ns, clock_wall_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&header->clean, 0, __ATOMIC_RELAXED); /* a child may outlive the opener */
}

/* A heartbeat is a second old at most. */
static inline bool needs_heartbeat(const struct region *region, uint64_t now_ns)
{
    return now_ns > __atomic_load_n(&region->header->heartbeat_ns, __ATOMIC_RELAXED) + NS_PER_S;
}

__attribute__((noinline)) static uint64_t now_slow(const struct region *region)
{
    assert(region_is_valid(region));
    struct region_header *header = region->header;
    if (region->fixed.clock == STINT_CLOCK_VIRTUAL)
        /* acquire: a reader of a time set by another thread sees what that thread did before. */
        return __atomic_load_n(&header->virtual_now_ns, __ATOMIC_ACQUIRE);
    uint64_t now = clock_boot_ns() + (uint64_t)header->clock_offset_ns;
    if (needs_heartbeat(region, now) && !region->read_only)
        heartbeat(header, now);
    return now;
}

uint64_t region_now(const struct region *region)
{
    assert(region_is_valid(region));
    uint64_t boot_ns;
    if (region->fixed.clock == STINT_CLOCK_REAL && clock_boot_quick(&boot_ns)) {
        uint64_t now = boot_ns + (uint64_t)region->header->clock_offset_ns;
        if (!needs_heartbeat(region, now))
            return now;
    }
    return now_slow(region);
}

/*
 * The last to leave marks the file as clean: states are on disk, and time up to now is known. A
 * child that was forked after the open shares this process's locks. So they are left as a user
 * holds them, and end when the last of these processes closes the file.
 */
static void leave(struct region *region)
{
    assert(region_is_valid(region) && region->opener == (long)getpid());
    struct region_header *header = region->header;
    lock_byte(region->fd, F_WRLCK, LOCK_FRONTEND, true);
    if (lock_byte(region->fd, F_WRLCK, LOCK_USERS, false) == 0) {
        if (region->fixed.clock == STINT_CLOCK_REAL)
            heartbeat(header, region_now(region));
        header->clean = 1;
        msync(header, region->map_size, MS_SYNC);
        lock_byte(region->fd, F_RDLCK, LOCK_USERS, false);
    }
    lock_byte(region->fd, F_UNLCK, LOCK_FRONTEND, false);
}

void region_close(struct region *region)
{
    assert(region_is_valid(region));
    if (region->is_settled && region->opener == (long)getpid())
        leave(region);
    munmap(region->header, region->map_size);
    if (region->fd >= 0)
        close(region->fd);
}
