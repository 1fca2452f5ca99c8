/* SPDX-License-Identifier: MIT */
/*
 * ServerReflectionRequest to ServerReflectionResponse. There are no extensions. Files and symbols
 * are found by a linear search: there are about a dozen files, and requests are rare.
 */
#include "proto/grpc/reflection.h"

#include "base/buf.h"
#include "base/err.h"
#include "described.pb-c.h"
#include "proto/grpc/grpc.h"
#include "reflection.pb-c.h"

#include <assert.h>
#include <stdlib.h>

#define FILES_MAX 32
#define NO_FILE FILES_MAX

/* A parsed description of all files. */
struct reflection_set {
    Pb__Set *set;
    size_t n_files;
    struct span bytes[FILES_MAX]; /* FileDescriptorProto, as sent to clients */
    Pb__File *files[FILES_MAX];
};

/* Compiled from src/proto/grpc/messages/ when the program is built. */
extern const unsigned char reflection_files[];
extern const size_t reflection_files_len;

/* ---- The described files --------------------------------------------------------------------- */

static void set_free(struct reflection_set *set)
{
    if (set == NULL)
        return;
    for (size_t i = 0; i < set->n_files; i++)
        pb__file__free_unpacked(set->files[i], NULL);
    pb__set__free_unpacked(set->set, NULL);
    free(set);
}

/* False: no memory. */
static bool set_read(struct reflection_set *set)
{
    set->set = pb__set__unpack(NULL, reflection_files_len, reflection_files);
    if (set->set == NULL)
        return false;
    assert(set->set->n_file <= FILES_MAX);
    for (size_t i = 0; i < set->set->n_file; i++) {
        ProtobufCBinaryData bytes = set->set->file[i];
        set->files[i] = pb__file__unpack(NULL, bytes.len, bytes.data);
        if (set->files[i] == NULL)
            return false;
        set->bytes[i] = span_of(bytes.data, bytes.len);
        set->n_files++;
    }
    return true;
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

/* The file of any symbol: a message, field, enum, enum value, service or method. */
static size_t file_defining(const struct reflection_set *set, struct span symbol)
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
    return NO_FILE;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* The index of a file, or NO_FILE. */
static size_t file_named(const struct reflection_set *set, struct span name)
{
    for (size_t i = 0; i < set->n_files; i++)
        if (is_name(name, set->files[i]->name))
            return i;
    return NO_FILE;
}

/* The indices of a file, first, and of all its imports, each once; returns their number. */
static size_t files_of(const struct reflection_set *set, size_t file, size_t indices[FILES_MAX])
{
    bool is_there[FILES_MAX] = {false};
    size_t n = 0;
    indices[n++] = file;
    is_there[file] = true;
    for (size_t done = 0; done < n; done++) {
        const Pb__File *importing = set->files[indices[done]];
        for (size_t i = 0; i < importing->n_dependency; i++) {
            ProtobufCBinaryData name = importing->dependency[i];
            size_t other = file_named(set, span_of(name.data, name.len));
            assert(other != NO_FILE); /* all imported files are described */
            if (!is_there[other])
                indices[n++] = other;
            is_there[other] = true;
        }
    }
    return n;
}

/* ---- Answers --------------------------------------------------------------------------------- */

#define SERVICES_MAX 8
#define SERVICE_NAME_MAX 96

/* The parts of an answer. */
struct reflecting {
    const struct reflection_set *set;
    Pb__ServerReflectionResponse response;
    Pb__FileDescriptorResponse files;
    ProtobufCBinaryData file[FILES_MAX];
    Pb__ListServiceResponse list;
    Pb__ServiceResponse service[SERVICES_MAX], *services[SERVICES_MAX];
    char names[SERVICES_MAX][SERVICE_NAME_MAX];
    Pb__ErrorResponse fault;
};

static ProtobufCBinaryData bytes_of(struct span span)
{
    return (ProtobufCBinaryData){.len = span.len, .data = (uint8_t *)(uintptr_t)span.ptr};
}

static void answer_fault(struct reflecting *reflecting, enum grpc_status status,
                         const char *message)
{
    pb__error_response__init(&reflecting->fault);
    reflecting->fault.error_code = (int32_t)status;
    reflecting->fault.error_message = bytes_of(span_of_text(message));
    reflecting->response.message_response_case =
        PB__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    reflecting->response.error_response = &reflecting->fault;
}

static void answer_files(struct reflecting *reflecting, size_t file, const char *otherwise)
{
    size_t indices[FILES_MAX];
    if (file == NO_FILE) {
        answer_fault(reflecting, GRPC_NOT_FOUND, otherwise);
        return;
    }
    size_t n = files_of(reflecting->set, file, indices);
    for (size_t i = 0; i < n; i++)
        reflecting->file[i] = bytes_of(reflecting->set->bytes[indices[i]]);
    pb__file_descriptor_response__init(&reflecting->files);
    reflecting->files.n_file_descriptor_proto = n;
    reflecting->files.file_descriptor_proto = reflecting->file;
    reflecting->response.message_response_case =
        PB__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    reflecting->response.file_descriptor_response = &reflecting->files;
}

static void add_service(struct reflecting *reflecting, const Pb__File *file,
                        const Pb__Service *service)
{
    size_t n = reflecting->list.n_service++;
    assert(n < SERVICES_MAX);
    struct buf name = buf_of(reflecting->names[n], SERVICE_NAME_MAX);
    buf_add(&name, "%.*s.%.*s", (int)file->package.len, (const char *)file->package.data,
            (int)service->name.len, (const char *)service->name.data);
    assert(name.len < SERVICE_NAME_MAX);
    pb__service_response__init(&reflecting->service[n]);
    reflecting->service[n].name = bytes_of(span_of(name.text, name.len));
    reflecting->services[n] = &reflecting->service[n];
}

static void answer_services(struct reflecting *reflecting)
{
    pb__list_service_response__init(&reflecting->list);
    reflecting->list.service = reflecting->services;
    for (size_t i = 0; i < reflecting->set->n_files; i++)
        for (size_t k = 0; k < reflecting->set->files[i]->n_service; k++)
            add_service(reflecting, reflecting->set->files[i],
                        reflecting->set->files[i]->service[k]);
    reflecting->response.message_response_case =
        PB__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    reflecting->response.list_services_response = &reflecting->list;
}

static void answer_request(struct reflecting *reflecting, Pb__ServerReflectionRequest *request)
{
    const struct reflection_set *set = reflecting->set;
    ProtobufCBinaryData name;
    size_t file;
    switch (request->message_request_case) {
    case PB__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        name = request->file_by_filename;
        file = file_named(set, span_of(name.data, name.len));
        answer_files(reflecting, file, "there is no file of that name");
        return;
    case PB__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        name = request->file_containing_symbol;
        file = file_defining(set, span_of(name.data, name.len));
        answer_files(reflecting, file, "no file defines that symbol");
        return;
    case PB__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
    case PB__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        answer_fault(reflecting, GRPC_NOT_FOUND, "there are no extensions");
        return;
    case PB__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        answer_services(reflecting);
        return;
    default:
        answer_fault(reflecting, GRPC_INVALID_ARGUMENT,
                     "expected a request: a file by name, a symbol, or the list of services");
    }
}

static bool pack(const Pb__ServerReflectionResponse *response, struct reflection_space *space,
                 struct span *answer)
{
    size_t size = pb__server_reflection_response__get_packed_size(response);
    if (size > space->size) {
        uint8_t *bytes = realloc(space->bytes, size);
        if (bytes == NULL)
            return false;
        space->bytes = bytes;
        space->size = size;
    }
    *answer = span_of(space->bytes, pb__server_reflection_response__pack(response, space->bytes));
    return true;
}

/* Parses the descriptions once for all requests: that takes a hundred times as long as a lookup. */
static bool read_set(struct reflection_space *space)
{
    if (space->set != NULL)
        return true;
    struct reflection_set *set = calloc(1, sizeof(*set));
    if (set == NULL || !set_read(set)) {
        set_free(set);
        return false;
    }
    space->set = set;
    return true;
}

void reflection_space_free(struct reflection_space *space)
{
    set_free(space->set);
    free(space->bytes);
    *space = (struct reflection_space){0};
}

static int answer_message(Pb__ServerReflectionRequest *request, struct reflection_space *space,
                          struct span *answer, struct stint_error *error)
{
    struct reflecting reflecting;
    if (!read_set(space))
        return err_set(error, STINT_E_SYSTEM, "there is no memory to describe messages");
    reflecting.set = space->set;
    pb__server_reflection_response__init(&reflecting.response);
    reflecting.response.valid_host = request->host;
    reflecting.response.original_request = request;
    answer_request(&reflecting, request);
    return pack(&reflecting.response, space, answer)
               ? 0
               : err_set(error, STINT_E_SYSTEM, "there is no memory to describe messages");
}

int reflection_answer(struct span message, struct reflection_space *space, struct span *answer,
                      struct stint_error *error)
{
    if (message.len > REFLECTION_REQUEST_MAX)
        return err_set(error, STINT_E_RANGE,
                       "expected a ServerReflectionRequest of at most %d bytes",
                       REFLECTION_REQUEST_MAX);
    Pb__ServerReflectionRequest *request =
        pb__server_reflection_request__unpack(NULL, message.len, message.ptr);
    if (request == NULL)
        return err_set(error, STINT_E_SYNTAX, "expected a ServerReflectionRequest in protobuf");
    int code = answer_message(request, space, answer, error);
    pb__server_reflection_request__free_unpacked(request, NULL);
    return code;
}
