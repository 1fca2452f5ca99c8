/* SPDX-License-Identifier: MIT */
/* `stint token`: creates secrets for clients of a server, and the lines of its tokens file. */
#define _GNU_SOURCE
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "service/access/access.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECRET_MAX 4096

struct token_options {
    const char *action, *name;
    const char *role_text;
    unsigned roles;
};

static const char *const actions[] = {"new", "hash", NULL};

static void take_word(struct argp_state *state, void *input, char *word)
{
    struct token_options *options = input;
    if (options->action == NULL)
        options->action = actions[args_choice(state, "command", word, actions)];
    else if (options->name == NULL)
        options->name = word;
    else
        argp_error(state, "expected one NAME, found '%s' after '%s'", word, options->name);
}

static void check(struct argp_state *state, void *input)
{
    const struct token_options *options = input;
    if (options->action == NULL)
        argp_error(state, "expected `new NAME` or `hash`");
    bool is_new = options->action != NULL && strcmp(options->action, "new") == 0;
    if (is_new && options->name == NULL)
        argp_error(state, "expected a NAME for the new token");
    if (options->name != NULL && !access_name_is_valid(span_of_text(options->name)))
        argp_error(state, "'%s' is no name of a token: expected 1 to %d letters, digits and . _ -",
                   options->name, ACCESS_NAME_MAX);
    if (!is_new && options->name == NULL && options->role_text != NULL)
        argp_error(state, "--role goes with a NAME");
}

static void read_roles(struct argp_state *state, void *input, char *text)
{
    struct token_options *options = input;
    options->role_text = text;
    options->roles = access_roles_parse(span_of_text(text));
    if (options->roles == 0)
        argp_error(state,
                   "--role '%s' cannot be read: expected ask, administer or metrics, several "
                   "with commas between them",
                   text);
}

static const struct args_option options_known[] = {
    {"role", "ROLE[,ROLE]", 0, "ask (default), administer, metrics", ARGS_OWN(read_roles)},
    {0},
};

static void print_line(const struct token_options *options, struct span secret)
{
    char roles[ACCESS_ROLES_SIZE], hash[ACCESS_HASH_TEXT_SIZE];
    access_roles_text(options->roles, roles);
    access_hash_text(secret, hash);
    if (options->name != NULL)
        printf("%s %s %s\n", options->name, roles, hash);
    else
        puts(hash);
}

/* The secret goes to standard error, so that `>> tokens` gets only the line of the file. */
static int make_new(const struct token_options *options)
{
    char secret[ACCESS_SECRET_SIZE];
    if (!access_secret_new(secret))
        return print_failure("the system has no random numbers to give");
    print_line(options, span_of_text(secret));
    fprintf(stderr, "the secret of %s, which is not shown again:\n%s\n", options->name, secret);
    explicit_bzero(secret, sizeof(secret));
    return CMD_DONE;
}

static int hash_secret(const struct token_options *options, const char *text, size_t len)
{
    if (len > 0 && text[len - 1] == '\n')
        len -= len > 1 && text[len - 2] == '\r' ? 2 : 1;
    if (len > SECRET_MAX)
        return print_failure("a secret has at most %d bytes", SECRET_MAX);
    if (memchr(text, '\n', len) != NULL)
        return print_failure("expected one secret, on one line");
    if (len < ACCESS_SECRET_MIN)
        return print_failure(
            "expected a secret of at least %d bytes that cannot be guessed, found %zu; `stint "
            "token new` makes one",
            ACCESS_SECRET_MIN, len);
    print_line(options, span_of(text, len));
    return CMD_DONE;
}

static int hash_input(const struct token_options *options)
{
    static char text[SECRET_MAX + 3];
    setvbuf(stdin, NULL, _IONBF, 0); /* the secret is nowhere else */
    size_t len = fread(text, 1, sizeof(text), stdin);
    int result = ferror(stdin) == 0
                     ? hash_secret(options, text, len)
                     : print_failure("cannot read standard input: %s", strerror(errno));
    explicit_bzero(text, sizeof(text));
    return result;
}

int token_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = take_word, .end = check},
        .words = actions,
        .arguments = "new NAME\nhash [NAME]",
        .doc = "Creates a token for a client of a server. `new` prints the line for the server's "
               "tokens file on standard output, and the secret, once, on standard error. `hash` "
               "reads a secret from standard input and prints its hash, or the whole line for "
               "NAME.\vstint token new shop --role ask >> tokens"};
    struct token_options options = {.roles = ACCESS_ASK};
    args_parse(&command, argc, argv, &options);
    return strcmp(options.action, "new") == 0 ? make_new(&options) : hash_input(&options);
}
