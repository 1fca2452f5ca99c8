/* SPDX-License-Identifier: MIT */
/* Builds the tree from libyaml's events, without recursion; then the types of single texts. */
#include "rules/yaml/yaml_value.h"

#include "algorithm/text.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <yaml.h>

#define DEPTH_MAX 100
#define NUMBER_MAX 80 /* characters: longer texts are never numbers */
#define VALUES_MAX 4000000
#define ANCHORS_MAX 1000

/* A list or mapping that has begun and not ended. */
struct open_value {
    struct yaml_value *value;
    struct yaml_part **end;       /* where the next part goes */
    const struct yaml_value *key; /* of a mapping: read, its value is not */
};

struct anchor {
    struct span name;
    struct yaml_value *value;
};

struct yaml_reader {
    struct arena *arena;
    const struct rules_file *file;
    struct source source;
    const struct yaml_value *root;
    unsigned n_documents, n_anchors, depth;
    struct open_value open[DEPTH_MAX];
    struct anchor anchors[ANCHORS_MAX];
};

static struct source_position place_of(yaml_mark_t mark)
{
    return (struct source_position){(uint32_t)mark.line + 1, (uint32_t)mark.column + 1};
}

static bool refuse(struct yaml_reader *reader, struct source_position position, const char *message)
{
    diagnostics_add(&reader->source, position, "%s", message);
    return false;
}

/* ---- Values ---------------------------------------------------------------------------------- */

static struct yaml_value *value_new(struct yaml_reader *reader, enum yaml_kind kind,
                                    yaml_mark_t mark)
{
    struct yaml_value *value = arena_take(reader->arena, sizeof(*value));
    if (!diagnostics_got(&reader->source, value))
        return NULL;
    value->kind = (uint8_t)kind;
    value->weight = 1;
    value->position = place_of(mark);
    return value;
}

static bool append(struct yaml_reader *reader, struct open_value *open,
                   const struct yaml_value *value)
{
    struct yaml_part *part = arena_take(reader->arena, sizeof(*part));
    if (!diagnostics_got(&reader->source, part))
        return false;
    part->key = open->key;
    part->value = value;
    open->key = NULL;
    *open->end = part;
    open->end = &part->next;
    return true;
}

/* Puts a complete value into its parent. */
static bool add(struct yaml_reader *reader, const struct yaml_value *value, yaml_mark_t mark)
{
    if (reader->depth == 0) {
        reader->root = value;
        return true;
    }
    struct open_value *open = &reader->open[reader->depth - 1];
    open->value->weight += value->weight; /* each is at most VALUES_MAX: no overflow */
    if (open->value->weight > VALUES_MAX)
        return refuse(reader, place_of(mark),
                      "more than 4000000 values, counting what aliases stand for");
    if (reader->depth + value->height > DEPTH_MAX)
        return refuse(reader, place_of(mark), "nested more than 100 levels deep");
    if (open->value->height <= value->height)
        open->value->height = (uint16_t)(value->height + 1);
    if (open->value->kind == YAML_MAP && open->key == NULL) {
        open->key = value;
        return true;
    }
    return append(reader, open, value);
}

/* ---- Anchors and aliases --------------------------------------------------------------------- */

static bool name_anchor(struct yaml_reader *reader, const yaml_char_t *name,
                        struct yaml_value *value)
{
    if (name == NULL)
        return true;
    if (reader->n_anchors == ANCHORS_MAX)
        return refuse(reader, value->position, "more than 1000 anchors");
    const char *copy = arena_text(reader->arena, span_of_text((const char *)name));
    if (!diagnostics_got(&reader->source, copy))
        return false;
    reader->anchors[reader->n_anchors++] = (struct anchor){span_of_text(copy), value};
    return true;
}

/* The newest of that name: YAML lets a later anchor hide an earlier one. */
static bool add_alias(struct yaml_reader *reader, const yaml_event_t *event)
{
    struct span name = span_of_text((const char *)event->data.alias.anchor);
    for (unsigned i = reader->n_anchors; i-- > 0;) {
        const struct anchor *anchor = &reader->anchors[i];
        if (anchor->name.len != name.len || memcmp(anchor->name.ptr, name.ptr, name.len) != 0)
            continue;
        if (anchor->value->is_open)
            return refuse(reader, place_of(event->start_mark), "an alias inside its own anchor");
        return add(reader, anchor->value, event->start_mark);
    }
    diagnostics_add(&reader->source, place_of(event->start_mark), "there is no anchor \"%s\" above",
                    quoted_text(name).text);
    return false;
}

/* ---- Events ---------------------------------------------------------------------------------- */

static bool tag_is_known(struct yaml_reader *reader, const yaml_char_t *tag, yaml_mark_t mark)
{
    if (tag == NULL || strcmp((const char *)tag, YAML_STR_TAG) == 0 || tag[0] == '\0')
        return true;
    return refuse(reader, place_of(mark), "tags other than !!str have no meaning here");
}

static bool add_scalar(struct yaml_reader *reader, const yaml_event_t *event)
{
    struct yaml_value *value = value_new(reader, YAML_TEXT, event->start_mark);
    if (value == NULL || !tag_is_known(reader, event->data.scalar.tag, event->start_mark))
        return false;
    struct span text = span_of(event->data.scalar.value, event->data.scalar.length);
    const char *copy = arena_text(reader->arena, text);
    if (!diagnostics_got(&reader->source, copy))
        return false;
    value->text = span_of(copy, text.len);
    value->is_string =
        event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || event->data.scalar.tag != NULL;
    return name_anchor(reader, event->data.scalar.anchor, value) &&
           add(reader, value, event->start_mark);
}

static bool open_value(struct yaml_reader *reader, enum yaml_kind kind, const yaml_event_t *event)
{
    bool is_map = kind == YAML_MAP;
    const yaml_char_t *tag =
        is_map ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    const yaml_char_t *anchor =
        is_map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
    if (reader->depth == DEPTH_MAX)
        return refuse(reader, place_of(event->start_mark), "nested more than 100 levels deep");
    struct yaml_value *value = value_new(reader, kind, event->start_mark);
    if (value == NULL || !tag_is_known(reader, tag, event->start_mark))
        return false;
    value->is_open = true;
    reader->open[reader->depth++] = (struct open_value){.value = value, .end = &value->parts};
    return name_anchor(reader, anchor, value);
}

static bool is_merge(const struct yaml_part *part)
{
    return part->key->kind == YAML_TEXT && !part->key->is_string && text_is(part->key->text, "<<");
}

/* Appends the parts of a mapping, at *end. */
static bool merge(struct yaml_reader *reader, const struct yaml_value *from,
                  struct yaml_part ***end)
{
    if (from->kind != YAML_MAP) /* other errors of the file are reported as well */
        diagnostics_add(&reader->source, from->position,
                        "<<: expected a mapping or a list of mappings, found neither");
    for (const struct yaml_part *part = from->parts; part && from->kind == YAML_MAP;
         part = part->next) {
        struct yaml_part *copy = arena_take(reader->arena, sizeof(*copy));
        if (!diagnostics_got(&reader->source, copy))
            return false;
        *copy = (struct yaml_part){.key = part->key, .value = part->value, .is_merged = true};
        **end = copy;
        *end = &copy->next;
    }
    return true;
}

/* In place of each `<<`, at the end, what it merges. Each was complete before. */
static bool merge_all(struct yaml_reader *reader, struct yaml_value *map)
{
    struct yaml_part *merges = NULL, **merges_end = &merges, **end = &map->parts;
    for (struct yaml_part *part = map->parts; part != NULL; part = part->next) {
        struct yaml_part ***list = is_merge(part) ? &merges_end : &end;
        **list = part;
        *list = &part->next;
    }
    *merges_end = *end = NULL;
    for (const struct yaml_part *part = merges; part != NULL; part = part->next) {
        bool is_list = part->value->kind == YAML_LIST;
        if (!is_list && !merge(reader, part->value, &end))
            return false;
        for (const struct yaml_part *item = part->value->parts; item && is_list; item = item->next)
            if (!merge(reader, item->value, &end))
                return false;
    }
    return true;
}

static bool close_value(struct yaml_reader *reader)
{
    struct yaml_value *value = reader->open[--reader->depth].value;
    value->is_open = false;
    if (value->kind == YAML_MAP && !merge_all(reader, value))
        return false;
    yaml_mark_t mark = {.line = value->position.line - 1, .column = value->position.column - 1};
    return add(reader, value, mark);
}

static bool on_event(struct yaml_reader *reader, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (reader->n_documents++ == 0)
            return true;
        return refuse(reader, place_of(event->start_mark),
                      "expected one document in a file, found another; give it its own file");
    case YAML_SCALAR_EVENT:
        return add_scalar(reader, event);
    case YAML_ALIAS_EVENT:
        return add_alias(reader, event);
    case YAML_SEQUENCE_START_EVENT:
        return open_value(reader, YAML_LIST, event);
    case YAML_MAPPING_START_EVENT:
        return open_value(reader, YAML_MAP, event);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_value(reader);
    default:
        return true;
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Invalid UTF-8: libyaml reports only its offset. */
static struct source_position place_of_offset(struct span text, size_t offset)
{
    struct source_position position = {1, 1};
    for (size_t i = 0; i < offset && i < text.len; i++) {
        if (text.ptr[i] == '\n') {
            position.line++;
            position.column = 1;
        } else if ((text.ptr[i] & 0xc0) != 0x80) {
            position.column++;
        }
    }
    return position;
}

static void tell_parser_error(struct yaml_reader *reader, const yaml_parser_t *parser)
{
    const char *problem = parser->problem != NULL ? parser->problem : "it cannot be read";
    struct source_position position = place_of(parser->problem_mark);
    if (parser->error == YAML_MEMORY_ERROR) {
        diagnostics_got(&reader->source, NULL);
        return;
    }
    if (parser->error == YAML_READER_ERROR)
        position = place_of_offset(reader->file->text, parser->problem_offset);
    if (parser->context != NULL && parser->error != YAML_READER_ERROR)
        diagnostics_add(&reader->source, position, "invalid YAML: %s %s (line %u)", problem,
                        parser->context, (unsigned)parser->context_mark.line + 1);
    else
        diagnostics_add(&reader->source, position, "invalid YAML: %s", problem);
}

static bool read_events(struct yaml_reader *reader, yaml_parser_t *parser)
{
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) {
            tell_parser_error(reader, parser);
            return false;
        }
        more = event.type != YAML_STREAM_END_EVENT;
        bool fine = on_event(reader, &event);
        yaml_event_delete(&event);
        if (!fine)
            return false;
    }
    return true;
}

const struct yaml_value *yaml_read(struct arena *arena, const struct rules_file *file,
                                   struct rules_diagnostics *diagnostics)
{
    static const struct yaml_value nothing = {.kind = YAML_TEXT, .weight = 1, .position = {1, 1}};
    struct yaml_reader reader = {.arena = arena,
                                 .file = file,
                                 .source = {.path = file->path, .diagnostics = diagnostics},
                                 .root = &nothing};
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        diagnostics_got(&reader.source, NULL);
        return NULL;
    }
    /* libyaml skips the mark of UTF-8 only if it may choose the encoding by it. */
    struct span text = span_after(file->text, utf8_mark_length(file->text.ptr, file->text.len));
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, text.ptr, text.len);
    bool fine = read_events(&reader, &parser);
    yaml_parser_delete(&parser);
    return fine ? reader.root : NULL;
}

bool yaml_is_null(const struct yaml_value *value)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0; i < sizeof(nulls) / sizeof(nulls[0]); i++)
        if (value->kind == YAML_TEXT && !value->is_string && text_is(value->text, nulls[i]))
            return true;
    return false;
}

const char *yaml_kind_name(const struct yaml_value *value)
{
    if (value->kind == YAML_TEXT)
        return yaml_is_null(value) ? "nothing" : "a text";
    return value->kind == YAML_LIST ? "a list" : "a mapping";
}

/* ---- Types ----------------------------------------------------------------------------------- */

bool yaml_flag(const struct yaml_value *value, bool *flag)
{
    static const char *const words[2][11] = {
        {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"},
        {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"},
    };
    for (size_t i = 0; i < 22 && value->kind == YAML_TEXT && !value->is_string; i++)
        if (text_is(value->text, words[i / 11][i % 11])) {
            *flag = i >= 11;
            return true;
        }
    return false;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* A text without its underscores. */
struct plain {
    char text[NUMBER_MAX + 1];
    size_t len;
};

static bool read_plain(const struct yaml_value *value, struct plain *plain)
{
    const struct span *text = &value->text;
    plain->len = 0;
    if (value->kind != YAML_TEXT || text->len == 0 || text->ptr[0] == '_')
        return false;
    for (size_t i = 0; i < text->len; i++) {
        if (text->ptr[i] == '_')
            continue;
        if (plain->len == NUMBER_MAX)
            return false;
        plain->text[plain->len++] = (char)text->ptr[i];
    }
    plain->text[plain->len] = '\0';
    return true;
}

/* Skips 0x, 0o, 0b or the 0 of an octal number, which give the base of the rest. */
static unsigned read_base(const char **digits)
{
    const char *text = *digits;
    if (text[0] != '0' || text[1] == '\0')
        return 10;
    *digits += 2;
    switch (text[1] | 0x20) {
    case 'x':
        return 16;
    case 'o':
        return 8;
    case 'b':
        return 2;
    default:
        *digits -= 1;
        return 8;
    }
}

bool yaml_whole(const struct yaml_value *value, struct yaml_whole *whole)
{
    struct plain plain;
    if (!read_plain(value, &plain))
        return false;
    const char *digits = plain.text, *end = plain.text + plain.len;
    *whole = (struct yaml_whole){.is_negative = *digits == '-'};
    if (*digits == '-' || *digits == '+')
        digits++;
    static const char all[] = "0123456789abcdefABCDEF";
    unsigned base = read_base(&digits);
    size_t n = strspn(digits, all), n_decimal = strspn(digits, "0123456789");
    if (digits + n != end || n == 0 || (base != 16 && n != n_decimal))
        return false;
    char *stop;
    errno = 0;
    whole->magnitude = strtoull(digits, &stop, (int)base);
    whole->is_too_large = errno == ERANGE;
    return stop == end;
}

bool yaml_real(const struct yaml_value *value, double *real)
{
    struct plain plain;
    char *end;
    /* strtod() accepts more than YAML does: hexadecimal, infinities, blanks. */
    if (!read_plain(value, &plain) || strspn(plain.text, "+-.0123456789eE") != plain.len)
        return false;
    *real = strtod(plain.text, &end);
    return end == plain.text + plain.len && isfinite(*real);
}
