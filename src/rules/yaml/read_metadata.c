/* SPDX-License-Identifier: MIT */
/*
 * YAML to JSON, value by value. Numbers, booleans and nulls are those of envoyproxy/ratelimit's
 * reader; any other text is a string.
 */
#include "rules/yaml/read_limit.h"

#include "algorithm/text.h"
#include "base/buf.h"

#include <inttypes.h>
#include <stdlib.h>

/* The output for one metadata. Text that does not fit is counted, and not written. */
struct json_writer {
    const struct source *source;
    struct buf buf;
};

/* The parts of a mapping: of equal keys its own, then the first merged one. */
struct members {
    const struct yaml_part *parts[METADATA_KEYS_MAX];
    size_t n_parts;
};

static bool refuse(const struct json_writer *writer, struct source_position position,
                   const char *message)
{
    diagnostics_add(writer->source, position, "metadata: %s", message);
    return false;
}

/* ---- Texts and numbers ----------------------------------------------------------------------- */

/* Control characters as \u00XX, DEL too: so the text is safe to print. */
static void write_string(struct buf *buf, struct span text)
{
    size_t from = 0;
    buf_add(buf, "\"");
    for (size_t i = 0; i <= text.len; i++) {
        bool is_plain = i < text.len && text.ptr[i] >= ' ' && text.ptr[i] != 0x7f &&
                        text.ptr[i] != '"' && text.ptr[i] != '\\';
        if (is_plain)
            continue;
        buf_add(buf, "%.*s", (int)(i - from), (const char *)text.ptr + from);
        from = i + 1;
        if (i == text.len)
            break;
        if (text.ptr[i] == '"' || text.ptr[i] == '\\')
            buf_add(buf, "\\%c", text.ptr[i]);
        else
            buf_add(buf, "\\u%04x", text.ptr[i]);
    }
    buf_add(buf, "\"");
}

/* As few digits as give the same number again. */
static void write_real(struct buf *buf, double real)
{
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        struct buf one = buf_of(text, sizeof(text));
        buf_add(&one, "%.*g", digits, real);
        double again = strtod(text, NULL);
        if (again == real)
            break;
    }
    buf_add(buf, "%s", text);
}

static void write_whole(struct buf *buf, const struct yaml_whole *whole)
{
    bool is_minus = whole->is_negative && whole->magnitude > 0;
    buf_add(buf, "%s%" PRIu64, is_minus ? "-" : "", whole->magnitude);
}

static bool is_infinite(struct span text)
{
    static const char *const words[] = {".inf",  ".Inf",  ".INF",  "+.inf", "+.Inf", "+.INF",
                                        "-.inf", "-.Inf", "-.INF", ".nan",  ".NaN",  ".NAN"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (text_is(text, words[i]))
            return true;
    return false;
}

/* A plain text that is not a string; false: it is a string. */
static bool write_plain(struct buf *buf, const struct yaml_value *value)
{
    struct yaml_whole whole;
    double real;
    bool flag;
    if (yaml_is_null(value))
        buf_add(buf, "null");
    else if (yaml_flag(value, &flag))
        buf_add(buf, flag ? "true" : "false");
    else if (yaml_whole(value, &whole) && !whole.is_too_large)
        write_whole(buf, &whole);
    else if (yaml_real(value, &real))
        write_real(buf, real);
    else
        return false;
    return true;
}

static bool write_text(struct json_writer *writer, const struct yaml_value *value)
{
    if (!value->is_string && write_plain(&writer->buf, value))
        return true;
    if (!value->is_string && is_infinite(value->text))
        return refuse(writer, value->position, "JSON has no such number; expected a finite one");
    write_string(&writer->buf, value->text);
    return true;
}

/* ---- Mappings -------------------------------------------------------------------------------- */

static const struct yaml_part *find_key(const struct members *members, struct span key)
{
    for (size_t i = 0; i < members->n_parts; i++) {
        struct span other = members->parts[i]->key->text;
        if (other.len == key.len && (key.len == 0 || memcmp(other.ptr, key.ptr, key.len) == 0))
            return members->parts[i];
    }
    return NULL;
}

static bool add_member(struct json_writer *writer, struct members *members,
                       const struct yaml_part *part)
{
    if (part->key->kind != YAML_TEXT)
        return refuse(writer, part->key->position, "expected a text as a key");
    if (find_key(members, part->key->text) != NULL)
        return part->is_merged || refuse(writer, part->key->position, "this key is there already");
    if (members->n_parts == METADATA_KEYS_MAX)
        return refuse(writer, part->key->position, "expected at most 256 keys in a mapping");
    members->parts[members->n_parts++] = part;
    return true;
}

/* ---- Values ---------------------------------------------------------------------------------- */

static bool write_value(struct json_writer *writer, const struct yaml_value *value);

static bool write_map(struct json_writer *writer, const struct yaml_value *map)
{
    struct members members;
    members.n_parts = 0;
    for (const struct yaml_part *part = map->parts; part != NULL; part = part->next)
        if (!add_member(writer, &members, part))
            return false;
    buf_add(&writer->buf, "{");
    for (size_t i = 0; i < members.n_parts; i++) {
        buf_add(&writer->buf, "%s", i == 0 ? "" : ",");
        write_string(&writer->buf, members.parts[i]->key->text);
        buf_add(&writer->buf, ":");
        if (!write_value(writer, members.parts[i]->value))
            return false;
    }
    buf_add(&writer->buf, "}");
    return true;
}

static bool write_list(struct json_writer *writer, const struct yaml_value *list)
{
    buf_add(&writer->buf, "[");
    for (const struct yaml_part *part = list->parts; part != NULL; part = part->next) {
        buf_add(&writer->buf, "%s", part == list->parts ? "" : ",");
        if (!write_value(writer, part->value))
            return false;
    }
    buf_add(&writer->buf, "]");
    return true;
}

/* As deep as METADATA_DEPTH_MAX, which was checked before. */
static bool write_value(struct json_writer *writer, const struct yaml_value *value)
{
    if (value->kind == YAML_MAP)
        return write_map(writer, value);
    return value->kind == YAML_LIST ? write_list(writer, value) : write_text(writer, value);
}

/* Every value takes a byte at least: with more of them than bytes, it need not be written. */
static bool is_too_long(const struct yaml_value *value, const struct buf *buf)
{
    return value->weight > METADATA_MAX || buf->len > METADATA_MAX;
}

struct span read_metadata(const struct source *source, const struct fields *entry,
                          struct arena *texts)
{
    const struct yaml_value *value = schema_value(entry, ENTRY_METADATA);
    const struct span none = {NULL, 0};
    char text[METADATA_MAX + 1];
    struct json_writer writer = {source, buf_of(text, sizeof(text))};
    if (value == NULL)
        return none;
    if (value->kind != YAML_MAP) {
        schema_error(entry, ENTRY_METADATA, "expected a mapping, found %s",
                     schema_found(value).text);
        return none;
    }
    if (value->height > METADATA_DEPTH_MAX) {
        schema_error(entry, ENTRY_METADATA, "nested more than %d levels deep", METADATA_DEPTH_MAX);
        return none;
    }
    if (value->parts == NULL || (!is_too_long(value, &writer.buf) && !write_value(&writer, value)))
        return none;
    if (is_too_long(value, &writer.buf)) {
        schema_error(entry, ENTRY_METADATA, "expected at most %d bytes as JSON", METADATA_MAX);
        return none;
    }
    const char *kept = arena_text(texts, span_of(text, writer.buf.len));
    return diagnostics_got(source, kept) ? span_of(kept, writer.buf.len) : none;
}
