/* SPDX-License-Identifier: MIT */
/* Arguments by position, as CL.THROTTLE has them, and words with arguments. */
#include "proto/resp/resp_request.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/number.h"
#include "proto/ticket_text.h"

#include <assert.h>
#include <stddef.h>

#define SHOWN_MAX 60 /* bytes of an argument in an error */

void resp_request_key(struct request *request, enum request_verb verb, struct span key)
{
    *request = (struct request){.verb = (uint8_t)verb, .cost = 1, .key = key};
}

/* Only digits, of a number above max: neither malformed nor below 0. */
static bool is_larger(struct span text, uint64_t max)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        number = number > max ? number : number * 10 + (uint64_t)(text.ptr[i] - '0');
    }
    return number > max;
}

int resp_refuse_number(const char *what, struct span text, uint64_t min, uint64_t max,
                       struct stint_error *error)
{
    int shown = text.len < SHOWN_MAX ? (int)text.len : SHOWN_MAX;
    /* The maximum is that of units; max_burst is one less. */
    bool has_advice = (max == UNIT_COUNT_MAX || max == UNIT_COUNT_MAX - 1) && is_larger(text, max);
    return err_set(error, STINT_E_RANGE,
                   "%s must be a whole number from %llu to %llu, not '%.*s'%s", what,
                   (unsigned long long)min, (unsigned long long)max, shown, (const char *)text.ptr,
                   has_advice ? "; " UNITS_ADVICE : "");
}

int resp_refuse_word(const char *expected, struct span text, struct stint_error *error)
{
    int shown = text.len < SHOWN_MAX ? (int)text.len : SHOWN_MAX;
    return err_set(error, STINT_E_SYNTAX, "expected %s, not '%.*s'", expected, shown,
                   (const char *)text.ptr);
}

int resp_check_id(struct span id, struct stint_error *error)
{
    return id.len > 0 && id.len <= RESP_ID_MAX
               ? STINT_OK
               : err_set(error, STINT_E_RANGE, "ID must have 1 to %d bytes, not %zu", RESP_ID_MAX,
                         id.len);
}

static int read_whole(const char *what, struct span text, uint64_t min, uint64_t max,
                      uint64_t *number, struct stint_error *error)
{
    if (resp_number_read(text, max, number) && *number >= min)
        return STINT_OK;
    return resp_refuse_number(what, text, min, max, error);
}

/* ---- CL.THROTTLE ----------------------------------------------------------------------------- */

#define THROTTLE_NUMBERS 4

struct throttle_number {
    const char *name;
    int64_t min, max;
};

static const struct throttle_number throttle_numbers[THROTTLE_NUMBERS] = {
    {"max_burst", -1, (int64_t)UINT32_MAX - 1},
    {"count_per_period", 1, INT64_MAX},
    {"period", 1, (int64_t)THROTTLE_PERIOD_MAX_S},
    {"quantity", 0, UINT32_MAX},
};

/* An integer of 64 bits with or without a sign, in redis-cell's format. */
static inline bool read_integer(struct span text, int64_t *number)
{
    uint64_t magnitude;
    bool is_negative = text.len > 0 && *text.ptr == '-';
    if (text.len > 0 && (is_negative || *text.ptr == '+'))
        text = (struct span){text.ptr + 1, text.len - 1};
    if (!resp_number_read(text, (uint64_t)INT64_MAX, &magnitude))
        return false;
    *number = is_negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

static int refuse_throttle(const struct span *args, size_t n_args,
                           const int64_t numbers[THROTTLE_NUMBERS], struct stint_error *error)
{
    int64_t number;
    for (size_t i = 0; i + 2 < n_args; i++)
        if (!read_integer(args[i + 2], &number))
            return err_set(error, STINT_E_SYNTAX,
                           RESP_CELL_ERROR "Couldn't parse as integer: %.*s: %s is an integer",
                           args[i + 2].len < SHOWN_MAX ? (int)args[i + 2].len : SHOWN_MAX,
                           (const char *)args[i + 2].ptr, throttle_numbers[i].name);
    if (numbers[1] == 0 || numbers[2] == 0)
        return err_set(error, STINT_E_SYNTAX,
                       RESP_CELL_ERROR "Zero rates are not supported: count_per_period and period "
                                       "are at least 1");
    size_t i = 0;
    while (numbers[i] >= throttle_numbers[i].min && numbers[i] <= throttle_numbers[i].max)
        i++;
    assert(i < THROTTLE_NUMBERS);
    bool has_advice = throttle_numbers[i].max <= UINT32_MAX && numbers[i] > throttle_numbers[i].max;
    return err_set(error, STINT_E_RANGE, "%s must be a whole number from %lld to %lld, not %lld%s",
                   throttle_numbers[i].name, (long long)throttle_numbers[i].min,
                   (long long)throttle_numbers[i].max, (long long)numbers[i],
                   has_advice ? "; " UNITS_ADVICE : "");
}

int resp_request_throttle(const struct span *args, size_t n_args, struct request *request,
                          struct stint_error *error)
{
    int64_t numbers[THROTTLE_NUMBERS] = {[3] = 1};
    bool is_good = n_args == 5 || n_args == 6;
    if (!is_good)
        return err_set(error, STINT_E_SYNTAX, RESP_CELL_USAGE);
    for (size_t i = 0; is_good && i + 2 < n_args; i++)
        is_good = read_integer(args[i + 2], &numbers[i]);
    for (size_t i = 0; is_good && i < THROTTLE_NUMBERS; i++)
        is_good = numbers[i] >= throttle_numbers[i].min && numbers[i] <= throttle_numbers[i].max;
    if (!is_good)
        return refuse_throttle(args, n_args, numbers, error);
    request->key = args[1];
    request->throttle = (struct request_throttle){
        .max_burst = numbers[0],
        .count_per_period = (uint64_t)numbers[1],
        .period_s = (uint64_t)numbers[2],
    };
    request->cost = (uint32_t)numbers[3];
    return STINT_OK;
}

/* ---- Words ----------------------------------------------------------------------------------- */

enum word {
    WORD_QUOTA,
    WORD_DOMAIN,
    WORD_DESCRIPTOR,
    WORD_COST,
    WORD_WAIT,
    WORD_ID,
    WORD_AT,
    WORD_LIFETIME,
    WORD_MAXWAIT,
    WORD_FOR,
    WORD_TO,
    WORD_DEFAULT,
    WORD_ON_EXPIRY,
    WORDS,
};

#define BIT(word) (1u << (word))
#define TARGET (BIT(WORD_QUOTA) | BIT(WORD_DOMAIN) | BIT(WORD_DESCRIPTOR) | BIT(WORD_COST))
#define REPEATED (BIT(WORD_QUOTA) | BIT(WORD_DESCRIPTOR))

/* Options that a verb accepts, and those of which it requires one. */
struct grammar {
    unsigned words, needed;
};

static const struct grammar grammars[REQUEST_VERBS] = {
    [REQUEST_TAKE] = {TARGET | BIT(WORD_WAIT) | BIT(WORD_ID), 0},
    [REQUEST_TAKE_UPTO] = {TARGET | BIT(WORD_WAIT) | BIT(WORD_ID), 0},
    [REQUEST_PEEK] = {TARGET, 0},
    [REQUEST_EXPLAIN] = {TARGET, 0},
    [REQUEST_RESERVE] = {TARGET | BIT(WORD_LIFETIME) | BIT(WORD_WAIT) | BIT(WORD_ID) |
                             BIT(WORD_ON_EXPIRY),
                         BIT(WORD_LIFETIME)},
    [REQUEST_BOOK] = {TARGET | BIT(WORD_MAXWAIT) | BIT(WORD_ID), BIT(WORD_MAXWAIT)},
    [REQUEST_CHARGE] = {TARGET | BIT(WORD_ID), 0},
    [REQUEST_REFUND] = {TARGET | BIT(WORD_AT) | BIT(WORD_ID), 0},
    [REQUEST_BLOCK] = {TARGET | BIT(WORD_FOR), BIT(WORD_FOR)},
    [REQUEST_RESET] = {TARGET, 0},
    [REQUEST_SET_QUOTA] = {TARGET | BIT(WORD_TO) | BIT(WORD_DEFAULT),
                           BIT(WORD_TO) | BIT(WORD_DEFAULT)},
    [REQUEST_SETTLE] = {BIT(WORD_ID), 0},
    [REQUEST_CANCEL] = {BIT(WORD_ID), 0},
};

struct reading {
    const struct span *args;
    size_t n_args, at;
    struct resp_lists *lists;
    struct request *request;
    size_t n_entries;
    unsigned seen;
    bool cost_seen;
    int last; /* the previous option: a COST after QUOTA or DESCRIPTOR applies to it */
    struct stint_error *error;
};

/* An option of a command. */
struct option {
    const char *name;
    size_t len;
    /* Reads its arguments, and what is `at` bytes into the request. NULL: there are none. */
    int (*read)(struct reading *reading, enum word word);
    size_t at;
    uint64_t min, max;
};
static const struct option options[WORDS];

static int missing(const struct reading *reading, enum word word, const char *what)
{
    return err_set(reading->error, STINT_E_SYNTAX, "after %s %s is missing", options[word].name,
                   what);
}

/* The argument of an option. */
static int next(struct reading *reading, enum word word, const char *what, struct span *argument)
{
    if (reading->at == reading->n_args)
        return missing(reading, word, what);
    *argument = reading->args[reading->at++];
    return STINT_OK;
}

/* A number within the option's limits. */
static int next_number(struct reading *reading, enum word word, uint64_t *number)
{
    const struct option *option = &options[word];
    struct span text = {0};
    int code = next(reading, word, "a number", &text);
    if (code == STINT_OK)
        code = read_whole(option->name, text, option->min, option->max, number, reading->error);
    return code;
}

/* Where the option's value is stored. */
static void *value_at(struct reading *reading, enum word word)
{
    return (uint8_t *)reading->request + options[word].at;
}

static int read_number(struct reading *reading, enum word word)
{
    return next_number(reading, word, value_at(reading, word));
}

static int read_ms(struct reading *reading, enum word word)
{
    uint64_t ms = 0, *ns = value_at(reading, word);
    int code = next_number(reading, word, &ms);
    *ns = ms * NS_PER_MS;
    return code;
}

/* The same, and not empty. */
static int next_text(struct reading *reading, enum word word, const char *what,
                     struct span *argument)
{
    int code = next(reading, word, what, argument);
    return code == STINT_OK && argument->len == 0 ? missing(reading, word, what) : code;
}

static int read_domain(struct reading *reading, enum word word)
{
    return next_text(reading, word, "a name", &reading->request->domain);
}

static int too_many(const struct reading *reading, enum word word, int max)
{
    return err_set(reading->error, STINT_E_RANGE, "at most %d times %s", max, options[word].name);
}

static int read_quota(struct reading *reading, enum word word)
{
    struct request *request = reading->request;
    struct request_item *item = &reading->lists->items[request->n_items];
    if (request->n_items == STINT_ITEMS_MAX)
        return too_many(reading, word, STINT_ITEMS_MAX);
    *item = (struct request_item){0};
    int code = next(reading, word, "a spec", &item->quota);
    if (code == STINT_OK)
        code = next(reading, word, "the key", &item->key);
    if (code != STINT_OK)
        return code;
    request->items = reading->lists->items;
    request->n_items++;
    return STINT_OK;
}

static int read_descriptor(struct reading *reading, enum word word)
{
    struct request *request = reading->request;
    struct resp_lists *lists = reading->lists;
    uint64_t n = 0;
    if (request->n_descriptors == DESCRIPTORS_MAX)
        return too_many(reading, word, DESCRIPTORS_MAX);
    int code = next_number(reading, word, &n);
    if (code != STINT_OK)
        return code;
    if (reading->n_args - reading->at < 2 * n)
        return missing(reading, word, "a key or a value");
    struct descriptor_entry *entries = &lists->entries[reading->n_entries];
    for (size_t i = 0; i < n; i++, reading->at += 2) {
        entries[i] =
            (struct descriptor_entry){reading->args[reading->at], reading->args[reading->at + 1]};
        if (entries[i].key.len == 0)
            return err_set(reading->error, STINT_E_SYNTAX,
                           "entry %zu of a DESCRIPTOR: expected a key that is not empty", i + 1);
    }
    lists->descriptors[request->n_descriptors++] =
        (struct descriptor){.entries = entries, .n_entries = n};
    reading->n_entries += n;
    request->descriptors = lists->descriptors;
    return STINT_OK;
}

static int read_cost(struct reading *reading, enum word word)
{
    struct request *request = reading->request;
    uint64_t cost = 0;
    int code = next_number(reading, word, &cost);
    if (code != STINT_OK)
        return code;
    if (reading->last == WORD_QUOTA) {
        struct request_item *item = &reading->lists->items[request->n_items - 1];
        item->cost = (uint32_t)cost;
        item->has_cost = true;
    } else if (reading->last == WORD_DESCRIPTOR) {
        struct descriptor *last = &reading->lists->descriptors[request->n_descriptors - 1];
        last->hits = (uint32_t)cost;
        last->has_hits = true;
    } else {
        request->cost = (uint32_t)cost;
        reading->cost_seen = true;
    }
    return STINT_OK;
}

static int read_id(struct reading *reading, enum word word)
{
    struct span *id = &reading->request->id;
    int code = next(reading, word, "a request's id", id);
    return code == STINT_OK ? resp_check_id(*id, reading->error) : code;
}

static int read_to(struct reading *reading, enum word word)
{
    return next_text(reading, word, "a spec", &reading->request->quota);
}

static int read_on_expiry(struct reading *reading, enum word word)
{
    struct request *request = reading->request;
    struct span text = {0};
    uint64_t units = 0;
    int code = next(reading, word, "keep, release or a number of units", &text);
    if (code != STINT_OK)
        return code;
    if (resp_word_is(text, "KEEP"))
        units = STINT_KEEP_ALL;
    else if (!resp_word_is(text, "RELEASE") && !resp_number_read(text, UINT32_MAX, &units))
        return resp_refuse_word("keep, release or a number of units (0 to 4294967295) after "
                                "ON_EXPIRY",
                                text, reading->error);
    request->has_on_expiry = true;
    request->kept_units = (uint32_t)units;
    return STINT_OK;
}

#define OPTION(name) name, sizeof(name) - 1
#define AT(member) offsetof(struct request, member)
/* clang-format off */
static const struct option options[WORDS] = {
    [WORD_QUOTA] = {OPTION("QUOTA"), read_quota, 0, 0, 0},
    [WORD_DOMAIN] = {OPTION("DOMAIN"), read_domain, 0, 0, 0},
    [WORD_DESCRIPTOR] = {OPTION("DESCRIPTOR"), read_descriptor, 0, 1, ENTRIES_MAX},
    [WORD_COST] = {OPTION("COST"), read_cost, 0, 0, UINT32_MAX},
    [WORD_WAIT] = {OPTION("WAIT"), read_ms, AT(wait_ns), 0, RESP_WAIT_MAX_MS},
    [WORD_ID] = {OPTION("ID"), read_id, 0, 0, 0},
    [WORD_AT] = {OPTION("AT"), read_number, AT(granted_at_ns), 0, STINT_NOW_MAX},
    [WORD_LIFETIME] = {OPTION("LIFETIME"), read_ms, AT(lifetime_ns), 1, RESP_TIME_MAX_MS},
    [WORD_MAXWAIT] = {OPTION("MAXWAIT"), read_ms, AT(lifetime_ns), 0, RESP_TIME_MAX_MS},
    [WORD_FOR] = {OPTION("FOR"), read_ms, AT(lifetime_ns), 1, RESP_TIME_MAX_MS},
    [WORD_TO] = {OPTION("TO"), read_to, 0, 0, 0},
    [WORD_DEFAULT] = {OPTION("DEFAULT"), NULL, 0, 0, 0}, /* the quota stays empty */
    [WORD_ON_EXPIRY] = {OPTION("ON_EXPIRY"), read_on_expiry, 0, 0, 0},
};
/* clang-format on */

/* Names are capital letters: without 0x20 a byte is the same for both cases. */
static inline bool is_named(const struct option *option, struct span text)
{
    size_t at = 0;
    if (text.len != option->len)
        return false;
    while (at < text.len && (text.ptr[at] & 0xdf) == option->name[at])
        at++;
    return at == text.len;
}

static enum word find_word(struct span text, unsigned among)
{
    for (enum word word = 0; word < WORDS; word++)
        if ((among & BIT(word)) != 0 && is_named(&options[word], text))
            return word;
    return WORDS;
}

/* Appends the names of some options: "QUOTA, DOMAIN or COST". */
static int refuse_unknown(const struct reading *reading, unsigned among, struct span text)
{
    char expected[STINT_ERROR_MAX / 2];
    struct buf buf = buf_of(expected, sizeof(expected));
    if (among == 0)
        return resp_refuse_word("nothing more", text, reading->error);
    for (enum word word = 0; word < WORDS; word++) {
        if ((among & BIT(word)) == 0)
            continue;
        bool is_last = among >> word == 1;
        buf_add(&buf, "%s%s", buf.len == 0 ? "" : is_last ? " or " : ", ", options[word].name);
    }
    return resp_refuse_word(expected, text, reading->error);
}

static int check_target(const struct reading *reading)
{
    const struct request *request = reading->request;
    bool has_domain = (reading->seen & BIT(WORD_DOMAIN)) != 0;
    if (request->n_items > 0 && (has_domain || request->n_descriptors > 0))
        return err_set(reading->error, STINT_E_SYNTAX,
                       "QUOTA and DOMAIN exclude each other: give one of them");
    if (request->n_items == 0 && !has_domain)
        return err_set(reading->error, STINT_E_SYNTAX, "QUOTA or DOMAIN is missing");
    if (has_domain && request->n_descriptors == 0)
        return err_set(reading->error, STINT_E_SYNTAX, "after DOMAIN a DESCRIPTOR is missing");
    return STINT_OK;
}

static int check(const struct reading *reading, const struct grammar *grammar)
{
    unsigned given = reading->seen & grammar->needed;
    if (grammar->needed == (BIT(WORD_TO) | BIT(WORD_DEFAULT)) &&
        (given == 0 || given == grammar->needed))
        return err_set(reading->error, STINT_E_SYNTAX, "either TO or DEFAULT is expected");
    if (grammar->needed != 0 && given == 0)
        return err_set(reading->error, STINT_E_SYNTAX, "%s is missing",
                       options[__builtin_ctz(grammar->needed)].name);
    return reading->lists != NULL ? check_target(reading) : STINT_OK;
}

/* A COST is of the QUOTA or DESCRIPTOR that it follows, else of all; each has at most one. */
static bool is_repeated(const struct reading *reading, enum word word)
{
    bool is_of_all = reading->last != WORD_QUOTA && reading->last != WORD_DESCRIPTOR;
    if (word == WORD_COST)
        return is_of_all && (reading->last == WORD_COST || reading->cost_seen);
    return (reading->seen & BIT(word) & ~REPEATED) != 0;
}

/*
 * Sets the members of the request, and rejects options that the command does not have, or lacks.
 * lists is NULL for commands without a target.
 */
static int read_words(const struct span *args, size_t n_args, struct resp_lists *lists,
                      struct request *request, struct stint_error *error)
{
    const struct grammar *grammar = &grammars[request->verb];
    struct reading reading = {.args = args,
                              .n_args = n_args,
                              .lists = lists,
                              .request = request,
                              .last = WORDS,
                              .error = error};
    while (reading.at < n_args) {
        enum word word = find_word(args[reading.at], grammar->words);
        if (word == WORDS)
            return refuse_unknown(&reading, grammar->words, args[reading.at]);
        if (is_repeated(&reading, word))
            return err_set(error, STINT_E_SYNTAX, "%s is given twice", options[word].name);
        reading.at++;
        reading.seen |= BIT(word);
        int code = options[word].read != NULL ? options[word].read(&reading, word) : STINT_OK;
        if (code != STINT_OK)
            return code;
        reading.last = (int)word;
    }
    request->has_granted_at = (reading.seen & BIT(WORD_AT)) != 0;
    return check(&reading, grammar);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static int read_ticket(const struct span *args, size_t n_args, struct request *request,
                       struct stint_error *error)
{
    bool settles = request->verb == REQUEST_SETTLE;
    size_t at = settles ? 3 : 2;
    uint64_t actual = 0;
    if (!ticket_text_read(args[1], request))
        return resp_refuse_word("a ticket, 32 digits or more", args[1], error);
    if (settles && read_whole("what was used", args[2], 0, UINT32_MAX, &actual, error) != 0)
        return STINT_E_RANGE;
    request->cost = (uint32_t)actual;
    return read_words(args + at, n_args - at, NULL, request, error);
}

/* key [RESET | amount [expiry]]; the service checks that an amount above 0 has an expiry. */
static int read_count(const struct span *args, size_t n_args, struct request *request,
                      struct stint_error *error)
{
    uint64_t number = 0, expiry_ms = 0;
    request->key = args[1];
    if (n_args > 4)
        return resp_refuse_word("key [RESET | amount [expiry]]", args[4], error);
    if (n_args == 3 && resp_word_is(args[2], "RESET")) {
        request->verb = REQUEST_COUNT_RESET;
        return STINT_OK;
    }
    if (n_args == 2)
        return STINT_OK;
    struct span digits = args[2];
    bool is_negative = digits.len > 0 && digits.ptr[0] == '-';
    if (is_negative)
        digits = span_of(digits.ptr + 1, digits.len - 1);
    if (!resp_number_read(digits, UNIT_COUNT_MAX, &number))
        return resp_refuse_word(
            "RESET or an amount, -" UNIT_COUNT_MAX_TEXT " to " UNIT_COUNT_MAX_TEXT, args[2], error);
    request->amount = is_negative ? -(int64_t)number : (int64_t)number;
    if (n_args == 4 &&
        read_whole("the expiry in ms", args[3], 1, RESP_TIME_MAX_MS, &expiry_ms, error) != 0)
        return STINT_E_RANGE;
    if (n_args == 3 && request->amount > 0)
        return err_set(error, STINT_E_SYNTAX,
                       "after an amount above 0 the expiry in ms is missing");
    request->lifetime_ns = expiry_ms * NS_PER_MS;
    return STINT_OK;
}

int resp_request_read(const struct resp_command *command, const struct span *args, size_t n_args,
                      struct resp_lists *lists, struct request *request, struct stint_error *error)
{
    assert(command->verb < REQUEST_VERBS);
    *request = (struct request){.verb = command->verb, .cost = 1};
    switch (command->verb) {
    case REQUEST_THROTTLE:
        return resp_request_throttle(args, n_args, request, error);
    case REQUEST_SETTLE:
    case REQUEST_CANCEL:
    case REQUEST_RENEW:
        return read_ticket(args, n_args, request, error);
    case REQUEST_COUNT:
        return read_count(args, n_args, request, error);
    default:
        return read_words(args + 1, n_args - 1, lists, request, error);
    }
}
