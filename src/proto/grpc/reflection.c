/* SPDX-License-Identifier: MIT */
/* ServerReflectionRequest to ServerReflectionResponse. There are no extensions. */
#include "proto/grpc/reflection.h"

#include "base/buf.h"
#include "base/err.h"
#include "described.pb-c.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/reflection_symbols.h"
#include "reflection.pb-c.h"

#include <assert.h>
#include <stdlib.h>

#define SERVICES_MAX 8
#define SERVICE_NAME_MAX 96

/* The parts of an answer. */
struct reflecting {
    const struct reflection_set *set;
    Pb__ServerReflectionResponse response;
    Pb__FileDescriptorResponse files;
    ProtobufCBinaryData file[REFLECTION_FILES_MAX];
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

static void answer_files(struct reflecting *reflecting, size_t file)
{
    size_t indices[REFLECTION_FILES_MAX];
    size_t n = reflection_files_of(reflecting->set, file, indices);
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
        file = reflection_file_named(set, span_of(name.data, name.len));
        if (file == REFLECTION_NONE)
            answer_fault(reflecting, GRPC_NOT_FOUND, "there is no file of that name");
        else
            answer_files(reflecting, file);
        return;
    case PB__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        name = request->file_containing_symbol;
        file = reflection_file_defining(set, span_of(name.data, name.len));
        if (file == REFLECTION_NONE)
            answer_fault(reflecting, GRPC_NOT_FOUND, "no file defines that symbol");
        else
            answer_files(reflecting, file);
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
    struct reflection_set *set;
    if (space->set != NULL)
        return true;
    set = malloc(sizeof(*set));
    if (set == NULL || !reflection_set_read(set)) {
        free(set);
        return false;
    }
    space->set = set;
    return true;
}

void reflection_space_free(struct reflection_space *space)
{
    if (space->set != NULL)
        reflection_set_free(space->set);
    free(space->set);
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
