/* SPDX-License-Identifier: MIT */
/*
 * Tables in files: kept over a restart, over a clean boot and an unclean one, made whole or not at
 * all, and refused or survived when damaged. FIELD B4, B26, B29.
 */
#define _GNU_SOURCE
#include "race/crew.h"

#include "base/splitmix.h"
#include "table/region/region.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)
#define HOUR_NS (3600 * SECOND_NS)
#define START_NS (UINT64_C(1000) * HOUR_NS)

static const char *const specs[] = {
    "gcra 5/1h",
    "window 5/1h resolution=12",
    "fixed_window 5/1h align=first_use", /* one of the wall clock may end at any instant */
    "window 5/1h",
    "sliding_counter 5/1h",
    "log 5/1h",
    "buckets 5/1h time_slack=6m",
    "concurrency 5 lease=1h",
};
#define SPECS (sizeof(specs) / sizeof(specs[0]))
#define KEYS 20u

static struct stint_quota quotas[SPECS];
static char path[64];

static struct stint_table_options options_of(uint8_t clock)
{
    return (struct stint_table_options){.path = path,
                                        .keys = 64,
                                        .keys16 = 64,
                                        .keys_wide = 64,
                                        .wide_size = 256,
                                        .tickets = 64,
                                        .blocks = 16,
                                        .quotas = 16,
                                        .clock = clock};
}

static int try_open(struct stint_table **table, uint8_t clock)
{
    struct stint_table_options options = options_of(clock);
    return stint_table_open(table, &options, NULL);
}

static struct stint_decision ask(struct stint_table *table, unsigned quota, uint32_t key,
                                 uint32_t cost, uint64_t now_ns)
{
    return stint_take(table, &quotas[quota], &key, sizeof(key), cost, now_ns);
}

/* Three of five units of every key and quota, and one key blocked. */
static void use_some(struct stint_table *table, uint64_t now_ns)
{
    for (unsigned q = 0; q < SPECS; q++)
        for (uint32_t key = 0; key < KEYS; key++)
            crew_check(ask(table, q, key, 3, now_ns).outcome == STINT_ALLOW, "%s: denied",
                       specs[q]);
    uint32_t blocked = 77;
    stint_block(table, &blocked, sizeof(blocked), now_ns + HOUR_NS, now_ns);
}

static void check_remaining(struct stint_table *table, uint64_t now_ns, uint32_t remaining,
                            const char *when)
{
    for (unsigned q = 0; q < SPECS; q++) {
        for (uint32_t key = 0; key < KEYS; key++) {
            struct stint_item item = {&quotas[q], &key, sizeof(key), 0};
            struct stint_decision peek = stint_peek(table, &item, 1, now_ns);
            crew_check(peek.remaining == remaining, "%s, %s: key %u has %u left", when, specs[q],
                       key, peek.remaining);
        }
    }
    crew_check(ask(table, 0, 77, 1, now_ns).outcome == STINT_DENY, "%s: a block was lost", when);
}

static struct region_header read_header(void)
{
    struct region_header header;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        exit(1);
    close(fd);
    return header;
}

static void write_header(const struct region_header *header)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0 || pwrite(fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header))
        exit(1);
    close(fd);
}

static void states_outlive_a_restart(void)
{
    struct stint_table_options options = options_of(STINT_CLOCK_VIRTUAL);
    unlink(path);
    struct stint_table *table = crew_open(&options);
    use_some(table, START_NS);
    stint_table_set_now(table, START_NS);
    stint_table_close(table);
    table = crew_open(&options);
    struct stint_table_info info;
    stint_table_info(table, START_NS, &info);
    crew_check(info.restored && !info.filled, "restored %d, filled %d", info.restored, info.filled);
    crew_check(stint_now(table) == START_NS, "time went back over a restart");
    check_remaining(table, START_NS, 2, "after a restart");
    stint_table_close(table);
}

/* As a boot would leave it: another name of the boot, and the last heartbeat some time ago. */
static uint64_t boot(bool clean, int64_t unavailable_ns)
{
    struct region_header header = read_header();
    header.boot_id ^= 2;
    header.clean = clean;
    header.heartbeat_wall_ns -= unavailable_ns;
    write_header(&header);
    return header.heartbeat_ns > header.mark_ns ? header.heartbeat_ns : header.mark_ns;
}

static void time_goes_on_over_a_boot(void)
{
    struct stint_table_options options = options_of(STINT_CLOCK_REAL);
    unlink(path);
    struct stint_table *table = crew_open(&options);
    uint64_t now_ns = stint_now(table);
    use_some(table, now_ns);
    stint_table_close(table);
    boot(true, 600 * (int64_t)SECOND_NS);
    table = crew_open(&options);
    struct stint_table_info info;
    stint_table_info(table, now_ns, &info);
    crew_check(!info.filled, "a clean boot filled the table");
    uint64_t later_ns = stint_now(table);
    crew_check(later_ns >= now_ns + 600 * SECOND_NS && later_ns < now_ns + 660 * SECOND_NS,
               "%lld ns passed over a boot of 600 s", (long long)(later_ns - now_ns));
    check_remaining(table, now_ns, 2, "after a clean boot");
    stint_table_close(table);
    /* A wall clock that was set back counts as no time away. */
    boot(true, -3600 * (int64_t)SECOND_NS);
    table = crew_open(&options);
    crew_check(stint_now(table) >= later_ns && stint_now(table) < later_ns + 60 * SECOND_NS,
               "time went back, or far on, with the wall clock");
    stint_table_close(table);
}

static void unclean_boot_fills(bool trust)
{
    struct stint_table_options options = options_of(STINT_CLOCK_REAL);
    unlink(path);
    struct stint_table *table = crew_open(&options);
    uint64_t now_ns = stint_now(table);
    struct stint_counter counter;
    use_some(table, now_ns);
    stint_count(table, "counter", 7, 5, HOUR_NS, now_ns, &counter, NULL);
    stint_table_close(table);
    boot(false, 10 * (int64_t)SECOND_NS);
    options.trust_after_crash = trust;
    table = crew_open(&options);
    now_ns = stint_now(table);
    stint_count(table, "counter", 7, 1, 9 * HOUR_NS, now_ns, &counter, NULL);
    crew_check(counter.count == 6 && counter.expires_after_ns < HOUR_NS,
               "a counter lost its count or its expiry");
    struct stint_table_info info;
    stint_table_info(table, now_ns, &info);
    crew_check(info.filled == !trust, "filled %d, trusted %d", info.filled, trust);
    check_remaining(table, now_ns, trust ? 2 : 0, trust ? "trusted" : "after an unclean boot");
    for (unsigned q = 0; q < SPECS && !trust; q++) {
        crew_check(ask(table, q, 1, 1, now_ns).outcome == STINT_DENY, "%s: not full", specs[q]);
        crew_check(ask(table, q, 5000, 5, now_ns).outcome == STINT_ALLOW, "%s: a new key is full",
                   specs[q]);
    }
    for (unsigned q = 0; q < SPECS && !trust; q++)
        crew_check(quotas[q].algorithm == STINT_GCRA ||
                       ask(table, q, 1, 1, now_ns + HOUR_NS - 30 * SECOND_NS).outcome == STINT_DENY,
                   "%s: not full for one period", specs[q]);
    for (unsigned q = 0; q < SPECS && !trust; q++)
        crew_check(ask(table, q, 1, 5, now_ns + 3 * HOUR_NS).outcome == STINT_ALLOW,
                   "%s: full for ever", specs[q]);
    stint_table_close(table);
}

static void others_are_refused(void)
{
    struct stint_table *table = NULL;
    struct stint_table_options options = options_of(STINT_CLOCK_VIRTUAL);
    unlink(path);
    stint_table_close(crew_open(&options));
    struct region_header good = read_header(), bad;

    crew_check(try_open(&table, STINT_CLOCK_REAL) == STINT_E_MISMATCH, "the wrong clock");
    bad = good;
    bad.fixed.version++;
    bad.fixed_checksum = region_checksum(&bad.fixed);
    write_header(&bad);
    crew_check(try_open(&table, STINT_CLOCK_VIRTUAL) == STINT_E_VERSION, "another version");
    bad = good;
    bad.fixed.quota_size += 8;
    bad.fixed_checksum = region_checksum(&bad.fixed);
    write_header(&bad);
    crew_check(try_open(&table, STINT_CLOCK_VIRTUAL) == STINT_E_VERSION, "another machine");
    for (size_t byte = 0; byte < sizeof(good.fixed) + sizeof(good.fixed_checksum); byte++) {
        bad = good;
        ((unsigned char *)&bad)[byte] ^= (unsigned char)(1u << byte % 8);
        write_header(&bad);
        crew_check(try_open(&table, STINT_CLOCK_VIRTUAL) != 0, "byte %zu flipped", byte);
    }
    write_header(&good);
    crew_check(try_open(&table, STINT_CLOCK_VIRTUAL) == 0, "the repaired one is refused");
    stint_table_close(table);
    static const uint64_t cuts[] = {0, 1, 100, sizeof(struct region_header), 4096, 65536};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        if (truncate(path, (off_t)cuts[i]) != 0)
            exit(1);
        crew_check(try_open(&table, STINT_CLOCK_VIRTUAL) == STINT_E_CORRUPT, "cut at %llu",
                   (unsigned long long)cuts[i]);
    }
    options.must_exist = true;
    unlink(path);
    crew_check(stint_table_open(&table, &options, NULL) == STINT_E_SYSTEM,
               "made though must_exist");
    crew_check(access(path, F_OK) != 0, "a file appeared");
}

/* Everything behind the fixed head may be anything: answers may be wrong, but they come. */
static void damage_is_survived(unsigned rounds)
{
    struct stint_table_options options = options_of(STINT_CLOCK_VIRTUAL);
    uint64_t seed = 99;
    for (unsigned round = 0; round < rounds; round++) {
        unlink(path);
        struct stint_table *table = crew_open(&options);
        use_some(table, START_NS);
        uint64_t bytes = read_header().fixed.bytes;
        stint_table_close(table);
        int fd = open(path, O_WRONLY);
        for (unsigned i = 0; i < 400; i++) {
            uint64_t random = splitmix_next(&seed);
            uint64_t at = sizeof(struct region_header) +
                          (random >> 16) % (bytes - sizeof(struct region_header));
            unsigned char byte = (unsigned char)(random >> 56);
            if (pwrite(fd, &byte, 1, (off_t)at) != 1)
                exit(1);
        }
        close(fd);
        if (try_open(&table, STINT_CLOCK_VIRTUAL) != 0)
            continue;
        struct stint_table_info info;
        for (unsigned q = 0; q < SPECS; q++)
            for (uint32_t key = 0; key < 2 * KEYS; key++) {
                struct stint_item item = {&quotas[q], &key, sizeof(key), 1};
                ask(table, q, key, 1, START_NS + 1000);
                stint_refund(table, &item, 1, START_NS, START_NS + 2000);
                stint_charge(table, &item, 1, START_NS + 3000);
            }
        stint_table_info(table, START_NS, &info);
        stint_table_close(table);
    }
}

/* A file is made with all its bytes, or not at all. */
static void no_space_leaves_no_file(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 100000, .rlim_max = 100000};
        struct stint_table *table = NULL;
        struct stint_error error;
        unlink(path);
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        struct stint_table_options options = options_of(STINT_CLOCK_VIRTUAL);
        options.keys = 1000000;
        int code = stint_table_open(&table, &options, &error);
        _exit(code == STINT_E_SYSTEM && access(path, F_OK) != 0 ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    crew_check(status == 0, "a table without room was made, or left something behind");
}

static void read_only_only_looks(void)
{
    struct stint_table_options options = options_of(STINT_CLOCK_VIRTUAL);
    unlink(path);
    struct stint_table *table = crew_open(&options);
    use_some(table, START_NS);
    options.read_only = true;
    struct stint_table *reader = crew_open(&options);
    struct stint_table_info info;
    struct stint_entry entry;
    uint32_t key = 3;
    stint_table_info(reader, START_NS, &info);
    crew_check(info.live[0] == 3 * KEYS && info.live[1] == 2 * KEYS && info.live[2] == 3 * KEYS,
               "live: %llu, %llu, %llu", (unsigned long long)info.live[0],
               (unsigned long long)info.live[1], (unsigned long long)info.live[2]);
    crew_check(stint_find(reader, &quotas[0], &key, sizeof(key), START_NS, &entry) == 0 &&
                   entry.decision.remaining == 2,
               "not found by a reader");
    stint_table_close(reader);
    stint_table_close(table);
}

/* Many processes open at once what does not exist: one makes it, all share it. */
static void all_open_the_same(void)
{
    int admitted[2];
    if (pipe(admitted) != 0)
        exit(1);
    for (unsigned round = 0; round < 10; round++) {
        unlink(path);
        for (unsigned i = 0; i < 4; i++) {
            if (fork() != 0)
                continue;
            struct stint_table_options options = options_of(STINT_CLOCK_VIRTUAL);
            struct stint_table *table = crew_open(&options);
            char n = 0;
            for (unsigned turn = 0; turn < 5; turn++)
                n = (char)(n + (ask(table, 3, 1, 1, START_NS).outcome == STINT_ALLOW));
            stint_table_close(table);
            _exit(write(admitted[1], &n, 1) != 1);
        }
        int total = 0;
        for (unsigned i = 0; i < 4; i++) {
            char n = 0;
            int status = 1;
            wait(&status);
            if (status != 0 || read(admitted[0], &n, 1) != 1)
                crew_check(false, "a child failed");
            total += n;
        }
        crew_check(total == 5, "round %u: %d admitted of 5", round, total);
    }
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 60;
    snprintf(path, sizeof(path), "/tmp/stint-table-%ld", (long)getpid());
    for (unsigned q = 0; q < SPECS; q++)
        crew_parse(&quotas[q], specs[q]);
    states_outlive_a_restart();
    time_goes_on_over_a_boot();
    unclean_boot_fills(false);
    unclean_boot_fills(true);
    others_are_refused();
    no_space_leaves_no_file();
    read_only_only_looks();
    all_open_the_same();
    damage_is_survived(rounds);
    unlink(path);
    return crew_report();
}
