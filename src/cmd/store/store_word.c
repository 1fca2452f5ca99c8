/* SPDX-License-Identifier: MIT */
/* Stores as users write them: in a setting, and on the command line. No password is quoted. */
#define _GNU_SOURCE
#include "cmd/store/store_word.h"

#include "base/ns.h"
#include "cmd/lib/args.h"
#include "net/file.h"
#include "rules/yaml/rules_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- A word of a setting --------------------------------------------------------------------- */

#define URL_FILE_MAX 16384
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

/* The length of "NAME=" in the text. URLs have no '=' before their ':'. */
static size_t name_len(const char *text)
{
    size_t len = strcspn(text, "=:/@");
    return text[len] == '=' ? len + 1 : 0;
}

static int read_name(struct store_word *word, const char *text, size_t len,
                     struct stint_error *error)
{
    word->name = len > 0 ? span_of(text, len - 1) : span_of_text(RULES_STORE_DEFAULT);
    if (word->name.len == 0 || strspn(text, NAME_CHARS) + 1 < len ||
        word->name.len > STORE_WORD_NAME_MAX)
        return err_set(error, STINT_E_SYNTAX,
                       "the name of a store has 1 to %d letters, digits and characters of -_.",
                       STORE_WORD_NAME_MAX);
    if (span_equals(word->name, "none"))
        return err_set(error, STINT_E_SYNTAX,
                       "no store can be called none: rules say so for the table");
    return 0;
}

static int no_path(struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX, "expected the path of a file behind @");
}

int store_word_read(struct store_word *word, const char *text, struct stint_error *error)
{
    struct store_url *url;
    size_t len = name_len(text);
    *word = (struct store_word){.text = text + len};
    int code = read_name(word, text, len, error);
    word->is_file = code == 0 && *word->text == '@';
    word->text += word->is_file;
    if (code != 0)
        return code;
    if (word->is_file)
        return *word->text != '\0' ? 0 : no_path(error);
    url = malloc(sizeof(*url));
    if (url == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
    code = store_url_parse(url, word->text, error);
    explicit_bzero(url, sizeof(*url));
    free(url);
    return code;
}

/* ---- URLs ------------------------------------------------------------------------------------ */

int store_word_file(struct store_url *url, const char *path, struct stint_error *error)
{
    struct stint_error why;
    char *text;
    int code = file_text_read(path, URL_FILE_MAX, &text, error);
    if (code != 0)
        return code;
    text[strcspn(text, "\r\n")] = '\0';
    code = store_url_parse(url, text, &why);
    if (code != 0)
        err_set(error, code, "%s: %s", path, why.message);
    explicit_bzero(text, strlen(text));
    free(text);
    return code;
}

int store_word_url(struct store_url *url, const char *text, struct stint_error *error)
{
    if (text[0] != '@')
        return store_url_parse(url, text, error);
    return text[1] != '\0' ? store_word_file(url, text + 1, error) : no_path(error);
}

/* ---- Passwords ------------------------------------------------------------------------------- */

/*
 * The password of a URL, between the first ':' before '@' and the '@'; or nothing. Also for an
 * invalid URL, since it may still contain a password.
 */
static struct span password_of(const char *text)
{
    const char *url = text + name_len(text), *slashes = strstr(url, "//");
    bool is_path = *url == '@' || strncmp(url, "unix:/", 6) == 0;
    const char *from = slashes != NULL ? slashes : is_path ? NULL : url;
    const char *at = from != NULL && *url != '@' ? strrchr(from, '@') : NULL;
    const char *colon = at != NULL ? memchr(from, ':', (size_t)(at - from)) : NULL;
    return colon != NULL ? span_of(colon + 1, (size_t)(at - colon - 1)) : span_of(NULL, 0);
}

char *store_word_shown(const char *text)
{
    char *shown = NULL;
    struct span password = password_of(text);
    if (password.len == 0)
        return strdup(text);
    size_t before = (size_t)((const char *)password.ptr - text);
    if (asprintf(&shown, "%.*s***%s", (int)before, text, text + before + password.len) < 0)
        return NULL;
    return shown;
}

void store_word_hide(char *text)
{
    struct span password = password_of(text);
    if (password.len > 0)
        memset(text + ((const char *)password.ptr - text), '*', password.len);
}

/* ---- --store URL, its TLS files and its timeout ---------------------------------------------- */

#define TIMEOUT_NS_DEFAULT (2 * NS_PER_S)

static void take_url(struct argp_state *state, void *input, char *text)
{
    struct store_given *given = input;
    struct stint_error error;
    if (given->text != NULL)
        argp_error(state, "expected one --store");
    if (store_word_url(&given->url, text, &error) != 0)
        argp_error(state, "%s", error.message);
    given->text = text;
}

static void check(struct argp_state *state, void *input)
{
    const struct store_given *given = input;
    const struct upstream_tls_paths *paths = &given->paths;
    bool has_files = paths->ca_file != NULL || paths->cert_file != NULL || paths->key_file != NULL;
    if (given->text == NULL && (has_files || given->timeout_ns != TIMEOUT_NS_DEFAULT))
        argp_error(state, "%s without --store: expected --store URL, too",
                   has_files ? "files of TLS" : "--store-timeout");
    if (has_files && !given->url.is_tls)
        argp_error(state, "--ca-file and --cert-file go with rediss:// and valkeys://");
    if (paths->key_file != NULL && paths->cert_file == NULL)
        argp_error(state, "--key-file goes with --cert-file");
}

static void begin(void *given)
{
    ((struct store_given *)given)->timeout_ns = TIMEOUT_NS_DEFAULT;
}

static const struct args_option options_known[] = {
    {"store", "URL", 1,
     "A shared store, such as redis://127.0.0.1:6379, or @FILE that has it in its first line; see "
     "stint-store(1)",
     ARGS_OWN(take_url)},
    {"store-timeout", "DURATION", 1,
     "How long connecting, and then each answer, may take (default 2s)",
     ARGS_TIMEOUT(struct store_given, timeout_ns)},
    {"ca-file", "FILE", 1,
     "CA certificates for the store's certificate (default: those of the system)",
     ARGS_TEXT(struct store_given, paths.ca_file)},
    {"cert-file", "FILE", 1, "Client certificate for the store (PEM)",
     ARGS_TEXT(struct store_given, paths.cert_file)},
    {"key-file", "FILE", 1, "The key of --cert-file (PEM)",
     ARGS_TEXT(struct store_given, paths.key_file)},
    {0},
};

const struct args_set store_given_set = {options_known, .begin = begin, .end = check};

int store_given_tls(const struct store_given *given, struct upstream_tls **tls,
                    struct stint_error *error)
{
    *tls = NULL;
    return given->url.is_tls ? upstream_tls_load(tls, &given->paths, error) : 0;
}
