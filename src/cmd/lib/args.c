/* SPDX-License-Identifier: MIT */
/* Command lines from their descriptions, closest names, and values that several commands read. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"

#include "algorithm/spec.h"
#include "algorithm/suggest.h"
#include "base/limits.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION_NAME_SIZE 48
#define HINT_NAMES_MAX 12 /* more names are not listed */
#define HINT_NAMES_NEAREST 3

const char *args_hint(struct args_hint *hint, const char *prefix, const char *word,
                      const char *const *names)
{
    struct buf buf = buf_of(hint->text, sizeof(hint->text));
    size_t n_names = 0;
    hint->end = ";";
    while (names[n_names] != NULL)
        n_names++;
    int nearest = nearest_name(span_of_text(word), names, n_names);
    if (nearest >= 0) {
        buf_add(&buf, "did you mean '%s%s'?", prefix, names[nearest]);
        hint->end = "";
        return hint->text;
    }
    const char *few[HINT_NAMES_MAX];
    bool is_many = n_names > HINT_NAMES_MAX;
    if (is_many)
        n_names = nearest_names(span_of_text(word), names, n_names, few, HINT_NAMES_NEAREST);
    buf_add(&buf, is_many ? "the nearest are" : "expected");
    for (size_t i = 0; i < n_names; i++)
        buf_add(&buf, "%s %s%s",
                i == 0            ? ""
                : i + 1 < n_names ? ","
                : is_many         ? " and"
                                  : " or",
                prefix, is_many ? few[i] : names[i]);
    return hint->text;
}

/* Finds the option that the word (of `len` bytes) names, in full or by a prefix, as getopt does. */
static const struct argp_option *find_option(const struct argp_option *options, const char *word,
                                             size_t len)
{
    for (const struct argp_option *option = options; option->doc != NULL; option++)
        if (option->name != NULL && strncmp(option->name, word, len) == 0)
            return option;
    return NULL;
}

/* `arg` is the word as given, `name` the text after its dashes. */
static void unknown_option(const struct argp_option *options, const char *command, const char *arg,
                           const char *name)
{
    const char *names[ARGS_OPTIONS_MAX + 2] = {NULL};
    struct args_hint hint;
    size_t n_names = 0;
    for (const struct argp_option *option = options; option->doc != NULL; option++)
        if (option->name != NULL)
            names[n_names++] = option->name;
    names[n_names] = "help";
    /* There are no one-letter options: the letter is taken as the first of a name. */
    const struct argp_option *begun = strlen(name) == 1 ? find_option(options, name, 1) : NULL;
    args_hint(&hint, "--", begun != NULL ? begun->name : name, names);
    print_message("%s has no option '%s'; %s%s `%s --help` lists all", command, arg, hint.text,
                  hint.end, command);
    exit(CMD_BAD_USAGE);
}

static void check_options(const struct argp_option *options, char **argv)
{
    static const struct argp_option always[] = {
        {.name = "help", .doc = ""}, {.name = "usage", .doc = ""}, {.name = NULL}};
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

/* ---- Parsing --------------------------------------------------------------------------------- */

#define KEY_FIRST 256 /* of argp: below it are letters */

#define SETS_MAX (1 + ARGS_CHILDREN_MAX)

/* A command while its command line is read: its own set of options, then those of its children. */
struct reader {
    const struct args_set *sets[SETS_MAX];
    void *inputs[SETS_MAX];
    size_t n_sets;
    const struct args_option *rows[ARGS_OPTIONS_MAX + 1]; /* by key, up to NULL */
    void *row_inputs[ARGS_OPTIONS_MAX];
    size_t n_rows;
    struct argp_option options[ARGS_OPTIONS_MAX + 1]; /* for argp: the same, and headers */
    size_t n_options;
    const struct args_option *current;
};

const struct args_option *args_current(const struct argp_state *state)
{
    return ((const struct reader *)state->input)->current;
}

static void put_number(void *field, size_t size, uint64_t number)
{
    uint32_t narrow = (uint32_t)number;
    uint8_t byte = (uint8_t)number;
    assert(size == 8 || size == 4 || size == 1);
    memcpy(field,
           size == 8   ? (const void *)&number
           : size == 4 ? (const void *)&narrow
                       : &byte,
           size);
}

static void read_value(struct argp_state *state, const struct args_option *option, void *input,
                       char *text)
{
    const struct args_value *value = &option->value;
    char *field = (char *)input + value->offset;
    size_t *count = (size_t *)((char *)input + value->count);
    char name[OPTION_NAME_SIZE];
    snprintf(name, sizeof(name), "--%s", option->name);
    switch (value->kind) {
    case ARGS_KIND_OWN:
        value->read(state, field, text);
        break;
    case ARGS_KIND_FLAG:
        *(bool *)field = true;
        break;
    case ARGS_KIND_TEXT:
        *(const char **)field = text;
        break;
    case ARGS_KIND_FILE:
        args_file(state, (const char **)field, text);
        break;
    case ARGS_KIND_NUMBER:
        put_number(field, value->size, args_number(state, name, text, 1, value->max));
        break;
    case ARGS_KIND_DURATION:
    case ARGS_KIND_TIMEOUT:
        *(uint64_t *)field = args_duration(state, name, text);
        if (value->kind == ARGS_KIND_TIMEOUT && *(uint64_t *)field == 0)
            argp_error(state, "%s must be longer than 0s", name);
        break;
    case ARGS_KIND_CHOICE:
        put_number(field, value->size, (uint64_t)args_choice(state, name, text, value->words));
        break;
    case ARGS_KIND_QUOTAS:
        args_add_quota(state, (struct stint_quota *)field, count, text);
        break;
    case ARGS_KIND_TEXTS:
        (*(const char ***)field)[(*count)++] = text;
        break;
    }
}

static void end_sets(struct reader *reader, struct argp_state *state)
{
    for (size_t i = reader->n_sets; i-- > 0;)
        if (reader->sets[i]->end != NULL)
            reader->sets[i]->end(state, reader->inputs[i]);
}

/* The parser of argp. */
static error_t parse(int key, char *text, struct argp_state *state)
{
    struct reader *reader = state->input;
    size_t row = (size_t)(key - KEY_FIRST);
    if (key == ARGP_KEY_ARG && reader->sets[0]->word != NULL)
        reader->sets[0]->word(state, reader->inputs[0], text);
    else if (key == ARGP_KEY_END)
        end_sets(reader, state);
    else if (key < KEY_FIRST || row >= reader->n_rows)
        return ARGP_ERR_UNKNOWN;
    else {
        reader->current = reader->rows[row];
        read_value(state, reader->current, reader->row_inputs[row], text);
    }
    return 0;
}

/* `group`: of all of the options; 0: each has its own. */
static void add_set(struct reader *reader, const struct args_set *set, void *input, unsigned verb,
                    int group)
{
    reader->sets[reader->n_sets] = set;
    reader->inputs[reader->n_sets++] = input;
    if (set->begin != NULL)
        set->begin(input);
    for (const struct args_option *row = set->options; row != NULL && row->name != NULL; row++) {
        if (row->verbs != 0 && (row->verbs & verb) == 0)
            continue;
        assert(reader->n_options < ARGS_OPTIONS_MAX);
        reader->options[reader->n_options++] = (struct argp_option){
            .name = row->name,
            .key = KEY_FIRST + (int)reader->n_rows,
            .arg = row->argument,
            .flags = row->is_optional ? OPTION_ARG_OPTIONAL : 0,
            .doc = row->help,
            .group = group != 0 ? group : row->group * SETS_MAX,
        };
        reader->row_inputs[reader->n_rows] = input;
        reader->rows[reader->n_rows++] = row;
    }
}

static void begin_command(struct reader *reader, const struct args_command *command, void *input)
{
    *reader = (struct reader){0};
    add_set(reader, &command->set, input, command->verb, 0);
    for (size_t i = 0; i < ARGS_CHILDREN_MAX && command->children[i].set != NULL; i++) {
        const struct args_child *child = &command->children[i];
        /* Behind the command's own options of that group, and those of later children. */
        int group = child->group > 0 ? (child->group + 1) * SETS_MAX - 1 - (int)i : 0;
        assert(reader->n_options < ARGS_OPTIONS_MAX);
        if (child->header != NULL)
            reader->options[reader->n_options++] =
                (struct argp_option){.doc = child->header, .group = group};
        add_set(reader, child->set, (char *)input + child->offset, 0, group);
    }
}

static args_inspector *inspector; /* NULL: command lines are read */

void args_inspect(args_inspector *inspect)
{
    inspector = inspect;
}

void args_parse(const struct args_command *command, int argc, char **argv, void *input)
{
    struct reader reader;
    argp_err_exit_status = CMD_BAD_USAGE;
    begin_command(&reader, command, input);
    if (inspector != NULL) {
        inspector(command, reader.rows, argc, argv);
        exit(CMD_DONE);
    }
    const struct argp argp = {.options = reader.options,
                              .parser = parse,
                              .args_doc = command->arguments,
                              .doc = command->doc};
    check_options(reader.options, argv);
    if (argp_parse(&argp, argc, argv, 0, NULL, &reader) != 0)
        exit(CMD_BAD_USAGE);
}

/* ---- Values ---------------------------------------------------------------------------------- */

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

static void refuse_duration(struct argp_state *state, const char *option, const char *text)
{
    char meant[32];
    struct buf buf = buf_of(meant, sizeof(meant));
    bool has_guess = suggest_duration(&buf, span_of_text(text)) && buf.len < sizeof(meant) &&
                     strcmp(meant, text) != 0;
    argp_error(state,
               "%s must be a length of time like 200ms or 1m30s, and at most %lud, not '%s'%s%s%s",
               option, (unsigned long)(STINT_NOW_MAX / NS_PER_DAY), text,
               has_guess ? "; did you mean " : "", has_guess ? meant : "", has_guess ? "?" : "");
}

uint64_t args_duration(struct argp_state *state, const char *option, const char *text)
{
    uint64_t ns = 0;
    if (spec_parse_duration(span_of_text(text), &ns) != 0 ||
        ns > STINT_NOW_MAX / NS_PER_DAY * NS_PER_DAY)
        refuse_duration(state, option, text);
    return ns;
}

uint64_t args_number(struct argp_state *state, const char *option, const char *text, uint64_t least,
                     uint64_t max)
{
    uint64_t number = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9' && number <= max; c++)
        number = number > UINT64_MAX / 10 - 1 ? UINT64_MAX : number * 10 + (uint64_t)(*c - '0');
    if (c == text || *c != '\0' || number < least || number > max)
        argp_error(state, "%s must be a whole number from %llu to %llu, not '%s'%s", option,
                   (unsigned long long)least, (unsigned long long)max, text,
                   number > max && max == UNIT_COUNT_MAX ? "; " UNITS_ADVICE : "");
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

void args_spec_word(struct argp_state *state, void *input, char *word)
{
    struct args_spec *spec = input;
    join(state, spec->text, sizeof(spec->text), word);
}

void args_spec_end(struct argp_state *state, void *input)
{
    struct args_spec *spec = input;
    if (spec->text[0] == '\0')
        argp_error(state, "expected a SPEC, for example '100/60s'");
    read_quota(state, &spec->quota, spec->text);
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

/*
 * Cuts the first part off a word, up to one of the bytes `ends`, which is *end, or to the end of
 * the word: 0. A backslash escapes the next byte.
 */
static struct span cut(char **word, const char *ends, char *end)
{
    char *part = *word, *to = part, *from = part;
    for (; *from != '\0' && strchr(ends, *from) == NULL; from++) {
        if (*from == '\\' && from[1] != '\0')
            from++;
        *to++ = *from;
    }
    *end = *from;
    *word = from + (*end != '\0');
    return span_of(part, (size_t)(to - part));
}

int descriptor_word_cut(char *word, struct descriptor_entry entries[ENTRIES_MAX], size_t *n_entries,
                        struct stint_error *error)
{
    char end = ',';
    for (*n_entries = 0; end == ','; (*n_entries)++) {
        if (*n_entries == ENTRIES_MAX)
            return err_set(error, STINT_E_RANGE, "more than %d entries in a descriptor",
                           ENTRIES_MAX);
        struct descriptor_entry *entry = &entries[*n_entries];
        entry->key = cut(&word, "=,", &end);
        if (end != '=' || entry->key.len == 0)
            return err_set(error, STINT_E_SYNTAX,
                           "expected a descriptor NAME=VALUE[,NAME=VALUE...], found '%.*s'",
                           (int)entry->key.len, (const char *)entry->key.ptr);
        entry->value = cut(&word, ",", &end);
    }
    return 0;
}
