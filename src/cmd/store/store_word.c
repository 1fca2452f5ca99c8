/* SPDX-License-Identifier: MIT */
/* Cuts a name from a URL, and hides its password. */
#define _GNU_SOURCE
#include "cmd/store/store_word.h"

#include "net/file/file_text.h"
#include "rules/yaml/rules_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
