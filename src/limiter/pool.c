/* SPDX-License-Identifier: MIT */
/* The list of a pool's keys: opening, adding, removing, finding. */
#include "limiter/pool.h"

#include "base/limits.h"
#include "base/wide_int.h"
#include "table/cooldown.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_DEFAULT 1024
#define POOL_TWEAK                                                                                 \
    UINT64_C(0x6c6f6f70) /* separates hashes of pools' and keys' names from all rules */
#define LOCK_WRITER (UINT32_C(1) << 31)

/* ---- The lock -------------------------------------------------------------------------------- */

/* Writers go first: otherwise a pool in constant use could never be changed. */
void pool_lock_shared(struct stint_pool *pool)
{
    for (;;) {
        uint32_t seen = __atomic_load_n(&pool->lock, __ATOMIC_RELAXED);
        /* acquire: the list is seen as the last writer left it. */
        if ((seen & LOCK_WRITER) == 0 &&
            __atomic_compare_exchange_n(&pool->lock, &seen, seen + 1, true, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return;
        if ((seen & LOCK_WRITER) != 0)
            sched_yield();
    }
}

void pool_unlock_shared(struct stint_pool *pool)
{
    /* release: a writer comes after everything that was read. */
    assert((__atomic_load_n(&pool->lock, __ATOMIC_RELAXED) & ~LOCK_WRITER) > 0);
    __atomic_fetch_sub(&pool->lock, 1, __ATOMIC_RELEASE);
}

static void lock_alone(struct stint_pool *pool)
{
    for (;;) {
        uint32_t seen = __atomic_load_n(&pool->lock, __ATOMIC_RELAXED);
        if ((seen & LOCK_WRITER) == 0 &&
            __atomic_compare_exchange_n(&pool->lock, &seen, seen | LOCK_WRITER, true,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            break;
        sched_yield();
    }
    /* acquire: the readers that have left have read. */
    while (__atomic_load_n(&pool->lock, __ATOMIC_ACQUIRE) != LOCK_WRITER)
        sched_yield();
}

static void unlock_alone(struct stint_pool *pool)
{
    __atomic_store_n(&pool->lock, 0, __ATOMIC_RELEASE);
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* 0 for a valid name; *len is its length, at most one too long. */
static int check_name(const char *name, size_t least, size_t *len, const char *whose,
                      struct stint_error *error)
{
    *len = 0;
    while (name != NULL && *len <= STINT_POOL_NAME_MAX && name[*len] != '\0')
        ++*len;
    if (*len < least || *len > STINT_POOL_NAME_MAX)
        return err_set(error, STINT_E_RANGE, "the name of a %s has %zu to %d bytes", whose, least,
                       STINT_POOL_NAME_MAX);
    for (size_t i = 0; i < *len; i++)
        if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f)
            return err_set(error, STINT_E_SYNTAX,
                           "the name of a %s is printable and without blanks: byte %zu is 0x%02x",
                           whose, i + 1, (unsigned char)name[i]);
    return 0;
}

/* Each name follows its length, so that no two lists of names are the same bytes. */
static struct hash128 hash_names(const struct stint_pool *pool, const char *name, size_t len)
{
    assert(len <= STINT_POOL_NAME_MAX);
    unsigned char bytes[2 * (STINT_POOL_NAME_MAX + 1)];
    size_t n = 0;
    bytes[n++] = (unsigned char)pool->name_len;
    memcpy(bytes + n, pool->name, pool->name_len);
    n += pool->name_len;
    bytes[n++] = (unsigned char)len;
    memcpy(bytes + n, name, len);
    return siphash13_128(pool->table->region.fixed.hash_key, POOL_TWEAK, bytes, n + len);
}

/* Separate from keys of callers under the same quota: no caller can choose these bytes. */
static struct hash128 hash_state(const struct stint_pool *pool, const struct pool_key *key,
                                 const struct stint_quota *quota)
{
    assert(pool_key_is_valid(key));
    const uint64_t bytes[2] = {key->hash.lo, key->hash.hi};
    return table_hash(pool->table, quota, bytes, sizeof(bytes));
}

/* ---- Sorted arrays --------------------------------------------------------------------------- */

typedef int pool_compare(const struct pool_key *a, const struct pool_key *b);

static int compare_names(const struct pool_key *a, const struct pool_key *b)
{
    return strcmp(a->name, b->name);
}

static int compare_turns(const struct pool_key *a, const struct pool_key *b)
{
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return compare_names(a, b);
}

static int compare_ages(const struct pool_key *a, const struct pool_key *b)
{
    return a->age < b->age ? -1 : a->age > b->age;
}

/* The position of the first key that is not before this one. */
static size_t place_of(struct pool_key *const *keys, size_t n, const struct pool_key *key,
                       pool_compare *compare)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(keys[middle], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* `by` is 1 to add a key, -1 to remove it. */
static void change(struct pool_key **keys, size_t n, struct pool_key *key, pool_compare *compare,
                   int by)
{
    assert(by == 1 || (by == -1 && n > 0));
    size_t at = place_of(keys, n, key, compare);
    if (by > 0) {
        memmove(&keys[at + 1], &keys[at], (n - at) * sizeof(struct pool_key *));
        keys[at] = key;
    } else {
        memmove(&keys[at], &keys[at + 1], (n - at - 1) * sizeof(struct pool_key *));
    }
}

size_t pool_age_index(const struct stint_pool *pool, uint64_t age)
{
    assert(pool_is_valid(pool));
    const struct pool_key wanted = {.age = age};
    return place_of(pool->by_age, pool->n_keys, &wanted, compare_ages);
}

static struct pool_key *find_name(const struct stint_pool *pool, const char *name)
{
    const struct pool_key wanted = {.name = name};
    size_t at = place_of(pool->by_name, pool->n_keys, &wanted, compare_names);
    if (at == pool->n_keys || strcmp(pool->by_name[at]->name, name) != 0)
        return NULL;
    return pool->by_name[at];
}

struct pool_key *pool_find(struct stint_pool *pool, const char *name, struct stint_error *error)
{
    assert(pool_is_valid(pool));
    struct pool_key *key = name != NULL ? find_name(pool, name) : NULL;
    if (key == NULL)
        err_set(error, STINT_E_GONE, "the pool has no key %.*s", STINT_POOL_NAME_MAX,
                name != NULL ? name : "without a name");
    return key;
}

uint64_t pool_name_hash(const struct stint_pool *pool, const char *name)
{
    assert(name != NULL);
    return hash_names(pool, name, strlen(name)).lo;
}

const char *pool_name_of(struct stint_pool *pool, uint64_t name_hash)
{
    const char *name = NULL;
    pool_lock_shared(pool);
    for (size_t i = 0; i < pool->n_keys && name == NULL; i++)
        if (pool->by_age[i]->hash.lo == name_hash)
            name = pool->by_age[i]->name;
    pool_unlock_shared(pool);
    return name;
}

static void change_list(struct stint_pool *pool, struct pool_key *key, int by)
{
    assert(pool_is_valid(pool));
    for (uint32_t pass = 1; pass <= STINT_POOL_WEIGHT_MAX; pass++)
        pool->round[pass] += (uint64_t)by * min_u64(pass, key->weight);
    change(pool->by_name, pool->n_keys, key, compare_names, by);
    change(pool->by_turn, pool->n_keys, key, compare_turns, by);
    change(pool->by_age, pool->n_keys, key, compare_ages, by);
    pool->n_keys += (size_t)by;
    pool->wait = (struct pool_wait){0};
    assert(pool_is_valid(pool));
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static int check_options(struct stint_table *table, const struct stint_pool_options *options,
                         size_t *name_len, struct stint_error *error)
{
    int code = check_name(options->name, 0, name_len, "pool", error);
    if (code != 0)
        return code;
    if (options->keys_max > STINT_POOL_KEYS_MAX)
        return err_set(error, STINT_E_RANGE, "a pool has at most %d keys", STINT_POOL_KEYS_MAX);
    if (options->order > STINT_LEAST_USED)
        return err_set(error, STINT_E_RANGE, "order %d of a pool is none", options->order);
    if (table->region.read_only)
        return err_set(error, STINT_E_MISMATCH, "the table was opened read-only: no decisions");
    return 0;
}

static bool allocate(struct stint_pool *pool)
{
    assert(pool->keys_max > 0);
    pool->by_name = calloc(pool->keys_max, sizeof(struct pool_key *));
    pool->by_turn = calloc(pool->keys_max, sizeof(struct pool_key *));
    pool->by_age = calloc(pool->keys_max, sizeof(struct pool_key *));
    pool->round = calloc(STINT_POOL_WEIGHT_MAX + 1, sizeof(*pool->round));
    return pool->by_name != NULL && pool->by_turn != NULL && pool->by_age != NULL &&
           pool->round != NULL;
}

static void set_name(struct stint_pool *pool, struct stint_table *table, const char *name,
                     size_t name_len)
{
    pool->table = table;
    pool->name_len = name_len;
    if (name_len > 0)
        memcpy(pool->name, name, name_len);
}

int pool_check_new(struct stint_table *table, const struct stint_pool_options *options,
                   uint32_t *n_new, struct stint_error *error)
{
    assert(table_is_valid(table));
    struct stint_pool named = {0};
    size_t name_len;
    int code = check_options(table, options, &name_len, error);
    if (code != 0)
        return code;
    set_name(&named, table, options->name, name_len);
    return pool_record_check(table, hash_names(&named, "", 0), n_new, error);
}

int stint_pool_open(struct stint_pool **pool, struct stint_table *table,
                    const struct stint_pool_options *options, struct stint_error *error)
{
    assert(pool != NULL && table_is_valid(table));
    static const struct stint_pool_options defaults;
    size_t name_len;
    if (options == NULL)
        options = &defaults;
    int code = check_options(table, options, &name_len, error);
    if (code != 0)
        return code;
    struct stint_pool *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a pool");
    made->order = options->order;
    made->keys_max = options->keys_max > 0 ? options->keys_max : KEYS_DEFAULT;
    set_name(made, table, options->name, name_len);
    if (!allocate(made))
        code = err_set(error, STINT_E_SYSTEM, "no memory for a pool of %zu keys", made->keys_max);
    else
        code = pool_record_open(table, hash_names(made, "", 0), &made->record, error);
    if (code != 0) {
        stint_pool_close(made);
        return code;
    }
    assert(pool_is_valid(made));
    *pool = made;
    return 0;
}

static void free_key(struct pool_key *key)
{
    assert(key != NULL);
    free(key->kept);
    free(key);
}

void stint_pool_close(struct stint_pool *pool)
{
    if (pool == NULL)
        return;
    for (size_t i = 0; i < pool->n_keys; i++)
        free_key(pool->by_age[i]);
    while (pool->old_names != NULL) {
        struct pool_name *old = pool->old_names;
        pool->old_names = old->after;
        free(old);
    }
    free(pool->by_name);
    free(pool->by_turn);
    free(pool->by_age);
    free(pool->round);
    free(pool);
}

/* ---- Adding and removing --------------------------------------------------------------------- */

int pool_check_quota(const struct stint_quota *quota, struct stint_error *error)
{
    if (quota->algorithm == STINT_CONCURRENCY)
        return err_set(error, STINT_E_MISMATCH,
                       "concurrency is not for the keys of a pool: a place needs a ticket, which "
                       "`reserve` gives");
    if (quota->count_denied)
        return err_set(error, STINT_E_MISMATCH,
                       "count_denied is not for the keys of a pool: a request passes over a key "
                       "without units, and is not refused");
    return 0;
}

/* Keys of a pool are few and configured: none is evicted for another key. */
static int own_quota(struct stint_pool *pool, const struct stint_quota *quota,
                     struct stint_quota *own, struct stint_error *error)
{
    assert(own != quota);
    if (quota->derived.checked != 1)
        return err_set(error, STINT_E_MISMATCH, "the quota was not checked: stint_quota_check()");
    int code = pool_check_quota(quota, error);
    if (code != 0)
        return code;
    *own = *quota;
    own->when_full = STINT_FULL_INHERIT;
    code = stint_quota_check(own, error);
    return code != 0 ? code : stint_table_accepts(pool->table, own, error);
}

static int copy_quotas(struct stint_pool *pool, struct pool_key *key,
                       const struct stint_pool_key *from, struct stint_error *error)
{
    for (uint32_t i = 0; i < key->n_quotas; i++) {
        int code = own_quota(pool, &from->quotas[i], &key->quotas[i], error);
        if (code != 0)
            return code;
        key->states[i] = hash_state(pool, key, &key->quotas[i]);
        for (uint32_t j = 0; j < i; j++)
            if (key->states[j].lo == key->states[i].lo && key->states[j].hi == key->states[i].hi)
                return err_set(error, STINT_E_MISMATCH,
                               "quotas %u and %u of key %s are the same, or of the same rule",
                               j + 1, i + 1, from->name);
    }
    return 0;
}

static int make_key(struct stint_pool *pool, const struct stint_pool_key *from,
                    struct pool_key **made, struct stint_error *error)
{
    size_t len;
    int code = check_name(from->name, 1, &len, "key", error);
    if (code != 0)
        return code;
    if (from->n_quotas < 1 || from->n_quotas > STINT_POOL_QUOTAS_MAX || from->quotas == NULL)
        return err_set(error, STINT_E_RANGE, "key %s has %zu quotas; 1 to %d are needed",
                       from->name, from->n_quotas, STINT_POOL_QUOTAS_MAX);
    if (from->weight > STINT_POOL_WEIGHT_MAX)
        return err_set(error, STINT_E_RANGE, "key %s has weight %u; at most %d is allowed",
                       from->name, from->weight, STINT_POOL_WEIGHT_MAX);
    struct pool_key *key = calloc(1, sizeof(*key) + from->n_quotas * sizeof(struct stint_quota));
    struct pool_name *kept = calloc(1, sizeof(*kept) + len + 1);
    if (key == NULL || kept == NULL) {
        free(key);
        free(kept);
        return err_set(error, STINT_E_SYSTEM, "no memory for key %s", from->name);
    }
    memcpy(kept->text, from->name, len);
    key->kept = kept;
    key->name = kept->text;
    key->weight = from->weight > 0 ? from->weight : 1;
    key->n_quotas = (uint32_t)from->n_quotas;
    key->hash = hash_names(pool, key->name, len);
    assert(pool_key_is_valid(key));
    code = copy_quotas(pool, key, from, error);
    if (code != 0)
        free_key(key);
    else
        *made = key;
    return code;
}

/* Reuses the name that a removed key of the same name left. */
static void take_old_name(struct stint_pool *pool, struct pool_key *key)
{
    assert(pool_key_is_valid(key));
    struct pool_name **at = &pool->old_names;
    while (*at != NULL && strcmp((*at)->text, key->name) != 0)
        at = &(*at)->after;
    if (*at == NULL)
        return;
    free(key->kept);
    key->kept = *at;
    key->name = key->kept->text;
    *at = key->kept->after;
}

static int check_now(uint64_t now_ns, struct stint_error *error)
{
    return now_ns <= STINT_NOW_MAX ? 0
                                   : err_set(error, STINT_E_RANGE, "now is later than there is");
}

int stint_pool_add(struct stint_pool *pool, const struct stint_pool_key *key, uint64_t now_ns,
                   struct stint_error *error)
{
    struct pool_key *made = NULL;
    int code = check_now(now_ns, error);
    if (code == 0)
        code = make_key(pool, key, &made, error);
    if (code != 0)
        return code;
    lock_alone(pool);
    if (find_name(pool, made->name) != NULL)
        code = err_set(error, STINT_E_MISMATCH, "key %s is in the pool already", made->name);
    else if (pool->n_keys == pool->keys_max)
        code = err_set(error, STINT_E_FULL, "the pool was made for %zu keys, and has them",
                       pool->keys_max);
    if (code == 0) {
        take_old_name(pool, made);
        made->age = pool->ages++;
        change_list(pool, made, 1);
    }
    unlock_alone(pool);
    if (code != 0)
        free_key(made);
    return code;
}

/*
 * The effect of reports on a key, in one word that all processes share (table/cooldown.h):
 *
 *   an instant, in units of 2^16 ns, rounded up; 11 bits of length; 5 bits of failures in turn
 *
 * The key is cooling down until the instant, less the time for which its failures are remembered:
 * as long as the last back-off of so many failures. So the word expires, and its slot is free, when
 * there is nothing to remember. The length is the cooldown that was reported, to 3 %, whatever is
 * left of it: an upstream that always reports the same length changes nothing while the key cools
 * down, so trying a key again during its cooldown never extends it.
 *
 * Every report is one swap of the word from which it was computed.
 */

#define FAILURES_BITS 5
#define FAILURES_OUT ((UINT64_C(1) << FAILURES_BITS) - 1)
#define FAILURES_MAX (FAILURES_OUT - 1)
#define LOW_MASK ((UINT64_C(1) << COOLDOWN_LOW_BITS) - 1)
#define BACK_OFF_FIRST_NS NS_PER_S
#define BACK_OFF_MAX_NS NS_PER_HOUR
#define WORD_OUT (~LOW_MASK | FAILURES_OUT)

static uint64_t round_up(uint64_t ns)
{
    return (ns + LOW_MASK) & ~LOW_MASK;
}

/* 1 s, 2 s, 4 s, … 1 h. */
static uint64_t back_off_ns(uint64_t failures)
{
    assert(failures <= FAILURES_MAX || failures == FAILURES_OUT);
    if (failures == 0)
        return 0;
    return failures > 12 ? BACK_OFF_MAX_NS
                         : min_u64(BACK_OFF_FIRST_NS << (failures - 1), BACK_OFF_MAX_NS);
}

/* A length by its first 6 binary digits: a longer one never has a lower code. */
static uint64_t length_code(uint64_t length_ns)
{
    assert(length_ns <= NS_PER_YEAR); /* and so is BACK_OFF_MAX_NS */
    unsigned bits = bit_length(length_ns);
    if (bits <= 6)
        return length_ns;
    return 32 * (uint64_t)(bits - 6) + (length_ns >> (bits - 6));
}

static uint64_t pack(uint64_t ends_ns, uint64_t failures, uint64_t length_ns)
{
    assert(failures <= FAILURES_MAX);
    uint64_t until_ns = round_up(ends_ns) + round_up(back_off_ns(failures));
    assert((until_ns & LOW_MASK) == 0 && length_code(length_ns) << FAILURES_BITS <= LOW_MASK);
    return until_ns | length_code(length_ns) << FAILURES_BITS | failures;
}

static struct pool_cooldown unpack(uint64_t word)
{
    struct pool_cooldown cooldown = {.failures = word & FAILURES_OUT,
                                     .code = (word & LOW_MASK) >> FAILURES_BITS};
    if (word == 0)
        return cooldown;
    cooldown.ends_ns = STINT_NEVER_NS;
    if (cooldown.failures != FAILURES_OUT)
        cooldown.ends_ns = sub_floor(word & ~LOW_MASK, round_up(back_off_ns(cooldown.failures)));
    return cooldown;
}

static uint64_t after_report(uint64_t word, int outcome, uint64_t cooldown_ns, uint64_t now_ns)
{
    assert(outcome >= STINT_POOL_OK && outcome <= STINT_POOL_OUT);
    struct pool_cooldown cooldown = unpack(word);
    bool cools = cooldown.ends_ns > now_ns;
    if (outcome == STINT_POOL_OK)
        return 0;
    if (outcome == STINT_POOL_OUT)
        return WORD_OUT;
    if (cooldown.ends_ns == STINT_NEVER_NS)
        return word;
    if (outcome == STINT_POOL_COOL) {
        if (cools && length_code(cooldown_ns) <= cooldown.code)
            return word;
        uint64_t ends_ns = max_u64(now_ns + cooldown_ns, cools ? cooldown.ends_ns : 0);
        return pack(ends_ns, cooldown.failures, cooldown_ns);
    }
    if (cools)
        return word;
    uint64_t failures = min_u64(cooldown.failures + 1, FAILURES_MAX);
    uint64_t length_ns = back_off_ns(failures);
    return pack(now_ns + length_ns, failures, length_ns);
}

/* 0, or STINT_E_FULL. */
static int report(struct stint_pool *pool, const struct pool_key *key, int outcome,
                  uint64_t cooldown_ns, uint64_t now_ns)
{
    assert(pool_key_is_valid(key));
    for (;;) {
        uint64_t word = cooldown_read(pool->table, key->hash, now_ns);
        uint64_t after = after_report(word, outcome, cooldown_ns, now_ns);
        if (after == word)
            return 0;
        enum cooldown_swap done = cooldown_swap(pool->table, key->hash, word, after, now_ns);
        if (done == COOLDOWN_SWAPPED)
            pool_record_count_return(pool->record); /* the key returns earlier, or later */
        if (done != COOLDOWN_CHANGED)
            return done == COOLDOWN_SWAPPED ? 0 : STINT_E_FULL;
    }
}

int pool_check_report(int outcome, uint64_t cooldown_ns, uint64_t now_ns, struct stint_error *error)
{
    if (outcome < STINT_POOL_OK || outcome > STINT_POOL_OUT)
        return err_set(error, STINT_E_RANGE, "outcome %d of a key is none", outcome);
    if (now_ns > STINT_NOW_MAX)
        return err_set(error, STINT_E_RANGE, "now is later than there is");
    if (outcome != STINT_POOL_COOL && cooldown_ns != 0)
        return err_set(error, STINT_E_MISMATCH, "a cooldown is for STINT_POOL_COOL alone");
    if (outcome == STINT_POOL_COOL && cooldown_ns == 0)
        return err_set(error, STINT_E_RANGE,
                       "a cooldown of 0 has no effect; a 429 without a time is "
                       "STINT_POOL_BACK_OFF");
    if (cooldown_ns > NS_PER_YEAR)
        return err_set(error, STINT_E_RANGE, "a cooldown has at most 365 days");
    return 0;
}

int stint_pool_report(struct stint_pool *pool, const char *name, int outcome, uint64_t cooldown_ns,
                      uint64_t now_ns, struct stint_error *error)
{
    int code = pool_check_report(outcome, cooldown_ns, now_ns, error);
    if (code != 0)
        return code;
    pool_lock_shared(pool);
    const struct pool_key *key = pool_find(pool, name, error);
    code = STINT_E_GONE;
    if (key != NULL) {
        code = report(pool, key, outcome, cooldown_ns, table_effective_now(pool->table, now_ns));
        if (code == STINT_E_FULL)
            err_set(
                error, code,
                "no space for the cooldown of one more key: all `blocks` of the table are in use");
    }
    pool_unlock_shared(pool);
    return code;
}

struct pool_cooldown pool_cooldown_of(struct stint_pool *pool, const struct pool_key *key,
                                      uint64_t now_ns)
{
    assert(pool_key_is_valid(key));
    struct pool_cooldown cooldown = unpack(cooldown_read(pool->table, key->hash, now_ns));
    if (cooldown.ends_ns == STINT_NEVER_NS) {
        cooldown.failures = 0;
        cooldown.standing = STINT_POOL_IS_OUT;
    } else if (cooldown.ends_ns > now_ns) {
        bool backs_off =
            cooldown.failures > 0 && cooldown.code == length_code(back_off_ns(cooldown.failures));
        cooldown.standing = backs_off ? STINT_POOL_BACKING_OFF : STINT_POOL_COOLING;
    }
    return cooldown;
}

/* Ends STINT_POOL_OUT, and nothing else. */
static void pool_cooldown_let_in(struct stint_pool *pool, const struct pool_key *key,
                                 uint64_t now_ns)
{
    assert(pool_key_is_valid(key));
    uint64_t word;
    do {
        word = cooldown_read(pool->table, key->hash, now_ns);
    } while ((word & FAILURES_OUT) == FAILURES_OUT &&
             cooldown_swap(pool->table, key->hash, word, 0, now_ns) == COOLDOWN_CHANGED);
    pool_record_count_return(pool->record);
}

int stint_pool_remove(struct stint_pool *pool, const char *name, uint64_t now_ns,
                      struct stint_error *error)
{
    int code = check_now(now_ns, error);
    if (code != 0)
        return code;
    lock_alone(pool);
    struct pool_key *key = pool_find(pool, name, error);
    if (key != NULL) {
        pool_cooldown_let_in(pool, key, table_effective_now(pool->table, now_ns));
        change_list(pool, key, -1);
        key->kept->after = pool->old_names;
        pool->old_names = key->kept;
    }
    unlock_alone(pool);
    free(key);
    return key != NULL ? 0 : STINT_E_GONE;
}
