/* SPDX-License-Identifier: MIT */
/*
 * A state is, all numbers big-endian:
 *
 *     1  0x10 * algorithm + 9: that of a state of Redis is 0x10 * algorithm + 1
 *     2  epoch: its time begins so many times EPOCH_NS after 1970
 *     4  limit of window and fixed_window, without which their words mean nothing
 *     8  the word; of a window in two words the higher one first
 *     4  checksum of all before it
 *
 * Servers of before version 9 wrote the same with an 8 and without a checksum. Such a state is
 * read, and written anew with one; its length tells it from a newer one whose version is damaged.
 *
 * Now is one to two epochs after the beginning, so that no window that reaches across a change of
 * epoch is cut. A state of an older epoch is charged anew, as one of another quota is.
 */
#include "remote/memcached_state.h"

#include "base/siphash.h"
#include "remote/script.h"

#include <assert.h>
#include <string.h>

#define EPOCH_NS (4 * NS_PER_YEAR)
#define VERSION 9
#define VERSION_WITHOUT_SUM 8
#define SUM_LEN 4
#define AHEAD_MAX_NS NS_PER_HOUR
#define TICKS_PER_NS 32                               /* of gcra */
#define TTL_RELATIVE_MAX_S (UINT64_C(30) * 24 * 3600) /* more is an instant since 1970 */
#define TTL_MAX_S INT32_MAX
#define CLOCK_LATE_S 3 /* of memcached, in whole seconds */

/* A state unpacked: its words, and under what they were written. */
struct loaded {
    struct stint_quota quota;
    uint64_t epoch_ns;   /* since 1970 */
    struct word16 words; /* of 8 bytes: lo */
};

int memcached_state_accepts(const struct stint_quota *quota, struct stint_error *error)
{
    bool is_kept = quota->algorithm == STINT_WINDOW || quota->algorithm == STINT_GCRA ||
                   quota->algorithm == STINT_FIXED_WINDOW;
    if (!is_kept)
        return err_set(error, STINT_E_MISMATCH,
                       "memcached keeps states of window, gcra and fixed_window alone, not of %s",
                       stint_algorithm_name(quota->algorithm));
    if (quota->period_ns > EPOCH_NS)
        return err_set(error, STINT_E_RANGE,
                       "on memcached a period can be at most four years, of 365 days");
    return script_accepts(quota, error);
}

/* ---- Words ----------------------------------------------------------------------------------- */

static bool is_wide(const struct stint_quota *quota)
{
    return quota->derived.state_size == 16;
}

static bool keeps_limit(const struct stint_quota *quota)
{
    return quota->algorithm != STINT_GCRA;
}

static uint64_t read_number(const uint8_t **at, size_t size)
{
    uint64_t number = 0;
    for (; size > 0; size--)
        number = number << 8 | *(*at)++;
    return number;
}

static void write_number(uint8_t **at, uint64_t number, size_t size)
{
    for (size_t i = size; i > 0; i--, number >>= 8)
        (*at)[i - 1] = (uint8_t)number;
    *at += size;
}

static uint8_t version_of(const struct stint_quota *quota, unsigned version)
{
    return (uint8_t)(0x10 * quota->algorithm + version);
}

/* It has no secret: a program that may write to memcached may write any state. */
static uint32_t sum_of(const uint8_t *bytes, size_t len)
{
    static const uint64_t secret[2] = {UINT64_C(0x7374696e742d7375), UINT64_C(0x6d6f667374617465)};
    return (uint32_t)siphash13_128(secret, 0, bytes, len).lo;
}

static bool is_never_used(const struct loaded *loaded)
{
    return loaded->words.lo == 0 && loaded->words.hi == 0;
}

static struct stint_decision ask_words(struct loaded *loaded, const struct stint_ask *ask)
{
    struct stint_ask own = *ask;
    own.verb = law_own_verb(&loaded->quota, ask->verb);
    return is_wide(&loaded->quota) ? law16_ask(&loaded->quota, &loaded->words, &own)
                                   : law8_ask(&loaded->quota, &loaded->words.lo, &own);
}

static bool is_valid(const struct loaded *loaded, uint64_t now_ns)
{
    return is_wide(&loaded->quota) ? law16_is_valid(&loaded->quota, loaded->words, now_ns)
                                   : law8_is_valid(&loaded->quota, loaded->words.lo, now_ns);
}

static uint64_t own_ns(const struct loaded *loaded)
{
    return is_wide(&loaded->quota) ? law16_own_ns(&loaded->quota, loaded->words)
                                   : law8_own_ns(&loaded->quota, loaded->words.lo);
}

static uint64_t dies_at(const struct loaded *loaded)
{
    return is_wide(&loaded->quota) ? law16_dies_at(&loaded->quota, loaded->words)
                                   : law8_dies_at(&loaded->quota, loaded->words.lo);
}

/* ---- Epochs ---------------------------------------------------------------------------------- */

static uint64_t epoch_of(const struct memcached_step *step)
{
    uint64_t epochs = step->is_virtual ? 0 : step->now_ns / EPOCH_NS;
    return epochs > 0 ? (epochs - 1) * EPOCH_NS : 0;
}

/* An instant as core has it: in whole microseconds from the state's epoch. */
static uint64_t since(const struct loaded *loaded, uint64_t at_ns)
{
    return sub_floor(at_ns - at_ns % NS_PER_US, loaded->epoch_ns);
}

static void set_epoch(struct loaded *loaded, uint64_t epoch_ns)
{
    loaded->epoch_ns = epoch_ns;
    /* Virtual time is as of a state of a caller's: its quota says where it begins. */
    if (epoch_ns > 0)
        loaded->quota.epoch_ns = (int64_t)epoch_ns;
}

/* The same units under another quota, or counted from a later instant: stint_state_convert(). */
static void carry(const struct loaded *from, struct loaded *to, uint64_t now_ns)
{
    struct held_run runs[HELD_RUNS_MAX];
    uint64_t at_ns = max_u64(since(from, now_ns), own_ns(from));
    uint64_t later_ns = to->epoch_ns - from->epoch_ns;
    assert(to->epoch_ns >= from->epoch_ns);
    at_ns = min_u64(at_ns, STINT_NOW_MAX);
    size_t n_runs = is_wide(&from->quota) ? law16_held(&from->quota, from->words, at_ns, runs)
                                          : law8_held(&from->quota, from->words.lo, at_ns, runs);
    for (size_t i = 0; i < n_runs; i++)
        runs[i].at_ns = sub_floor(runs[i].at_ns, later_ns);
    at_ns = sub_floor(at_ns, later_ns);
    bool keeps_time = to->quota.limit > 0 && !is_never_used(from);
    if (is_wide(&to->quota)) {
        to->words = law16_carry(&to->quota, runs, n_runs);
        if (keeps_time)
            law16_pass(&to->quota, &to->words, at_ns);
    } else {
        to->words = (struct word16){.lo = law8_carry(&to->quota, runs, n_runs)};
        if (keeps_time)
            law8_pass(&to->quota, &to->words.lo, at_ns);
    }
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* What is empty or too long is no state, but it must not be taken for a key that was never used. */
void memcached_state_read(struct memcached_state *state, struct span bytes)
{
    bool fits = bytes.len > 0 && bytes.len <= sizeof(state->bytes);
    *state = (struct memcached_state){.len = fits ? bytes.len : 1};
    if (fits)
        memcpy(state->bytes, bytes.ptr, bytes.len);
}

static size_t length_of(const struct stint_quota *quota)
{
    return (keeps_limit(quota) ? 7u : 3u) + quota->derived.state_size;
}

/* Whether these are the bytes that were written, as far as can be told. */
static bool is_whole(const struct memcached_state *state, const struct stint_quota *quota)
{
    size_t len = length_of(quota);
    if (state->bytes[0] == version_of(quota, VERSION_WITHOUT_SUM))
        return state->len == len;
    if (state->bytes[0] != version_of(quota, VERSION) || state->len != len + SUM_LEN)
        return false;
    const uint8_t *at = state->bytes + len;
    return read_number(&at, SUM_LEN) == sum_of(state->bytes, len);
}

/* The quota as it was when the state was written. */
static bool read_limit(struct loaded *loaded, const uint8_t **at)
{
    uint32_t limit =
        keeps_limit(&loaded->quota) ? (uint32_t)read_number(at, 4) : loaded->quota.limit;
    if (limit == loaded->quota.limit)
        return true;
    loaded->quota.limit = limit;
    return stint_quota_check(&loaded->quota, NULL) == 0;
}

enum reading {
    READ_STATE,
    READ_DAMAGED, /* no law has left this */
    READ_AHEAD,   /* a clock that is more than AHEAD_MAX_NS ahead may have */
};

/* What of an epoch so long ago that core has no time for now, and dead. */
static bool is_forgotten(const struct loaded *loaded, uint64_t now_ns)
{
    return since(loaded, now_ns) > STINT_NOW_MAX && dies_at(loaded) <= since(loaded, now_ns);
}

static enum reading judge(struct loaded *loaded, const struct memcached_step *step)
{
    struct memcached_step ahead = *step;
    ahead.now_ns = add_sat(step->now_ns, AHEAD_MAX_NS);
    if (!is_valid(loaded, STINT_NOW_MAX) || (step->is_virtual && loaded->epoch_ns != 0))
        return READ_DAMAGED;
    if (step->is_virtual)
        return READ_STATE;
    if (is_forgotten(loaded, ahead.now_ns)) {
        *loaded = (struct loaded){.quota = *step->quota};
        set_epoch(loaded, epoch_of(step));
        return READ_STATE;
    }
    uint64_t last_ns = since(loaded, ahead.now_ns);
    if (last_ns > STINT_NOW_MAX)
        return READ_DAMAGED;
    return loaded->epoch_ns <= epoch_of(&ahead) && is_valid(loaded, last_ns) &&
                   own_ns(loaded) <= last_ns
               ? READ_STATE
               : READ_AHEAD;
}

/* What the bytes say, under the quota by which they were written. */
static enum reading load(struct loaded *loaded, const struct memcached_state *state,
                         const struct memcached_step *step)
{
    const uint8_t *at = state->bytes + 1;
    *loaded = (struct loaded){.quota = *step->quota};
    set_epoch(loaded, epoch_of(step));
    if (state->len == 0)
        return READ_STATE;
    if (!is_whole(state, step->quota))
        return READ_DAMAGED;
    set_epoch(loaded, read_number(&at, 2) * EPOCH_NS);
    if (!read_limit(loaded, &at) || length_of(&loaded->quota) != length_of(step->quota))
        return READ_DAMAGED;
    if (is_wide(&loaded->quota))
        loaded->words.hi = read_number(&at, 8);
    loaded->words.lo = read_number(&at, 8);
    return judge(loaded, step);
}

/* All units are used, just now. Of a limit of 0 none can be. */
static void use_up(struct loaded *loaded, const struct memcached_step *step)
{
    *loaded = (struct loaded){.quota = *step->quota};
    set_epoch(loaded, epoch_of(step));
    const struct stint_ask charge = {
        .now_ns = since(loaded, step->now_ns),
        .at_ns = STINT_NEVER_NS,
        .cost = law_capacity(step->quota),
        .verb = STINT_CHARGE,
    };
    if (step->quota->limit > 0)
        (void)ask_words(loaded, &charge);
}

static void save(struct memcached_state *state, const struct loaded *loaded)
{
    uint8_t *at = state->bytes;
    write_number(&at, version_of(&loaded->quota, VERSION), 1);
    write_number(&at, loaded->epoch_ns / EPOCH_NS, 2);
    if (keeps_limit(&loaded->quota))
        write_number(&at, loaded->quota.limit, 4);
    if (is_wide(&loaded->quota))
        write_number(&at, loaded->words.hi, 8);
    write_number(&at, loaded->words.lo, 8);
    write_number(&at, sum_of(state->bytes, (size_t)(at - state->bytes)), SUM_LEN);
    state->len = (size_t)(at - state->bytes);
}

/* ---- Decisions ------------------------------------------------------------------------------- */

/*
 * Nobody books places here, so gcra owes two capacities at most. Core leaves more room, and another
 * burst, or a clock that was wrong, may have left more: that is owed no longer.
 */
static void limit_debt(struct loaded *loaded, const struct memcached_step *step)
{
    uint64_t now_ns = since(loaded, step->now_ns);
    uint64_t most = add_sat(now_ns, AHEAD_MAX_NS);
    if (step->is_virtual || loaded->quota.algorithm != STINT_GCRA || most > STINT_NOW_MAX)
        return;
    most = add_sat(most * TICKS_PER_NS, 2 * loaded->quota.derived.capacity_ticks);
    loaded->words.lo = min_u64(loaded->words.lo, most);
}

/* As it is to be asked: under the quota of now, and in the epoch of now if that is later. */
static enum reading load_for(struct loaded *loaded, const struct memcached_state *state,
                             const struct memcached_step *step)
{
    struct loaded written;
    enum reading reading = load(&written, state, step);
    if (reading == READ_DAMAGED)
        use_up(&written, step);
    if (reading == READ_AHEAD)
        return reading;
    uint64_t epoch_ns = max_u64(epoch_of(step), written.epoch_ns);
    limit_debt(&written, step);
    *loaded = written;
    if (epoch_ns == written.epoch_ns && written.quota.limit == step->quota->limit)
        return reading;
    loaded->quota = *step->quota;
    set_epoch(loaded, epoch_ns);
    carry(&written, loaded, step->now_ns);
    return reading;
}

static uint64_t us_up(uint64_t ns)
{
    return ns > UINT64_MAX - NS_PER_US ? ns : (ns + NS_PER_US - 1) / NS_PER_US * NS_PER_US;
}

int memcached_state_ask(struct memcached_state *state, const struct memcached_step *step,
                        struct stint_decision *decision, struct stint_error *error)
{
    struct loaded loaded;
    enum reading reading = load_for(&loaded, state, step);
    if (reading == READ_AHEAD)
        return err_set(error, STINT_E_MISMATCH,
                       "a state of %s in memcached is of a time more than an hour ahead: compare "
                       "the clocks of the servers",
                       stint_algorithm_name(step->quota->algorithm));
    struct word16 before = loaded.words;
    const struct stint_ask ask = {
        .now_ns = since(&loaded, step->now_ns),
        .at_ns = step->at_ns == STINT_NEVER_NS ? step->at_ns : since(&loaded, step->at_ns),
        .cost = step->cost,
        .verb = step->verb,
    };
    *decision = ask_words(&loaded, &ask);
    decision->stored = 1;
    decision->retry_after_ns = us_up(decision->retry_after_ns);
    decision->reset_after_ns = us_up(decision->reset_after_ns);
    if (reading == READ_DAMAGED)
        state->was_damaged = true;
    if (reading == READ_DAMAGED || loaded.words.lo != before.lo || loaded.words.hi != before.hi)
        save(state, &loaded);
    return 0;
}

/*
 * memcached's clock has whole seconds, and ticks a little later each time: where two ticks are in
 * one second the next is skipped, and its clock is nearly two seconds late until then. A value
 * written just before a tick loses that time at once. One second more is for a tick that is late on
 * a busy machine. More than thirty days it takes for an instant of the calendar, and then an hour
 * more, since its clock may be wrong.
 */
uint64_t memcached_state_ttl_s(const struct memcached_state *state,
                               const struct memcached_step *step, uint64_t skew_ns)
{
    struct loaded loaded;
    if (step->is_virtual || load(&loaded, state, step) != READ_STATE)
        return 0;
    uint64_t dies_ns = add_sat(add_sat(dies_at(&loaded), loaded.epoch_ns), skew_ns);
    uint64_t left_s = sub_floor(dies_ns, step->now_ns) / NS_PER_S + 1 + CLOCK_LATE_S;
    if (left_s <= TTL_RELATIVE_MAX_S)
        return left_s;
    uint64_t at_s = step->now_ns / NS_PER_S + left_s + 3600;
    return at_s <= TTL_MAX_S ? at_s : 0;
}
