/* SPDX-License-Identifier: MIT */
/* Checks options of `stint pool` that are valid one by one but not together. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/pool/pool.h"

/* Options that would have no effect together are refused. */
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
    static const char *const outcomes[] = {[STINT_POOL_OK] = "ok",
                                           [STINT_POOL_COOL] = "cool",
                                           [STINT_POOL_BACK_OFF] = "back-off",
                                           [STINT_POOL_OUT] = "out",
                                           NULL};
    const char *time = options->n_words > 2 ? options->words[2] : NULL;
    if (options->n_words < 2)
        argp_error(state, "expected --status CODE, or one of ok, cool TIME, back-off, out");
    int outcome = args_choice(state, "what is reported", options->words[1], outcomes);
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

void pool_options_check(struct argp_state *state, struct pool_options *options)
{
    check_together(state, options);
    check_words(state, options);
}
