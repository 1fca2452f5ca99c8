/* SPDX-License-Identifier: MIT */
/*
 * The header fields of a call. Each is parsed when it comes; fields that gRPC does not know are not
 * kept.
 */
#include "frontend/grpc/grpc_parts.h"

static uint8_t lower(uint8_t byte)
{
    return byte >= 'A' && byte <= 'Z' ? (uint8_t)(byte | 0x20) : byte;
}

/* application/grpc, with +proto or parameters; other message encodings are not supported. */
static bool is_grpc(struct span type)
{
    static const char name[] = "application/grpc", proto[] = "+proto";
    size_t len = sizeof(name) - 1, proto_len = sizeof(proto) - 1;
    if (type.len < len)
        return false;
    for (size_t i = 0; i < len; i++)
        if (lower(type.ptr[i]) != (uint8_t)name[i])
            return false;
    if (type.len >= len + proto_len && memcmp(type.ptr + len, proto, proto_len) == 0)
        len += proto_len;
    return type.len == len || type.ptr[len] == ';' || type.ptr[len] == ' ';
}

static void take_timeout(struct grpc_call *call, struct span value)
{
    uint64_t timeout_ns;
    if (!grpc_timeout_read(value, &timeout_ns)) {
        call->said |= GRPC_SAID_NO_TIMEOUT;
        return;
    }
    uint64_t left_ns = STINT_NEVER_NS - call->begun_ns;
    call->ends_ns = timeout_ns < left_ns ? call->begun_ns + timeout_ns : STINT_NEVER_NS;
}

static bool is_named(struct span name, const char *text)
{
    return memcmp(name.ptr, text, name.len) == 0;
}

void grpc_fields_take(struct grpc_call *call, struct span name, struct span value)
{
    switch (name.len) {
    case 5:
        if (is_named(name, ":path"))
            call->method = (uint8_t)grpc_method_of(value);
        break;
    case 7:
        if (is_named(name, ":method") && span_equals(value, "POST"))
            call->said |= GRPC_SAID_POST;
        break;
    case 12:
        if (is_named(name, "content-type") && is_grpc(value))
            call->said |= GRPC_SAID_GRPC;
        else if (is_named(name, "grpc-timeout"))
            take_timeout(call, value);
        break;
    case 13:
        if (is_named(name, "authorization"))
            grpc_caller_take(call, value);
        else if (is_named(name, "grpc-encoding"))
            call->encoding = (uint8_t)grpc_encoding_of(value);
        break;
    case 20:
        if (is_named(name, "grpc-accept-encoding") && grpc_accepts_gzip(value))
            call->said |= GRPC_SAID_ACCEPTS_GZIP;
        break;
    default:
        break;
    }
}

static bool is_endless(uint8_t method)
{
    return method == GRPC_HEALTH_WATCH || method == GRPC_REFLECTION ||
           method == GRPC_REFLECTION_ALPHA;
}

static void count_endless(struct grpc_call *call)
{
    struct grpc_conn *conn = call->conn;
    if (conn->n_endless >= GRPC_ENDLESS_CALLS) {
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED,
                           "too many calls of Watch and reflection: end one of them first");
        return;
    }
    call->is_endless = true;
    conn->n_endless++;
}

void grpc_fields_end(struct grpc_call *call)
{
    if ((call->said & GRPC_SAID_POST) == 0)
        grpc_answer_refuse_http(call, 405);
    else if ((call->said & GRPC_SAID_GRPC) == 0)
        grpc_answer_refuse_http(call, 415);
    else if ((call->said & GRPC_SAID_TOO_MUCH) != 0)
        grpc_answer_refuse(call, GRPC_RESOURCE_EXHAUSTED, "the header fields are too long");
    else if (call->method == GRPC_METHOD_NONE)
        grpc_answer_refuse(call, GRPC_UNIMPLEMENTED, "no such method");
    else if (call->encoding == GRPC_ENCODING_UNKNOWN)
        grpc_answer_refuse(call, GRPC_UNIMPLEMENTED, "grpc-encoding: expected identity or gzip");
    else if ((call->said & GRPC_SAID_NO_TIMEOUT) != 0)
        grpc_answer_refuse(call, GRPC_INVALID_ARGUMENT,
                           "grpc-timeout: expected up to eight digits and one of H M S m u n");
    else if (grpc_method_asks(call->method))
        grpc_caller_admit(call);
    else if (is_endless(call->method))
        count_endless(call);
}
