/* SPDX-License-Identifier: MIT */
/* STINT.POOL: finds a usable key of a pool, and records the result of its use. */
#include "frontend/resp/resp_call.h"

#include "base/ns.h"
#include "base/number.h"
#include "base/wide_int.h"
#include "proto/resp/resp_reply.h"
#include "service/pools/pools.h"

enum pool_word {
    POOL_COST,
    POOL_AT,
    POOL_WAIT,
    POOL_WEIGHT,
    POOL_PROBE,
    POOL_QUOTA,
    POOL_ID,
    POOL_WORDS
};

/* Options after the pool and its key, in any order, each once. */
struct pool_words {
    uint64_t numbers[POOL_PROBE];
    bool probe;
    struct span quotas[STINT_POOL_QUOTAS_MAX];
    size_t n_quotas;
    struct span id;
};

static const char *const names[POOL_WORDS] = {
    [POOL_COST] = "COST",   [POOL_AT] = "AT",       [POOL_WAIT] = "WAIT", [POOL_WEIGHT] = "WEIGHT",
    [POOL_PROBE] = "PROBE", [POOL_QUOTA] = "QUOTA", [POOL_ID] = "ID",
};

static const uint64_t most[POOL_WORDS] = {
    [POOL_COST] = UINT32_MAX,
    [POOL_AT] = POOLS_AT_MAX_NS,
    [POOL_WAIT] = RESP_WAIT_MAX_MS,
    [POOL_WEIGHT] = STINT_POOL_WEIGHT_MAX,
};

#define BIT(word) (1u << (word))

static enum pool_word find_word(struct span text, unsigned among)
{
    enum pool_word word = 0;
    while (word < POOL_WORDS && ((among & BIT(word)) == 0 || !resp_word_is(text, names[word])))
        word++;
    return word;
}

static int read_word(struct pool_words *words, enum pool_word word, struct span argument,
                     struct stint_error *error)
{
    uint64_t least = word == POOL_WEIGHT;
    if (word == POOL_QUOTA) {
        if (words->n_quotas == STINT_POOL_QUOTAS_MAX)
            return err_set(error, STINT_E_RANGE, "at most %d times QUOTA", STINT_POOL_QUOTAS_MAX);
        words->quotas[words->n_quotas++] = argument;
        return STINT_OK;
    }
    if (word == POOL_ID) {
        words->id = argument;
        return resp_check_id(argument, error);
    }
    uint64_t *number = &words->numbers[word];
    if (!resp_number_read(argument, most[word], number) || *number < least)
        return resp_refuse_number(names[word], argument, least, most[word], error);
    return STINT_OK;
}

static int read_words(const struct resp_call *call, size_t at, unsigned among,
                      struct pool_words *words, struct stint_error *error)
{
    *words = (struct pool_words){.numbers = {[POOL_COST] = 1, [POOL_AT] = STINT_NEVER_NS}};
    while (at < call->n_args) {
        enum pool_word word = find_word(call->args[at], among);
        if (word == POOL_WORDS)
            return resp_refuse_word("another word", call->args[at], error);
        if (word != POOL_QUOTA)
            among &= ~BIT(word);
        at++;
        if (word == POOL_PROBE) {
            words->probe = true;
            continue;
        }
        if (at == call->n_args)
            return err_set(error, STINT_E_SYNTAX, "after %s its argument is missing", names[word]);
        int code = read_word(words, word, call->args[at++], error);
        if (code != STINT_OK)
            return code;
    }
    return STINT_OK;
}

/* One command, and its caller. */
struct pool_ask {
    struct resp_call *call;
    struct service *service;
    struct pools *pools;
    struct pools_caller caller;
    struct stint_error error;
};

static struct service_pool_call call_with(struct pool_ask *ask, struct span id)
{
    const struct resp_call *call = ask->call;
    return (struct service_pool_call){.pool = call->args[2],
                                      .id = id,
                                      .caller = call->state->caller.name,
                                      .context = &ask->caller};
}

static int reply_if_ok(struct pool_ask *ask, int code)
{
    if (code == STINT_OK)
        resp_write_simple(&ask->call->state->out, "OK");
    return code;
}

/* ---- NEXT, GIVEBACK, REPORT ------------------------------------------------------------------ */

static void write_next(struct resp_writer *out, const struct stint_pool_answer *next, bool replayed)
{
    resp_write_map(out, 7 + replayed);
    resp_pair_text(out, "key", next->name);
    resp_pair_integer(out, "wait_ms", next->name != NULL ? 0 : resp_reply_ms(next->wait_ns));
    resp_write_text(out, "at");
    resp_write_digits(out, next->granted_at_ns);
    resp_pair_integer(out, "probe", next->probe);
    resp_pair_integer(out, "limit", next->decision.limit);
    resp_pair_integer(out, "remaining", next->decision.remaining);
    resp_pair_integer(out, "reset_after_ms", resp_reply_ms(next->decision.reset_after_ns));
    if (replayed)
        resp_pair_integer(out, "replayed", 1);
}

/* When to try again, or 0: a key was found, or none will be free in time. */
static uint64_t retry_at(const struct resp_call *call, const struct pool_words *words,
                         const struct stint_pool_answer *next)
{
    uint64_t again_ns = add_sat(call->now_ns, max_u64(next->wait_ns, 1));
    uint64_t wait_ns = words->numbers[POOL_WAIT] * NS_PER_MS;
    bool waits = next->name == NULL && wait_ns > 0;
    return waits && again_ns <= add_sat(call->state->asked_ns, wait_ns) ? again_ns : 0;
}

static int pool_next(struct pool_ask *ask)
{
    struct resp_call *call = ask->call;
    struct pool_words words;
    struct stint_pool_answer next;
    int code = read_words(call, 3, BIT(POOL_COST) | BIT(POOL_PROBE) | BIT(POOL_WAIT) | BIT(POOL_ID),
                          &words, &ask->error);
    if (code != STINT_OK)
        return code;
    const struct stint_pool_ask wanted = {
        .now_ns = call->now_ns, .cost = (uint32_t)words.numbers[POOL_COST], .probe = words.probe};
    struct service_pool_call named = call_with(ask, words.id);
    resp_call_begin(call);
    code = service_pool_next(ask->service, &named, &wanted, &next, &ask->error);
    if (code == STINT_OK && !resp_call_park(call, retry_at(call, &words, &next)))
        write_next(&call->state->out, &next, named.replayed);
    return code;
}

static int pool_give_back(struct pool_ask *ask)
{
    struct resp_call *call = ask->call;
    struct pool_words words;
    uint32_t given_back = 0;
    int code =
        read_words(call, 4, BIT(POOL_COST) | BIT(POOL_AT) | BIT(POOL_ID), &words, &ask->error);
    if (code != STINT_OK)
        return code;
    const struct pools_return back = {call->args[3], (uint32_t)words.numbers[POOL_COST],
                                      words.numbers[POOL_AT]};
    struct service_pool_call named = call_with(ask, words.id);
    code =
        service_pool_give_back(ask->service, &named, &back, call->now_ns, &given_back, &ask->error);
    if (code == STINT_OK)
        resp_write_integer(&call->state->out, given_back);
    return code;
}

static int read_report(const struct resp_call *call, struct pools_report *report,
                       struct stint_error *error)
{
    struct span word = call->args[4];
    uint64_t cooldown_ms = 0;
    bool cools = resp_word_is(word, "COOL");
    *report = (struct pools_report){.key = call->args[3]};
    if (cools && call->n_args == 6) {
        const uint64_t most_ms = NS_PER_YEAR / NS_PER_MS;
        if (!resp_number_read(call->args[5], most_ms, &cooldown_ms) || cooldown_ms == 0)
            return resp_refuse_number("COOL", call->args[5], 1, most_ms, error);
        report->outcome = STINT_POOL_COOL;
        report->cooldown_ns = cooldown_ms * NS_PER_MS;
        return STINT_OK;
    }
    if (cools || call->n_args > 5)
        return err_set(error, STINT_E_SYNTAX, "COOL has one argument, milliseconds; others none");
    if (resp_word_is(word, "OK"))
        report->outcome = STINT_POOL_OK;
    else if (resp_word_is(word, "BACKOFF"))
        report->outcome = STINT_POOL_BACK_OFF;
    else if (resp_word_is(word, "OUT"))
        report->outcome = STINT_POOL_OUT;
    else
        return resp_refuse_word("OK, COOL ms, BACKOFF or OUT", word, error);
    return STINT_OK;
}

static int pool_report(struct pool_ask *ask)
{
    struct pools_report report;
    int code = read_report(ask->call, &report, &ask->error);
    if (code != STINT_OK)
        return code;
    return reply_if_ok(ask, pools_report(ask->pools, &ask->caller, ask->call->args[2], &report,
                                         ask->call->now_ns, &ask->error));
}

/* ---- STATUS, LIST ---------------------------------------------------------------------------- */

static bool count_key(const struct stint_pool_status *status, void *arg)
{
    size_t *n = arg;
    (void)status;
    ++*n;
    return true;
}

struct listing {
    struct resp_writer *out;
    size_t left; /* the announced number: another thread may add a key meanwhile */
};

static void write_status(struct resp_writer *out, const struct stint_pool_status *status)
{
    static const char *const standings[] = {
        [STINT_POOL_FREE] = "free",       [STINT_POOL_USED_UP] = "used_up",
        [STINT_POOL_COOLING] = "cooling", [STINT_POOL_BACKING_OFF] = "backing_off",
        [STINT_POOL_IS_OUT] = "out",
    };
    resp_write_map(out, 7);
    resp_pair_text(out, "key", status->name);
    resp_pair_text(out, "standing", standings[status->standing]);
    resp_pair_integer(out, "returns_after_ms", resp_reply_ms(status->returns_after_ns));
    resp_pair_integer(out, "weight", status->weight);
    resp_pair_integer(out, "failures", status->failures);
    resp_pair_integer(out, "limit", status->decision.limit);
    resp_pair_integer(out, "remaining", status->decision.remaining);
}

static bool list_key(const struct stint_pool_status *status, void *arg)
{
    struct listing *listing = arg;
    write_status(listing->out, status);
    return --listing->left > 0;
}

static int pool_status(struct pool_ask *ask)
{
    const struct resp_call *call = ask->call;
    struct resp_writer *out = &call->state->out;
    size_t n = 0;
    int code = pools_each(ask->pools, &ask->caller, call->args[2], call->now_ns, count_key, &n,
                          &ask->error);
    if (code != STINT_OK)
        return code;
    struct listing listing = {out, n};
    resp_write_array(out, n);
    if (n > 0)
        pools_each(ask->pools, &ask->caller, call->args[2], call->now_ns, list_key, &listing, NULL);
    /* Fills up for keys that were removed since they were counted. */
    for (; listing.left > 0; listing.left--)
        resp_write_null(out);
    return STINT_OK;
}

static int pool_list(struct pool_ask *ask)
{
    size_t n = pools_count(ask->pools);
    resp_write_array(&ask->call->state->out, n);
    for (size_t i = 0; i < n; i++)
        resp_write_text(&ask->call->state->out, pools_name(ask->pools, i));
    return STINT_OK;
}

/* ---- ADD, REMOVE ----------------------------------------------------------------------------- */

static int pool_add(struct pool_ask *ask)
{
    const struct resp_call *call = ask->call;
    struct pool_words words;
    int code = read_words(call, 4, BIT(POOL_QUOTA) | BIT(POOL_WEIGHT), &words, &ask->error);
    if (code != STINT_OK)
        return code;
    if (words.n_quotas == 0)
        return err_set(&ask->error, STINT_E_SYNTAX, "QUOTA is missing");
    const struct pools_key key = {call->args[3], words.quotas, words.n_quotas,
                                  (uint32_t)words.numbers[POOL_WEIGHT]};
    return reply_if_ok(ask, pools_add(ask->pools, call->args[2], &key, call->now_ns, &ask->error));
}

static int pool_remove(struct pool_ask *ask)
{
    const struct resp_call *call = ask->call;
    return reply_if_ok(ask, pools_remove(ask->pools, &ask->caller, call->args[2], call->args[3],
                                         call->now_ns, &ask->error));
}

struct pool_command {
    const char *name;
    int (*run)(struct pool_ask *ask); /* writes the reply, unless there is an error */
    size_t args_min, args_max;        /* including STINT.POOL and the name */
    unsigned role;
};

#define MANY SIZE_MAX

static const struct pool_command commands[] = {
    {"NEXT", pool_next, 3, MANY, ACCESS_ASK},
    {"GIVEBACK", pool_give_back, 4, MANY, ACCESS_ASK},
    {"REPORT", pool_report, 5, 6, ACCESS_ASK},
    {"STATUS", pool_status, 3, 3, ACCESS_ASK},
    {"LIST", pool_list, 2, 2, ACCESS_ASK},
    {"ADD", pool_add, 6, MANY, ACCESS_ADMINISTER},
    {"REMOVE", pool_remove, 4, 4, ACCESS_ADMINISTER},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/*
 * The pending request stays with the command until it has been answered, unless the command waits.
 */
static void run(struct resp_call *call, const struct pool_command *command)
{
    struct service *service = call->state->frontend->service;
    struct pool_ask ask = {.call = call,
                           .service = service,
                           .pools = server_state_pools(service_server_state(service))};
    service_pools_caller(service, call->pending, &ask.caller);
    int code = command->run(&ask);
    call->pending = code == POOLS_WAITS ? NULL : ask.caller.pending;
    if (code == POOLS_WAITS)
        resp_call_await(call, ask.caller.pending);
    else if (code != STINT_OK)
        resp_call_refuse(call, &ask.error);
}

void resp_pool(struct resp_call *call)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        const struct pool_command *command = &commands[i];
        if (!resp_word_is(call->args[1], command->name))
            continue;
        if (call->n_args < command->args_min || call->n_args > command->args_max)
            break;
        if (resp_call_may(call, command->role))
            run(call, command);
        return;
    }
    resp_reply_subcommand(&call->state->out, call->command, call->args[1]);
}
