/* SPDX-License-Identifier: MIT */
/* RateLimitResponse in proto3's JSON. */
#include "proto/http/http_call.h"

#include "base/ns.h"

#include <jansson.h>

/* ---- Statuses -------------------------------------------------------------------------------- */

/* proto3 leaves out values that are 0 or empty. */
static void write_current_limit(struct http_text *out, const struct rls_limit *limit)
{
    const char *before = "";
    http_text_add(out, ",\"currentLimit\":{");
    if (limit->requests_per_unit > 0) {
        http_text_add(out, "\"requestsPerUnit\":");
        http_text_u64(out, limit->requests_per_unit);
        before = ",";
    }
    if (limit->unit != RULE_UNIT_NONE) {
        http_text_add_text(out, before);
        http_text_add(out, "\"unit\":\"");
        http_text_add_text(out, rls_unit_names[limit->unit]);
        http_text_add(out, "\"");
        before = ",";
    }
    if (limit->name[0] != '\0') {
        http_text_add_text(out, before);
        http_text_add(out, "\"name\":");
        http_text_json(out, span_of_text(limit->name));
        before = ",";
    }
    if (limit->unit_multiplier != 1) {
        http_text_add_text(out, before);
        http_text_add(out, "\"unitMultiplier\":");
        http_text_u64(out, limit->unit_multiplier);
    }
    http_text_add(out, "}");
}

/* A google.protobuf.Duration: 0, 3, 6 or 9 decimals, as few as are exact. */
static void write_duration(struct http_text *out, uint64_t ns)
{
    char decimals[10] = ".";
    size_t len = ns % NS_PER_S == 0 ? 0 : ns % NS_PER_MS == 0 ? 4 : ns % NS_PER_US == 0 ? 7 : 10;
    uint64_t rest = ns % NS_PER_S;
    for (size_t i = 9; i > 0; i--, rest /= 10)
        decimals[i] = (char)('0' + rest % 10);
    http_text_add(out, ",\"durationUntilReset\":\"");
    http_text_u64(out, ns / NS_PER_S);
    http_text_bytes(out, decimals, len);
    http_text_add(out, "s\"");
}

static void write_status(struct http_text *out, const struct target *status)
{
    struct rls_status written;
    rls_status_of(status, &written);
    http_text_add(out, "{\"code\":\"");
    http_text_add_text(out, rls_code_name(written.code));
    http_text_add(out, "\"");
    if (written.has_limit)
        write_current_limit(out, &written.limit);
    if (written.remaining > 0) {
        http_text_member_u64(out, "limitRemaining", written.remaining);
    }
    if (written.has_reset)
        write_duration(out, written.reset_after_ns);
    http_text_add(out, "}");
}

/* ---- Header fields, body and metadata -------------------------------------------------------- */

static void write_fields(struct http_text *out, const struct rls_form *form,
                         const struct request *request, const struct reply *reply)
{
    char values[RLS_HEADERS_SIZE];
    struct http_text text = http_text_at(values, sizeof(values));
    struct http_answer answer; /* large: only the used fields are written */
    rls_fields(form, request, reply, &text, &answer);
    for (size_t i = 0; i < answer.n_fields; i++) {
        http_text_add_text(out, i == 0 ? ",\"responseHeadersToAdd\":[" : ",");
        http_text_add(out, "{\"key\":");
        http_text_json(out, span_of_text(answer.fields[i].name));
        http_text_member_json(out, "value", span_of_text(answer.fields[i].value));
        http_text_add(out, "}");
    }
    if (answer.n_fields > 0)
        http_text_add(out, "]");
}

static void write_base64(struct http_text *out, struct span bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
        uint32_t word = (uint32_t)bytes.ptr[i] << 16;
        word |= n > 1 ? (uint32_t)bytes.ptr[i + 1] << 8 : 0;
        word |= n > 2 ? bytes.ptr[i + 2] : 0;
        char four[] = {digits[word >> 18], digits[word >> 12 & 63],
                       n > 1 ? digits[word >> 6 & 63] : '=', n > 2 ? digits[word & 63] : '='};
        http_text_bytes(out, four, sizeof(four));
    }
}

static void write_metadata(struct http_text *out, const struct http_call *call,
                           const struct reply *reply)
{
    json_t *metadata = rls_metadata(call->hits_addend, &call->request, reply);
    http_text_member(out, "dynamicMetadata");
    size_t left = out->size - out->len;
    size_t len = json_dumpb(metadata, out->text + out->len, left, JSON_COMPACT);
    if (len == 0 || len >= left)
        out->is_full = true; /* or no memory: the answer fails */
    else
        out->len += len;
    json_decref(metadata);
}

void http_rls_write(struct http_text *out, struct http_call *call, const struct rls_form *form,
                    const struct reply *reply)
{
    enum rls_code code = rls_overall_code(reply);
    http_text_add(out, "{\"overallCode\":\"");
    http_text_add_text(out, rls_code_name(code));
    http_text_add(out, "\",\"statuses\":[");
    for (size_t i = 0; i < reply->n_statuses; i++) {
        if (i > 0)
            http_text_add(out, ",");
        write_status(out, &reply->statuses[i]);
    }
    http_text_add(out, "]");
    if (form->styles != 0)
        write_fields(out, form, &call->request, reply);
    if (code == RLS_OVER_LIMIT && form->denied_body.len > 0) {
        http_text_add(out, ",\"rawBody\":\"");
        write_base64(out, form->denied_body);
        http_text_add(out, "\"");
    }
    if (form->has_metadata)
        write_metadata(out, call, reply);
    http_text_add(out, "}");
}
