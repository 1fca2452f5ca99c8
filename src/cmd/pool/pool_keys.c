/* SPDX-License-Identifier: MIT */
/* Cuts the file into lines and the lines into names and secrets in place, without copies. */
#define _GNU_SOURCE
#include "cmd/pool/pool_keys.h"

#include "algorithm/suggest.h"
#include "net/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const pool_orders[] = {"round_robin", "fill_first", "least_used", NULL};

static int out_of_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "out of memory for the keys");
}

int pool_keys_check_name(struct span name, struct stint_error *error)
{
    if (name.len == 0)
        return err_set(error, STINT_E_SYNTAX, "the name of a key is empty");
    if (name.len > STINT_POOL_NAME_MAX)
        return err_set(error, STINT_E_SYNTAX, "a name of %zu bytes; at most %d may be", name.len,
                       STINT_POOL_NAME_MAX);
    for (size_t i = 0; i < name.len; i++)
        if (byte_is_blank(name.ptr[i]) || name.ptr[i] < 0x20 || name.ptr[i] == 0x7f)
            return err_set(error, STINT_E_SYNTAX,
                           "byte %zu of a name is a %s; names are printable, without blanks", i + 1,
                           byte_is_blank(name.ptr[i]) ? "blank" : "control byte");
    return 0;
}

static const char *source_name(const struct pool_keys *keys)
{
    return keys->path != NULL ? keys->path : "--keys";
}

static const char *source_unit(const struct pool_keys *keys)
{
    return keys->path != NULL ? "line" : "key";
}

/* The name ends in its terminator; `position` is for messages. */
static int add_key(struct pool_keys *keys, struct pool_key key, struct stint_error *error)
{
    struct stint_error why;
    int code = pool_keys_check_name(span_of_text(key.name), &why);
    if (code != 0)
        return err_set(error, code, "%s, %s %zu: %s", source_name(keys), source_unit(keys),
                       key.position, why.message);
    if (keys->n_keys == STINT_POOL_KEYS_MAX)
        return err_set(error, STINT_E_RANGE, "%s holds more than %d keys", source_name(keys),
                       STINT_POOL_KEYS_MAX);
    if (keys->n_keys == keys->keys_size) {
        size_t size = keys->keys_size > 0 ? 2 * keys->keys_size : 16;
        struct pool_key *more = realloc(keys->keys, size * sizeof(*more));
        if (more == NULL)
            return out_of_memory(error);
        keys->keys = more;
        keys->keys_size = size;
    }
    keys->holds_secrets = keys->holds_secrets || key.secret.ptr != NULL;
    keys->keys[keys->n_keys++] = key;
    return 0;
}

/* By name, and equal names by position. */
static int by_name(const void *a, const void *b)
{
    const struct pool_key *x = *(const struct pool_key *const *)a;
    const struct pool_key *y = *(const struct pool_key *const *)b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : x->position < y->position ? -1 : 1;
}

/* Refuses a duplicate name with its position: the first one in the order of the file. */
static int check_twice(const struct pool_keys *keys, struct stint_error *error)
{
    const struct pool_key **sorted = calloc(keys->n_keys, sizeof(const struct pool_key *));
    const struct pool_key *first = NULL, *second = NULL;
    if (sorted == NULL)
        return out_of_memory(error);
    for (size_t i = 0; i < keys->n_keys; i++)
        sorted[i] = &keys->keys[i];
    qsort(sorted, keys->n_keys, sizeof(const struct pool_key *), by_name);
    for (size_t i = 1; i < keys->n_keys; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0 &&
            (second == NULL || sorted[i]->position < second->position)) {
            first = sorted[i - 1];
            second = sorted[i];
        }
    free(sorted);
    if (second == NULL)
        return 0;
    const char *on = keys->path != NULL ? "on " : "";
    return err_set(error, STINT_E_MISMATCH, "%s: '%s' is %s%s %zu and again %s%s %zu",
                   source_name(keys), second->name, on, source_unit(keys), first->position, on,
                   source_unit(keys), second->position);
}

static int check_all(const struct pool_keys *keys, struct stint_error *error)
{
    if (keys->n_keys == 0)
        return err_set(error, STINT_E_SYNTAX, "%s holds no key", source_name(keys));
    return check_twice(keys, error);
}

bool pool_keys_name_of_line(struct span line, struct span *name)
{
    size_t begin = 0;
    while (begin < line.len && byte_is_blank(line.ptr[begin]))
        begin++;
    size_t end = begin;
    while (end < line.len && !byte_is_blank(line.ptr[end]))
        end++;
    *name = span_of(line.ptr + begin, end - begin);
    return name->len > 0 && name->ptr[0] != '#';
}

/* The text after the blanks that follow the name, to the end of the line. */
static struct span secret_of_line(struct span line, struct span name)
{
    size_t at = (size_t)(name.ptr - line.ptr) + name.len;
    while (at < line.len && byte_is_blank(line.ptr[at]))
        at++;
    return at < line.len ? span_of(line.ptr + at, line.len - at) : span_of(NULL, 0);
}

static int parse_line(struct pool_keys *keys, struct span line, size_t number,
                      struct stint_error *error)
{
    struct span name;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (!pool_keys_name_of_line(line, &name))
        return 0;
    if (memchr(name.ptr, '\0', name.len) != NULL)
        return err_set(error, STINT_E_SYNTAX, "%s, line %zu: a byte of the name is 0", keys->path,
                       number);
    struct pool_key key = {
        .name = (const char *)name.ptr, .secret = secret_of_line(line, name), .position = number};
    /* After the name there is a blank, the end of the line, or the spare byte after the text. */
    keys->text[name.ptr - (const uint8_t *)keys->text + (ptrdiff_t)name.len] = '\0';
    return add_key(keys, key, error);
}

int pool_keys_parse_file(struct pool_keys *keys, char *text, size_t len, struct stint_error *error)
{
    size_t number = 0;
    keys->text = text;
    keys->text_size = len;
    for (size_t at = 0; at < len;) {
        const char *newline = memchr(text + at, '\n', len - at);
        size_t line_len = newline != NULL ? (size_t)(newline - text) - at : len - at;
        int code = parse_line(keys, span_of(text + at, line_len), ++number, error);
        if (code != 0)
            return code;
        at += line_len + 1;
    }
    return check_all(keys, error);
}

int pool_keys_parse_list(struct pool_keys *keys, char *text, struct stint_error *error)
{
    size_t number = 0;
    keys->text = text;
    keys->text_size = strlen(text);
    for (char *name = text; name != NULL;) {
        char *comma = strchr(name, ',');
        if (comma != NULL)
            *comma = '\0';
        int code = add_key(keys, (struct pool_key){.name = name, .position = ++number}, error);
        if (code != 0)
            return code;
        name = comma != NULL ? comma + 1 : NULL;
    }
    return check_all(keys, error);
}

void pool_keys_deinit(struct pool_keys *keys)
{
    if (keys->text != NULL)
        explicit_bzero(keys->text, keys->text_size);
    free(keys->text);
    free(keys->keys);
    *keys = (struct pool_keys){0};
}

static int read_file(struct pool_keys *keys, struct stint_error *error)
{
    struct stat stat;
    int fd = file_open(keys->path, error);
    if (fd < 0)
        return fd;
    if (fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode))
        keys->seen_by_others = (stat.st_mode & (S_IRGRP | S_IROTH)) != 0;
    int code =
        file_bytes_read(fd, keys->path, POOL_KEYS_BYTES_MAX, &keys->text, &keys->text_size, error);
    close(fd);
    return code != 0 ? code : pool_keys_parse_file(keys, keys->text, keys->text_size, error);
}

int pool_keys_read_file(struct pool_keys *keys, const char *path, struct stint_error *error)
{
    *keys = (struct pool_keys){.path = path};
    return read_file(keys, error);
}

int pool_keys_read(struct pool_keys *keys, const char *word, struct stint_error *error)
{
    if (word[0] == '@')
        return pool_keys_read_file(keys, word + 1, error);
    *keys = (struct pool_keys){0};
    char *text = strdup(word);
    return text != NULL ? pool_keys_parse_list(keys, text, error) : out_of_memory(error);
}

const struct pool_key *pool_keys_find(const struct pool_keys *keys, const char *name,
                                      struct stint_error *error)
{
    for (size_t i = 0; i < keys->n_keys; i++)
        if (strcmp(keys->keys[i].name, name) == 0)
            return &keys->keys[i];
    const char **names = calloc(keys->n_keys + 1, sizeof(const char *));
    int nearest = -1;
    for (size_t i = 0; names != NULL && i < keys->n_keys; i++)
        names[i] = keys->keys[i].name;
    if (names != NULL)
        nearest = nearest_name(span_of_text(name), names, keys->n_keys);
    free(names);
    if (nearest >= 0)
        (void)err_set(error, STINT_E_GONE, "%s holds no key '%s'; did you mean '%s'?",
                      source_name(keys), name, keys->keys[nearest].name);
    else
        (void)err_set(error, STINT_E_GONE,
                      "%s holds no key '%s'; give the same --keys as the command that used it, or "
                      "one of its %zu names",
                      source_name(keys), name, keys->n_keys);
    return NULL;
}
