/* SPDX-License-Identifier: MIT */
/*
 * A state is, all numbers big-endian:
 *
 *     1  0x10 * algorithm + 9: that of a state of Redis is 0x10 * algorithm + 1
 *     2  epoch: its time begins so many times EPOCH_NS after 1970
 *     4  limit, without which their words mean nothing, of all but gcra and counters
 *    20  of log and buckets: period, time_slack (8 each) and count_slack (4), for the same reason
 *     8  the word; of two words the higher one first; of log and buckets as many as are not zero
 *     4  checksum of all before it
 *
 * A state with open tickets has 10 instead of 9, and the tickets before its checksum, so that a
 * reservation and its end are each one swap of one value. Each is: id 16, when it was charged 8,
 * when it ends 8, ticks of a unit 8, units 4, units that stay charged 4. After the last is their
 * number, 2. A state without tickets keeps its length. Servers that do not know tickets treat it as
 * damaged, so as used up. docs/decisions/0065.
 *
 * The words of log and buckets are the state of the limiter, 8 bytes a word, but the first 16 bytes
 * of a log are numbers of 4 bytes, and its ring begins at the oldest entry. Zeros at the end are
 * left out.
 *
 * Servers before version 9 wrote the same with an 8 and without a checksum. Such a state is read,
 * and written back with one; its length tells it from a newer one with a damaged version.
 *
 * The present is one to two epochs after the epoch's start, so that a change of epoch cuts no
 * window. A state of an older epoch is converted, as one of another quota is. A counter keeps its
 * epoch until it expires.
 */
#define _DEFAULT_SOURCE
#include "backend/memcached/memcached_state.h"

#include "algorithm/expiring_counter.h"
#include "backend/script/script.h"
#include "base/siphash.h"
#include "base/wide_int.h"
#include "limiter/ticket.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#define EPOCH_NS (4 * NS_PER_YEAR)
#define VERSION 9
#define VERSION_WITHOUT_SUM 8
#define VERSION_WITH_TICKETS 10
#define SUM_LEN 4
#define PARAMETERS_LEN 20
#define LOG_HEAD_WORDS 3 /* of the limiter's state of a log, before the ring */
#define AHEAD_MAX_NS NS_PER_HOUR
#define TICKS_PER_NS 32                               /* of gcra */
#define TTL_RELATIVE_MAX_S (UINT64_C(30) * 24 * 3600) /* anything above is a time since 1970 */
#define TTL_MAX_S INT32_MAX
#define CLOCK_LATE_S 3 /* of memcached, in whole seconds */

/* A state unpacked: its words, under what they were written, and its open tickets. */
struct loaded {
    struct stint_quota quota;
    uint64_t epoch_ns; /* since 1970 */
    uint64_t *words;   /* derived.state_size bytes, in scratch */
    struct memcached_tickets *tickets;
};

/* Words of the state that is decided on and of the one that was read, within one call. */
static _Thread_local uint64_t scratch[2][WIDE_STATE_MAX / sizeof(uint64_t)];

int memcached_state_accepts(const struct stint_quota *quota, struct stint_error *error)
{
    if (quota->algorithm == STINT_CONCURRENCY)
        return err_set(error, STINT_E_MISMATCH,
                       "memcached supports no concurrency: a slot needs a holder that renews it, "
                       "and tickets there hold only units; use Redis or Valkey, or store: none");
    if (quota->period_ns > EPOCH_NS && quota->algorithm != STINT_COUNTER)
        return err_set(error, STINT_E_RANGE,
                       "on memcached a period can be at most four years, of 365 days");
    return script_accepts(quota, error);
}

const char *memcached_state_refusal(const struct backend_request *ask)
{
    if (ask->verb == REQUEST_BOOK || ask->verb == REQUEST_EXTEND)
        return "memcached supports neither bookings nor slots of concurrency: use Redis or Valkey";
    if (ask->id != NULL && (!ask->is_ticket || ask->id_lifetime_ns > 0))
        return "memcached cannot recognize a repeated id, and would charge twice: send no id, or "
               "use Redis or Valkey";
    if (ask->verb == REQUEST_LEASE || ask->verb == REQUEST_RETURN)
        return "memcached supports no leases: use Redis or Valkey";
    for (size_t i = 0; i < ask->n_items; i++) {
        const struct backend_item *item = &ask->items[i];
        if (memcached_state_accepts(item->quota, NULL) != 0)
            return "memcached supports no concurrency, and only periods of whole microseconds up "
                   "to four years: change the quota, or use Redis or Valkey";
        if (item->rule != NULL && item->rule->store.lease != RULE_LEASE_NONE)
            return "memcached supports no leases: use a rule without lease, or Redis or Valkey";
    }
    return NULL;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

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

/* The same of 8 bytes: there are thousands of them. */
static uint64_t read_8(const uint8_t **at)
{
    uint64_t number;
    memcpy(&number, *at, sizeof(number));
    *at += sizeof(number);
    return be64toh(number);
}

static void write_8(uint8_t **at, uint64_t number)
{
    number = htobe64(number);
    memcpy(*at, &number, sizeof(number));
    *at += sizeof(number);
}

/* ---- Open tickets of one key ----------------------------------------------------------------- */

/* Removes them from the end of these bytes. False: write() did not write these. */
static bool tickets_read(struct memcached_tickets *tickets, struct span *bytes)
{
    if (bytes->len < 2)
        return false;
    const uint8_t *end = bytes->ptr + bytes->len - 2;
    size_t n = (size_t)end[0] << 8 | end[1], len = n * MEMCACHED_TICKET_LEN;
    if (n == 0 || n > MEMCACHED_TICKETS_MAX || len > bytes->len - 2)
        return false;
    *bytes = span_of(bytes->ptr, bytes->len - 2 - len);
    const uint8_t *at = end - len;
    for (size_t i = 0; i < n; i++) {
        struct memcached_ticket *ticket = &tickets->each[i];
        memcpy(ticket->id, at, BACKEND_ID_LEN);
        at += BACKEND_ID_LEN;
        ticket->charged_ns = read_8(&at);
        ticket->ends_ns = read_8(&at);
        ticket->unit_ticks = read_8(&at);
        ticket->units = (uint32_t)read_number(&at, 4);
        ticket->kept = (uint32_t)read_number(&at, 4);
    }
    tickets->n = n;
    return true;
}

/* Appends; after *at, which is moved. */
static void tickets_write(const struct memcached_tickets *tickets, uint8_t **at)
{
    assert(tickets->n > 0 && tickets->n <= MEMCACHED_TICKETS_MAX);
    for (size_t i = 0; i < tickets->n; i++) {
        const struct memcached_ticket *ticket = &tickets->each[i];
        memcpy(*at, ticket->id, BACKEND_ID_LEN);
        *at += BACKEND_ID_LEN;
        write_8(at, ticket->charged_ns);
        write_8(at, ticket->ends_ns);
        write_8(at, ticket->unit_ticks);
        write_number(at, ticket->units, 4);
        write_number(at, ticket->kept, 4);
    }
    write_number(at, tickets->n, 2);
}

/* NULL: none has this id. */
static struct memcached_ticket *tickets_find(struct memcached_tickets *tickets, const uint8_t *id)
{
    for (size_t i = 0; i < tickets->n; i++)
        if (memcmp(tickets->each[i].id, id, BACKEND_ID_LEN) == 0)
            return &tickets->each[i];
    return NULL;
}

static void tickets_remove(struct memcached_tickets *tickets, struct memcached_ticket *ticket)
{
    const struct memcached_ticket *end = tickets->each + tickets->n--;
    assert(ticket >= tickets->each && ticket < end);
    memmove(ticket, ticket + 1, (size_t)(end - ticket - 1) * sizeof(*ticket));
    tickets->has_changed = true;
}

/* False: the oldest was dropped. */
static bool tickets_add(struct memcached_tickets *tickets, const struct memcached_ticket *ticket)
{
    bool has_space = tickets->n < MEMCACHED_TICKETS_MAX;
    if (!has_space)
        tickets_remove(tickets, &tickets->each[0]);
    tickets->each[tickets->n++] = *ticket;
    tickets->has_changed = true;
    return has_space;
}

/* The latest end of all; 0: there is none. */
static uint64_t tickets_until(const struct memcached_tickets *tickets)
{
    uint64_t until_ns = 0;
    for (size_t i = 0; i < tickets->n; i++)
        until_ns = max_u64(until_ns, tickets->each[i].ends_ns);
    return until_ns;
}

/* ---- Words ----------------------------------------------------------------------------------- */

static bool is_wide(const struct stint_quota *quota)
{
    return quota->algorithm == STINT_LOG || quota->algorithm == STINT_BUCKETS;
}

static bool keeps_limit(const struct stint_quota *quota)
{
    return quota->algorithm != STINT_GCRA && quota->algorithm != STINT_COUNTER;
}

/* The numbers of 4 bytes at the front of a log: in a word, the same bytes on every machine. */
static bool has_halves(const struct stint_quota *quota, size_t word)
{
    return quota->algorithm == STINT_LOG && word < 2;
}

static uint64_t read_word(const struct stint_quota *quota, size_t i, const uint8_t **at)
{
    uint64_t word = 0;
    if (!has_halves(quota, i))
        return read_8(at);
    uint32_t halves[2] = {(uint32_t)read_number(at, 4), 0};
    halves[1] = (uint32_t)read_number(at, 4);
    memcpy(&word, halves, sizeof(word));
    return word;
}

static void write_word(const struct stint_quota *quota, size_t i, uint64_t word, uint8_t **at)
{
    uint32_t halves[2];
    memcpy(halves, &word, sizeof(word));
    if (has_halves(quota, i)) {
        write_number(at, halves[0], 4);
        write_number(at, halves[1], 4);
    } else
        write_8(at, word);
}

/* Of two words the higher one is written first, and of more the lowest. */
static size_t place_of(const struct stint_quota *quota, size_t i)
{
    return quota->derived.state_size == 16 && !is_wide(quota) ? 1 - i : i;
}

static uint8_t version_of(const struct stint_quota *quota, unsigned version)
{
    return (uint8_t)(0x10 * quota->algorithm + version);
}

/* Without a secret: a program that may write to memcached may write any state. */
static uint32_t sum_of(const uint8_t *bytes, size_t len)
{
    static const uint64_t secret[2] = {UINT64_C(0x7374696e742d7375), UINT64_C(0x6d6f667374617465)};
    return (uint32_t)siphash13_128(secret, 0, bytes, len).lo;
}

/*
 * Rotates the ring of a log to begin with its oldest entry, and clears unused slots: so a value is
 * as long as its records. To the limiter nothing has changed. Needs scratch[1].
 */
static void straighten(struct loaded *loaded)
{
    uint32_t head[2]; /* index of the oldest, and their number */
    uint64_t *entries = loaded->words + LOG_HEAD_WORDS, *ring = scratch[1];
    size_t n = loaded->quota.derived.state_size / sizeof(uint64_t) - LOG_HEAD_WORDS;
    memcpy(head, loaded->words, sizeof(head));
    assert(head[1] <= n && (n == 0 || head[0] < n) && loaded->words != ring);
    memcpy(ring, entries, n * sizeof(uint64_t));
    memset(entries, 0, n * sizeof(uint64_t));
    for (size_t i = 0; i < head[1]; i++)
        entries[i] = ring[(head[0] + i) % n];
    head[0] = 0;
    memcpy(loaded->words, head, sizeof(head));
}

/* Words up to the last that is not zero. */
static size_t used_words(const struct loaded *loaded)
{
    size_t n = loaded->quota.derived.state_size / sizeof(uint64_t);
    while (n > 0 && loaded->words[n - 1] == 0)
        n--;
    return n;
}

static struct stint_decision ask_words(struct loaded *loaded, const struct stint_ask *ask)
{
    return stint_state_ask(&loaded->quota, loaded->words, ask);
}

static uint64_t own_ns(const struct loaded *loaded)
{
    return algorithm_own_ns(&loaded->quota, loaded->words);
}

/* ---- Epochs ---------------------------------------------------------------------------------- */

uint64_t memcached_state_epoch_ns(uint64_t now_ns)
{
    uint64_t epochs = now_ns / EPOCH_NS;
    return epochs > 0 ? (epochs - 1) * EPOCH_NS : 0;
}

/* Virtual time that the limiter can count from 0 is counted so, as in a caller's state. */
static uint64_t epoch_of(const struct memcached_step *step)
{
    bool is_core_time = step->is_virtual && step->now_ns <= STINT_NOW_MAX;
    return is_core_time ? 0 : memcached_state_epoch_ns(step->now_ns);
}

/* A time for the limiter: in whole microseconds from the state's epoch. */
static uint64_t since(const struct loaded *loaded, uint64_t at_ns)
{
    return sub_floor(at_ns - at_ns % NS_PER_US, loaded->epoch_ns);
}

static void set_epoch(struct loaded *loaded, uint64_t epoch_ns)
{
    loaded->epoch_ns = epoch_ns;
    /* Virtual time is as in a caller's state: its quota gives the start. */
    if (epoch_ns > 0)
        loaded->quota.epoch_ns = (int64_t)epoch_ns;
}

static void set_quota(struct loaded *loaded, const struct memcached_step *step, uint64_t epoch_ns)
{
    loaded->quota = *step->quota;
    set_epoch(loaded, epoch_ns);
}

/* The same units under another quota, or counted from a later time: stint_state_convert(). */
static void carry(const struct loaded *from, struct loaded *to, uint64_t now_ns)
{
    struct held_run runs[HELD_RUNS_MAX];
    uint64_t at_ns = max_u64(since(from, now_ns), own_ns(from));
    uint64_t later_ns = to->epoch_ns - from->epoch_ns;
    assert(to->epoch_ns >= from->epoch_ns);
    at_ns = min_u64(at_ns, STINT_NOW_MAX);
    size_t n_runs = algorithm_held(&from->quota, from->words, at_ns, at_ns, runs);
    for (size_t i = 0; i < n_runs; i++)
        runs[i].at_ns = sub_floor(runs[i].at_ns, later_ns);
    at_ns = sub_floor(at_ns, later_ns);
    bool keeps_time = to->quota.limit > 0 && used_words(from) > 0;
    algorithm_carry(&to->quota, to->words, runs, n_runs);
    if (keeps_time)
        algorithm_pass(&to->quota, to->words, at_ns);
}

/* ---- Bytes ----------------------------------------------------------------------------------- */

/* Empty or too long bytes are no state, but must not count as a key that was never used. */
void memcached_state_read(struct memcached_state *state, struct span bytes)
{
    bool fits = bytes.len > 0 && bytes.len <= sizeof(state->bytes);
    state->len = fits ? bytes.len : 1;
    state->was_damaged = state->has_changed = false;
    state->closed = (struct memcached_closed){.dropped = 0};
    state->bytes[0] = 0;
    if (fits)
        memcpy(state->bytes, bytes.ptr, bytes.len);
}

static size_t head_len(const struct stint_quota *quota)
{
    return 3u + (keeps_limit(quota) ? 4u : 0u) + (is_wide(quota) ? PARAMETERS_LEN : 0u);
}

/* The only possible length of the bytes of this quota, without their checksum; 0: any. */
static size_t length_of(const struct stint_quota *quota)
{
    return is_wide(quota) ? 0 : head_len(quota) + quota->derived.state_size;
}

/*
 * Whether these bytes are as written, as far as can be checked: then `*bytes` is the state without
 * its tickets, which are read, and without its checksum.
 */
static bool is_whole(struct memcached_state *state, const struct stint_quota *quota,
                     struct span *bytes)
{
    size_t len = length_of(quota);
    bool had_no_sum = !is_wide(quota) && quota->algorithm != STINT_SLIDING_COUNTER;
    *bytes = span_of(state->bytes, state->len);
    if (had_no_sum && state->bytes[0] == version_of(quota, VERSION_WITHOUT_SUM))
        return state->len == len;
    if (state->len < head_len(quota) + SUM_LEN)
        return false;
    bytes->len -= SUM_LEN;
    const uint8_t *at = state->bytes + bytes->len;
    if (read_number(&at, SUM_LEN) != sum_of(bytes->ptr, bytes->len))
        return false;
    if (state->bytes[0] == version_of(quota, VERSION_WITH_TICKETS)) {
        if (!tickets_read(&state->tickets, bytes))
            return false;
    } else if (state->bytes[0] != version_of(quota, VERSION))
        return false;
    return len == 0 ? bytes->len >= head_len(quota) : bytes->len == len;
}

/* The quota as it was when the state was written. */
static bool read_quota(struct loaded *loaded, const uint8_t **at)
{
    struct stint_quota *quota = &loaded->quota;
    struct stint_quota was = *quota;
    if (keeps_limit(quota))
        was.limit = (uint32_t)read_number(at, 4);
    if (is_wide(quota)) {
        was.period_ns = read_number(at, 8);
        was.time_slack_ns = read_number(at, 8);
        was.count_slack = (uint32_t)read_number(at, 4);
    }
    bool is_same = was.limit == quota->limit && was.period_ns == quota->period_ns &&
                   was.time_slack_ns == quota->time_slack_ns &&
                   was.count_slack == quota->count_slack;
    *quota = was;
    return is_same || stint_quota_check(quota, NULL) == 0;
}

/* The words after the quota. False: more than a state of it has. */
static bool read_words(struct loaded *loaded, struct span bytes, const uint8_t *at)
{
    const struct stint_quota *quota = &loaded->quota;
    size_t state_words = quota->derived.state_size / sizeof(uint64_t);
    size_t size = bytes.len - head_len(quota), n_words = size / sizeof(uint64_t);
    if (size % sizeof(uint64_t) != 0 || n_words > state_words)
        return false;
    memset(loaded->words, 0, quota->derived.state_size);
    for (size_t i = 0; i < n_words; i++)
        loaded->words[place_of(quota, i)] = read_word(quota, i, &at);
    return true;
}

enum reading {
    READ_STATE,
    READ_DAMAGED, /* no algorithm has left this */
    READ_AHEAD,   /* the maximum that a clock fast by up to AHEAD_MAX_NS may have left */
};

/* A state that was never used. */
static void begin_anew(struct loaded *loaded, const struct memcached_step *step)
{
    set_quota(loaded, step, epoch_of(step));
    memset(loaded->words, 0, loaded->quota.derived.state_size);
}

static enum reading judge(struct loaded *loaded, const struct memcached_step *step)
{
    struct memcached_step ahead = *step;
    ahead.now_ns = add_sat(step->now_ns, AHEAD_MAX_NS);
    uint64_t last_ns = since(loaded, ahead.now_ns);
    /*
     * The limiter has no time for now. What wrote the state did so within eight years of its epoch,
     * so at least ten years ago, and no quota lasts as long: all that it held is free again.
     */
    if (!step->is_virtual && last_ns > STINT_NOW_MAX) {
        begin_anew(loaded, step);
        return READ_STATE;
    }
    bool is_core_time = step->is_virtual && step->now_ns <= STINT_NOW_MAX;
    if (!algorithm_is_valid(&loaded->quota, loaded->words, STINT_NOW_MAX) ||
        (is_core_time && loaded->epoch_ns != 0))
        return READ_DAMAGED;
    if (step->is_virtual)
        return READ_STATE;
    return loaded->epoch_ns <= epoch_of(&ahead) &&
                   algorithm_is_valid(&loaded->quota, loaded->words, last_ns) &&
                   own_ns(loaded) <= last_ns
               ? READ_STATE
               : READ_AHEAD;
}

/* Reads the bytes under the quota with which they were written. */
static enum reading load(struct loaded *loaded, struct memcached_state *state,
                         const struct memcached_step *step)
{
    const uint8_t *at = state->bytes + 1;
    struct span bytes;
    *loaded = (struct loaded){.words = scratch[1], .tickets = &state->tickets};
    state->tickets.n = 0;
    state->tickets.has_changed = false;
    if (state->len == 0) {
        begin_anew(loaded, step);
        return READ_STATE;
    }
    set_quota(loaded, step, 0);
    if (!is_whole(state, step->quota, &bytes))
        return READ_DAMAGED;
    set_epoch(loaded, read_number(&at, 2) * EPOCH_NS);
    if (!read_quota(loaded, &at) || length_of(&loaded->quota) != length_of(step->quota) ||
        !read_words(loaded, bytes, at))
        return READ_DAMAGED;
    return judge(loaded, step);
}

/*
 * All units are used, just now, and no ticket is left. A limit of 0 has no units, and a counter has
 * no limit: it is as never used.
 */
static void use_up(struct loaded *loaded, const struct memcached_step *step)
{
    begin_anew(loaded, step);
    loaded->tickets->n = 0;
    const struct stint_ask charge = {
        .now_ns = since(loaded, step->now_ns),
        .at_ns = STINT_NEVER_NS,
        .cost = most_units(step->quota),
        .verb = STINT_CHARGE,
    };
    if (step->quota->limit > 0 && step->quota->algorithm != STINT_COUNTER)
        (void)ask_words(loaded, &charge);
}

static void save(struct memcached_state *state, struct loaded *loaded)
{
    const struct stint_quota *quota = &loaded->quota;
    uint8_t *at = state->bytes;
    if (quota->algorithm == STINT_LOG)
        straighten(loaded);
    write_number(&at, version_of(quota, loaded->tickets->n > 0 ? VERSION_WITH_TICKETS : VERSION),
                 1);
    write_number(&at, loaded->epoch_ns / EPOCH_NS, 2);
    if (keeps_limit(quota))
        write_number(&at, quota->limit, 4);
    if (is_wide(quota)) {
        write_number(&at, quota->period_ns, 8);
        write_number(&at, quota->time_slack_ns, 8);
        write_number(&at, quota->count_slack, 4);
    }
    size_t n_words =
        is_wide(quota) ? used_words(loaded) : quota->derived.state_size / sizeof(uint64_t);
    for (size_t i = 0; i < n_words; i++)
        write_word(quota, i, loaded->words[place_of(quota, i)], &at);
    if (loaded->tickets->n > 0)
        tickets_write(loaded->tickets, &at);
    write_number(&at, sum_of(state->bytes, (size_t)(at - state->bytes)), SUM_LEN);
    state->len = (size_t)(at - state->bytes);
    state->has_changed = true;
}

/* ---- Decisions ------------------------------------------------------------------------------- */

/*
 * There are no bookings here, so gcra owes two capacities at most. The limiter allows more debt,
 * and another burst or a wrong clock may have left more: the excess is dropped.
 */
static void limit_debt(struct loaded *loaded, const struct memcached_step *step)
{
    uint64_t now_ns = since(loaded, step->now_ns);
    uint64_t most = add_sat(now_ns, AHEAD_MAX_NS);
    if (step->is_virtual || loaded->quota.algorithm != STINT_GCRA || most > STINT_NOW_MAX)
        return;
    most = add_sat(most * TICKS_PER_NS, 2 * loaded->quota.derived.capacity_ticks);
    loaded->words[0] = min_u64(loaded->words[0], most);
}

static bool is_closing(const struct memcached_step *step)
{
    return step->verb >= REQUEST_SETTLE;
}

static bool is_under(const struct loaded *loaded, const struct stint_quota *quota)
{
    const struct stint_quota *was = &loaded->quota;
    if (!keeps_limit(quota))
        return true;
    return was->limit == quota->limit &&
           (!is_wide(quota) ||
            (was->period_ns == quota->period_ns && was->time_slack_ns == quota->time_slack_ns &&
             was->count_slack == quota->count_slack));
}

/*
 * The epoch to decide in. That of a counter ends with its expiry: that is within ten years of the
 * first amount, and the limiter's time within eighteen of the epoch.
 */
static uint64_t present_epoch_of(const struct loaded *written, const struct memcached_step *step)
{
    if (written->quota.algorithm == STINT_COUNTER &&
        algorithm_expires_at(&written->quota, written->words) > since(written, step->now_ns))
        return written->epoch_ns;
    return max_u64(epoch_of(step), written->epoch_ns);
}

/*
 * Under the present quota, and in the present epoch if that is later. A ticket names the quota
 * under which it was charged: the state stays under the one that it has.
 */
static enum reading load_for(struct loaded *loaded, struct memcached_state *state,
                             const struct memcached_step *step)
{
    struct loaded written;
    enum reading reading = load(&written, state, step);
    if (reading == READ_DAMAGED)
        use_up(&written, step);
    if (reading == READ_AHEAD)
        return reading;
    const struct stint_quota quota = is_closing(step) ? written.quota : *step->quota;
    uint64_t epoch_ns = present_epoch_of(&written, step);
    limit_debt(&written, step);
    *loaded = written;
    loaded->words = scratch[0];
    if (epoch_ns == written.epoch_ns && is_under(&written, &quota)) {
        memcpy(loaded->words, written.words, written.quota.derived.state_size);
        return reading;
    }
    loaded->quota = quota;
    set_epoch(loaded, epoch_ns);
    carry(&written, loaded, step->now_ns);
    return reading;
}

static uint64_t us_up(uint64_t ns)
{
    return ns > UINT64_MAX - NS_PER_US ? ns : (ns + NS_PER_US - 1) / NS_PER_US * NS_PER_US;
}

/* ---- Tickets --------------------------------------------------------------------------------- */

static struct stint_decision look(struct loaded *loaded, uint64_t now_ns, uint32_t cost)
{
    return ask_words(loaded, &(struct stint_ask){
                                 .now_ns = now_ns, .at_ns = 0, .cost = cost, .verb = STINT_PEEK});
}

/* If the clock went back, the charge may be later than now. */
static uint64_t charged_at(const struct loaded *loaded, const struct memcached_ticket *ticket,
                           uint64_t now_ns)
{
    return min_u64(since(loaded, ticket->charged_ns), now_ns);
}

/* Time of a unit, where that is what a state counts. */
static uint64_t unit_ticks_of(const struct loaded *loaded)
{
    return loaded->quota.algorithm == STINT_GCRA ? loaded->quota.derived.interval_ticks : 0;
}

/* A state of gcra counts time: if a unit is longer now, more would come back than was taken. */
static void limit_back(const struct loaded *loaded, const struct memcached_ticket *ticket,
                       struct stint_ask *ask)
{
    if (ask->verb == STINT_REFUND && unit_ticks_of(loaded) > ticket->unit_ticks)
        ask->cost = 0;
}

/*
 * Closes one that has ended, by its options. Units that could not come back are counted. Tickets
 * use the algorithm as those of a table do: without bookings, refunds work in debt, too.
 */
static struct stint_decision expire(struct loaded *loaded, struct memcached_ticket *ticket,
                                    uint64_t now_ns, struct memcached_closed *closed)
{
    uint32_t units = (uint32_t)sub_floor(ticket->units, ticket->kept);
    struct stint_ask back = {.now_ns = now_ns,
                             .at_ns = charged_at(loaded, ticket, now_ns),
                             .cost = units,
                             .verb = STINT_REFUND};
    limit_back(loaded, ticket, &back);
    struct stint_decision decision = back.cost > 0
                                         ? algorithm_ask(&loaded->quota, loaded->words, &back)
                                         : look(loaded, now_ns, 0);
    closed->expired[expiry_action(ticket->kept)]++;
    closed->kept_units += units - min_u64(decision.granted, units);
    tickets_remove(loaded->tickets, ticket);
    return decision;
}

/*
 * All that have ended, the oldest first. The caller counts one that the request itself expires:
 * true, and what was moved.
 */
static bool close_ended(struct loaded *loaded, const struct memcached_step *step,
                        struct memcached_closed *closed, struct stint_decision *decision)
{
    uint64_t now_ns = since(loaded, step->now_ns);
    bool is_asked = false;
    for (size_t i = 0; i < loaded->tickets->n;) {
        struct memcached_ticket *ticket = &loaded->tickets->each[i];
        struct memcached_closed own = {.dropped = 0};
        if (ticket->ends_ns > step->now_ns) {
            i++;
            continue;
        }
        bool is_own = step->verb == REQUEST_EXPIRE &&
                      memcmp(ticket->id, step->ticket.id, BACKEND_ID_LEN) == 0;
        struct stint_decision one = expire(loaded, ticket, now_ns, is_own ? &own : closed);
        if (is_own)
            *decision = one;
        is_asked |= is_own;
    }
    return is_asked;
}

/* A settle, a cancel, or an expire that comes too early. */
static int close_asked(struct loaded *loaded, const struct memcached_step *step,
                       struct stint_decision *decision)
{
    uint64_t now_ns = since(loaded, step->now_ns);
    struct memcached_ticket *ticket = tickets_find(loaded->tickets, step->ticket.id);
    if (ticket == NULL) {
        *decision = look(loaded, now_ns, 0);
        return STINT_E_GONE;
    }
    if (step->verb == REQUEST_EXPIRE) {
        *decision = look(loaded, now_ns, 0);
        decision->outcome = STINT_DENY;
        decision->retry_after_ns = ticket->ends_ns - step->now_ns;
        return 0;
    }
    struct stint_ask ask =
        ticket_settling(ticket->units, step->verb == REQUEST_SETTLE ? step->cost : 0,
                        charged_at(loaded, ticket, now_ns), now_ns);
    limit_back(loaded, ticket, &ask);
    *decision = algorithm_ask(&loaded->quota, loaded->words, &ask);
    tickets_remove(loaded->tickets, ticket);
    return 0;
}

/* The grant belongs to a ticket. */
static void reserve(const struct loaded *loaded, const struct memcached_step *step, uint32_t units,
                    struct memcached_closed *closed)
{
    uint64_t charged_ns = step->now_ns - step->now_ns % NS_PER_US;
    struct memcached_ticket ticket = {
        .charged_ns = charged_ns,
        .ends_ns = add_sat(charged_ns, step->ticket.good_ns),
        .unit_ticks = unit_ticks_of(loaded),
        .units = units,
        .kept = step->ticket.kept,
    };
    memcpy(ticket.id, step->ticket.id, BACKEND_ID_LEN);
    closed->dropped += !tickets_add(loaded->tickets, &ticket);
}

/* A refund's: when the units were granted. A charge of a counter: for how long a new one lives. */
static uint64_t at_of(const struct loaded *loaded, const struct memcached_step *step)
{
    if (step->quota->algorithm == STINT_COUNTER)
        return step->quota->period_ns;
    return step->at_ns == STINT_NEVER_NS ? step->at_ns : since(loaded, step->at_ns);
}

static int decide(struct loaded *loaded, const struct memcached_step *step,
                  struct memcached_closed *closed, struct stint_decision *decision)
{
    bool is_done = close_ended(loaded, step, closed, decision);
    if (is_closing(step))
        return is_done ? 0 : close_asked(loaded, step, decision);
    const struct stint_ask ask = {
        .now_ns = since(loaded, step->now_ns),
        .at_ns = at_of(loaded, step),
        .cost = step->cost,
        .verb = step->verb,
    };
    *decision = ask_words(loaded, &ask);
    if (step->ticket.id != NULL && decision->outcome == STINT_ALLOW)
        reserve(loaded, step, decision->granted, closed);
    return 0;
}

int memcached_state_ask(struct memcached_state *state, const struct memcached_step *step,
                        struct stint_decision *decision, struct stint_error *error)
{
    struct loaded loaded;
    uint64_t *before = scratch[1]; /* not used any more, once it is loaded */
    struct memcached_closed closed = state->closed;
    enum reading reading = load_for(&loaded, state, step);
    if (reading == READ_AHEAD)
        return err_set(error, STINT_E_MISMATCH,
                       "a state of %s in memcached has a time more than an hour in the future: "
                       "check the clocks of the servers",
                       stint_algorithm_name(step->quota->algorithm));
    memcpy(before, loaded.words, loaded.quota.derived.state_size);
    int code = decide(&loaded, step, &closed, decision);
    decision->stored = 1;
    decision->retry_after_ns = us_up(decision->retry_after_ns);
    decision->reset_after_ns = us_up(decision->reset_after_ns);
    if (reading == READ_DAMAGED)
        state->was_damaged = true;
    bool is_counter = step->quota->algorithm == STINT_COUNTER;
    if (is_counter)
        state->count = counter_at((const void *)loaded.words, since(&loaded, step->now_ns)).count;
    bool has_changed = memcmp(loaded.words, before, loaded.quota.derived.state_size) != 0 ||
                       state->tickets.has_changed;
    /* A damaged counter is empty, which is no state that could be kept. */
    if ((reading == READ_DAMAGED && !is_counter) || (has_changed && step->verb != STINT_PEEK)) {
        state->closed = closed;
        save(state, &loaded);
    }
    return code;
}

/*
 * memcached's clock has whole seconds, and each tick is slightly late: if two ticks fall in one
 * second the next is skipped, and its clock is nearly two seconds late until then. A value written
 * just before a tick loses that time at once. One second more covers a late tick on a busy machine.
 * More than thirty days must be given as calendar time; then an hour is added, since its clock may
 * be wrong. In 32 bits calendar time ends in January 2038: what lasts longer gets 0, and stays
 * until it is evicted. Shorter times are relative, also after 2038.
 */
uint64_t memcached_state_ttl_s(struct memcached_state *state, const struct memcached_step *step,
                               uint64_t skew_ns)
{
    struct loaded loaded;
    if (step->is_virtual || load(&loaded, state, step) != READ_STATE)
        return 0;
    uint64_t ends_ns = add_sat(algorithm_expires_at(&loaded.quota, loaded.words), loaded.epoch_ns);
    uint64_t expires_ns = add_sat(max_u64(ends_ns, tickets_until(loaded.tickets)), skew_ns);
    uint64_t left_s = sub_floor(expires_ns, step->now_ns) / NS_PER_S + 1 + CLOCK_LATE_S;
    if (left_s <= TTL_RELATIVE_MAX_S)
        return left_s;
    uint64_t at_s = step->now_ns / NS_PER_S + left_s + 3600;
    return at_s <= TTL_MAX_S ? at_s : 0;
}
