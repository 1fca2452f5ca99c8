/* SPDX-License-Identifier: MIT */
/*
 * `stint pool`: reads the command line of a verb, of one list of options for all, opens the table
 * of the pool with capacity for its keys, adds these with their quotas, and runs the verb.
 */
#define _GNU_SOURCE
#include "cmd/pool/pool.h"

#include "base/limits.h"
#include "base/number.h"
#include "base/wide_int.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "sim/input/timestamp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The command line ------------------------------------------------------------------------ */

#define SPACE_MAX (UINT64_C(1) << 20)

#define FOR(verb) (1u << (verb))

static const struct {
    const char *arguments, *doc;
    size_t words_max;
} forms[POOL_VERBS] = {
    [POOL_NEXT] = {NULL,
                   "Prints the name of the key to use now, which is charged for it. Where none is "
                   "free: the seconds until one is, or never, and exit code 3.",
                   0},
    [POOL_REPORT] =
        {"NAME [ok|cool TIME|back-off|out]",
         "Reports the remote service's answer for a key: with --status (and --retry-after), "
         "or as a word.",
         3},
    [POOL_GIVE_BACK] =
        {"NAME",
         "Refunds units that `next` took and that were not used. Prints how many were "
         "refunded.",
         1},
    [POOL_STATUS] = {NULL, "Prints the state of each key, and when it returns.", 0},
    [POOL_ADD] = {"NAME", "Adds a key to the FILE of --keys @FILE while the pool is in use.", 1},
    [POOL_REMOVE] = {"NAME", "Removes a key from the FILE of --keys @FILE, and its report as out.",
                     1},
};

static void read_seconds(struct argp_state *state, void *ns, char *text)
{
    const char *option = args_current(state)->name;
    struct timestamp timestamp = {0};
    struct stint_error error;
    if (timestamp_parse_seconds(&timestamp, span_of_text(text), &error) != 0)
        argp_error(state, "--%s: %s", option, error.message);
    if (timestamp.ns > STINT_NOW_MAX)
        argp_error(state, "--%s: times begin at 0 and end after 18 years", option);
    *(uint64_t *)ns = timestamp.ns;
}

static void read_now(struct argp_state *state, void *input, char *text)
{
    struct pool_options *options = input;
    read_seconds(state, &options->now_ns, text);
    options->has_now = true;
}

static void set_keys(struct argp_state *state, void *input, char *keys)
{
    struct pool_options *options = input;
    if (options->keys != NULL)
        argp_error(state, "expected one --keys");
    options->keys = keys;
}

static void add_quota(struct argp_state *state, void *input, char *spec)
{
    struct pool_options *options = input;
    if (options->n_quotas == STINT_POOL_QUOTAS_MAX)
        argp_error(state, "a key has at most %d quotas", STINT_POOL_QUOTAS_MAX);
    args_add_quota(state, options->quotas, &options->n_quotas, spec);
}

static void add_word(struct argp_state *state, void *input, char *word)
{
    struct pool_options *options = input;
    if (options->n_words == forms[options->verb].words_max)
        argp_error(state, "'%s' is one argument too many%s", word,
                   options->wait ? "; the longest wait goes with an equals sign, like --wait=30s"
                                 : "");
    options->words[options->n_words++] = word;
}

/* curl prints 000 if it received no answer. */
static void read_status(struct argp_state *state, void *input, char *text)
{
    struct pool_options *options = input;
    if (strlen(text) != 3 || strspn(text, "0123456789") != 3)
        argp_error(state, "--status must be three digits, like 200 or 429, not '%s'", text);
    options->has_status = true;
    options->status = (unsigned)strtoul(text, NULL, 10);
}

static void read_wait(struct argp_state *state, void *input, char *text)
{
    struct pool_options *options = input;
    options->wait = true;
    options->wait_max_ns = text != NULL ? args_duration(state, "--wait", text) : STINT_NEVER_NS;
}

/* Options that are valid one by one but would have no effect together are refused. */
static void check_together(struct argp_state *state, const struct pool_options *options)
{
    bool has_file = options->keys != NULL && options->keys[0] == '@';
    if (options->state == NULL)
        argp_error(state, "expected --state FILE, the file with the states of the pool");
    if (options->keys == NULL)
        argp_error(state, "expected --keys, for example --keys a,b,c or --keys @FILE");
    if (has_file && options->keys[1] == '\0')
        argp_error(state, "--keys: the name of the FILE is empty");
    if (options->n_quotas == 0 && options->n_quota_for == 0)
        argp_error(state, "expected --quota, for example --quota '500/10m'");
    if ((options->secret || options->both) && options->json)
        argp_error(state, "--json never has a secret in it");
    if (options->secret && options->both)
        argp_error(state, "expected --secret or --both, found both of them");
    if ((options->secret || options->both) && !has_file)
        argp_error(state, "secrets are in the FILE of --keys @FILE; a list has only names");
    if (options->plot.format == GNUPLOT_TERMINAL && options->json)
        argp_error(state, "--json and --plot - would both use standard output");
    if (options->wait && options->has_now)
        argp_error(state, "--wait waits in real time, which does not pass with --now");
    if (options->retry_after != NULL && !options->has_status)
        argp_error(state, "--retry-after belongs to an answer; say its --status too");
    if ((options->verb == POOL_ADD || options->verb == POOL_REMOVE) && !has_file)
        argp_error(state,
                   "change a list in --keys itself; this command changes the FILE of --keys @FILE");
}

/* The words after the NAME of `report`. */
static void read_outcome(struct argp_state *state, struct pool_options *options)
{
    const char *time = options->n_words > 2 ? options->words[2] : NULL;
    if (options->n_words < 2)
        argp_error(state, "expected --status CODE, or one of ok, cool TIME, back-off, out");
    int outcome = args_choice(state, "what is reported", options->words[1], pool_outcome_names);
    options->outcome = (enum stint_pool_outcome)outcome;
    if (outcome != STINT_POOL_COOL && time != NULL)
        argp_error(state, "'%s' takes no TIME, found '%s'", options->words[1], time);
    if (outcome != STINT_POOL_COOL)
        return;
    if (time == NULL)
        argp_error(state, "expected for how long, for example cool 30s");
    options->cool_ns = args_duration(state, "cool", time);
    if (options->cool_ns == 0)
        argp_error(state, "a cooldown must be longer than 0; ok ends one");
}

static void check_words(struct argp_state *state, struct pool_options *options)
{
    bool wants_name = options->verb != POOL_NEXT && options->verb != POOL_STATUS;
    if (wants_name && options->n_words == 0)
        argp_error(state, "expected the NAME of a key");
    if (options->verb != POOL_REPORT)
        return;
    if (!options->has_status)
        read_outcome(state, options);
    else if (options->n_words > 1)
        argp_error(state, "'%s' and --status say it twice", options->words[1]);
}

static void check(struct argp_state *state, void *options)
{
    check_together(state, options);
    check_words(state, options);
}

static const struct args_option options_known[] = {
    {"state", "FILE", 1, "Keeps what was used; made if absent",
     ARGS_FILE(struct pool_options, state)},
    {"keys", "KEYS", 1, "a,b,c or @FILE with lines NAME or NAME SECRET (`#` begins a comment)",
     ARGS_OWN(set_keys)},
    {"quota", "SPEC", 1, "What each key is good for; several must all allow", ARGS_OWN(add_quota)},
    {"quota-for", "NAME=SPEC", 1, "The same for one key, in place of --quota",
     ARGS_TEXTS(struct pool_options, quota_for, n_quota_for)},
    {"weight", "NAME=N", 1, "Use the key NAME N times as much as others",
     ARGS_TEXTS(struct pool_options, weight, n_weight)},
    {"order", "ORDER", 1, "round_robin (default), fill_first or least_used",
     ARGS_CHOICE(struct pool_options, order, pool_orders)},
    {"pool", "NAME", 1, "Of several pools in one FILE (default: default)",
     ARGS_TEXT(struct pool_options, pool)},
    {"room", "N", 1, "Make FILE with room for N keys (default: 4 for each, 256)",
     ARGS_NUMBER(struct pool_options, space, SPACE_MAX)},
    {"now", "SECONDS", 1, "Virtual time; such a FILE is never used in real time",
     ARGS_OWN(read_now)},
    {"cost", "N", 2, "Units to take or to give back (default 1)",
     ARGS_NUMBER(struct pool_options, cost, UINT32_MAX),
     .verbs = FOR(POOL_NEXT) | FOR(POOL_GIVE_BACK)},
    {"wait", "MAX", 2, "Wait until a key is free; with =MAX, such as =30s, only if that is enough",
     ARGS_OWN(read_wait), .verbs = FOR(POOL_NEXT), .is_optional = true},
    {"probe", NULL, 2, "If all keys are cooling, try the nearest to recover",
     ARGS_FLAG(struct pool_options, probe), .verbs = FOR(POOL_NEXT)},
    {"secret", NULL, 2,
     "next: print the key's secret, not its name; add: read it from standard input",
     ARGS_FLAG(struct pool_options, secret), .verbs = FOR(POOL_NEXT) | FOR(POOL_ADD)},
    {"both", NULL, 2, "Print the name, a space and the secret",
     ARGS_FLAG(struct pool_options, both), .verbs = FOR(POOL_NEXT)},
    {"status", "CODE", 3, "What the far side answered, as HTTP has it", ARGS_OWN(read_status),
     .verbs = FOR(POOL_REPORT)},
    {"retry-after", "TIME", 3, "The answer's Retry-After: seconds, or a date as HTTP has it",
     ARGS_TEXT(struct pool_options, retry_after), .verbs = FOR(POOL_REPORT)},
    {"granted-at", "SECONDS", 4, "When it was granted, as `next --json` said (default: just now)",
     ARGS_PART(struct pool_options, granted_at_ns, read_seconds), .verbs = FOR(POOL_GIVE_BACK)},
    {"plot", "FILE", 5, GNUPLOT_HELP, ARGS_PART(struct pool_options, plot, gnuplot_option),
     .verbs = FOR(POOL_STATUS)},
    {"json", NULL, 5, "Print one JSON object", ARGS_FLAG(struct pool_options, json)},
    {"verbose", NULL, 5, "Say on standard error what was done, also where that is no terminal",
     ARGS_FLAG(struct pool_options, verbose)},
    {0},
};

static void parse_options(struct pool_options *options, enum pool_verb verb, int argc, char **argv)
{
    const struct args_command command = {
        .set = {options_known, .word = add_word, .end = check},
        .arguments = forms[verb].arguments,
        .doc = forms[verb].doc,
        .verb = FOR(verb),
    };
    *options = (struct pool_options){.verb = verb,
                                     .pool = "default",
                                     .cost = 1,
                                     .wait_max_ns = STINT_NEVER_NS,
                                     .granted_at_ns = STINT_NEVER_NS,
                                     .quota_for = calloc((size_t)argc, sizeof(const char *)),
                                     .weight = calloc((size_t)argc, sizeof(const char *))};
    if (options->quota_for == NULL || options->weight == NULL)
        exit(print_failure("out of memory"));
    args_parse(&command, argc, argv, options);
}

/* ---- The quotas and weights of keys ---------------------------------------------------------- */

/* With the key of `add`. */
static size_t n_all(const struct pool_session *session)
{
    return session->keys.n_keys + (session->options->verb == POOL_ADD);
}

/*
 * The key of NAME=VALUE, and the text after the sign. A name may contain the sign itself: of the
 * names that fit, the longest is taken. NULL with an error if there is none.
 */
static struct stint_pool_key *find_owner(const struct pool_session *session, const char *setting,
                                         const char **value, struct stint_error *error)
{
    struct stint_pool_key *owner = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < n_all(session); i++) {
        size_t len = strlen(session->all[i].name);
        if (len <= longest || strncmp(setting, session->all[i].name, len) != 0 ||
            setting[len] != '=')
            continue;
        longest = len;
        owner = &session->all[i];
        *value = setting + len + 1;
    }
    if (owner == NULL && strchr(setting, '=') == NULL)
        err_set(error, STINT_E_SYNTAX, "'%s' is not NAME=VALUE", setting);
    else if (owner == NULL)
        err_set(error, STINT_E_GONE, "'%s' begins with the name of no key of the pool", setting);
    return owner;
}

static int read_weight(struct pool_session *session, const char *setting, struct stint_error *error)
{
    const char *value;
    uint64_t weight;
    struct stint_pool_key *owner = find_owner(session, setting, &value, error);
    if (owner == NULL)
        return error->code;
    if (!resp_number_read(span_of_text(value), STINT_POOL_WEIGHT_MAX, &weight) || weight < 1)
        return err_set(error, STINT_E_SYNTAX, "--weight '%s': a weight is a number from 1 to %d",
                       setting, STINT_POOL_WEIGHT_MAX);
    owner->weight = (uint32_t)weight;
    return 0;
}

static int read_own_quota(struct pool_session *session, const char *setting,
                          struct stint_error *error)
{
    struct stint_quota quota;
    struct stint_error why;
    const char *value;
    struct stint_pool_key *owner = find_owner(session, setting, &value, error);
    if (owner == NULL)
        return error->code;
    int code = stint_quota_parse(&quota, value, &why);
    if (code != 0)
        return err_set(error, code, "--quota-for '%s' is no quota: %s", setting, why.message);
    if (owner->quotas == session->options->quotas) {
        owner->quotas = session->own[session->n_own++];
        owner->n_quotas = 0;
    }
    if (owner->n_quotas == STINT_POOL_QUOTAS_MAX)
        return err_set(error, STINT_E_RANGE, "a key has at most %d quotas", STINT_POOL_QUOTAS_MAX);
    session->own[(owner->quotas - session->own[0]) / STINT_POOL_QUOTAS_MAX][owner->n_quotas++] =
        quota;
    return 0;
}

/* The most units that any key can ever grant at once. */
static uint32_t capacity(const struct pool_session *session)
{
    uint32_t most = 0;
    for (size_t i = 0; i < session->keys.n_keys; i++) {
        uint32_t least = UINT32_MAX;
        for (size_t j = 0; j < session->all[i].n_quotas; j++) {
            const struct stint_quota *quota = &session->all[i].quotas[j];
            uint32_t one = quota->algorithm == STINT_GCRA ? quota->burst : quota->limit;
            least = one < least ? one : least;
        }
        most = least > most ? least : most;
    }
    return most;
}

static int check_quotas(const struct stint_pool_key *key, struct stint_error *error)
{
    if (key->n_quotas == 0)
        return err_set(error, STINT_E_MISMATCH,
                       "no quota for '%s'; expected --quota, or --quota-for '%s=SPEC'", key->name,
                       key->name);
    for (size_t i = 0; i < key->n_quotas; i++)
        if (key->quotas[i].algorithm == STINT_CONCURRENCY)
            return err_set(error, STINT_E_MISMATCH,
                           "a pool counts uses, not holders: concurrency is no quota for it");
    return 0;
}

/* Reads --quota-for and --weight; refuses keys without a quota, and a cost above all quotas. */
static int read_settings(struct pool_session *session, struct stint_error *error)
{
    const struct pool_options *options = session->options;
    const struct pool_keys *keys = &session->keys;
    session->all = calloc(n_all(session), sizeof(*session->all));
    session->own = calloc(options->n_quota_for + 1, sizeof(*session->own));
    if (session->all == NULL || session->own == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    for (size_t i = 0; i < n_all(session); i++)
        session->all[i] = (struct stint_pool_key){
            .name = i < keys->n_keys ? keys->keys[i].name : options->words[0],
            .quotas = options->quotas,
            .n_quotas = options->n_quotas,
        };
    int code = 0;
    for (size_t i = 0; code == 0 && i < options->n_weight; i++)
        code = read_weight(session, options->weight[i], error);
    for (size_t i = 0; code == 0 && i < options->n_quota_for; i++)
        code = read_own_quota(session, options->quota_for[i], error);
    for (size_t i = 0; code == 0 && i < n_all(session); i++)
        code = check_quotas(&session->all[i], error);
    uint32_t most = code == 0 ? capacity(session) : 0;
    if (code == 0 && options->verb == POOL_NEXT && options->cost > most)
        code =
            err_set(error, STINT_E_RANGE,
                    "--cost %" PRIu32 " can never fit: no key gives more than %" PRIu32 " at once",
                    options->cost, most);
    session->bad_usage = code != 0;
    return code;
}

/* ---- The session ----------------------------------------------------------------------------- */

#define SPACE_LEAST 256  /* keys */
#define SPACE_TIMES 4    /* for keys added later, or removed with units still in use */
#define QUOTAS_LEAST 256 /* a state for all keys together, for each number of keys */

/* Capacity for the states of all keys under each of their quotas, whatever their width. */
static void size_table(struct stint_table_options *table, const struct pool_session *session)
{
    const struct pool_options *options = session->options;
    uint64_t times = options->n_quotas > 0 ? options->n_quotas : 1;
    uint64_t space = options->space;
    if (session->n_own > 0)
        times = STINT_POOL_QUOTAS_MAX;
    if (space == 0)
        space = max_u64(SPACE_LEAST, SPACE_TIMES * session->keys.n_keys);
    for (size_t i = 0; i < n_all(session); i++)
        for (size_t j = 0; j < session->all[i].n_quotas; j++) {
            size_t size = stint_state_size(&session->all[i].quotas[j]);
            if (size > 16 && size > table->wide_size)
                table->wide_size = (uint32_t)size;
        }
    table->keys = table->keys16 = space * times;
    table->keys_wide = table->wide_size > 0 ? space * times : 0;
    table->tickets = 1;
    table->blocks = (uint32_t)space;
    table->quotas = (uint32_t)min_u64(QUOTAS_LEAST + 2 * options->n_quota_for, TABLE_QUOTAS_MAX);
}

static int open_table(struct pool_session *session, struct stint_error *error)
{
    const struct pool_options *options = session->options;
    bool makes = options->verb != POOL_STATUS && options->verb != POOL_GIVE_BACK;
    struct stint_table_options table = {
        .path = options->state,
        .clock = options->has_now ? STINT_CLOCK_VIRTUAL : STINT_CLOCK_REAL,
        .skew_max_ns = options->has_now ? 1 : 0, /* in virtual time all clocks agree */
        .must_exist = !makes,
        .overrides = 1, /* pools use none, and the file is to be small */
    };
    struct stint_error why;
    size_table(&table, session);
    int code = stint_table_open(&session->table, &table, &why);
    if (code == STINT_E_MISMATCH)
        return err_set(error, code, "%s; %s, or name another FILE", why.message,
                       options->has_now ? "leave --now out" : "say --now");
    if (code != 0)
        return err_set(error, code, "%s", why.message);
    if (options->has_now)
        stint_table_set_now(session->table, options->now_ns);
    return 0;
}

static int open_pool(struct pool_session *session, struct stint_error *error)
{
    const struct stint_pool_options options = {
        .name = session->options->pool,
        .keys_max = n_all(session),
        .order = (uint8_t)session->options->order,
    };
    int code = stint_pool_open(&session->pool, session->table, &options, error);
    for (size_t i = 0; code == 0 && i < session->keys.n_keys; i++) {
        struct stint_error why;
        code = stint_pool_add(session->pool, &session->all[i], stint_now(session->table), &why);
        if (code != 0)
            err_set(error, code, "the key '%s': %s", session->all[i].name, why.message);
    }
    return code;
}

static int read_keys(struct pool_session *session, struct stint_error *error)
{
    int code = pool_keys_read(&session->keys, session->options->keys, error);
    session->bad_usage = code != 0 && session->keys.path == NULL;
    if (code == 0 && session->keys.holds_secrets && session->keys.seen_by_others)
        print_message("%s holds secrets and others may read it: chmod 600 %s", session->keys.path,
                      session->keys.path);
    return code;
}

static int open_session(struct pool_session *session, struct stint_error *error)
{
    int code = read_keys(session, error);
    if (code == 0)
        code = read_settings(session, error);
    if (code == 0)
        code = open_table(session, error);
    return code != 0 ? code : open_pool(session, error);
}

/* ---- The command ----------------------------------------------------------------------------- */

/* The verb is the last word of argv[0]. */
static int pool_main(int argc, char **argv)
{
    enum pool_verb verb = (enum pool_verb)cmd_index(pool_commands, argv[0]);
    struct pool_options options;
    struct pool_session session = {.options = &options};
    struct stint_error error;
    parse_options(&options, verb, argc, argv);
    int result = open_session(&session, &error) == 0 ? pool_verbs[verb](&session)
                                                     : print_failure("%s", error.message);
    stint_pool_close(session.pool);
    stint_table_close(session.table);
    free(session.own);
    free(session.all);
    pool_keys_deinit(&session.keys);
    free(options.quota_for);
    free(options.weight);
    return session.bad_usage ? CMD_BAD_USAGE : result;
}

/* In the order of enum pool_verb. */
const struct cmd pool_commands[] = {
    {"next", "choose the key to use now, and charge it", .run = pool_main},
    {"report", "report the remote service's answer for a key", .run = pool_main},
    {"give-back", "refund units of a key that were not used", .run = pool_main},
    {"status", "print the state of each key", .run = pool_main},
    {"add", "add a key to the file of keys", .run = pool_main},
    {"remove", "remove a key from the file of keys", .run = pool_main},
    {.name = NULL},
};
