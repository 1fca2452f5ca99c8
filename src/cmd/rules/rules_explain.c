/* SPDX-License-Identifier: MIT */
/*
 * `stint rules explain`: which rules a request would match, the state of each, and which would
 * deny. A --state file is read in a copy, so that nothing in it is ever charged.
 */
#define _GNU_SOURCE
#include "cmd/rules/rules_explain_store.h"

#include "base/wide_int.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/rules/rules_given.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DESCRIPTORS_NEXT "," /* the word between two descriptors */

struct explain_options {
    struct rules_args rules;
    struct store_given store;
    const char *prefix; /* of the store's keys; NULL: the default */
    const char *state, *domain;
    uint64_t cost;
    bool json, begun; /* a descriptor was begun */
    struct descriptor_entry entries[DESCRIPTORS_MAX][ENTRIES_MAX];
    struct descriptor descriptors[DESCRIPTORS_MAX];
    size_t n_descriptors;
};

static const char doc[] =
    "Prints which rules a request matches, the state of each, and which would deny; "
    "charges nothing. A request has one or more descriptors, each a list of KEY=VALUE, "
    "with a word `,` between two of them.\v    stint rules explain --rules limits.yaml "
    "api ip=203.0.113.9 , user=42\n\n"
    "Of a --state FILE a copy is made in $TMPDIR, and read: a server may continue to use "
    "it.\n\n"
    "With --store URL it also prints the name of each rule's key there, quoted for "
    "redis-cli, the server that has it, its content and its state.\n\n"
    "Exit codes: 0 it would be allowed, 3 denied, 1 bad input, 2 bad usage.";

/* ---- The command line ------------------------------------------------------------------------ */

static const struct args_option options_known[] = {
    {"state", "FILE", 2, "Table with the states (default: all unused)",
     ARGS_TEXT(struct explain_options, state)},
    {"prefix", "TEXT", 2, "With --store: prefix of its keys, as in servers (default stint:)",
     ARGS_TEXT(struct explain_options, prefix)},
    {"cost", "N", 2, "Units of the request (default 1)",
     ARGS_NUMBER(struct explain_options, cost, UINT32_MAX)},
    {"json", NULL, 3, "The same as one JSON object", ARGS_FLAG(struct explain_options, json)},
    {0},
};

static void add_word(struct argp_state *state, void *input, char *word)
{
    struct explain_options *options = input;
    if (options->domain == NULL) {
        options->domain = word;
        return;
    }
    if (strcmp(word, DESCRIPTORS_NEXT) == 0) {
        if (!options->begun)
            argp_error(state, "expected KEY=VALUE before `%s`", DESCRIPTORS_NEXT);
        options->begun = false;
        return;
    }
    if (!options->begun && options->n_descriptors == DESCRIPTORS_MAX)
        argp_error(state, "a request has at most %d descriptors", DESCRIPTORS_MAX);
    if (!options->begun) {
        size_t i = options->n_descriptors++;
        options->descriptors[i].entries = options->entries[i];
        options->begun = true;
    }
    struct descriptor *descriptor = &options->descriptors[options->n_descriptors - 1];
    if (descriptor->n_entries == ENTRIES_MAX)
        argp_error(state, "a descriptor has at most %d entries", ENTRIES_MAX);
    const char *equals = strchr(word, '=');
    if (equals == word)
        argp_error(state, "expected KEY=VALUE, not '%s'", word);
    size_t key_len = equals != NULL ? (size_t)(equals - word) : strlen(word);
    options->entries[options->n_descriptors - 1][descriptor->n_entries++] =
        (struct descriptor_entry){span_of(word, key_len),
                                  span_of_text(equals != NULL ? equals + 1 : "")};
}

static void check(struct argp_state *state, void *input)
{
    const struct explain_options *options = input;
    if (options->rules.n_paths == 0)
        argp_error(state, "expected --rules PATH");
    if (options->domain == NULL || options->n_descriptors == 0)
        argp_error(state, "expected DOMAIN KEY=VALUE, for example: api ip=203.0.113.9");
    if (!options->begun)
        argp_error(state, "expected KEY=VALUE after `%s`", DESCRIPTORS_NEXT);
    if (options->state != NULL && options->store.text != NULL)
        argp_error(state, "states are in --state or in --store, not in both");
    if (options->prefix != NULL && options->store.text == NULL)
        argp_error(state, "--prefix is of the keys of --store");
}

static void read_options(struct explain_options *options, int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = add_word, .end = check},
        .children = {{&rules_given_set, offsetof(struct explain_options, rules), NULL, 0},
                     {&store_given_set, offsetof(struct explain_options, store), NULL, 0}},
        .arguments = "DOMAIN KEY=VALUE... [, KEY=VALUE...]",
        .doc = doc,
    };
    options->cost = 1;
    args_parse(&command, argc, argv, options);
}

/* ---- The table ------------------------------------------------------------------------------- */

static void widen(struct stint_table_options *options, const struct stint_quota *quota)
{
    size_t size = stint_state_size(quota);
    if (size > 16)
        options->wide_size = (uint32_t)max_u64(options->wide_size, size);
}

/* A table of unused states, with capacity for one request under any of the rules. */
static int open_unused(struct stint_table **table, const struct rules *rules,
                       struct stint_error *error)
{
    struct stint_table_options options = {
        .keys = 256, .keys16 = 256, .tickets = 1, .quotas = 256, .blocks = 64, .pools = 1};
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *rule = rules_at(rules, i);
        if (!rule->unlimited)
            widen(&options, &rule->quota);
        if (rule->has_shadow)
            widen(&options, &rule->shadow);
    }
    options.keys_wide = options.wide_size > 0 ? 64 : 0;
    return stint_table_open(table, &options, error);
}

/* Opens a copy, and unlinks it at once: it is removed with the last process that has it open. */
static int open_copy(struct stint_table **table, const struct stint_table *original,
                     struct stint_error *error)
{
    char path[4096];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/stint-explain-%ld",
             folder != NULL && folder[0] != '\0' ? folder : "/tmp", (long)getpid());
    const struct stint_table_options copy = {
        .path = path, .must_exist = true, .clock = STINT_CLOCK_REAL};
    struct stint_table_options virtual_copy = copy;
    virtual_copy.clock = STINT_CLOCK_VIRTUAL;
    struct stint_table_info info;
    stint_table_info(original, stint_now(original), &info);
    int code = stint_table_snapshot(original, path, error);
    if (code != 0)
        return code;
    code =
        stint_table_open(table, info.clock == STINT_CLOCK_VIRTUAL ? &virtual_copy : &copy, error);
    unlink(path);
    return code;
}

static int open_state(struct stint_table **table, const char *path, uint64_t *now_ns,
                      struct stint_error *error)
{
    struct stint_table *original;
    const struct stint_table_options options = {
        .path = path, .must_exist = true, .read_only = true};
    int code = stint_table_open(&original, &options, error);
    if (code != 0)
        return code;
    *now_ns = stint_now(original);
    code = open_copy(table, original, error);
    stint_table_close(original);
    return code;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static int print(const struct explain_options *options, const struct rules *rules,
                 const struct evaluation *evaluation, const struct explained_key *keys,
                 const struct stint_decision *decision)
{
    const struct explained explained = {
        .domain = options->domain,
        .has_domain = rules_has_domain(rules, span_of_text(options->domain)),
        .descriptors = options->descriptors,
        .evaluation = evaluation,
        .keys = keys,
        .decision = *decision,
    };
    if (!options->json)
        rules_explain_text(&explained);
    else if (rules_explain_json(&explained) != 0)
        return CMD_BAD_INPUT;
    return decision->outcome == STINT_ALLOW ? CMD_DONE : CMD_DENIED;
}

static struct evaluation_ask ask_of(const struct explain_options *options,
                                    const struct rules *rules)
{
    return (struct evaluation_ask){.rules = rules,
                                   .domain = span_of_text(options->domain),
                                   .descriptors = options->descriptors,
                                   .n_descriptors = options->n_descriptors,
                                   .cost = (uint32_t)options->cost};
}

static int explain_table(const struct explain_options *options, const struct rules *rules,
                         struct evaluation *evaluation, uint64_t now_ns, struct stint_error *error)
{
    const struct evaluation_ask ask = ask_of(options, rules);
    evaluation_begin(evaluation, now_ns);
    if (evaluation_add_descriptors(evaluation, &ask, error) != 0)
        return CMD_BAD_INPUT;
    struct stint_decision decision = evaluation_peek(evaluation);
    return print(options, rules, evaluation, NULL, &decision);
}

static int explain_store(const struct explain_options *options, const struct rules *rules,
                         struct evaluation *evaluation, struct stint_error *error)
{
    struct explain_store *store = NULL;
    const struct explain_store_options opened = {&options->store, options->prefix};
    const struct evaluation_ask ask = ask_of(options, rules);
    struct stint_decision decision = {0};
    int code = explain_store_open(&store, &opened, error);
    if (code == 0)
        code = explain_store_peek(store, evaluation, &ask, explain_store_now_ns(store), &decision,
                                  error);
    if (code == 0)
        code = explain_store_look(store, evaluation, error);
    code = code != 0 ? CMD_BAD_INPUT
                     : print(options, rules, evaluation, explain_store_keys(store), &decision);
    explain_store_close(store);
    return code;
}

static int explain(const struct explain_options *options, const struct rules *rules,
                   struct stint_table *table, uint64_t now_ns)
{
    struct stint_error error = {0};
    struct evaluation *evaluation = calloc(1, sizeof(*evaluation));
    if (evaluation == NULL || evaluation_init(evaluation, table, &error) != 0) {
        print_message("out of memory");
        free(evaluation);
        return CMD_BAD_INPUT;
    }
    int code = options->store.text != NULL
                   ? explain_store(options, rules, evaluation, &error)
                   : explain_table(options, rules, evaluation, now_ns, &error);
    if (error.code != 0)
        print_message("%s", error.message);
    evaluation_deinit(evaluation);
    free(evaluation);
    return code;
}

static int explain_with(const struct explain_options *options, const struct rules *rules)
{
    struct stint_error error;
    struct stint_table *table = NULL;
    uint64_t now_ns = 0;
    int code = options->state != NULL ? open_state(&table, options->state, &now_ns, &error)
                                      : open_unused(&table, rules, &error);
    if (code != 0) {
        print_message("%s", error.message);
        return CMD_BAD_INPUT;
    }
    if (options->state == NULL)
        now_ns = stint_now(table);
    code = explain(options, rules, table, now_ns);
    stint_table_close(table);
    return code;
}

static bool load(const struct explain_options *options, struct rules_loaded *loaded)
{
    return options->store.text != NULL ? explain_store_load(&options->rules, loaded)
                                       : rules_given_load(&options->rules, loaded);
}

int rules_explain_main(int argc, char **argv)
{
    struct rules_loaded loaded;
    struct explain_options *options = calloc(1, sizeof(*options));
    if (options == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    read_options(options, argc, argv);
    int code = CMD_BAD_INPUT;
    if (load(options, &loaded)) {
        code = explain_with(options, loaded.rules);
        rules_loaded_free(&loaded);
    }
    rules_given_free(&options->rules);
    free(options);
    return code;
}
