/* SPDX-License-Identifier: MIT */
/* Requests are written backwards, as proto/grpc/wire.h does; responses are read in place. */
#include "xds/discovery.h"

#include "base/buf.h"
#include "proto/grpc/wire.h"
#include "rules/yaml/diagnostics.h"
#include "xds/rate_limit_config.h"

#include <stdbool.h>

#define USER_AGENT "stint"
#define REFUSED_CODE 3 /* INVALID_ARGUMENT of google.rpc.Code */
#define PATH_MAX_BYTES 512

/* ---- Requests -------------------------------------------------------------------------------- */

enum { REQUEST_VERSION = 1, REQUEST_NODE, REQUEST_TYPE = 4, REQUEST_NONCE, REQUEST_ERROR };
enum { NODE_ID = 1, NODE_METADATA = 3, NODE_USER_AGENT = 6 };
enum { STATUS_CODE = 1, STATUS_MESSAGE };
enum { ENTRY_NAME = 1, ENTRY_CONTENT };
enum { STRUCT_FIELDS = 1, VALUE_STRING = 3 };

#define HEADS_MAX (4 * WIRE_HEAD_MAX) /* of a message, or of a text in three messages */

size_t discovery_request_size(const struct discovery_request *request)
{
    const struct discovery_node *node = &request->node;
    size_t size = 8 * HEADS_MAX + strlen(RATE_LIMIT_CONFIG_TYPE) + strlen(USER_AGENT) +
                  strlen(node->id) + request->version.len + request->nonce.len;
    if (request->refusal != NULL)
        size += strlen(request->refusal);
    for (size_t i = 0; i < node->n_metadata; i++)
        size += HEADS_MAX + strlen(node->metadata[i]);
    return size;
}

/* An entry of Struct.fields: a text under its key. */
static void write_member(struct wire_writer *writer, const char *member)
{
    const uint8_t *end = writer->at;
    size_t key_len = strcspn(member, "=");
    const char *value = member[key_len] == '=' ? member + key_len + 1 : "";
    /* An empty text is one nevertheless: the tag is what makes it a string. */
    wire_write_raw(writer, span_of_text(value));
    wire_write_head(writer, VALUE_STRING, end);
    wire_write_head(writer, ENTRY_CONTENT, end);
    wire_write_bytes(writer, ENTRY_NAME, span_of(member, key_len));
    wire_write_head(writer, STRUCT_FIELDS, end);
}

static void write_node(struct wire_writer *writer, const struct discovery_node *node)
{
    const uint8_t *end = writer->at;
    wire_write_bytes(writer, NODE_USER_AGENT, span_of_text(USER_AGENT));
    const uint8_t *metadata_end = writer->at;
    for (size_t i = node->n_metadata; i-- > 0;)
        write_member(writer, node->metadata[i]);
    if (node->n_metadata > 0)
        wire_write_head(writer, NODE_METADATA, metadata_end);
    wire_write_bytes(writer, NODE_ID, span_of_text(node->id));
    wire_write_head(writer, REQUEST_NODE, end);
}

struct span discovery_request_write(const struct discovery_request *request, uint8_t *bytes,
                                    size_t size)
{
    struct wire_writer writer = {bytes + size};
    const uint8_t *end = writer.at;
    if (request->refusal != NULL) {
        wire_write_bytes(&writer, STATUS_MESSAGE, span_of_text(request->refusal));
        wire_write_number(&writer, STATUS_CODE, REFUSED_CODE);
        wire_write_head(&writer, REQUEST_ERROR, end);
    }
    wire_write_bytes(&writer, REQUEST_NONCE, request->nonce);
    wire_write_bytes(&writer, REQUEST_TYPE, span_of_text(RATE_LIMIT_CONFIG_TYPE));
    write_node(&writer, &request->node);
    wire_write_bytes(&writer, REQUEST_VERSION, request->version);
    return span_of(writer.at, (size_t)(end - writer.at));
}

/* ---- Responses ------------------------------------------------------------------------------- */

enum { RESPONSE_VERSION = 1, RESPONSE_RESOURCES, RESPONSE_CANARY, RESPONSE_TYPE, RESPONSE_NONCE };
static const struct wire_message response_message = {
    5, {0, WIRE_BYTES, WIRE_BYTES, WIRE_VARINT, WIRE_BYTES, WIRE_BYTES}};

enum { ANY_TYPE = 1, ANY_VALUE };
static const struct wire_message any_message = {2, {0, WIRE_BYTES, WIRE_BYTES}};

int discovery_response_read(struct span message, struct discovery_response *response,
                            struct stint_error *error)
{
    struct wire_value value;
    int number;
    *response = (struct discovery_response){.version = {NULL, 0}};
    while ((number = wire_read(&response_message, &message, &value)) > 0) {
        if (number == RESPONSE_VERSION)
            response->version = value.bytes;
        else if (number == RESPONSE_NONCE)
            response->nonce = value.bytes;
    }
    if (number < 0)
        return err_set(error, STINT_E_SYNTAX, "malformed protobuf: expected a DiscoveryResponse");
    if (response->version.len > DISCOVERY_TEXT_MAX || response->nonce.len > DISCOVERY_TEXT_MAX)
        return err_set(error, STINT_E_RANGE, "a version or nonce has more than %d bytes",
                       DISCOVERY_TEXT_MAX);
    return 0;
}

/* The next resource: > 0; 0: there are no more; < 0: malformed. */
static int next_resource(struct span *rest, struct span *resource)
{
    struct wire_value value;
    int number;
    while ((number = wire_read(&response_message, rest, &value)) > 0)
        if (number == RESPONSE_RESOURCES) {
            *resource = value.bytes;
            return number;
        }
    return number;
}

static int read_any(struct span any, struct span *type, struct span *content)
{
    struct wire_value value;
    int number;
    *type = *content = span_of(NULL, 0);
    while ((number = wire_read(&any_message, &any, &value)) > 0)
        *(number == ANY_TYPE ? type : content) = value.bytes;
    return number;
}

/* URL/NAME, or URL/#3 for a resource without a name. NULL: no memory. */
static const char *path_of(const char *url, struct span name, size_t position, struct arena *arena)
{
    char text[PATH_MAX_BYTES];
    struct buf buf = buf_of(text, sizeof(text));
    if (name.len > 0)
        buf_add(&buf, "%s/%s", url, quoted_text(name).text);
    else
        buf_add(&buf, "%s/#%zu", url, position);
    return arena_text(arena, span_of_text(text));
}

static int resource_file(struct span resource, const char *url, size_t position,
                         struct arena *arena, struct rules_file *file, struct stint_error *error)
{
    struct span type, content;
    if (read_any(resource, &type, &content) < 0)
        return err_set(error, STINT_E_SYNTAX, "resource %zu: malformed protobuf: expected an Any",
                       position);
    if (!span_equals(type, RATE_LIMIT_CONFIG_TYPE))
        return err_set(error, STINT_E_SYNTAX, "resource %zu: expected type %s, found \"%s\"",
                       position, RATE_LIMIT_CONFIG_TYPE, quoted_text(type).text);
    *file = (struct rules_file){
        .path = path_of(url, rate_limit_config_name(content), position, arena),
        .text = content,
        .read = rate_limit_config_read,
    };
    return file->path != NULL ? 0 : err_set(error, STINT_E_SYSTEM, "no memory for a resource");
}

int discovery_files(struct span message, const char *url, struct arena *arena,
                    struct rules_file *files, size_t *n_files, struct stint_error *error)
{
    struct wire_value value;
    int number, code = 0;
    size_t n = 0;
    while (code == 0 && (number = wire_read(&response_message, &message, &value)) != 0) {
        if (number < 0)
            return err_set(error, STINT_E_SYNTAX,
                           "malformed protobuf: expected a DiscoveryResponse");
        if (number == RESPONSE_TYPE && !span_equals(value.bytes, RATE_LIMIT_CONFIG_TYPE))
            return err_set(error, STINT_E_SYNTAX, "expected resources of type %s, found \"%s\"",
                           RATE_LIMIT_CONFIG_TYPE, quoted_text(value.bytes).text);
        if (number != RESPONSE_RESOURCES)
            continue;
        if (n == DISCOVERY_RESOURCES_MAX)
            return err_set(error, STINT_E_RANGE, "more than %d resources", DISCOVERY_RESOURCES_MAX);
        code = resource_file(value.bytes, url, n, arena, &files[n], error);
        n++;
    }
    if (code == 0)
        *n_files += n;
    return code;
}

size_t discovery_count(struct span message)
{
    struct span resource;
    size_t n = 0;
    while (n < DISCOVERY_RESOURCES_MAX && next_resource(&message, &resource) > 0)
        n++;
    return n;
}

bool discovery_is_same(struct span a, struct span b)
{
    struct span of_a = {NULL, 0}, of_b = {NULL, 0};
    for (;;) {
        int number = next_resource(&a, &of_a);
        if (next_resource(&b, &of_b) != number)
            return false;
        if (number <= 0)
            return number == 0;
        if (of_a.len != of_b.len || (of_a.len > 0 && memcmp(of_a.ptr, of_b.ptr, of_a.len) != 0))
            return false;
    }
}
