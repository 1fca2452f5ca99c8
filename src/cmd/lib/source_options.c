/* SPDX-License-Identifier: MIT */
/* The options about a log that `stint replay` and `stint plan` share. */
#include "cmd/lib/source_options.h"

#include "cmd/lib/args.h"
#include "sim/input/logline.h"

/* By enum replay_format. */
static const char *const formats[] = {"trace", "combined", "jsonl", NULL};

error_t source_option(struct source_options *options, int option, char *value,
                      struct argp_state *state)
{
    switch (option) {
    case SOURCE_FORMAT:
        options->format = (enum replay_format)args_choice(state, "--format", value, formats);
        return 0;
    case SOURCE_KEY:
        options->key = value;
        return 0;
    case SOURCE_TIME:
        options->time = value;
        return 0;
    case SOURCE_COST:
        options->cost = value;
        return 0;
    case SOURCE_SORT:
        options->sort = true;
        return 0;
    case SOURCE_STRICT:
        options->strict = true;
        return 0;
    case ARGP_KEY_ARG:
        args_file(state, &options->path, value);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void source_check(const struct source_options *options, struct argp_state *state)
{
    struct stint_error error;
    struct logline logline;
    if (options->format == REPLAY_TRACE && options->key != NULL)
        argp_error(state, "--key is for logs (--format combined or jsonl); a trace has its keys");
    if (options->format != REPLAY_JSONL && (options->time != NULL || options->cost != NULL))
        argp_error(state, "--time and --cost are for --format jsonl");
    if (options->format == REPLAY_COMBINED && options->key != NULL &&
        logline_init(&logline, options->key, &error) != 0)
        argp_error(state, "--key: %s", error.message);
}
