/* SPDX-License-Identifier: MIT */
/*
 * dynamic_metadata, in the format of envoyproxy/ratelimit: the request, and the metadata of the
 * rules.
 */
#include "proto/grpc/rls.h"

#include "base/utf8.h"
#include "struct.pb-c.h"

#include <jansson.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>

#define TOLD_MAX ((size_t)64 << 20) /* bytes; descriptors and metadata are bounded far below */

/* ---- Memory ---------------------------------------------------------------------------------- */

/* One block, and separate pieces where it is too small; the next block is as large as both. */

#define BLOCK_FIRST ((size_t)16 << 10)
#define BLOCK_KEPT ((size_t)256 << 10) /* for the next response */
#define ALIGNMENT alignof(max_align_t)

struct rls_arena_piece {
    struct rls_arena_piece *next;
    alignas(max_align_t) uint8_t bytes[];
};

static void free_pieces(struct rls_arena *arena)
{
    while (arena->pieces != NULL) {
        struct rls_arena_piece *next = arena->pieces->next;
        free(arena->pieces);
        arena->pieces = next;
    }
}

static bool block_of(struct rls_arena *arena, size_t size)
{
    free(arena->block);
    arena->block = malloc(size);
    arena->size = arena->block != NULL ? size : 0;
    return arena->block != NULL;
}

/* Frees all pieces. False: no memory. */
static bool arena_begin(struct rls_arena *arena)
{
    size_t needed = arena->pieces != NULL ? arena->taken : 0;
    free_pieces(arena);
    arena->used = 0;
    arena->taken = 0;
    if (arena->block == NULL)
        return block_of(arena, BLOCK_FIRST);
    return needed <= arena->size || needed > BLOCK_KEPT || block_of(arena, needed);
}

/* Aligned for every type, not zeroed. NULL: more than TOLD_MAX, or no memory. */
static void *take(struct rls_arena *arena, size_t size)
{
    size_t left = TOLD_MAX - arena->taken;
    size_t space = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (space < size || space > left)
        return NULL;
    if (space <= arena->size - arena->used) {
        void *bytes = arena->block + arena->used;
        arena->used += space;
        arena->taken += space;
        return bytes;
    }
    struct rls_arena_piece *piece = malloc(sizeof(*piece) + space);
    if (piece == NULL)
        return NULL;
    piece->next = arena->pieces;
    arena->pieces = piece;
    arena->taken += space;
    return piece->bytes;
}

void rls_arena_deinit(struct rls_arena *arena)
{
    free_pieces(arena);
    free(arena->block);
    *arena = (struct rls_arena){0};
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Each of these returns NULL without memory, and accepts NULL for a missing value. */

static Pb__Value *value_of(struct rls_arena *arena, Pb__Value__KindCase kind)
{
    Pb__Value *value = take(arena, sizeof(*value));
    if (value == NULL)
        return NULL;
    pb__value__init(value);
    value->kind_case = kind;
    return value;
}

/* protobuf's strings are UTF-8, and the client's text may not be: invalid bytes become U+FFFD. */
static bool copy_text(struct rls_arena *arena, struct span text, ProtobufCBinaryData *copy)
{
    static const char replacement[] = UTF8_REPLACEMENT;
    uint8_t *bytes = take(arena, text.len * (sizeof(replacement) - 1));
    if (bytes == NULL)
        return false;
    *copy = (ProtobufCBinaryData){.data = bytes};
    for (size_t i = 0; i < text.len;) {
        size_t len = utf8_length(text.ptr + i, text.len - i);
        const void *from = len > 0 ? (const void *)(text.ptr + i) : replacement;
        size_t added = len > 0 ? len : sizeof(replacement) - 1;
        memcpy(bytes + copy->len, from, added);
        copy->len += added;
        i += len > 0 ? len : 1;
    }
    return true;
}

static Pb__Value *text_value(struct rls_arena *arena, struct span text)
{
    Pb__Value *value = value_of(arena, PB__VALUE__KIND_STRING_VALUE);
    return value != NULL && copy_text(arena, text, &value->string_value) ? value : NULL;
}

static Pb__Value *number_value(struct rls_arena *arena, double number)
{
    Pb__Value *value = value_of(arena, PB__VALUE__KIND_NUMBER_VALUE);
    if (value != NULL)
        value->number_value = number;
    return value;
}

/* A list with capacity for n. */
static Pb__Value *list_value(struct rls_arena *arena, size_t n)
{
    Pb__Value *value = value_of(arena, PB__VALUE__KIND_LIST_VALUE);
    Pb__ListValue *list = take(arena, sizeof(*list));
    Pb__Value **values = take(arena, n * sizeof(void *));
    if (value == NULL || list == NULL || values == NULL)
        return NULL;
    pb__list_value__init(list);
    list->values = values;
    value->list_value = list;
    return value;
}

static bool add_value(Pb__Value *list, Pb__Value *value)
{
    if (value != NULL)
        list->list_value->values[list->list_value->n_values++] = value;
    return value != NULL;
}

/* A struct with capacity for n. */
static Pb__Struct *struct_of(struct rls_arena *arena, size_t n)
{
    Pb__Struct *object = take(arena, sizeof(*object));
    Pb__Struct__FieldsEntry **fields = take(arena, n * sizeof(void *));
    if (object == NULL || fields == NULL)
        return NULL;
    pb__struct__init(object);
    object->fields = fields;
    return object;
}

static Pb__Value *struct_value(struct rls_arena *arena, Pb__Struct *object)
{
    Pb__Value *value = value_of(arena, PB__VALUE__KIND_STRUCT_VALUE);
    if (value == NULL || object == NULL)
        return NULL;
    value->struct_value = object;
    return value;
}

/* protobuf-c's bytes are not const, though packing only reads them. */
static ProtobufCBinaryData bytes_of(struct span span)
{
    return (ProtobufCBinaryData){.len = span.len, .data = (uint8_t *)(uintptr_t)span.ptr};
}

static bool add_field(struct rls_arena *arena, Pb__Struct *object, struct span key,
                      Pb__Value *value)
{
    Pb__Struct__FieldsEntry *field = take(arena, sizeof(*field));
    if (field == NULL || value == NULL)
        return false;
    pb__struct__fields_entry__init(field);
    field->key = bytes_of(key);
    field->value = value;
    object->fields[object->n_fields++] = field;
    return true;
}

/* ---- Metadata of the rules ------------------------------------------------------------------- */

/* Members that `all` already has are kept; objects are merged recursively. */
static bool merge(json_t *all, json_t *more)
{
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach(more, key, len, value)
    {
        json_t *there = json_object_getn(all, key, len);
        bool is_done = true;
        if (there == NULL)
            is_done = json_object_setn(all, key, len, value) == 0;
        else if (json_is_object(there) && json_is_object(value))
            is_done = merge(there, value);
        if (!is_done)
            return false;
    }
    return true;
}

/* NULL: no memory. */
static json_t *merged_metadata(const struct reply *reply)
{
    json_t *all = json_object();
    for (size_t i = 0; i < reply->n_statuses && all != NULL; i++) {
        const struct reply_status *status = &reply->statuses[i];
        if (rls_status_of(status).code != RLS_CODE_OK || status->is_override ||
            status->quota == NULL || status->rule == NULL || status->rule->metadata.len == 0)
            continue;
        struct span text = status->rule->metadata;
        json_t *more = json_loadb((const char *)text.ptr, text.len, JSON_ALLOW_NUL, NULL);
        bool is_done = more != NULL && merge(all, more);
        json_decref(more);
        if (!is_done) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

static Pb__Value *value_of_json(struct rls_arena *arena, json_t *json);

static Pb__Struct *struct_of_json(struct rls_arena *arena, json_t *json)
{
    Pb__Struct *object = struct_of(arena, json_object_size(json));
    const char *key;
    size_t len;
    json_t *value;
    if (object == NULL)
        return NULL;
    json_object_keylen_foreach(json, key, len, value)
    {
        ProtobufCBinaryData copy; /* the JSON is freed before the message is written */
        if (!copy_text(arena, span_of(key, len), &copy) ||
            !add_field(arena, object, span_of(copy.data, copy.len), value_of_json(arena, value)))
            return NULL;
    }
    return object;
}

static Pb__Value *list_of_json(struct rls_arena *arena, json_t *json)
{
    Pb__Value *list = list_value(arena, json_array_size(json));
    size_t index;
    json_t *value;
    if (list == NULL)
        return NULL;
    json_array_foreach(json, index, value)
    {
        if (!add_value(list, value_of_json(arena, value)))
            return NULL;
    }
    return list;
}

/* The largest depth in the rules' files. */
static Pb__Value *value_of_json(struct rls_arena *arena, json_t *json)
{
    Pb__Value *value;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return struct_value(arena, struct_of_json(arena, json));
    case JSON_ARRAY:
        return list_of_json(arena, json);
    case JSON_STRING:
        return text_value(arena, span_of(json_string_value(json), json_string_length(json)));
    case JSON_INTEGER:
    case JSON_REAL:
        return number_value(arena, json_number_value(json));
    case JSON_TRUE:
    case JSON_FALSE:
        value = value_of(arena, PB__VALUE__KIND_BOOL_VALUE);
        if (value != NULL)
            value->bool_value = json_is_true(json);
        return value;
    default:
        return value_of(arena, PB__VALUE__KIND_NULL_VALUE);
    }
}

/* An empty value is left out. */
static bool add_metadata(struct rls_arena *arena, Pb__Struct *object, const struct reply *reply)
{
    json_t *all = merged_metadata(reply);
    bool is_done = all != NULL;
    if (json_object_size(all) > 0)
        is_done = add_field(arena, object, span_of_text("metadata"), value_of_json(arena, all));
    json_decref(all);
    return is_done;
}

/* ---- The request ----------------------------------------------------------------------------- */

static Pb__Value *entry_value(struct rls_arena *arena, const struct descriptor_entry *entry)
{
    size_t len = entry->key.len + 1 + entry->value.len;
    uint8_t *text = take(arena, len);
    if (text == NULL)
        return NULL;
    memcpy(text, entry->key.ptr, entry->key.len);
    text[entry->key.len] = '=';
    if (entry->value.len > 0)
        memcpy(text + entry->key.len + 1, entry->value.ptr, entry->value.len);
    return text_value(arena, span_of(text, len));
}

/* In protobuf's text format. */
static Pb__Value *limit_value(struct rls_arena *arena, const struct stint_quota *quota)
{
    char text[96];
    struct rls_limit limit = rls_limit_of(quota);
    int len = snprintf(text, sizeof(text), "requests_per_unit:%u unit:%s", limit.requests_per_unit,
                       rls_unit_names[limit.unit]);
    if (limit.unit_multiplier != 1)
        len += snprintf(text + len, sizeof(text) - (size_t)len, " unit_multiplier:{value:%u}",
                        limit.unit_multiplier);
    return text_value(arena, span_of(text, (size_t)len));
}

static Pb__Value *descriptor_value(struct rls_arena *arena, const struct descriptor *descriptor)
{
    Pb__Struct *object = struct_of(arena, 3);
    Pb__Value *entries = list_value(arena, descriptor->n_entries);
    if (object == NULL || entries == NULL)
        return NULL;
    for (size_t i = 0; i < descriptor->n_entries; i++)
        if (!add_value(entries, entry_value(arena, &descriptor->entries[i])))
            return NULL;
    bool is_done = add_field(arena, object, span_of_text("entries"), entries);
    if (descriptor->override != NULL)
        is_done &= add_field(arena, object, span_of_text("limit"),
                             limit_value(arena, descriptor->override));
    if (descriptor->has_hits)
        is_done &= add_field(arena, object, span_of_text("hitsAddend"),
                             number_value(arena, descriptor->hits));
    return is_done ? struct_value(arena, object) : NULL;
}

struct Pb__Struct *rls_metadata(struct rls_arena *arena, uint32_t hits_addend,
                                const struct request *request, const struct reply *reply)
{
    if (!arena_begin(arena))
        return NULL;
    Pb__Struct *object = struct_of(arena, 4);
    Pb__Value *descriptors = list_value(arena, request->n_descriptors);
    if (object == NULL || descriptors == NULL)
        return NULL;
    for (size_t i = 0; i < request->n_descriptors; i++)
        if (!add_value(descriptors, descriptor_value(arena, &request->descriptors[i])))
            return NULL;
    bool is_done =
        add_field(arena, object, span_of_text("domain"), text_value(arena, request->domain));
    is_done &= add_field(arena, object, span_of_text("descriptors"), descriptors);
    if (hits_addend != 0)
        is_done &=
            add_field(arena, object, span_of_text("hitsAddend"), number_value(arena, hits_addend));
    is_done &= add_metadata(arena, object, reply);
    return is_done ? object : NULL;
}
