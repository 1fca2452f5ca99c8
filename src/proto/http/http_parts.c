/* SPDX-License-Identifier: MIT */
/* Lists of parts of a request: parsed from the configuration, then filled from requests. */
#define _GNU_SOURCE
#include "proto/http/http_parts.h"

#include "algorithm/suggest.h"
#include "proto/http/http_target.h"

#include <stdlib.h>

enum part_kind { HEADER, QUERY, PATH, PATH_PREFIX, METHOD, ADDRESS, CONSTANT, PART_KINDS };

static const char *const kind_names[PART_KINDS] = {
    "header", "query", "path", "path_prefix", "method", "address", "constant",
};
static const char *const default_keys[PART_KINDS] = {
    NULL, NULL, "path", "path_prefix", "method", "remote_address", NULL,
};

struct part {
    enum part_kind kind;
    struct span key;
    const char *name;  /* of a header or parameter; terminated */
    struct span value; /* of a prefix or constant */
    unsigned v4_bits, v6_bits;
};

struct part_list {
    char *text; /* a copy, cut into terminated pieces that the parts point to */
    size_t n_parts;
    struct part parts[ENTRIES_MAX];
};

struct http_parts {
    size_t n_lists;
    struct part_list lists[];
};

/* ---- Parsing lists --------------------------------------------------------------------------- */

/* Takes the piece up to the next comma, without spaces around it, and removes its backslashes. */
static char *take_piece(char **rest)
{
    char *piece = *rest, *in = piece, *out = piece;
    while (*in == ' ' || *in == '\t')
        in++;
    while (*in != '\0' && *in != ',') {
        if (*in == '\\' && in[1] != '\0')
            in++;
        *out++ = *in++;
    }
    *rest = *in == ',' ? in + 1 : NULL;
    while (out > piece && (out[-1] == ' ' || out[-1] == '\t'))
        out--;
    *out = '\0';
    return piece;
}

static int bits_of(const char *text, unsigned most)
{
    char *end;
    unsigned long bits = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 1000;
    return bits <= most && *end == '\0' ? (int)bits : -1;
}

/* "/24/56", "/24", and only "/56" where the list was continued after a comma. */
static int parse_bits(struct part *part, char *text, bool v6_alone, struct stint_error *error)
{
    char *second = strchr(text, '/');
    if (second != NULL)
        *second++ = '\0';
    int v4 = v6_alone ? (int)part->v4_bits : bits_of(text, 32);
    int v6 = v6_alone ? bits_of(text, 128) : second != NULL ? bits_of(second, 128) : 128;
    if (v4 < 0 || v6 < 0 || (v6_alone && second != NULL))
        return err_set(error, STINT_E_RANGE,
                       "address: expected /BITS of 0 to 32 for IPv4, then /BITS of 0 to 128 for "
                       "IPv6");
    part->v4_bits = (unsigned)v4;
    part->v6_bits = (unsigned)v6;
    return 0;
}

static int unknown_part(const char *piece, struct span word, struct stint_error *error)
{
    int nearest = nearest_name(word, kind_names, PART_KINDS);
    return err_set(error, STINT_E_SYNTAX,
                   "\"%.60s\": expected header:NAME, query:NAME, path, path_prefix:/a, method, "
                   "address or constant:KEY=VALUE%s%s%s",
                   piece, nearest >= 0 ? "; did you mean " : "",
                   nearest >= 0 ? kind_names[nearest] : "", nearest >= 0 ? "?" : "");
}

static int kind_of(struct span word)
{
    for (int kind = 0; kind < PART_KINDS; kind++)
        if (span_equals(word, kind_names[kind]))
            return kind;
    return -1;
}

/* The text after the ':' of header, query, path_prefix and constant. */
static int parse_argument(struct part *part, char *argument, struct stint_error *error)
{
    const char *kind = kind_names[part->kind];
    if (argument == NULL || argument[0] == '\0')
        return err_set(error, STINT_E_SYNTAX, "%s: expected \"%s:\" and a value", kind, kind);
    if (part->kind == PATH_PREFIX) {
        if (argument[0] != '/')
            return err_set(error, STINT_E_SYNTAX, "path_prefix:%.100s: expected a '/' first",
                           argument);
        part->value = span_of_text(argument);
        return 0;
    }
    if (part->kind == CONSTANT) {
        char *equals = strchr(argument, '=');
        if (equals == NULL || equals == argument)
            return err_set(error, STINT_E_SYNTAX, "constant:%.100s: expected KEY=VALUE", argument);
        *equals = '\0';
        part->key = span_of_text(argument);
        part->value = span_of_text(equals + 1);
        return 0;
    }
    if (part->kind == HEADER)
        for (char *c = argument; *c != '\0'; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c | 0x20);
    part->name = argument;
    if (part->key.len == 0)
        part->key = span_of_text(argument);
    return 0;
}

static int parse_part(struct part *part, char *piece, struct stint_error *error)
{
    char *word = piece, *key_end = strchr(piece, '='), *colon = strchr(piece, ':');
    *part = (struct part){.v4_bits = 32, .v6_bits = 128};
    if (key_end != NULL && (colon == NULL || key_end < colon)) {
        if (key_end == piece)
            return err_set(error, STINT_E_SYNTAX, "\"%.100s\": expected a key before '='", piece);
        part->key = span_of(piece, (size_t)(key_end - piece));
        word = key_end + 1;
    }
    size_t len = strcspn(word, ":/");
    int kind = kind_of(span_of(word, len));
    char *rest = word[len] != '\0' ? word + len + 1 : NULL;
    bool takes_bits = kind == ADDRESS;
    bool takes_argument =
        kind == HEADER || kind == QUERY || kind == PATH_PREFIX || kind == CONSTANT;
    if (kind < 0 || (rest != NULL && word[len] != (takes_bits ? '/' : ':')) ||
        (rest != NULL && !takes_bits && !takes_argument))
        return unknown_part(piece, span_of(word, len), error);
    if (kind == CONSTANT && part->key.len > 0)
        return err_set(error, STINT_E_SYNTAX, "\"%.100s\": a constant has its own key", piece);
    part->kind = (enum part_kind)kind;
    if (part->key.len == 0 && default_keys[kind] != NULL)
        part->key = span_of_text(default_keys[kind]);
    if (takes_argument)
        return parse_argument(part, rest, error);
    return takes_bits && rest != NULL ? parse_bits(part, rest, false, error) : 0;
}

static int parse_list(struct part_list *list, char *text, struct stint_error *error)
{
    for (char *rest = text; rest != NULL;) {
        char *piece = take_piece(&rest);
        struct part *last = list->n_parts > 0 ? &list->parts[list->n_parts - 1] : NULL;
        int code;
        if (piece[0] == '/' && last != NULL && last->kind == ADDRESS) {
            code = parse_bits(last, piece + 1, true, error);
        } else if (list->n_parts == ENTRIES_MAX) {
            return err_set(error, STINT_E_RANGE, "more than %d parts", ENTRIES_MAX);
        } else {
            code = parse_part(&list->parts[list->n_parts], piece, error);
            list->n_parts++;
        }
        if (code < 0)
            return code;
    }
    return 0;
}

int http_parts_new(struct http_parts **parts, const char *const *lists, size_t n_lists,
                   struct stint_error *error)
{
    if (n_lists > DESCRIPTORS_MAX)
        return err_set(error, STINT_E_RANGE, "%zu descriptors: at most %d", n_lists,
                       DESCRIPTORS_MAX);
    struct http_parts *made = calloc(1, sizeof(*made) + n_lists * sizeof(made->lists[0]));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for descriptors");
    for (size_t i = 0; i < n_lists; i++) {
        struct stint_error fault;
        struct part_list *list = &made->lists[made->n_lists++];
        list->text = strdup(lists[i]);
        int code = list->text == NULL ? err_set(&fault, STINT_E_SYSTEM, "no memory")
                                      : parse_list(list, list->text, &fault);
        if (code < 0) {
            http_parts_free(made);
            return err_set(error, code, "descriptor %zu: %s", i + 1, fault.message);
        }
    }
    *parts = made;
    return 0;
}

void http_parts_free(struct http_parts *parts)
{
    if (parts == NULL)
        return;
    for (size_t i = 0; i < parts->n_lists; i++)
        free(parts->lists[i].text);
    free(parts);
}

/* ---- Filling them ---------------------------------------------------------------------------- */

/* Computed once for all lists of a request; the path only if a list needs it. */
struct source {
    const struct http_message *message;
    const struct http_origin *origin;
    struct http_target target;
    struct span path;
    struct http_text *text;
};

/* `len` bytes at the end of the text, to be written by the caller, or NULL. */
static uint8_t *reserve(struct http_text *text, size_t len)
{
    if (text->is_full || len >= text->size - text->len) {
        text->is_full = true;
        return NULL;
    }
    return (uint8_t *)text->text + text->len;
}

/* Several lines of one field are one value with commas, by RFC 9110 §5.2. */
static bool header_value(const struct source *source, const char *name, struct span *value)
{
    const struct http_message *message = source->message;
    *value = http_message_field(message, name, 0);
    if (value->ptr == NULL)
        return false;
    struct span more = http_message_field(message, name, 1);
    if (more.ptr == NULL)
        return true;
    struct http_text *text = source->text;
    size_t start = text->len;
    http_text_span(text, *value);
    for (size_t nth = 1; more.ptr != NULL; more = http_message_field(message, name, ++nth)) {
        http_text_add(text, ", ");
        http_text_span(text, more);
    }
    *value = span_of(text->text + start, text->len - start);
    return true;
}

static bool query_value(const struct source *source, const char *name, struct span *value)
{
    uint8_t *space = reserve(source->text, source->target.query.len + 1);
    if (space == NULL || !http_target_find(source->target.query, name, space, value))
        return false;
    source->text->len += (size_t)(value->ptr - space) + value->len;
    return true;
}

static bool path_value(struct source *source, struct span *value)
{
    if (source->path.ptr == NULL) {
        uint8_t *space = reserve(source->text, source->target.path.len + 1);
        if (space == NULL)
            return false;
        source->path = span_of(space, http_target_path(source->target.path, space));
        source->text->len += source->path.len;
    }
    *value = source->path;
    return true;
}

/*
 * "/a" includes "/a" and "/a/b", not "/ab"; "/a/" includes everything below it; "/" also the "*" of
 * OPTIONS, so that no request passes a limit of all.
 */
static bool is_below(struct span path, struct span prefix)
{
    if (span_equals(prefix, "/"))
        return true;
    if (path.len < prefix.len || memcmp(path.ptr, prefix.ptr, prefix.len) != 0)
        return false;
    return path.len == prefix.len || prefix.ptr[prefix.len - 1] == '/' ||
           path.ptr[prefix.len] == '/';
}

static bool prefix_value(struct source *source, const struct part *part, struct span *value)
{
    struct span path;
    if (!path_value(source, &path) || !is_below(path, part->value))
        return false;
    *value = part->value;
    return true;
}

#define ADDRESS_TEXT_SIZE 46

/* Four numbers in canonical notation: no other text has the same address. */
static bool is_plain_v4(struct span text)
{
    unsigned numbers = 1, number = 0, digits = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c == '.') {
            if (digits == 0 || ++numbers > 4)
                return false;
            number = digits = 0;
            continue;
        }
        if (c < '0' || c > '9' || (digits > 0 && number == 0))
            return false;
        number = number * 10 + (unsigned)(c - '0');
        digits++;
        if (number > 255)
            return false;
    }
    return numbers == 4 && digits > 0;
}

static bool address_value(const struct source *source, const struct part *part, struct span *value)
{
    struct span address = source->origin->address;
    if (part->v4_bits == 32 && is_plain_v4(address)) {
        *value = address;
        return true;
    }
    uint8_t *space = reserve(source->text, ADDRESS_TEXT_SIZE);
    if (space == NULL || address.len == 0)
        return false;
    int len = stint_address_key((char *)space, ADDRESS_TEXT_SIZE, (const char *)address.ptr,
                                address.len, part->v4_bits, part->v6_bits);
    if (len < 0)
        return false;
    source->text->len += (size_t)len;
    *value = span_of(space, (size_t)len);
    return true;
}

static bool part_value(struct source *source, const struct part *part, struct span *value)
{
    switch (part->kind) {
    case HEADER:
        return header_value(source, part->name, value);
    case QUERY:
        return query_value(source, part->name, value);
    case PATH:
        return path_value(source, value);
    case PATH_PREFIX:
        return prefix_value(source, part, value);
    case METHOD:
        *value = source->origin->method;
        return true;
    case ADDRESS:
        return address_value(source, part, value);
    default:
        *value = part->value;
        return true;
    }
}

int http_parts_describe(const struct http_parts *parts, const struct http_message *message,
                        const struct http_origin *origin, const struct http_parts_space *space)
{
    struct source source = {.message = message, .origin = origin, .text = space->text};
    struct descriptor_entry *entry = space->entries;
    int n = 0;
    source.target = http_target_of(origin->target);
    for (size_t i = 0; i < parts->n_lists; i++) {
        const struct part_list *list = &parts->lists[i];
        size_t at = 0;
        while (at < list->n_parts && part_value(&source, &list->parts[at], &entry[at].value)) {
            entry[at].key = list->parts[at].key;
            at++;
        }
        if (at < list->n_parts)
            continue;
        space->descriptors[n++] = (struct descriptor){.entries = entry, .n_entries = at};
        entry += at;
    }
    return space->text->is_full ? STINT_E_RANGE : n;
}
