/* SPDX-License-Identifier: MIT */
/* Shared by the command lines of all subcommands: their description, and values of options. */
#ifndef STINT_CMD_LIB_ARGS_H
#define STINT_CMD_LIB_ARGS_H

#include "base/err.h"
#include "rules/rules.h"
#include "stint.h"

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct args_hint {
    char text[256];
    const char *end; /* between it and a clause that follows */
};

/*
 * A hint for an unknown word: the closest of the names (a list that ends with NULL). If none is
 * close, all names, or of many the nearest three. `prefix` is printed before each. Returns
 * hint->text.
 */
const char *args_hint(struct args_hint *hint, const char *prefix, const char *word,
                      const char *const *names);

/* ---- The description of a command ----
 *
 * A row for each option: --help, the parser and the closest names are made of it. argp is used for
 * all of them.
 */

enum args_kind {
    ARGS_KIND_OWN, /* `read` reads it; of a field, or of the whole input at offset 0 */
    ARGS_KIND_FLAG,
    ARGS_KIND_TEXT,
    ARGS_KIND_FILE, /* given once */
    ARGS_KIND_NUMBER,
    ARGS_KIND_DURATION,
    ARGS_KIND_TIMEOUT, /* a duration above 0s */
    ARGS_KIND_CHOICE,
    ARGS_KIND_QUOTAS,
    ARGS_KIND_TEXTS, /* given several times */
};

/* How the value of an option is read, and which field of the command's input it sets. */
struct args_value {
    enum args_kind kind;
    size_t offset, size; /* of the field */
    uint64_t max;        /* of a number */
    size_t count;        /* offset of the number of quotas or texts */
    const char *const *words;
    void (*read)(struct argp_state *state, void *field, char *value);
};

/* The last part of a row: what is done with the value. */
#define ARGS_FIELD(type, field) .offset = offsetof(type, field), .size = sizeof(((type *)0)->field)
#define ARGS_FLAG(type, field) .value = {ARGS_KIND_FLAG, ARGS_FIELD(type, field)}
#define ARGS_TEXT(type, field) .value = {ARGS_KIND_TEXT, ARGS_FIELD(type, field)}
#define ARGS_FILE(type, field) .value = {ARGS_KIND_FILE, ARGS_FIELD(type, field)}
/* A number from 1 to `most`, in a field of 4 or 8 bytes. */
#define ARGS_NUMBER(type, field, most)                                                             \
    .value = {ARGS_KIND_NUMBER, ARGS_FIELD(type, field), .max = (most)}
#define ARGS_DURATION(type, field) .value = {ARGS_KIND_DURATION, ARGS_FIELD(type, field)}
#define ARGS_TIMEOUT(type, field) .value = {ARGS_KIND_TIMEOUT, ARGS_FIELD(type, field)}
/* The index of the value in a list of words, in a field of 1 or 4 bytes. */
#define ARGS_CHOICE(type, field, list)                                                             \
    .value = {ARGS_KIND_CHOICE, ARGS_FIELD(type, field), .words = (list)}
#define ARGS_QUOTAS(type, field, number)                                                           \
    .value = {ARGS_KIND_QUOTAS, ARGS_FIELD(type, field), .count = offsetof(type, number)}
/* In space for as many texts as the command line has words. */
#define ARGS_TEXTS(type, field, number)                                                            \
    .value = {ARGS_KIND_TEXTS, ARGS_FIELD(type, field), .count = offsetof(type, number)}
#define ARGS_PART(type, field, reader)                                                             \
    .value = {ARGS_KIND_OWN, ARGS_FIELD(type, field), .read = (reader)}
#define ARGS_OWN(reader) .value = {ARGS_KIND_OWN, .read = (reader)}

struct args_option {
    const char *name, *argument; /* argument: NULL for an option without a value */
    int group;                   /* options of one group stand together in --help */
    const char *help;
    struct args_value value;
    unsigned verbs;   /* bits of the verbs that have this option; 0: all of them */
    bool is_optional; /* the value may be missing: then it is NULL */
};

/* Options, and what else is read with them. Each function may be NULL. */
struct args_set {
    const struct args_option *options; /* ends with a name of NULL */
    void (*begin)(void *input);
    void (*word)(struct argp_state *state, void *input, char *word); /* an argument */
    void (*end)(struct argp_state *state, void *input);
};

/* Options that several commands share. */
struct args_child {
    const struct args_set *set;
    size_t offset; /* of its input in that of the command */
    const char *header;
    int group;
};

#define ARGS_CHILDREN_MAX 3
#define ARGS_OPTIONS_MAX 132 /* of a command and its children, with headers */

struct args_command {
    struct args_set set;
    struct args_child children[ARGS_CHILDREN_MAX]; /* as many as have a set */
    const char *arguments, *doc;
    const char *const
        *words;    /* that an argument may be, for completion; ends with NULL, or is NULL */
    unsigned verb; /* one bit, if verbs share a list of options */
};

/*
 * An unknown option is reported with the closest one. Exits with CMD_BAD_USAGE if the command line
 * is wrong, and with CMD_DONE after --help.
 */
void args_parse(const struct args_command *command, int argc, char **argv, void *input);
/*
 * Instead of reading the next command line, args_parse() passes its description to `inspect`, and
 * exits with CMD_DONE: for what is made of descriptions. The command sets up its input as usual.
 * `rows` are the options of the command and of its children, up to NULL.
 */
typedef void args_inspector(const struct args_command *command,
                            const struct args_option *const *rows, int argc, char **argv);
void args_inspect(args_inspector *inspect);
/* The option whose value is being read. */
const struct args_option *args_current(const struct argp_state *state);

/* ---- Values ---- */

/* The index of a word in a list that ends with NULL; else an argp_error with a hint. */
int args_choice(struct argp_state *state, const char *option, const char *word,
                const char *const *names);

/* Reads a duration such as 200ms, or a number from `least` to `max`; else an argp_error. */
uint64_t args_duration(struct argp_state *state, const char *option, const char *text);
uint64_t args_number(struct argp_state *state, const char *option, const char *text, uint64_t least,
                     uint64_t max);

/* Parses one --quota and appends it to a list of up to STINT_ITEMS_MAX; else an argp_error. */
void args_add_quota(struct argp_state *state, struct stint_quota *quotas, size_t *n_quotas,
                    const char *spec);

/* Sets the one FILE of a command; an argp_error if it is already set. */
void args_file(struct argp_state *state, const char **path, const char *word);

struct args_spec {
    char text[512];
    struct stint_quota quota;
};

/* `word` and `end` of a command whose arguments are the words of one SPEC, which is its input. */
void args_spec_word(struct argp_state *state, void *spec, char *word);
void args_spec_end(struct argp_state *state, void *spec);

/* ---- Descriptors ---- */

/*
 * Cuts NAME=VALUE[,NAME=VALUE...] into entries, which point into it. A backslash escapes a comma,
 * an equals sign or a backslash. STINT_E_SYNTAX or STINT_E_RANGE with what was expected.
 */
int descriptor_word_cut(char *word, struct descriptor_entry entries[ENTRIES_MAX], size_t *n_entries,
                        struct stint_error *error);

#endif
