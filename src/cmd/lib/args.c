/* SPDX-License-Identifier: MIT */
/* Closest names, and values that several commands read. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"

#include "algorithm/nearest.h"
#include "algorithm/spec.h"
#include "base/limits.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 128

const char *args_hint(struct args_hint *hint, const char *prefix, const char *word,
                      const char *const *names)
{
    struct buf buf = buf_of(hint->text, sizeof(hint->text));
    size_t n_names = 0;
    while (names[n_names] != NULL)
        n_names++;
    int nearest = nearest_name(span_of_text(word), names, n_names);
    if (nearest >= 0) {
        buf_add(&buf, "did you mean '%s%s'?", prefix, names[nearest]);
        return hint->text;
    }
    buf_add(&buf, "expected");
    for (size_t i = 0; i < n_names; i++)
        buf_add(&buf, "%s %s%s", i == 0 ? "" : i + 1 < n_names ? "," : " or", prefix, names[i]);
    return hint->text;
}

/* Finds the option that the word (of `len` bytes) names, in full or by a prefix, as getopt does. */
static const struct argp_option *find_option(const struct argp_option *options, const char *word,
                                             size_t len)
{
    for (const struct argp_option *option = options; option->name != NULL; option++)
        if (strncmp(option->name, word, len) == 0)
            return option;
    return NULL;
}

/* `arg` is the word as given, `name` the text after its dashes. */
static void unknown_option(const struct argp_option *options, const char *command, const char *arg,
                           const char *name)
{
    const char *names[OPTIONS_MAX + 2] = {NULL};
    struct args_hint hint;
    size_t n_names = 0;
    for (; options[n_names].name != NULL; n_names++)
        names[n_names] = options[n_names].name;
    names[n_names] = "help";
    /* There are no one-letter options: the letter is taken as the first of a name. */
    const struct argp_option *begun = strlen(name) == 1 ? find_option(options, name, 1) : NULL;
    print_message("%s has no option '%s'; %s", command, arg,
                  args_hint(&hint, "--", begun != NULL ? begun->name : name, names));
    exit(CMD_BAD_USAGE);
}

static void check_options(const struct argp_option *options, char **argv)
{
    static const struct argp_option always[] = {
        {.name = "help"}, {.name = "usage"}, {.name = NULL}};
    for (char **arg = argv + 1; *arg != NULL && strcmp(*arg, "--") != 0; arg++) {
        if ((*arg)[0] != '-' || strcmp(*arg, "-") == 0 || strcmp(*arg, "-?") == 0)
            continue;
        bool is_long = (*arg)[1] == '-';
        char *name = *arg + (is_long ? 2 : 1);
        size_t len = strcspn(name, "=");
        const struct argp_option *option = is_long ? find_option(options, name, len) : NULL;
        if (option == NULL && !(is_long && find_option(always, name, len) != NULL)) {
            name[len] = '\0';
            unknown_option(options, argv[0], *arg, name);
        }
        /* The next word is this option's value, whatever its form. */
        if (option != NULL && option->arg != NULL && (option->flags & OPTION_ARG_OPTIONAL) == 0 &&
            name[len] == '\0' && arg[1] != NULL)
            arg++;
    }
}

/* Collects the options of the command and of its argp children. */
static void collect_options(const struct argp *argp, struct argp_option *all)
{
    size_t n_all = 0;
    const struct argp_child *child = argp->children;
    for (const struct argp *from = argp; from != NULL;
         from = child != NULL && child->argp != NULL ? child++->argp : NULL)
        for (const struct argp_option *option = from->options; option->name != NULL; option++) {
            assert(n_all < OPTIONS_MAX);
            all[n_all++] = *option;
        }
    all[n_all] = (struct argp_option){0};
}

void args_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    struct argp_option all[OPTIONS_MAX + 1];
    argp_err_exit_status = CMD_BAD_USAGE;
    collect_options(argp, all);
    check_options(all, argv);
    if (argp_parse(argp, argc, argv, 0, NULL, input) != 0)
        exit(CMD_BAD_USAGE);
}

int args_choice(struct argp_state *state, const char *option, const char *word,
                const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], word) == 0)
            return i;
    struct args_hint hint;
    argp_error(state, "%s cannot be '%s'; %s", option, word, args_hint(&hint, "", word, names));
    return 0;
}

static void read_quota(struct argp_state *state, struct stint_quota *quota, const char *spec)
{
    struct stint_error error;
    if (stint_quota_parse(quota, spec, &error) != 0)
        argp_error(state, "'%s' is no quota: %s", spec, error.message);
}

void args_add_quota(struct argp_state *state, struct stint_quota *quotas, size_t *n_quotas,
                    const char *spec)
{
    if (*n_quotas == STINT_ITEMS_MAX)
        argp_error(state, "more than %d quotas", STINT_ITEMS_MAX);
    read_quota(state, &quotas[(*n_quotas)++], spec);
}

void args_file(struct argp_state *state, const char **path, const char *word)
{
    if (*path != NULL)
        argp_error(state, "expected one FILE, found '%s' too", word);
    if (word[0] == '\0')
        argp_error(state, "the name of the FILE is empty");
    *path = word;
}

uint64_t args_duration(struct argp_state *state, const char *option, const char *text)
{
    uint64_t ns = 0;
    if (spec_parse_duration(span_of_text(text), &ns) != 0 || ns > STINT_NOW_MAX)
        argp_error(state, "%s must be a length of time like 200ms or 1m30s, not '%s'", option,
                   text);
    return ns;
}

uint64_t args_number(struct argp_state *state, const char *option, const char *text, uint64_t max)
{
    uint64_t number = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9' && number <= max; c++)
        number = number > UINT64_MAX / 10 - 1 ? UINT64_MAX : number * 10 + (uint64_t)(*c - '0');
    if (number > max && max == UNIT_COUNT_MAX)
        argp_error(state, "%s must be a whole number from 1 to %llu, not '%s'; " UNITS_ADVICE,
                   option, (unsigned long long)max, text);
    if (c == text || *c != '\0' || number < 1 || number > max)
        argp_error(state, "%s must be a whole number from 1 to %llu, not '%s'", option,
                   (unsigned long long)max, text);
    return number;
}

static void join(struct argp_state *state, char *spec, size_t spec_size, const char *word)
{
    size_t len = strlen(spec), word_len = strlen(word);
    if (len + 1 + word_len >= spec_size)
        argp_error(state, "the SPEC is longer than %zu bytes", spec_size - 1);
    if (len > 0)
        spec[len++] = ' ';
    memcpy(spec + len, word, word_len + 1);
}

error_t args_spec(struct args_spec *spec, struct argp_state *state, int key, const char *word)
{
    switch (key) {
    case ARGP_KEY_ARG:
        join(state, spec->text, sizeof(spec->text), word);
        return 0;
    case ARGP_KEY_END:
        if (spec->text[0] == '\0')
            argp_error(state, "expected a SPEC, for example '100/60s'");
        read_quota(state, &spec->quota, spec->text);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
