/* SPDX-License-Identifier: MIT */
/* Words for a store and integers from it; lua/ decides. */
#include "backend/script/script.h"

#include "base/buf.h"
#include "base/limits.h"
#include "base/wide_int.h"
#include "limiter/list.h"

#include <assert.h>

#define EXACT_MAX (INT64_C(1) << 53)                   /* a Lua number is a double */
#define REPLY_FIXED 8                                  /* integers of the decision */
#define REPLY_EACH 6                                   /* integers of each quota of a list */
#define TICKET_MAX_US (100 * UINT64_C(31536000000000)) /* in the store's numbers */
#define REPLAYED 4 /* in place of ALLOW: the answer to the first request with the id */
#define TAG_PLAIN "-._~/@+=,*:"
#define SLOTS_DEFAULT 24 /* of window, where the word is 0 or left out */

/* ---- Quotas ---------------------------------------------------------------------------------- */

int script_accepts(const struct stint_quota *quota, struct stint_error *error)
{
    assert(quota->derived.checked);
    if (quota->initial_set)
        return err_set(error, STINT_E_MISMATCH,
                       "initial is only for states in the caller's memory: a store cannot tell a "
                       "new key from one that is long idle");
    uint64_t part_max = quota->period_ns / NS_PER_US * max_u64(quota->resolution, 1);
    if (part_max > EXACT_MAX)
        return err_set(error, STINT_E_RANGE,
                       "window: a shared store counts parts of a period exactly up to 2^53 "
                       "microseconds: expected a resolution of at most %llu for this period, "
                       "found %u",
                       (unsigned long long)((uint64_t)EXACT_MAX / (quota->period_ns / NS_PER_US)),
                       quota->resolution);
    bool is_period = quota->period_ns % NS_PER_US != 0;
    uint64_t length_ns = is_period ? quota->period_ns : quota->time_slack_ns;
    if (length_ns % NS_PER_US == 0)
        return STINT_OK;
    return err_set(error, STINT_E_RANGE,
                   "a shared store counts in microseconds: expected a %s of whole ones, found "
                   "%llu ns",
                   is_period ? "period" : "time_slack", (unsigned long long)length_ns);
}

/* The arguments of a quota: limit period x y z. */
static void quota_numbers(const struct stint_quota *quota, int64_t numbers[SCRIPT_QUOTA_WORDS])
{
    memset(numbers, 0, SCRIPT_QUOTA_WORDS * sizeof(*numbers));
    numbers[0] = quota->limit;
    numbers[1] = (int64_t)(quota->period_ns / NS_PER_US);
    switch (quota->algorithm) {
    case STINT_WINDOW:
        numbers[2] = quota->resolution != SLOTS_DEFAULT ? quota->resolution : 0;
        break;
    case STINT_BUCKETS:
        numbers[2] = (int64_t)(quota->time_slack_ns / NS_PER_US);
        numbers[3] = quota->count_slack;
        break;
    case STINT_GCRA:
        numbers[2] = quota->burst;
        numbers[3] = quota->count_denied;
        break;
    case STINT_FIXED_WINDOW:
        numbers[2] = quota->align;
        numbers[3] = quota->utc_offset_s;
        numbers[4] = quota->count_denied;
        break;
    case STINT_SLIDING_COUNTER:
        numbers[2] = quota->count_denied;
        break;
    default:
        break;
    }
}

/* ---- Keys ------------------------------------------------------------------------------------ */

/* Writes a number's digits and returns them. */
static struct span digits_of(char digits[SCRIPT_DIGITS_MAX], int64_t number)
{
    uint64_t left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    size_t at = SCRIPT_DIGITS_MAX;
    do
        digits[--at] = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (number < 0)
        digits[--at] = '-';
    return (struct span){(const uint8_t *)digits + at, SCRIPT_DIGITS_MAX - at};
}

/* The states of the other algorithms do not depend on the parameters. */
void script_key_algorithm(struct key_text *text, const struct stint_quota *quota)
{
    int64_t numbers[3] = {(int64_t)(quota->period_ns / NS_PER_US)};
    const char *name = stint_algorithm_name(quota->algorithm);
    size_t n_numbers = 0;
    if (quota->algorithm == STINT_WINDOW) {
        numbers[1] = quota->resolution;
        n_numbers = 2;
    } else if (quota->algorithm == STINT_SLIDING_COUNTER) {
        n_numbers = 1;
    } else if (quota->algorithm == STINT_FIXED_WINDOW) {
        numbers[1] = quota->align;
        numbers[2] = quota->utc_offset_s;
        n_numbers = 3;
    }
    key_text_add(text, name, strlen(name));
    for (size_t i = 0; i < n_numbers; i++) {
        char digits[SCRIPT_DIGITS_MAX];
        struct span parameter = digits_of(digits, numbers[i]);
        key_text_add(text, ",", 1);
        key_text_add(text, parameter.ptr, parameter.len);
    }
}

size_t script_tag(struct span prefix, struct span tag, char *out, size_t size)
{
    struct key_text text = {.out = out, .size = size};
    key_text_escape(&text, prefix, TAG_PLAIN);
    key_text_add(&text, "{", 1);
    key_text_escape(&text, tag, TAG_PLAIN);
    key_text_add(&text, "}", 1);
    return text.len;
}

/* ---- Commands -------------------------------------------------------------------------------- */

static void add(struct script_command *command, struct span word)
{
    assert(command->n_words < SCRIPT_WORDS_MAX);
    command->words[command->n_words++] = word;
}

static void add_numbers(struct script_command *command, const int64_t *numbers, size_t n_numbers)
{
    assert(command->n_words + n_numbers <= SCRIPT_WORDS_MAX);
    for (size_t i = 0; i < n_numbers; i++, command->n_digits += SCRIPT_DIGITS_MAX)
        command->words[command->n_words++] =
            digits_of(command->digits + command->n_digits, numbers[i]);
}

/* 0 is the store's own time. */
static int64_t now_of(const struct script_ask *ask)
{
    return ask->is_virtual ? (int64_t)(ask->now_ns / NS_PER_US) : 0;
}

/* A virtual time has a sign, so that 0 can be one. */
static void sign_now(struct span *now)
{
    uint8_t *sign = (uint8_t *)(uintptr_t)now->ptr - 1;
    *sign = '+';
    *now = span_of(sign, now->len + 1);
}

static int64_t at_of(const struct script_ask *ask)
{
    if (ask->verb == REQUEST_RELEASE || ask->verb == REQUEST_RENEW)
        return (int64_t)ask->holder.deadline_us;
    if (ask->verb == REQUEST_REFUND && ask->at_ns == STINT_NEVER_NS)
        return -1;
    /* A wait of any length is as good as the longest number. */
    return (int64_t)(ask->at_ns / NS_PER_US < (uint64_t)EXACT_MAX ? ask->at_ns / NS_PER_US
                                                                  : (uint64_t)EXACT_MAX - 1);
}

void script_quota_words(const struct stint_quota *quota, struct span words[SCRIPT_QUOTA_WORDS],
                        char digits[SCRIPT_QUOTA_WORDS * SCRIPT_DIGITS_MAX])
{
    int64_t numbers[SCRIPT_QUOTA_WORDS];
    quota_numbers(quota, numbers);
    for (size_t i = 0; i < SCRIPT_QUOTA_WORDS; i++)
        words[i] = digits_of(digits + i * SCRIPT_DIGITS_MAX, numbers[i]);
}

static void begin(struct script_command *command, const struct lua_script *script, size_t n_keys)
{
    command->script = script;
    command->n_words = 0;
    command->n_digits = 0;
    add(command, span_of_text("EVALSHA"));
    add(command, span_of(script->sha1, sizeof(script->sha1) - 1));
    add_numbers(command, (int64_t[]){(int64_t)n_keys}, 1);
}

static void add_body(struct script_command *command, uint64_t body)
{
    static const char hexadecimal[] = "0123456789ABCDEF";
    char *digits = command->digits + command->n_digits;
    for (size_t i = 0; i < 16; i++)
        digits[i] = hexadecimal[body >> (60 - 4 * i) & 15];
    command->n_digits += SCRIPT_DIGITS_MAX;
    add(command, span_of(digits, 16));
}

/* GOOD, or GOOD+LONGER: one word. */
static void add_good(struct script_command *command, const struct script_id *id)
{
    uint64_t good_us = min_u64(id->ticket_ns / NS_PER_US, TICKET_MAX_US);
    struct buf text = buf_of(command->digits + command->n_digits, (size_t)2 * SCRIPT_DIGITS_MAX);
    buf_add(&text, "%llu", (unsigned long long)good_us);
    if (id->longer_ns > 0)
        buf_add(&text, "+%llu", (unsigned long long)(id->longer_ns / NS_PER_US));
    command->n_digits += (size_t)2 * SCRIPT_DIGITS_MAX;
    add(command, span_of(text.text, text.len));
}

/* After all other words. A time longer than a store can count is cut to its maximum. */
static void add_id(struct script_command *command, const struct script_ask *ask)
{
    const struct script_id *id = ask->id;
    uint64_t lifetime_ms = id->lifetime_ns / NS_PER_MS + (id->lifetime_ns % NS_PER_MS > 0);
    assert(id->lifetime_ns > 0 || id->is_ticket);
    add_body(command, id->body);
    add_numbers(command, (int64_t[]){(int64_t)min_u64(lifetime_ms, TICKET_MAX_US / 1000)}, 1);
    if (id->is_ticket &&
        (ask->verb == REQUEST_TAKE || ask->verb == REQUEST_BOOK || ask->verb == REQUEST_EXTEND))
        add_good(command, id);
}

static struct span verb_of(const struct script_ask *ask)
{
    bool reserves = ask->verb == REQUEST_TAKE && ask->id != NULL && ask->id->is_ticket;
    return span_of_text(request_verbs[reserves ? REQUEST_RESERVE : ask->verb].name);
}

/* The short form of a take: cost limit period [x [now]]. Returns which word would be now. */
static size_t add_short(struct script_command *command, const struct script_ask *ask,
                        const int64_t numbers[3 + SCRIPT_QUOTA_WORDS], size_t n_numbers)
{
    int64_t words[5] = {numbers[0], numbers[3], numbers[4], numbers[5], numbers[1]};
    add_numbers(command, words, ask->is_virtual ? 5 : n_numbers - 2);
    return command->n_words - 1;
}

/* `leases`: their key; NULL: none. Options before further words are kept. */
static void make_one(struct script_command *command, const struct script_item *item,
                     const struct script_ask *ask, const struct span *leases, bool keeps_options)
{
    bool names_holder = ask->verb == REQUEST_RELEASE || ask->verb == REQUEST_RENEW;
    bool is_leased = leases != NULL, has_id = ask->id != NULL;
    assert(ask->verb < REQUEST_SETTLE || ask->verb > REQUEST_UNDO || has_id);
    begin(command, lua_scripts_one[item->quota->algorithm][2 * is_leased + has_id],
          1u + is_leased + has_id);
    add(command, item->key);
    if (is_leased)
        add(command, *leases);
    if (has_id)
        add(command, ask->id->key);
    int64_t numbers[3 + SCRIPT_QUOTA_WORDS] = {names_holder ? ask->holder.count : item->cost,
                                               now_of(ask), at_of(ask)};
    size_t n_numbers = 3 + SCRIPT_QUOTA_WORDS, now = command->n_words + 2;
    quota_numbers(item->quota, numbers + 3);
    /* Options that are 0 at the end are left out: every word costs the store time. */
    while (!keeps_options && n_numbers > 3 + 2 && numbers[n_numbers - 1] == 0)
        n_numbers--;
    if (ask->verb == REQUEST_TAKE && !is_leased && !has_id && n_numbers <= 3 + 3) {
        now = add_short(command, ask, numbers, n_numbers);
    } else {
        add(command, verb_of(ask));
        add_numbers(command, numbers, n_numbers);
    }
    if (ask->is_virtual)
        sign_now(&command->words[now]);
    if (has_id)
        add_id(command, ask);
}

void script_command_one(struct script_command *command, const struct script_item *item,
                        const struct script_ask *ask)
{
    make_one(command, item, ask, NULL, false);
}

void script_command_list(struct script_command *command, const struct script_item *items,
                         size_t n_items, const struct script_ask *ask)
{
    assert(n_items > 0 && n_items <= STINT_ITEMS_MAX);
    assert(ask->verb <= REQUEST_REFUND || ask->verb == REQUEST_RESET ||
           (ask->verb >= REQUEST_SETTLE && ask->verb <= REQUEST_UNDO && ask->id != NULL));
    begin(command, ask->id != NULL ? &lua_script_list_once : &lua_script_list,
          n_items + (ask->id != NULL));
    for (size_t i = 0; i < n_items; i++)
        add(command, items[i].key);
    if (ask->id != NULL)
        add(command, ask->id->key);
    add(command, verb_of(ask));
    add_numbers(command, (int64_t[]){now_of(ask), at_of(ask)}, 2);
    if (ask->is_virtual)
        sign_now(&command->words[command->n_words - 2]);
    for (size_t i = 0; i < n_items; i++) {
        int64_t numbers[1 + SCRIPT_QUOTA_WORDS] = {items[i].cost};
        quota_numbers(items[i].quota, numbers + 1);
        add(command, span_of_text(stint_algorithm_name(items[i].quota->algorithm)));
        add_numbers(command, numbers, 1 + SCRIPT_QUOTA_WORDS);
    }
    if (ask->id != NULL)
        add_id(command, ask);
}

/* ---- Leases ---------------------------------------------------------------------------------- */

void script_command_leased(struct script_command *command, const struct script_item *item,
                           struct span leases, const struct script_ask *ask,
                           const struct backend_request *lease)
{
    bool lends = ask->verb == REQUEST_LEASE, ends = lends || lease->n_ended > 0;
    struct script_ask asked = *ask;
    assert(item->quota->algorithm != STINT_CONCURRENCY && lease->n_ended <= SCRIPT_ENDED_MAX);
    assert(ask->id == NULL || (!ends && ask->verb != REQUEST_RETURN));
    if (lends)
        asked.at_ns = lease->least * NS_PER_US;
    make_one(command, item, &asked, &leases, ends);
    if (!ends)
        return;
    add_numbers(command, (int64_t[]){lends ? (int64_t)(lease->term_ns / NS_PER_US) : 0}, 1);
    for (size_t i = 0; i < lease->n_ended; i++) {
        const struct backend_lease *ended = &lease->ended[i];
        add_numbers(command,
                    (int64_t[]){(int64_t)(ended->ends_ns / NS_PER_US), ended->units, ended->left},
                    3);
    }
}

/* ---- Several quotas -------------------------------------------------------------------------- */

struct stint_decision script_sum(const struct stint_decision *each, size_t n_items)
{
    size_t binding = 0;
    uint64_t retry_ns = 0;
    for (size_t i = 0; i < n_items; i++) {
        if (each[i].outcome > each[binding].outcome ||
            (each[i].outcome == each[binding].outcome && list_has_less(&each[i], &each[binding])))
            binding = i;
        retry_ns = max_u64(retry_ns, each[i].retry_after_ns);
    }
    struct stint_decision sum = each[binding];
    sum.binding = (uint8_t)binding;
    sum.retry_after_ns = sum.outcome == STINT_ALLOW ? 0 : retry_ns;
    sum.granted = sum.outcome == STINT_ALLOW ? sum.granted : 0;
    return sum;
}

/* ---- Replies --------------------------------------------------------------------------------- */

bool script_metrics_read(struct stint_decision *decision, const int64_t values[6])
{
    bool is_never = values[0] == STINT_NEVER;
    const struct {
        int64_t least, most;
    } within[6] = {{STINT_ALLOW, STINT_NEVER},
                   {0, UINT32_MAX},
                   {0, UINT32_MAX},
                   {0, values[2]},
                   {is_never ? -1 : 0, is_never ? -1 : EXACT_MAX},
                   {0, EXACT_MAX}};
    for (size_t i = 0; i < 6; i++)
        if (values[i] < within[i].least || values[i] > within[i].most)
            return false;
    *decision = (struct stint_decision){
        .outcome = (uint8_t)values[0],
        .stored = 1,
        .granted = (uint32_t)values[1],
        .limit = (uint32_t)values[2],
        .remaining = (uint32_t)values[3],
        .retry_after_ns = is_never ? STINT_NEVER_NS : (uint64_t)values[4] * NS_PER_US,
        .reset_after_ns = (uint64_t)values[5] * NS_PER_US,
    };
    return true;
}

/* Behind the numbers of the decision: which of the quotas binds, and when it was decided. */
static bool decision_read(struct script_reply *reply, const int64_t *values)
{
    int64_t metrics[6];
    memcpy(metrics, values, sizeof(metrics));
    reply->is_replayed = values[0] == REPLAYED;
    if (reply->is_replayed)
        metrics[0] = STINT_ALLOW;
    if (!script_metrics_read(&reply->decision, metrics) || values[6] < 0 ||
        values[6] >= (int64_t)reply->n_each || values[7] < 0 || values[7] > EXACT_MAX)
        return false;
    reply->decision.binding = (uint8_t)values[6];
    reply->now_ns = (uint64_t)values[7] * NS_PER_US;
    return true;
}

static bool holders_read(struct script_reply *reply, const int64_t *values, size_t n_values)
{
    if (n_values % 2 != 0 || n_values / 2 > reply->n_each)
        return false;
    reply->n_holders = n_values / 2;
    for (size_t i = 0; i < reply->n_holders; i++) {
        const int64_t *holder = &values[2 * i];
        if (holder[0] < 0 || holder[0] > EXACT_MAX || holder[1] < 0 || holder[1] > UINT16_MAX)
            return false;
        reply->holders[i] = (struct script_holder){(uint64_t)holder[0], (uint32_t)holder[1]};
    }
    return true;
}

bool script_reply_read(struct script_reply *reply, size_t n_listed, const int64_t *values,
                       size_t n_values)
{
    assert(n_listed <= STINT_ITEMS_MAX);
    size_t before_holders = REPLY_FIXED + REPLY_EACH * n_listed;
    reply->n_each = n_listed > 0 ? n_listed : 1;
    if (n_values < before_holders || !decision_read(reply, values))
        return false;
    reply->each[0] = reply->decision;
    for (size_t i = 0; i < n_listed; i++)
        if (!script_metrics_read(&reply->each[i], &values[REPLY_FIXED + REPLY_EACH * i]))
            return false;
    return holders_read(reply, values + before_holders, n_values - before_holders);
}

static bool begins_with(struct span error, const char *text)
{
    struct span head = span_of_text(text);
    return error.len >= head.len && memcmp(error.ptr, head.ptr, head.len) == 0;
}

bool script_is_conflict(struct span error)
{
    return begins_with(error, "STINT CONFLICT ");
}

bool script_is_gone(struct span error)
{
    return begins_with(error, "STINT GONE ");
}
