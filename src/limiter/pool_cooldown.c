/* SPDX-License-Identifier: MIT */
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
#include "limiter/pool.h"

#include "base/limits.h"
#include "base/wide_int.h"
#include "table/cooldown.h"

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
    if (failures == 0)
        return 0;
    return failures > 12 ? BACK_OFF_MAX_NS
                         : min_u64(BACK_OFF_FIRST_NS << (failures - 1), BACK_OFF_MAX_NS);
}

/* A length by its first 6 binary digits: a longer one never has a lower code. */
static uint64_t length_code(uint64_t length_ns)
{
    unsigned bits = bit_length(length_ns);
    if (bits <= 6)
        return length_ns;
    return 32 * (uint64_t)(bits - 6) + (length_ns >> (bits - 6));
}

static uint64_t pack(uint64_t ends_ns, uint64_t failures, uint64_t length_ns)
{
    uint64_t until_ns = round_up(ends_ns) + round_up(back_off_ns(failures));
    return until_ns | length_code(length_ns) << FAILURES_BITS | failures;
}

struct cooldown {
    uint64_t ends_ns, failures, code;
};

static struct cooldown unpack(uint64_t word)
{
    struct cooldown cooldown = {.failures = word & FAILURES_OUT,
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
    struct cooldown cooldown = unpack(word);
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
                       "a cooldown of 0 benches nobody; a 429 without a time is "
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
            err_set(error, code, "no room to bench one more key: `blocks` of the table are in use");
    }
    pool_unlock_shared(pool);
    return code;
}

struct pool_cooldown pool_cooldown_of(struct stint_pool *pool, const struct pool_key *key,
                                      uint64_t now_ns)
{
    struct pool_cooldown shown = {.standing = STINT_POOL_FREE};
    uint64_t word = cooldown_read(pool->table, key->hash, now_ns);
    if (word == 0)
        return shown;
    struct cooldown cooldown = unpack(word);
    if (cooldown.ends_ns == STINT_NEVER_NS) {
        shown.ends_ns = STINT_NEVER_NS;
        shown.standing = STINT_POOL_IS_OUT;
        return shown;
    }
    shown.failures = (uint32_t)cooldown.failures;
    if (cooldown.ends_ns > now_ns) {
        bool backs_off =
            cooldown.failures > 0 && cooldown.code == length_code(back_off_ns(cooldown.failures));
        shown.ends_ns = cooldown.ends_ns;
        shown.standing = backs_off ? STINT_POOL_BACKING_OFF : STINT_POOL_COOLING;
    }
    return shown;
}

void pool_cooldown_let_in(struct stint_pool *pool, const struct pool_key *key, uint64_t now_ns)
{
    uint64_t word;
    do {
        word = cooldown_read(pool->table, key->hash, now_ns);
    } while ((word & FAILURES_OUT) == FAILURES_OUT &&
             cooldown_swap(pool->table, key->hash, word, 0, now_ns) == COOLDOWN_CHANGED);
    pool_record_count_return(pool->record);
}
