/* SPDX-License-Identifier: MIT */
/*
 * A table file comes back with flipped bits, or is changed while it is in use. Opening it and going
 * on never crashes, hangs or reads past anything (the sanitizers look on), and no state is from a
 * time that never was. What is not damaged is never taken to be.
 */
#define _GNU_SOURCE
#include "table/overrides.h"
#include "table/requests.h"

#include "unit/test_quota.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* One thread: under a sanitizer of threads each round takes thirty times as long for nothing. */
#ifdef __SANITIZE_THREAD__
#define ROUNDS 60
#define ROUNDS_IN_USE 2
#define ROUNDS_OF_THREADS 5
#else
#define ROUNDS REPEATS(6000, 2000)
#define ROUNDS_IN_USE 400
#define ROUNDS_OF_THREADS 100
#endif
#define KEYS 24
#define TICKETS 16
#define START (YEAR / 2)
#define STEP (700 * MS)

static const char *const specs[] = {
    "window 20/1m resolution=12",
    "window 23/1s resolution=10",
    "window 20/1m",
    "window 1000/1h resolution=16",
    "gcra 20/1m burst=7",
    "fixed_window 20/1m",
    "fixed_window 20/1mo align=calendar",
    "fixed_window 7/10s align=first_use",
    "sliding_counter 20/1m",
    "buckets 20/1m time_slack=6s count_slack=5",
    "buckets 9/1m count_slack=2",
    "log 20/1m",
    "concurrency 6 lease=30s",
    "window 23/1m resolution=100",
};
#define N_SPECS (N(specs))

static struct stint_quota quotas[N_SPECS], wider[N_SPECS];
static char path[64], copy_path[80];

/* What a program keeps of a table between two openings. */
struct user {
    struct stint_table *table;
    uint64_t now_ns, seed;
    struct stint_ticket tickets[TICKETS];
};

static uint64_t draw(struct user *user, uint64_t below)
{
    return next_random(&user->seed) % below;
}

static int open_table(struct user *user, bool read_only, struct stint_error *error)
{
    struct stint_table_options options = {
        .path = path,
        .keys = 48,
        .keys16 = 48,
        .keys_wide = 48,
        .wide_size = 400,
        .tickets = 32,
        .blocks = 16,
        .quotas = 48,
        .overrides = 16,
        .requests = 16,
        .hash_key = {1, 2},
        .epoch_ns = INT64_C(1700000000) * (int64_t)S,
        .clock = STINT_CLOCK_VIRTUAL,
        .read_only = read_only,
        .must_exist = read_only,
    };
    return stint_table_open(&user->table, &options, error);
}

static struct stint_item item_of(struct user *user, char *key, size_t key_size)
{
    size_t which = (size_t)draw(user, N_SPECS);
    const struct stint_quota *quota = draw(user, 8) == 0 ? &wider[which] : &quotas[which];
    int key_len = snprintf(key, key_size, "%llu", (unsigned long long)draw(user, KEYS));
    return (struct stint_item){quota, key, (size_t)key_len, (uint32_t)draw(user, 6)};
}

static void use_ticket(struct user *user, const struct stint_item *items, size_t n_items)
{
    struct stint_ticket *ticket = &user->tickets[draw(user, TICKETS)];
    switch (draw(user, 5)) {
    case 0:
        stint_reserve(user->table, items, n_items, MINUTE, user->now_ns, ticket);
        break;
    case 1:
        stint_book(user->table, items, 1, draw(user, 2 * MINUTE), user->now_ns, ticket);
        break;
    case 2:
        stint_settle(user->table, *ticket, (uint32_t)draw(user, 9), user->now_ns, NULL);
        break;
    case 3:
        stint_cancel(user->table, *ticket, user->now_ns, NULL);
        break;
    default:
        stint_renew(user->table, *ticket, user->now_ns);
    }
}

static void count(struct user *user, const struct stint_item *item)
{
    struct stint_counter counter;
    int64_t amount = (int64_t)draw(user, 9) - 3;
    if (draw(user, 16) == 0)
        stint_count_reset(user->table, item->key, item->key_len, NULL);
    int code = stint_count(user->table, item->key, item->key_len, amount, 1 + draw(user, MINUTE),
                           user->now_ns, &counter, NULL);
    if (code != STINT_OK)
        return;
    assert_true(counter.count <= STINT_COUNT_MAX);
    assert_true(amount <= 0 || counter.count >= (uint64_t)amount || counter.expires_after_ns == 0);
}

static void use_once(struct user *user)
{
    char keys[2][24];
    struct stint_item items[2] = {item_of(user, keys[0], sizeof(keys[0])),
                                  item_of(user, keys[1], sizeof(keys[1]))};
    const struct stint_item *one = &items[0];
    size_t which =
        (size_t)(one->quota >= wider && one->quota < wider + N_SPECS ? one->quota - wider
                                                                     : one->quota - quotas);
    struct stint_table *table = user->table;
    uint64_t now_ns = user->now_ns;
    switch (draw(user, 13)) {
    case 0:
        stint_take_all(table, items, 2, now_ns);
        break;
    case 1:
        stint_take_upto(table, items, 2, now_ns);
        break;
    case 2:
        stint_charge(table, items, 2, now_ns);
        break;
    case 3:
        stint_refund(table, items, 1, now_ns - draw(user, MINUTE), now_ns);
        break;
    case 4:
    case 5:
        use_ticket(user, items, 2);
        break;
    case 6:
        if (draw(user, 4) == 0)
            stint_reset(table, one->quota, one->key, one->key_len, now_ns);
        break;
    case 7:
        if (draw(user, 8) == 0)
            stint_block(table, one->key, one->key_len, now_ns + draw(user, MINUTE), now_ns);
        break;
    case 8:
        stint_set_quota(table, &quotas[which], &wider[which], one->key, one->key_len, now_ns);
        break;
    case 9:
        count(user, one);
        break;
    default:
        stint_take(table, one->quota, one->key, one->key_len, one->cost, now_ns);
    }
}

static void use(struct user *user, int times)
{
    while (times-- > 0) {
        user->now_ns += draw(user, STEP);
        use_once(user);
    }
    stint_table_set_now(user->table, user->now_ns);
}

/* Nothing is left from a later time than the table knows of, or than a state may reach ahead. */
struct seen_states {
    uint64_t latest_ns, live;
};

/* The caller of a counter chooses its expiry: the period of its quota bounds nothing. */
static uint64_t reaches_ahead_ns(const struct stint_quota *quota)
{
    return quota->algorithm == STINT_COUNTER ? STINT_COUNT_EXPIRY_MAX_NS
                                             : 3 * quota->period_ns + YEAR;
}

static bool see(const struct stint_entry *entry, void *arg)
{
    struct seen_states *seen = arg;
    seen->live++;
    assert_true(entry->expires_at_ns <= seen->latest_ns + reaches_ahead_ns(&entry->quota));
    return true;
}

static bool see_any(const struct stint_entry *entry, void *arg)
{
    struct seen_states *seen = arg;
    seen->live += entry->expires_at_ns > 0;
    return true;
}

static struct stint_table_info look_at_all(struct user *user)
{
    struct stint_table_info info;
    struct stint_entry entry;
    char key[24];
    stint_table_info(user->table, user->now_ns, &info);
    uint64_t table_ns = stint_now(user->table);
    /* Units that are carried over count from up to a period ahead, of any quota of the table. */
    struct seen_states seen = {.latest_ns = user->table->ahead_ns + user->now_ns + info.mark_ns};
    seen.latest_ns += table_ns < STINT_NOW_MAX ? table_ns : STINT_NOW_MAX;
    stint_table_each(user->table, user->now_ns, see, &seen);
    for (int i = 0; i < 8; i++) {
        struct stint_item item = item_of(user, key, sizeof(key));
        stint_find(user->table, item.quota, item.key, item.key_len, user->now_ns, &entry);
    }
    return info;
}

static void make_path(void)
{
    const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, sizeof(path), "%s/stint-damaged-%ld", folder, (long)getpid());
    snprintf(copy_path, sizeof(copy_path), "%s.copy", path);
}

SETUP
{
    /* A loop without end is a failure, too: of its own time, however busy the machine is. */
    setrlimit(RLIMIT_CPU, &(struct rlimit){250, 260});
    make_path();
    for (size_t i = 0; i < N_SPECS; i++) {
        quotas[i] = quota_of(specs[i]);
        wider[i] = quotas[i];
        wider[i].limit++;
        assert_int_equal(stint_quota_check(&wider[i], NULL), STINT_OK);
    }
}

TEARDOWN
{
    unlink(path);
    unlink(copy_path);
}

/* However a table is used and left, no state of it is taken to be damaged when it is opened. */
TEST(test_what_was_left_whole_is_never_taken_to_be_damaged)
{
    struct user user = {.now_ns = START, .seed = 5};
    struct stint_error error;
    uint64_t live = 0;
    for (int round = 0; round < 400; round++) {
        assert_int_equal(open_table(&user, false, &error), 0);
        struct stint_table_info info = look_at_all(&user);
        assert_int_equal(info.states_damaged, 0);
        live += info.live[0] + info.live[1] + info.live[2];
        use(&user, round == 0 ? 2000 : 100);
        if (round % 50 == 49)
            assert_int_equal(stint_table_snapshot(user.table, copy_path, &error), 0);
        stint_table_close(user.table);
        if (round % 50 == 49)
            assert_int_equal(rename(copy_path, path), 0);
        assert_int_equal(open_table(&user, true, &error), 0);
        struct stint_table_info seen = look_at_all(&user);
        assert_int_equal(seen.states_damaged, 0);
        stint_table_close(user.table);
    }
    assert_true(live > 400 * 40);
    unlink(path);
}

/* One part of a region, chosen so that every part gets as many flips as every other. */
static void part_of(const struct region_fixed *fixed, uint64_t which, uint64_t *first,
                    uint64_t *size)
{
    const struct class_layout *layout = &fixed->classes[which % CLASSES];
    *first = layout->offset;
    *size = layout->sets * layout->set_size;
    if (which == CLASSES) {
        *first = offsetof(struct region_header, fixed_checksum) + 8;
        *size = sizeof(struct region_header) - *first;
    } else if (which == CLASSES + 1) {
        *first = fixed->quotas_offset;
        *size = 40 * (sizeof(struct stint_quota) + 8);
    } else if (which == CLASSES + 2) {
        *first = fixed->tickets_offset;
        *size = (uint64_t)fixed->tickets_max * TICKET_SIZE;
    }
}

static void flip_bits(struct user *user, uint8_t *bytes)
{
    struct region_fixed fixed;
    memcpy(&fixed, bytes, sizeof(fixed));
    uint64_t flips = UINT64_C(1) << draw(user, 8);
    while (flips-- > 0) {
        uint64_t first, size;
        uint64_t which = draw(user, 24); /* the header seldom: it may forbid to open at all */
        part_of(&fixed, which < CLASSES + 3 ? which : which % CLASSES, &first, &size);
        bytes[first + draw(user, size)] ^= (uint8_t)(1u << draw(user, 8));
    }
}

static uint8_t *map_file(size_t *size)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &status), 0);
    *size = (size_t)status.st_size;
    uint8_t *at = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(at != MAP_FAILED);
    close(fd);
    return at;
}

/* Opens a damaged file as its readers and users would; false if it is refused. */
static bool go_on(struct user *user, uint64_t *damaged)
{
    struct stint_error error;
    int code = open_table(user, true, &error);
    if (code == 0) {
        look_at_all(user);
        stint_table_close(user->table);
    }
    if (open_table(user, false, &error) != 0) {
        assert_int_equal(error.code, STINT_E_CORRUPT);
        return false;
    }
    assert_int_equal(code, 0);
    struct stint_table_info before = look_at_all(user);
    use(user, 60);
    look_at_all(user);
    stint_table_close(user->table);

    /* What was repaired is whole. */
    assert_int_equal(open_table(user, false, &error), 0);
    struct stint_table_info after = look_at_all(user);
    assert_int_equal(after.states_damaged, before.states_damaged);
    if (draw(user, 16) == 0)
        stint_table_snapshot(user->table, copy_path, &error);
    stint_table_close(user->table);
    *damaged += before.states_damaged < 100000 ? before.states_damaged : 0;
    return true;
}

TEST(test_a_damaged_file_is_refused_or_mended)
{
    struct user whole = {.now_ns = START, .seed = 7};
    struct stint_error error;
    uint64_t opened = 0, damaged = 0;
    size_t size;
    assert_int_equal(open_table(&whole, false, &error), 0);
    use(&whole, 3000);
    stint_table_close(whole.table);
    uint8_t *bytes = map_file(&size), *pristine = malloc(size);
    assert_non_null(pristine);
    memcpy(pristine, bytes, size);
    for (int round = 0; round < ROUNDS; round++) {
        struct user user = whole;
        user.seed = (uint64_t)round + 11;
        memcpy(bytes, pristine, size);
        flip_bits(&user, bytes);
        opened += go_on(&user, &damaged);
    }
    munmap(bytes, size);
    free(pristine);
    assert_true(opened > ROUNDS / 2);
    assert_true(damaged > opened);
}

/* A damaged state is full for a period, and then as new. */
TEST(test_a_damaged_state_is_full_for_a_period)
{
    static const size_t strict[] = {0, 2, 9, 11, 13}; /* all per minute */
    enum { N_STRICT = N(strict) };
    struct stint_error error;
    struct user user = {.now_ns = START, .seed = 1};
    unlink(path);
    assert_int_equal(open_table(&user, false, &error), 0);
    for (size_t i = 0; i < N_STRICT; i++)
        assert_int_equal(stint_take(user.table, &quotas[strict[i]], "k", 1, 1, START).outcome,
                         STINT_ALLOW);
    stint_table_close(user.table);

    size_t size;
    uint8_t *bytes = map_file(&size);
    const struct region_fixed *fixed = (const void *)bytes;
    for (int class = 0; class <= CLASS_WIDE; class ++) {
        const struct class_layout *layout = &fixed->classes[class];
        for (uint64_t slot = 0; slot < layout->sets * WAYS; slot++) {
            uint64_t way = slot % WAYS, half = way / HALF_WAYS;
            uint8_t *set = bytes + layout->offset + slot / WAYS * layout->set_size;
            struct pair *pair =
                (struct pair *)(void *)(set + half * layout->half_size) + way % HALF_WAYS;
            uint8_t *state = set + layout->state_offset + half * layout->state_half +
                             way % HALF_WAYS * (size_t)layout->state_stride;
            if (pair->first == 0)
                continue;
            if (class == CLASS_8)
                pair->second ^= 2; /* a bar becomes a star */
            else
                state[class == CLASS_16 ? 0 : 16] ^= 0xfe;
        }
    }
    munmap(bytes, size);

    assert_int_equal(open_table(&user, false, &error), 0);
    uint64_t last_ns = 0;
    for (size_t i = 0; i < N_STRICT; i++) {
        const struct stint_quota *quota = &quotas[strict[i]];
        struct stint_decision full = stint_take(user.table, quota, "k", 1, 1, START + 1);
        assert_int_equal(full.outcome, STINT_DENY);
        assert_true(full.retry_after_ns > MINUTE - 10 * MS);
        assert_true(full.retry_after_ns < MINUTE * 5 / 4);
        last_ns = full.retry_after_ns > last_ns ? full.retry_after_ns : last_ns;
    }
    for (size_t i = 0; i < N_STRICT; i++) {
        const struct stint_quota *quota = &quotas[strict[i]];
        struct stint_decision new =
            stint_take(user.table, quota, "k", 1, quota->limit, START + 1 + last_ns);
        assert_int_equal(new.outcome, STINT_ALLOW);
    }
    struct stint_table_info info = look_at_all(&user);
    assert_int_equal(info.states_damaged, N_STRICT);
    stint_table_close(user.table);
}

/* ---- Damage to a table in use -----------------------------------------------------------------
 */

#define FRONT_SIZE ((size_t)1 << 26)
#define FRONT_MIN ((size_t)1 << 12)
#define POOL_KEYS 4

/* One who may write the file changes it through a mapping of its own while a table is open. */
struct changer {
    struct region_fixed fixed; /* as it was before any change */
    uint8_t *bytes, *pristine;
    size_t size;
    uint64_t seed;
    bool stops;
};

/* Quotas of one rule, of all sizes: their keys move from class to class. */
static struct stint_quota ruled[N_SPECS];

/* Memory on one side of the region that must not be touched, as far as that is free. */
static void front(char *region, size_t region_size, bool before, struct iovec *fronted)
{
    *fronted = (struct iovec){0};
    for (size_t size = FRONT_SIZE; size >= FRONT_MIN && fronted->iov_len == 0; size /= 2) {
        char *from = before ? region - size : region + region_size;
        void *at = mmap(from, size, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (at != MAP_FAILED)
            *fronted = (struct iovec){at, size};
    }
}

static uint64_t changed_word(uint64_t word, uint64_t *seed)
{
    uint64_t random = next_random(seed);
    switch (random % 6) {
    case 0:
        return next_random(seed);
    case 1:
        return UINT64_MAX >> next_random(seed) % 64;
    case 2:
        return word + next_random(seed) % 64 - 32;
    case 3: /* the halves apart: counts and indexes are often of 32 bits */
        return (word & UINT32_MAX) | next_random(seed) << 32;
    case 4:
        return (word & ~(uint64_t)UINT32_MAX) | (uint32_t)next_random(seed);
    default:
        return word ^ UINT64_C(1) << next_random(seed) % 64;
    }
}

/* Where changes go: all parts alike, but the counters of the header seldom, as they end time. */
static void place_to_change(struct changer *changer, uint64_t *first, uint64_t *size)
{
    const struct region_fixed *fixed = &changer->fixed;
    uint64_t which = next_random(&changer->seed) % 32;
    if (which < 26) {
        const struct class_layout *layout = &fixed->classes[which % CLASSES];
        *first = layout->offset;
        *size = layout->sets * layout->set_size;
        return;
    }
    const uint64_t parts[][2] = {
        {0, offsetof(struct region_header, mark_ns)},
        {offsetof(struct region_header, mark_ns), sizeof(struct region_header) - 128},
        {fixed->quotas_offset, fixed->tickets_offset - fixed->quotas_offset},
        {fixed->tickets_offset, (uint64_t)fixed->tickets_max * TICKET_SIZE},
        {fixed->pools_offset, (uint64_t)fixed->pools_max * POOL_RECORD_SIZE},
        {fixed->overrides_offset, fixed->classes[0].offset - fixed->overrides_offset},
    };
    *first = parts[which - 26][0];
    *size = parts[which - 26][1];
    if (*first + *size > changer->size)
        *size = changer->size - *first;
}

/* In three of four changes a word that was used before: most places of a table are empty. */
static void change_once(struct changer *changer)
{
    uint64_t first, size, at = 0;
    place_to_change(changer, &first, &size);
    for (int tries = 0; tries < 40; tries++) {
        at = (first + next_random(&changer->seed) % size) & ~UINT64_C(7);
        uint64_t *word = (uint64_t *)(void *)(changer->bytes + at);
        if (__atomic_load_n(word, __ATOMIC_RELAXED) != 0)
            break;
    }
    uint64_t *word = (uint64_t *)(void *)(changer->bytes + at);
    uint64_t seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    __atomic_store_n(word, changed_word(seen, &changer->seed), __ATOMIC_RELAXED);
}

static void put_header_back(struct changer *changer)
{
    const struct region_header *pristine = (const void *)changer->pristine;
    struct region_header *header = (void *)changer->bytes;
    __atomic_store_n(&header->mark_ns, pristine->mark_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&header->blocks_until_ns, pristine->blocks_until_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&header->quotas, pristine->quotas, __ATOMIC_RELAXED);
    __atomic_store_n(&header->overrides_owner, 0, __ATOMIC_RELAXED);
}

static struct stint_pool *pool_in(struct stint_table *table, uint64_t now_ns)
{
    struct stint_pool *pool;
    const struct stint_pool_options options = {.name = "pool", .order = STINT_ROUND_ROBIN};
    static const char *const names[POOL_KEYS] = {"a", "b", "c", "d"};
    assert_int_equal(stint_pool_open(&pool, table, &options, NULL), 0);
    for (size_t i = 0; i < POOL_KEYS; i++) {
        const struct stint_pool_key key = {.name = names[i], .quotas = &quotas[0], .n_quotas = 1};
        assert_int_equal(stint_pool_add(pool, &key, now_ns, NULL), 0);
    }
    return pool;
}

static bool see_key(const struct stint_pool_status *status, void *arg)
{
    (void)arg;
    assert_non_null(status->name);
    return true;
}

static void use_pool(struct user *user, struct stint_pool *pool)
{
    struct stint_pool_ask ask = {.now_ns = user->now_ns, .cost = (uint32_t)draw(user, 3)};
    struct stint_pool_answer answer = stint_pool_next(pool, &ask);
    int outcome = (int)draw(user, 4);
    if (answer.name != NULL && draw(user, 8) == 0)
        stint_pool_report(pool, answer.name, outcome, outcome == STINT_POOL_COOL ? S : 0,
                          user->now_ns, NULL);
    if (draw(user, 8) == 0)
        stint_pool_each(pool, user->now_ns, see_key, NULL);
}

/* What servers alone use of a table: answers to ids, and quotas of single keys. */
static void use_as_server(struct user *user)
{
    struct stint_table *table = user->table;
    struct stint_quota found;
    uint64_t id = draw(user, 32);
    struct requests_ask ask = {.hash = requests_hash(table, &id, sizeof(id)),
                               .fingerprint = id,
                               .now_ns = user->now_ns,
                               .lifetime_ns = MINUTE};
    struct requests_claim claim;
    struct requests_answer answer = {.at_ns = user->now_ns};
    enum requests_found known = requests_begin(table, &ask, &claim, &answer);
    if (known == REQUESTS_NEW)
        requests_end(table, &claim, &answer);
    if (known == REQUESTS_SAME)
        assert_true(answer.decision.outcome <= STINT_NEVER &&
                    answer.decision.binding < STINT_ITEMS_MAX);
    const struct stint_quota *quota = &ruled[draw(user, N_SPECS)];
    if (draw(user, 4) == 0)
        overrides_set(table, ask.hash, quota, NULL);
    if (draw(user, 8) == 0)
        overrides_drop(table, ask.hash, NULL);
    if (overrides_find(table, ask.hash, quota->rule, &found))
        assert_int_equal(found.derived.checked, 1);
}

static void use_ruled(struct user *user)
{
    char key[24];
    struct stint_item item = item_of(user, key, sizeof(key));
    item.quota = &ruled[draw(user, N_SPECS)];
    struct stint_item items[1] = {item};
    if (draw(user, 2) == 0)
        stint_take(user->table, item.quota, key, item.key_len, item.cost, user->now_ns);
    else
        use_ticket(user, items, 1);
}

static void use_all(struct user *user, struct stint_pool *pool, int times)
{
    while (times-- > 0) {
        user->now_ns += draw(user, STEP);
        switch (draw(user, 6)) {
        case 0:
            use_pool(user, pool);
            break;
        case 1:
            use_as_server(user);
            break;
        case 2:
            use_ruled(user);
            break;
        default:
            use_once(user);
        }
    }
}

static void prepare(struct user *whole, struct changer *changer)
{
    struct stint_error error;
    *whole = (struct user){.now_ns = START, .seed = 13};
    unlink(path);
    for (size_t i = 0; i < N_SPECS; i++) {
        ruled[i] = quotas[i];
        ruled[i].rule = 77;
        assert_int_equal(stint_quota_check(&ruled[i], NULL), STINT_OK);
    }
    assert_int_equal(open_table(whole, false, &error), 0);
    struct stint_pool *pool = pool_in(whole->table, START);
    use_all(whole, pool, 3000);
    stint_pool_close(pool);
    stint_table_set_now(whole->table, whole->now_ns);
    stint_table_close(whole->table);
    changer->bytes = map_file(&changer->size);
    changer->pristine = malloc(changer->size);
    assert_non_null(changer->pristine);
    memcpy(changer->pristine, changer->bytes, changer->size);
    memcpy(&changer->fixed, changer->bytes, sizeof(changer->fixed));
}

static void look_around(struct user *user, struct stint_pool *pool)
{
    struct stint_table_info info;
    struct stint_error error;
    struct seen_states seen = {.latest_ns = UINT64_MAX / 2};
    stint_table_info(user->table, user->now_ns, &info);
    stint_table_each(user->table, user->now_ns, see_any, &seen);
    if (draw(user, 4) == 0)
        stint_table_snapshot(user->table, copy_path, &error);
    use_pool(user, pool);
}

/*
 * A changed word gives a wrong decision at most: whatever it is, nothing beside the region is
 * touched, and the process goes on.
 */
TEST(test_a_table_changed_in_use_is_never_left)
{
    static const uint64_t found[] = {7006421}; /* seeds of a longer search */
    struct user whole;
    struct stint_error error;
    struct changer changer;
    struct iovec fronts[2];
    prepare(&whole, &changer);
    for (int round = 0; round < ROUNDS_IN_USE; round++) {
        struct user user = whole;
        user.seed = changer.seed = round < (int)N(found) ? found[round] : (uint64_t)round + 3;
        memcpy(changer.bytes, changer.pristine, changer.size);
        assert_int_equal(open_table(&user, false, &error), 0);
        for (int side = 0; side < 2; side++)
            front((char *)user.table->region.header, user.table->region.map_size, side == 0,
                  &fronts[side]);
        struct stint_pool *pool = pool_in(user.table, user.now_ns);
        for (int turn = 0; turn < 60; turn++) {
            if (turn % 4 == 0)
                put_header_back(&changer);
            for (uint64_t n = draw(&user, 40); n > 0; n--)
                change_once(&changer);
            use_all(&user, pool, 20);
            if (turn % 20 == 19)
                look_around(&user, pool);
        }
        stint_pool_close(pool);
        stint_table_close(user.table);
        for (int side = 0; side < 2; side++)
            munmap(fronts[side].iov_base, fronts[side].iov_len);
    }
    munmap(changer.bytes, changer.size);
    free(changer.pristine);
    unlink(path);
}

static void *change_on(void *arg)
{
    struct changer *changer = arg;
    while (!__atomic_load_n(&changer->stops, __ATOMIC_RELAXED)) {
        for (int i = 0; i < 64; i++)
            change_once(changer);
        put_header_back(changer);
    }
    return NULL;
}

/* The same in the middle of verbs, of openings and of closings. */
TEST(test_a_table_that_changes_all_the_time_is_never_left)
{
    struct user whole;
    struct stint_error error;
    struct changer changer = {.seed = 17};
    pthread_t thread;
    prepare(&whole, &changer);
    for (int round = 0; round < ROUNDS_OF_THREADS; round++) {
        struct user user = whole;
        user.seed = (uint64_t)round + 5;
        changer.stops = false;
        memcpy(changer.bytes, changer.pristine, changer.size);
        assert_int_equal(open_table(&user, false, &error), 0);
        struct stint_pool *pool = pool_in(user.table, user.now_ns);
        assert_int_equal(pthread_create(&thread, NULL, change_on, &changer), 0);
        use_all(&user, pool, 400);
        look_around(&user, pool);
        stint_pool_close(pool);
        stint_table_close(user.table);
        for (int i = 0; i < 4; i++)
            if (open_table(&user, i % 2 == 0, &error) == 0) {
                stint_table_info(user.table, user.now_ns, &(struct stint_table_info){0});
                stint_table_close(user.table);
            }
        __atomic_store_n(&changer.stops, true, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
    }
    munmap(changer.bytes, changer.size);
    free(changer.pristine);
    unlink(path);
}
