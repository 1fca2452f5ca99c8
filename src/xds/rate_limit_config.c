/* SPDX-License-Identifier: MIT */
/*
 * Tables of fields turn a message into a tree. protobuf-c would allocate every message of it, and
 * recurse as deep as a sender likes.
 */
#include "xds/rate_limit_config.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "proto/grpc/wire.h"
#include "rules/yaml/yaml_value.h"

#define DEPTH_MAX 100      /* of messages in each other, as in a file */
#define VALUES_MAX 1000000 /* of one message: 100 for each of 10,000 descriptors */
#define NUMBER_SIZE 32

/* ---- Messages, fields and their keys --------------------------------------------------------- */

enum kind {
    TEXT,
    FLAG,
    NUMBER,
    UNIT,
    REAL,
    NOTHING, /* the null of a Value */
    MESSAGE,
    MESSAGES, /* repeated: a list */
    MEMBERS,  /* repeated: each is a key and a value of this mapping */
    SKIPPED,
};

struct field {
    const char *key; /* "": the value itself stands for its message */
    enum kind kind;
    const struct message *below; /* of MESSAGE, MESSAGES and MEMBERS */
};

struct message {
    struct wire_message wire;
    struct field fields[1 + WIRE_KNOWN_MAX]; /* by number */
    enum yaml_kind made;                     /* a mapping, a list, or a text: its one field */
    bool is_limit;                           /* what it leaves out has a meaning: add_unsaid() */
};

/* google.protobuf.Struct, ListValue and Value. A member is an entry of a map: its key, its value.
 */
static const struct message struct_message, list_message;
static const struct message value_message = {
    .wire = {6, {0, WIRE_VARINT, WIRE_64BIT, WIRE_BYTES, WIRE_VARINT, WIRE_BYTES, WIRE_BYTES}},
    .fields = {[1] = {"", NOTHING, NULL},
               [2] = {"", REAL, NULL},
               [3] = {"", TEXT, NULL},
               [4] = {"", FLAG, NULL},
               [5] = {"", MESSAGE, &struct_message},
               [6] = {"", MESSAGE, &list_message}},
    .made = YAML_TEXT,
};
static const struct message struct_message = {
    .wire = {1, {0, WIRE_BYTES}},
    .fields = {[1] = {"", MEMBERS, &value_message}},
    .made = YAML_MAP,
};
static const struct message list_message = {
    .wire = {1, {0, WIRE_BYTES}},
    .fields = {[1] = {"", MESSAGES, &value_message}},
    .made = YAML_LIST,
};

static const struct message replace_message = {
    .wire = {1, {0, WIRE_BYTES}},
    .fields = {[1] = {"name", TEXT, NULL}},
    .made = YAML_MAP,
};
static const struct message policy_message = {
    .wire = {5, {0, WIRE_VARINT, WIRE_VARINT, WIRE_VARINT, WIRE_BYTES, WIRE_BYTES}},
    .fields = {[1] = {"unit", UNIT, NULL},
               [2] = {"requests_per_unit", NUMBER, NULL},
               [3] = {"unlimited", FLAG, NULL},
               [4] = {"name", TEXT, NULL},
               [5] = {"replaces", MESSAGES, &replace_message}},
    .made = YAML_MAP,
    .is_limit = true,
};
static const struct message descriptor_message = {
    .wire = {8,
             {0, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_VARINT, WIRE_VARINT,
              WIRE_VARINT, WIRE_BYTES}},
    .fields = {[1] = {"key", TEXT, NULL},
               [2] = {"value", TEXT, NULL},
               [3] = {"rate_limit", MESSAGE, &policy_message},
               [4] = {"descriptors", MESSAGES, &descriptor_message},
               [5] = {"shadow_mode", FLAG, NULL},
               [6] = {"detailed_metric", FLAG, NULL},
               [7] = {"quota_mode", FLAG, NULL},
               [8] = {"metadata", MESSAGE, &struct_message}},
    .made = YAML_MAP,
};
static const struct message config_message = {
    .wire = {3, {0, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES}},
    .fields = {[1] = {"name", SKIPPED, NULL},
               [2] = {"domain", TEXT, NULL},
               [3] = {"descriptors", MESSAGES, &descriptor_message}},
    .made = YAML_MAP,
};

/* By their numbers in RateLimitPolicy. */
static const char *const unit_names[] = {"UNKNOWN", "SECOND", "MINUTE", "HOUR",
                                         "DAY",     "MONTH",  "YEAR",   "WEEK"};

/* ---- The tree -------------------------------------------------------------------------------- */

struct reader {
    struct arena *arena;
    struct source source;
    size_t n_values;
    unsigned depth;
};

static bool refuse(struct reader *reader, const char *message)
{
    diagnostics_add(&reader->source, (struct source_position){0}, "%s", message);
    return false;
}

static struct yaml_value *value_new(struct reader *reader, enum yaml_kind kind)
{
    if (++reader->n_values > VALUES_MAX) {
        refuse(reader, "more than 1000000 values");
        return NULL;
    }
    struct yaml_value *value = arena_take(reader->arena, sizeof(*value));
    if (!diagnostics_got(&reader->source, value))
        return NULL;
    value->kind = (uint8_t)kind;
    value->weight = 1;
    return value;
}

static struct yaml_value *text_new(struct reader *reader, struct span text, bool is_string)
{
    struct yaml_value *value = value_new(reader, YAML_TEXT);
    if (value == NULL)
        return NULL;
    value->text = text.len > 0 ? text : span_of("", 0); /* as YAML: never NULL */
    value->is_string = is_string;
    return value;
}

/* A list or a mapping that grows. */
struct growing {
    struct yaml_value *value;
    struct yaml_part **end;
};

static struct growing growing_of(struct yaml_value *value)
{
    return (struct growing){value, value != NULL ? &value->parts : NULL};
}

/* `key` is NULL in a list; the value NULL after an error. */
static bool add(struct reader *reader, struct growing *to, const struct yaml_value *key,
                const struct yaml_value *value)
{
    if (value == NULL)
        return false;
    struct yaml_part *part = arena_take(reader->arena, sizeof(*part));
    if (!diagnostics_got(&reader->source, part))
        return false;
    part->key = key;
    part->value = value;
    *to->end = part;
    to->end = &part->next;
    to->value->weight += value->weight;
    if (to->value->height <= value->height)
        to->value->height = (uint16_t)(value->height + 1);
    return true;
}

static bool add_named(struct reader *reader, struct growing *to, const char *key,
                      const struct yaml_value *value)
{
    struct yaml_value *name = text_new(reader, span_of_text(key), true);
    return name != NULL && add(reader, to, name, value);
}

/* ---- Values ---------------------------------------------------------------------------------- */

static struct yaml_value *string_new(struct reader *reader, struct span text)
{
    if (!utf8_is_valid(text.ptr, text.len)) {
        refuse(reader, "expected text in UTF-8, found other bytes");
        return NULL;
    }
    return text_new(reader, text, true);
}

static struct yaml_value *number_new(struct reader *reader, double number)
{
    char *text = arena_take(reader->arena, NUMBER_SIZE);
    if (!diagnostics_got(&reader->source, text))
        return NULL;
    struct buf buf = buf_of(text, NUMBER_SIZE);
    buf_add(&buf, "%.17g", number);
    return text_new(reader, span_of(text, buf.len), false);
}

/* JSON, in which metadata is kept, has no other numbers; a file says them as .inf and .nan. */
static struct yaml_value *real_new(struct reader *reader, uint64_t bits)
{
    double real;
    memcpy(&real, &bits, sizeof(real));
    bool is_finite = real - real == 0;
    return is_finite ? number_new(reader, real) : text_new(reader, span_of_text(".nan"), false);
}

static struct yaml_value *unit_new(struct reader *reader, uint64_t unit)
{
    if (unit < sizeof(unit_names) / sizeof(unit_names[0]))
        return text_new(reader, span_of_text(unit_names[unit]), false);
    return number_new(reader, (double)unit);
}

static struct yaml_value *message_read(struct reader *reader, const struct message *message,
                                       struct span bytes);

static struct yaml_value *field_read(struct reader *reader, const struct field *field,
                                     const struct wire_value *value)
{
    switch (field->kind) {
    case TEXT:
        return string_new(reader, value->bytes);
    case FLAG:
        return text_new(reader, span_of_text(value->varint != 0 ? "true" : "false"), false);
    case NUMBER:
        return number_new(reader, (uint32_t)value->varint);
    case UNIT:
        return unit_new(reader, value->varint);
    case REAL:
        return real_new(reader, value->varint);
    case NOTHING:
        return text_new(reader, span_of_text("null"), false);
    default:
        return message_read(reader, field->below, value->bytes);
    }
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* One message while its fields are read. */
struct open_message {
    struct growing parts;
    struct growing lists[1 + WIRE_KNOWN_MAX]; /* of its fields that are MESSAGES */
    struct yaml_value *only;                  /* of a message that is its one field */
    uint32_t seen;                            /* bit i: field i */
};

/* An entry of a map: key 1 and value 2. Both may be left out. */
static bool add_member(struct reader *reader, struct growing *map, const struct message *below,
                       struct span bytes)
{
    static const struct wire_message entry = {2, {0, WIRE_BYTES, WIRE_BYTES}};
    struct span parts[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    struct wire_value value;
    int number;
    while ((number = wire_read(&entry, &bytes, &value)) > 0)
        parts[number] = value.bytes;
    if (number < 0)
        return refuse(reader, "malformed protobuf in metadata");
    const struct yaml_value *key = string_new(reader, parts[1]);
    return key != NULL && add(reader, map, key, message_read(reader, below, parts[2]));
}

static bool add_item(struct reader *reader, const struct message *message,
                     struct open_message *open, int number, const struct wire_value *value)
{
    const struct field *field = &message->fields[number];
    struct growing *list = message->made == YAML_LIST ? &open->parts : &open->lists[number];
    if (list->value == NULL) {
        *list = growing_of(value_new(reader, YAML_LIST));
        if (list->value == NULL)
            return false;
    }
    return add(reader, list, NULL, field_read(reader, field, value));
}

static bool add_field(struct reader *reader, const struct message *message,
                      struct open_message *open, int number, const struct wire_value *value)
{
    const struct field *field = &message->fields[number];
    if (field->kind == SKIPPED)
        return true;
    if (field->kind == MEMBERS)
        return add_member(reader, &open->parts, field->below, value->bytes);
    if (field->kind == MESSAGES)
        return add_item(reader, message, open, number, value);
    if ((open->seen & 1u << number) != 0 || open->only != NULL)
        return refuse(reader, "malformed protobuf: a field stands twice");
    open->seen |= 1u << number;
    struct yaml_value *made = field_read(reader, field, value);
    if (message->made == YAML_TEXT) {
        open->only = made;
        return made != NULL;
    }
    return add_named(reader, &open->parts, field->key, made);
}

/*
 * proto3 leaves out a number that is 0: the limit denies always. Rules of a control plane are
 * written for hits that are charged after the fact.
 */
static bool add_unsaid(struct reader *reader, const struct message *message,
                       struct open_message *open, bool is_unlimited)
{
    if (!message->is_limit || is_unlimited)
        return true;
    bool has_number = (open->seen & 1u << 2) != 0;
    return (has_number ||
            add_named(reader, &open->parts, message->fields[2].key, number_new(reader, 0))) &&
           add_named(reader, &open->parts, "hits", text_new(reader, span_of_text("charge"), false));
}

static bool add_lists(struct reader *reader, const struct message *message,
                      struct open_message *open)
{
    for (size_t i = 1; i <= message->wire.n_known && message->made == YAML_MAP; i++)
        if (open->lists[i].value != NULL &&
            !add_named(reader, &open->parts, message->fields[i].key, open->lists[i].value))
            return false;
    return true;
}

static bool read_fields(struct reader *reader, const struct message *message,
                        struct open_message *open, struct span bytes)
{
    struct wire_value value;
    bool is_unlimited = false;
    int number;
    while ((number = wire_read(&message->wire, &bytes, &value)) > 0) {
        if (!add_field(reader, message, open, number, &value))
            return false;
        if (message->is_limit && message->fields[number].kind == FLAG)
            is_unlimited = value.varint != 0;
    }
    if (number < 0)
        return refuse(reader, "malformed protobuf: expected fields of a RateLimitConfig");
    return add_lists(reader, message, open) && add_unsaid(reader, message, open, is_unlimited);
}

/* A Value without a kind is a null. */
static struct yaml_value *message_read(struct reader *reader, const struct message *message,
                                       struct span bytes)
{
    struct open_message open = {.only = NULL};
    if (reader->depth == DEPTH_MAX) {
        refuse(reader, "nested more than 100 levels deep");
        return NULL;
    }
    if (message->made != YAML_TEXT) {
        open.parts = growing_of(value_new(reader, message->made));
        if (open.parts.value == NULL)
            return NULL;
    }
    reader->depth++;
    bool is_read = read_fields(reader, message, &open, bytes);
    reader->depth--;
    if (!is_read)
        return NULL;
    if (message->made != YAML_TEXT)
        return open.parts.value;
    return open.only != NULL ? open.only : text_new(reader, span_of_text("null"), false);
}

const struct yaml_value *rate_limit_config_read(struct arena *arena, const struct rules_file *file,
                                                struct rules_diagnostics *diagnostics)
{
    struct reader reader = {
        .arena = arena,
        .source = {.path = file->path, .diagnostics = diagnostics},
    };
    return message_read(&reader, &config_message, file->text);
}

struct span rate_limit_config_name(struct span message)
{
    struct wire_value value;
    struct span name = {NULL, 0};
    int number;
    while ((number = wire_read(&config_message.wire, &message, &value)) > 0)
        if (number == 1)
            name = value.bytes;
    return number == 0 ? name : span_of(NULL, 0);
}
