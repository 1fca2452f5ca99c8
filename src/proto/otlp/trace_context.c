/* SPDX-License-Identifier: MIT */
/* Trace Context, W3C Recommendation: traceparent in 3.2, tracestate in 3.3. */
#include "proto/otlp/trace_context.h"

/* ---- traceparent ----------------------------------------------------------------------------- */

/* VERSION-TRACE_ID-PARENT_ID-FLAGS, in lower-case hexadecimal digits. */
#define TRACE_ID_AT 3
#define SPAN_ID_AT 36
#define FLAGS_AT 53
#define PARENT_LEN 55

/* -1: it is no lower-case digit. */
static int digit_of(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False: a byte of the text is no digit. */
static bool read_bytes(const uint8_t *text, uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

/* Later versions may have more parts after these. */
static bool has_form(struct span value, uint8_t version)
{
    if (version == 0xff || (version == 0 && value.len != PARENT_LEN))
        return false;
    return value.ptr[TRACE_ID_AT - 1] == '-' && value.ptr[SPAN_ID_AT - 1] == '-' &&
           value.ptr[FLAGS_AT - 1] == '-' &&
           (value.len == PARENT_LEN || value.ptr[PARENT_LEN] == '-');
}

void trace_context_parent(struct trace_context *context, struct span value)
{
    uint8_t version = 0xff, flags = 0;
    /* Of two there is no telling which is right. */
    bool is_second = context->has_parent;
    context->has_parent = true;
    context->is_valid = !is_second && value.len >= PARENT_LEN &&
                        read_bytes(value.ptr, &version, 1) && has_form(value, version) &&
                        read_bytes(value.ptr + TRACE_ID_AT, context->trace_id, TRACE_ID_LEN) &&
                        read_bytes(value.ptr + SPAN_ID_AT, context->span_id, TRACE_SPAN_ID_LEN) &&
                        read_bytes(value.ptr + FLAGS_AT, &flags, 1) &&
                        !is_zero(context->trace_id, TRACE_ID_LEN) &&
                        !is_zero(context->span_id, TRACE_SPAN_ID_LEN);
    if (context->is_valid)
        context->flags = flags & (TRACE_FLAG_SAMPLED | TRACE_FLAG_RANDOM);
}

/* ---- tracestate ------------------------------------------------------------------------------ */

#define STATE_MEMBERS_MAX 32
#define STATE_KEY_MAX 256
#define STATE_VALUE_MAX 256

static bool is_alphanumeric(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_key(struct span key)
{
    if (key.len == 0 || key.len > STATE_KEY_MAX || !is_alphanumeric(key.ptr[0]))
        return false;
    for (size_t i = 0; i < key.len; i++)
        if (!is_alphanumeric(key.ptr[i]) &&
            (key.ptr[i] == '\0' || strchr("_-*/@", key.ptr[i]) == NULL))
            return false;
    return true;
}

static bool is_value(struct span value)
{
    if (value.len == 0 || value.len > STATE_VALUE_MAX)
        return false;
    for (size_t i = 0; i < value.len; i++)
        if (value.ptr[i] < ' ' || value.ptr[i] > '~' || value.ptr[i] == '=')
            return false;
    return true;
}

static bool is_member(struct span member)
{
    const uint8_t *equals = member.len > 0 ? memchr(member.ptr, '=', member.len) : NULL;
    if (equals == NULL)
        return member.len == 0; /* empty members are allowed */
    size_t len = (size_t)(equals - member.ptr);
    return is_key(span_of(member.ptr, len)) && is_value(span_after(member, len + 1));
}

static bool is_list(struct span list)
{
    for (unsigned n = 1;; n++) {
        const uint8_t *comma = list.len > 0 ? memchr(list.ptr, ',', list.len) : NULL;
        size_t len = comma != NULL ? (size_t)(comma - list.ptr) : list.len;
        if (n > STATE_MEMBERS_MAX || !is_member(span_trim(span_of(list.ptr, len))))
            return false;
        if (comma == NULL)
            return true;
        list = span_after(list, len + 1);
    }
}

/* Several fields are one list; a member with an error makes all of it invalid. */
void trace_context_state(struct trace_context *context, struct span value)
{
    size_t comma = context->state_len > 0;
    struct span all = span_trim(value);
    if (context->is_state_refused || all.len == 0)
        return;
    context->is_state_refused = context->state_len + comma + all.len > TRACE_STATE_MAX;
    if (context->is_state_refused)
        return;
    if (comma)
        context->state[context->state_len++] = ',';
    memcpy(context->state + context->state_len, all.ptr, all.len);
    context->state_len = (uint16_t)(context->state_len + all.len);
    context->is_state_refused = !is_list(span_of(context->state, context->state_len));
}
