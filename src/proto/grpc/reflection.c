/* SPDX-License-Identifier: MIT */
/*
 * ServerReflectionRequest to ServerReflectionResponse. There are no extensions. Files and symbols
 * are found by a linear search through the descriptions as they are on the wire: there are about a
 * dozen files, and requests are rare.
 */
#include "proto/grpc/reflection.h"

#include "base/err.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/wire.h"

#include <assert.h>
#include <stdlib.h>

#define FILES_MAX 32

/* A FileDescriptorSet, compiled from src/proto/grpc/messages/ when the program is built. */
extern const unsigned char reflection_files[];
extern const size_t reflection_files_len;

/* ---- The described files --------------------------------------------------------------------- */

/* What descriptions describe, with the numbers of google/protobuf/descriptor.proto. */
enum kind { PART = 1, ENUM, SERVICE, MESSAGE, FILE_OF_ALL };
enum { NAME = 1, PACKAGE, DEPENDENCY };
enum { FILE_MESSAGE = 4, FILE_ENUM, FILE_SERVICE };

#define ALL_BYTES                                                                                  \
    {                                                                                              \
        0, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES      \
    }
static const struct wire_message set_message = {1, ALL_BYTES};
static const struct {
    struct wire_message message;
    uint8_t within[1 + WIRE_KNOWN_MAX]; /* enum kind of a field that is a description; or 0 */
} kinds[] = {
    [PART] = {{1, ALL_BYTES}, {0}},
    [ENUM] = {{2, ALL_BYTES}, {[2] = PART}},
    [SERVICE] = {{2, ALL_BYTES}, {[2] = PART}},
    [MESSAGE] = {{4, ALL_BYTES}, {[2] = PART, [3] = MESSAGE, [4] = ENUM}},
    [FILE_OF_ALL] = {{6, ALL_BYTES},
                     {[FILE_MESSAGE] = MESSAGE, [FILE_ENUM] = ENUM, [FILE_SERVICE] = SERVICE}},
};

/* The next field with that number; its ptr is NULL where there is none. */
static struct span next_of(const struct wire_message *message, struct span *rest, int number)
{
    struct wire_value value;
    int field;
    while ((field = wire_read(message, rest, &value)) > 0)
        if (field == number)
            return value.bytes;
    assert(field == 0); /* the descriptions are our own */
    return span_of(NULL, 0);
}

static struct span text_of(enum kind kind, struct span description, int number)
{
    return next_of(&kinds[kind].message, &description, number);
}

static bool is_same(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/*
 * Whether this, or a part of it, has the symbol's name. The values of an enum are named beside it,
 * not within it. The depth to which our own files nest messages.
 */
static bool defines(enum kind kind, struct span description, struct span symbol)
{
    struct span name = text_of(kind, description, kind == FILE_OF_ALL ? PACKAGE : NAME);
    struct wire_value value;
    if (kind != FILE_OF_ALL && is_same(symbol, name))
        return true;
    if (kind != ENUM) {
        if (symbol.len <= name.len || !is_same(span_of(symbol.ptr, name.len), name) ||
            symbol.ptr[name.len] != '.')
            return false;
        symbol = span_after(symbol, name.len + 1);
    }
    for (int field; (field = wire_read(&kinds[kind].message, &description, &value)) > 0;) {
        enum kind within = (enum kind)kinds[kind].within[field];
        if (within != 0 && defines(within, value.bytes, symbol))
            return true;
    }
    return false;
}

static bool is_named(struct span file, struct span name)
{
    return is_same(text_of(FILE_OF_ALL, file, NAME), name);
}

static bool defines_symbol(struct span file, struct span symbol)
{
    return defines(FILE_OF_ALL, file, symbol);
}

/* The first file that fits; its ptr is NULL where there is none. */
static struct span find_file(bool (*fits)(struct span file, struct span name), struct span name)
{
    struct span rest = span_of(reflection_files, reflection_files_len), file;
    do
        file = next_of(&set_message, &rest, 1);
    while (file.ptr != NULL && !fits(file, name));
    return file;
}

/* A file, and all that it imports, each once; returns their number. */
static size_t files_of(struct span file, struct span files[FILES_MAX])
{
    size_t n = 1;
    files[0] = file;
    for (size_t done = 0; done < n; done++) {
        struct span rest = files[done], name;
        while ((name = next_of(&kinds[FILE_OF_ALL].message, &rest, DEPENDENCY)).ptr != NULL) {
            struct span imported = find_file(is_named, name);
            size_t i = 0;
            while (i < n && files[i].ptr != imported.ptr)
                i++;
            assert(imported.ptr != NULL && i < FILES_MAX); /* all imported files are described */
            files[i] = imported;
            n = i == n ? n + 1 : n;
        }
    }
    return n;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* Fields of a request, and of the response. */
enum { HOST = 1, BY_NAME = 3, BY_SYMBOL, BY_EXTENSION, EXTENSIONS_OF, LIST };
enum { ORIGINAL = 2, FILES = 4, SERVICES = 6, FAULT };

/* Bytes beside the descriptions and the request: texts of errors, tags and lengths. */
#define ANSWER_REST 1024

static void write_fault(struct wire_writer *writer, enum grpc_status status, const char *message)
{
    const uint8_t *end = writer->at;
    wire_write_bytes(writer, 2, span_of_text(message));
    wire_write_number(writer, 1, status);
    wire_write_head(writer, FAULT, end);
}

static void write_files(struct wire_writer *writer, struct span file, const char *otherwise)
{
    struct span files[FILES_MAX];
    const uint8_t *end = writer->at;
    if (file.ptr == NULL) {
        write_fault(writer, GRPC_NOT_FOUND, otherwise);
        return;
    }
    for (size_t i = files_of(file, files); i-- > 0;)
        wire_write_bytes(writer, 1, files[i]);
    wire_write_head(writer, FILES, end);
}

static void write_service(struct wire_writer *writer, struct span package, struct span name)
{
    const uint8_t *end = writer->at;
    wire_write_raw(writer, name);
    wire_write_raw(writer, span_of(".", 1));
    wire_write_raw(writer, package);
    wire_write_head(writer, 1, end);
    wire_write_head(writer, 1, end);
}

static void write_services(struct wire_writer *writer)
{
    const struct wire_message *message = &kinds[FILE_OF_ALL].message;
    struct span rest = span_of(reflection_files, reflection_files_len), file, service;
    const uint8_t *end = writer->at;
    while ((file = next_of(&set_message, &rest, 1)).ptr != NULL)
        for (struct span in = file; (service = next_of(message, &in, FILE_SERVICE)).ptr != NULL;)
            write_service(writer, text_of(FILE_OF_ALL, file, PACKAGE),
                          text_of(SERVICE, service, NAME));
    wire_write_head(writer, SERVICES, end);
}

static void write_answer(struct wire_writer *writer, int asked, struct span name)
{
    switch (asked) {
    case BY_NAME:
        write_files(writer, find_file(is_named, name), "there is no file of that name");
        break;
    case BY_SYMBOL:
        write_files(writer, find_file(defines_symbol, name), "no file defines that symbol");
        break;
    case BY_EXTENSION:
    case EXTENSIONS_OF:
        write_fault(writer, GRPC_NOT_FOUND, "there are no extensions");
        break;
    case LIST:
        write_services(writer);
        break;
    default:
        write_fault(writer, GRPC_INVALID_ARGUMENT,
                    "expected a request: a file by name, a symbol, or the list of services");
    }
}

int reflection_answer(struct span message, uint8_t **space, struct span *answer,
                      struct stint_error *error)
{
    static const struct wire_message request_message = {LIST, ALL_BYTES};
    struct span rest = message, host = {NULL, 0}, name = {NULL, 0};
    struct wire_value value;
    int field, asked = 0;
    if (message.len > REFLECTION_REQUEST_MAX)
        return err_set(error, STINT_E_RANGE,
                       "expected a ServerReflectionRequest of at most %d bytes",
                       REFLECTION_REQUEST_MAX);
    while ((field = wire_read(&request_message, &rest, &value)) > 0) {
        *(field == HOST ? &host : &name) = value.bytes;
        asked = field == HOST ? asked : field;
    }
    if (field < 0)
        return err_set(error, STINT_E_SYNTAX, "expected a ServerReflectionRequest in protobuf");
    size_t size = reflection_files_len + 2 * REFLECTION_REQUEST_MAX + ANSWER_REST;
    if (*space == NULL)
        *space = malloc(size);
    if (*space == NULL)
        return err_set(error, STINT_E_SYSTEM, "there is no memory to describe messages");
    struct wire_writer writer = {*space + size};
    write_answer(&writer, asked, name);
    wire_write_bytes(&writer, ORIGINAL, message);
    wire_write_bytes(&writer, HOST, host);
    assert(writer.at >= *space);
    *answer = span_of(writer.at, (size_t)(*space + size - writer.at));
    return 0;
}
