/* SPDX-License-Identifier: MIT */
/*
 * A state is, all numbers big-endian:
 *
 *     1  0x10 * algorithm + 8: that of a state of Redis is 0x10 * algorithm + 1
 *     2  epoch: its time begins so many times EPOCH_NS after 1970
 *     4  limit of window and fixed_window, without which their words mean nothing
 *     8  the word; of a window in two words the higher one first
 *
 * Now is one to two epochs after the beginning, so that no window that reaches across a change of
 * epoch is cut. A state of an older epoch is charged anew, as one of another quota is.
 */
#include "remote/memcached_state.h"

#include "remote/script.h"

#include <assert.h>
#include <string.h>

#define EPOCH_NS (4 * NS_PER_YEAR)
#define VERSION 8
#define AHEAD_MAX_NS NS_PER_HOUR
#define TICKS_PER_NS 32                               /* of gcra */
#define TTL_RELATIVE_MAX_S (UINT64_C(30) * 24 * 3600) /* more is an instant since 1970 */
#define TTL_MAX_S INT32_MAX

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

static uint8_t version_of(const struct stint_quota *quota)
{
    return (uint8_t)(0x10 * quota->algorithm + VERSION);
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

bool memcached_state_read(struct memcached_state *state, struct span bytes)
{
    if (bytes.len == 0 || bytes.len > sizeof(state->bytes))
        return false;
    memcpy(state->bytes, bytes.ptr, bytes.len);
    state->len = bytes.len;
    return true;
}

static size_t length_of(const struct stint_quota *quota)
{
    return (keeps_limit(quota) ? 7u : 3u) + quota->derived.state_size;
}

static int no_state(const struct stint_quota *quota, struct stint_error *error)
{
    return err_set(error, STINT_E_MISMATCH,
                   "a key of memcached's holds no state of %s; or a clock is more than an hour "
                   "ahead",
                   stint_algorithm_name(quota->algorithm));
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

/* Whether a node whose clock is at most AHEAD_MAX_NS ahead can have left this. */
static bool is_of_now(const struct loaded *loaded, const struct memcached_step *step)
{
    struct memcached_step ahead = *step;
    ahead.now_ns = add_sat(step->now_ns, AHEAD_MAX_NS);
    if (step->is_virtual)
        return loaded->epoch_ns == 0 && is_valid(loaded, STINT_NOW_MAX);
    uint64_t last_ns = since(loaded, ahead.now_ns);
    return loaded->epoch_ns <= epoch_of(&ahead) && last_ns <= STINT_NOW_MAX &&
           is_valid(loaded, last_ns) && own_ns(loaded) <= last_ns;
}

/* What the bytes say, under the quota by which they were written. */
static int load(struct loaded *loaded, const struct memcached_state *state,
                const struct memcached_step *step, struct stint_error *error)
{
    const uint8_t *at = state->bytes;
    *loaded = (struct loaded){.quota = *step->quota};
    set_epoch(loaded, epoch_of(step));
    if (state->len == 0)
        return 0;
    if (state->len < 8 || read_number(&at, 1) != version_of(step->quota))
        return no_state(step->quota, error);
    set_epoch(loaded, read_number(&at, 2) * EPOCH_NS);
    if (!read_limit(loaded, &at) || state->len != length_of(&loaded->quota))
        return no_state(step->quota, error);
    if (is_wide(&loaded->quota))
        loaded->words.hi = read_number(&at, 8);
    loaded->words.lo = read_number(&at, 8);
    return is_of_now(loaded, step) ? 0 : no_state(step->quota, error);
}

static void save(struct memcached_state *state, const struct loaded *loaded)
{
    uint8_t *at = state->bytes;
    write_number(&at, version_of(&loaded->quota), 1);
    write_number(&at, loaded->epoch_ns / EPOCH_NS, 2);
    if (keeps_limit(&loaded->quota))
        write_number(&at, loaded->quota.limit, 4);
    if (is_wide(&loaded->quota))
        write_number(&at, loaded->words.hi, 8);
    write_number(&at, loaded->words.lo, 8);
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
static int load_for(struct loaded *loaded, const struct memcached_state *state,
                    const struct memcached_step *step, struct stint_error *error)
{
    struct loaded written;
    int code = load(&written, state, step, error);
    if (code != 0)
        return code;
    uint64_t epoch_ns = max_u64(epoch_of(step), written.epoch_ns);
    limit_debt(&written, step);
    *loaded = written;
    if (epoch_ns == written.epoch_ns && written.quota.limit == step->quota->limit)
        return 0;
    loaded->quota = *step->quota;
    set_epoch(loaded, epoch_ns);
    carry(&written, loaded, step->now_ns);
    return 0;
}

static uint64_t us_up(uint64_t ns)
{
    return ns > UINT64_MAX - NS_PER_US ? ns : (ns + NS_PER_US - 1) / NS_PER_US * NS_PER_US;
}

int memcached_state_ask(struct memcached_state *state, const struct memcached_step *step,
                        struct stint_decision *decision, struct stint_error *error)
{
    struct loaded loaded;
    int code = load_for(&loaded, state, step, error);
    if (code != 0)
        return code;
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
    if (loaded.words.lo != before.lo || loaded.words.hi != before.hi)
        save(state, &loaded);
    return 0;
}

/*
 * A second more, for memcached counts whole ones. More than thirty days it takes for an instant of
 * the calendar, and then an hour more, since its clock may be wrong.
 */
uint64_t memcached_state_ttl_s(const struct memcached_state *state,
                               const struct memcached_step *step, uint64_t skew_ns)
{
    struct loaded loaded;
    if (step->is_virtual || load(&loaded, state, step, NULL) != 0)
        return 0;
    uint64_t dies_ns = add_sat(add_sat(dies_at(&loaded), loaded.epoch_ns), skew_ns);
    uint64_t left_s = sub_floor(dies_ns, step->now_ns) / NS_PER_S + 2;
    if (left_s <= TTL_RELATIVE_MAX_S)
        return left_s;
    uint64_t at_s = step->now_ns / NS_PER_S + left_s + 3600;
    return at_s <= TTL_MAX_S ? at_s : 0;
}
