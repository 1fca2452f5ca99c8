/* SPDX-License-Identifier: MIT */
/* A linear search through the described files: there are about a dozen, and requests are rare. */
#include "proto/grpc/reflection_symbols.h"

#include "described.pb-c.h"

#include <assert.h>

/* Compiled from src/proto/grpc/messages/ when the program is built. */
extern const unsigned char reflection_files[];
extern const size_t reflection_files_len;

bool reflection_set_read(struct reflection_set *set)
{
    *set = (struct reflection_set){0};
    set->set = pb__set__unpack(NULL, reflection_files_len, reflection_files);
    if (set->set == NULL)
        return false;
    assert(set->set->n_file <= REFLECTION_FILES_MAX);
    for (size_t i = 0; i < set->set->n_file; i++) {
        ProtobufCBinaryData bytes = set->set->file[i];
        set->files[i] = pb__file__unpack(NULL, bytes.len, bytes.data);
        if (set->files[i] == NULL) {
            reflection_set_free(set);
            return false;
        }
        set->bytes[i] = span_of(bytes.data, bytes.len);
        set->n_files++;
    }
    return true;
}

void reflection_set_free(struct reflection_set *set)
{
    for (size_t i = 0; i < set->n_files; i++)
        pb__file__free_unpacked(set->files[i], NULL);
    pb__set__free_unpacked(set->set, NULL);
    *set = (struct reflection_set){0};
}

/* ---- Symbols --------------------------------------------------------------------------------- */

static bool is_name(struct span text, ProtobufCBinaryData name)
{
    return text.len == name.len && memcmp(text.ptr, name.data, name.len) == 0;
}

/* Whether the symbol lies within the scope of that name; *rest is the text after the dot. */
static bool enters(struct span symbol, ProtobufCBinaryData name, struct span *rest)
{
    if (symbol.len <= name.len || memcmp(symbol.ptr, name.data, name.len) != 0 ||
        symbol.ptr[name.len] != '.')
        return false;
    *rest = span_of(symbol.ptr + name.len + 1, symbol.len - name.len - 1);
    return true;
}

static bool is_part(struct span symbol, Pb__Part *const *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_name(symbol, parts[i]->name))
            return true;
    return false;
}

/* The values of an enum are named beside it, not within it. */
static bool is_in_enums(struct span symbol, Pb__Enum *const *enums, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_name(symbol, enums[i]->name) || is_part(symbol, enums[i]->value, enums[i]->n_value))
            return true;
    return false;
}

/* The depth to which our own files nest messages. */
static bool is_in_messages(struct span symbol, Pb__Message *const *messages, size_t n)
{
    struct span rest;
    for (size_t i = 0; i < n; i++) {
        const Pb__Message *message = messages[i];
        if (is_name(symbol, message->name))
            return true;
        if (enters(symbol, message->name, &rest))
            return is_part(rest, message->field, message->n_field) ||
                   is_in_enums(rest, message->enum_type, message->n_enum_type) ||
                   is_in_messages(rest, message->nested_type, message->n_nested_type);
    }
    return false;
}

static bool is_in_services(struct span symbol, Pb__Service *const *services, size_t n)
{
    struct span rest;
    for (size_t i = 0; i < n; i++)
        if (is_name(symbol, services[i]->name) ||
            (enters(symbol, services[i]->name, &rest) &&
             is_part(rest, services[i]->method, services[i]->n_method)))
            return true;
    return false;
}

size_t reflection_file_defining(const struct reflection_set *set, struct span symbol)
{
    struct span rest;
    for (size_t i = 0; i < set->n_files; i++) {
        const Pb__File *file = set->files[i];
        if (enters(symbol, file->package, &rest) &&
            (is_in_services(rest, file->service, file->n_service) ||
             is_in_messages(rest, file->message_type, file->n_message_type) ||
             is_in_enums(rest, file->enum_type, file->n_enum_type)))
            return i;
    }
    return REFLECTION_NONE;
}

/* ---- Files ----------------------------------------------------------------------------------- */

size_t reflection_file_named(const struct reflection_set *set, struct span name)
{
    for (size_t i = 0; i < set->n_files; i++)
        if (is_name(name, set->files[i]->name))
            return i;
    return REFLECTION_NONE;
}

size_t reflection_files_of(const struct reflection_set *set, size_t file,
                           size_t indices[REFLECTION_FILES_MAX])
{
    bool is_there[REFLECTION_FILES_MAX] = {false};
    size_t n = 0;
    indices[n++] = file;
    is_there[file] = true;
    for (size_t done = 0; done < n; done++) {
        const Pb__File *importing = set->files[indices[done]];
        for (size_t i = 0; i < importing->n_dependency; i++) {
            ProtobufCBinaryData name = importing->dependency[i];
            size_t other = reflection_file_named(set, span_of(name.data, name.len));
            assert(other != REFLECTION_NONE); /* all imported files are described */
            if (!is_there[other])
                indices[n++] = other;
            is_there[other] = true;
        }
    }
    return n;
}
