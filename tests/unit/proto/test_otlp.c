/* SPDX-License-Identifier: MIT */
/* Spans and requests to a collector, taken apart by the published numbers of their fields. */
#include "unit/test_protobuf.h"

#include "proto/otlp/otlp.h"

static const uint8_t trace_id[16] = "0123456789abcdef", id[8] = "01234567", parent[8] = "89abcdef";
static uint8_t space[OTLP_SPAN_SIZE];

static struct otlp_span span_of_test(void)
{
    return (struct otlp_span){.trace_id = trace_id,
                              .id = id,
                              .flags = TRACE_FLAG_SAMPLED,
                              .name = span_of_text("name"),
                              .kind = OTLP_SERVER,
                              .begin_ns = 0x0102030405060708,
                              .end_ns = 9};
}

/* The message without the tag and the length of its field. */
static struct span written(const struct otlp_span *span)
{
    struct span field = otlp_span_write(space, span);
    assert_ptr_equal(field.ptr + field.len, space + sizeof(space));
    return wire_bytes_of(field, 2, 0);
}

static uint64_t fixed(struct span bytes)
{
    uint64_t number = 0;
    for (size_t i = bytes.len; i-- > 0;)
        number = number << 8 | bytes.ptr[i];
    return number;
}

static void assert_text(struct span bytes, const char *text)
{
    if (!span_equals(bytes, text))
        fail_msg("%.*s, not %s", (int)bytes.len, (const char *)bytes.ptr, text);
}

TEST(a_span_has_its_fields)
{
    struct otlp_span span = span_of_test();
    const struct otlp_attribute attributes[] = {
        {"text", span_of_text("value"), 0}, {"number", {NULL, 0}, 429}, {"zero", {NULL, 0}, 0}};
    span.parent_id = parent;
    span.is_parent_remote = true;
    span.state = span_of_text("a=b");
    span.attributes = attributes;
    span.n_attributes = N(attributes);
    span.error = "it failed";
    struct span message = written(&span);
    assert_memory_equal(wire_bytes_of(message, 1, 0).ptr, trace_id, 16);
    assert_memory_equal(wire_bytes_of(message, 2, 0).ptr, id, 8);
    assert_text(wire_bytes_of(message, 3, 0), "a=b");
    assert_memory_equal(wire_bytes_of(message, 4, 0).ptr, parent, 8);
    assert_text(wire_bytes_of(message, 5, 0), "name");
    assert_int_equal(wire_number_of(message, 6), 2);
    assert_int_equal(fixed(wire_bytes_of(message, 7, 0)), 0x0102030405060708);
    assert_int_equal(fixed(wire_bytes_of(message, 8, 0)), 9);
    assert_int_equal(fixed(wire_bytes_of(message, 16, 0)), 0x301);
    assert_int_equal(wire_count(message, 9), 3);
    struct span text = wire_bytes_of(message, 9, 0), number = wire_bytes_of(message, 9, 1);
    assert_text(wire_bytes_of(text, 1, 0), "text");
    assert_text(wire_bytes_of(wire_bytes_of(text, 2, 0), 1, 0), "value");
    assert_text(wire_bytes_of(number, 1, 0), "number");
    assert_int_equal(wire_number_of(wire_bytes_of(number, 2, 0), 3), 429);
    /* A value that is 0 must be there, or it would be no number. */
    assert_int_equal(wire_count(wire_bytes_of(wire_bytes_of(message, 9, 2), 2, 0), 3), 1);
    struct span status = wire_bytes_of(message, 15, 0);
    assert_text(wire_bytes_of(status, 2, 0), "it failed");
    assert_int_equal(wire_number_of(status, 3), 2);
}

TEST(a_first_span_has_no_parent)
{
    struct otlp_span span = span_of_test();
    span.is_parent_remote = true;
    struct span message = written(&span);
    assert_int_equal(wire_count(message, 3) + wire_count(message, 4) + wire_count(message, 15), 0);
    assert_int_equal(fixed(wire_bytes_of(message, 16, 0)), 0x101);
}

TEST(texts_are_cut_and_made_valid)
{
    struct otlp_span span = span_of_test();
    char text[400];
    memset(text, 'x', sizeof(text));
    span.name = span_of(text, sizeof(text));
    assert_int_equal(wire_bytes_of(written(&span), 5, 0).len, OTLP_TEXT_MAX);
    memcpy(text + OTLP_TEXT_MAX - 1, "\xc3\xa9", 2); /* a character across the end */
    assert_int_equal(wire_bytes_of(written(&span), 5, 0).len, OTLP_TEXT_MAX - 1);
    span.name = span_of("a\xff\x00z\xc3", 5);
    struct span name = wire_bytes_of(written(&span), 5, 0);
    assert_int_equal(name.len, 9);
    assert_memory_equal(name.ptr, "a\xef\xbf\xbd\x00z\xef\xbf\xbd", 9);
}

TEST(the_largest_span_has_space)
{
    char wrong[2 * OTLP_TEXT_MAX], state[TRACE_STATE_MAX], error[300];
    struct otlp_attribute attributes[OTLP_ATTRIBUTES_MAX];
    struct otlp_span span = span_of_test();
    memset(wrong, '\xff', sizeof(wrong));
    memset(state, 's', sizeof(state));
    memset(error, '\xff', sizeof(error));
    error[sizeof(error) - 1] = '\0';
    for (size_t i = 0; i < N(attributes); i++)
        attributes[i] =
            (struct otlp_attribute){"db.operation.name", span_of(wrong, sizeof(wrong)), 0};
    span.parent_id = parent;
    span.state = span_of(state, sizeof(state));
    span.name = span_of(wrong, sizeof(wrong));
    span.attributes = attributes;
    span.n_attributes = N(attributes);
    span.error = error;
    struct span message = written(&span);
    assert_int_equal(wire_count(message, 9), N(attributes));
    assert_int_equal(wire_bytes_of(message, 5, 0).len, 3 * OTLP_TEXT_MAX);
}

TEST(a_request_has_resource_scope_and_spans)
{
    static uint8_t resource_space[OTLP_RESOURCE_SIZE], memory[4096];
    const struct otlp_resource_attribute attributes[] = {
        {span_of_text("service.name"), span_of_text("stint")},
        {span_of_text("a"), span_of_text("b")}};
    struct otlp_span span = span_of_test();
    struct span resource = otlp_resource_write(resource_space, attributes, N(attributes));
    struct span one = otlp_span_write(space, &span);
    uint8_t *at = memory + 1024;
    memcpy(at, one.ptr, one.len);
    memcpy(at + one.len, one.ptr, one.len);
    struct span request = otlp_request_write(resource, "1.2.3", span_of(at, 2 * one.len));
    assert_true(request.len <= resource.len + OTLP_HEAD_MAX + 2 * one.len);
    assert_ptr_equal(request.ptr + request.len, at + 2 * one.len);
    struct span of_resource = wire_bytes_of(request, 1, 0);
    struct span named = wire_bytes_of(of_resource, 1, 0);
    assert_int_equal(wire_count(named, 1), 2);
    struct span name = wire_bytes_of(named, 1, 0);
    assert_text(wire_bytes_of(name, 1, 0), "service.name");
    assert_text(wire_bytes_of(wire_bytes_of(name, 2, 0), 1, 0), "stint");
    struct span of_scope = wire_bytes_of(of_resource, 2, 0);
    assert_text(wire_bytes_of(wire_bytes_of(of_scope, 1, 0), 1, 0), "stint");
    assert_text(wire_bytes_of(wire_bytes_of(of_scope, 1, 0), 2, 0), "1.2.3");
    assert_int_equal(wire_count(of_scope, 2), 2);
    assert_text(wire_bytes_of(wire_bytes_of(of_scope, 2, 1), 5, 0), "name");
}

TEST(responses_say_what_was_refused)
{
    struct otlp_response response;
    struct stint_error error;
    struct wire partial = {.len = 0}, whole = {.len = 0};
    assert_int_equal(otlp_response_read(&response, span_of(NULL, 0), &error), 0);
    assert_int_equal(response.refused, 0);
    wire_number(&partial, 1, 7);
    wire_text(&partial, 2, "too many");
    wire_message(&whole, 1, &partial);
    assert_int_equal(otlp_response_read(&response, wired(&whole), &error), 0);
    assert_int_equal(response.refused, 7);
    assert_text(response.message, "too many");
    assert_int_equal(otlp_response_read(&response, span_of_text("<html>"), &error), STINT_E_SYNTAX);
    assert_int_equal(otlp_response_read(&response, span_of("\x0a\x05", 2), &error), STINT_E_SYNTAX);
}
