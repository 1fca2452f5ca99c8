/* SPDX-License-Identifier: MIT */
/* The caller's trace context, as the test suite of the W3C sends it, right and wrong. */
#include "unit/test.h"

#include "proto/otlp/trace_context.h"

#define ID "0af7651916cd43dd8448eb211c80319c"
#define SPAN "b7ad6b7169203331"
#define PARENT "00-" ID "-" SPAN

static struct trace_context context;

SETUP
{
    context = (struct trace_context){.is_valid = false};
}

static bool is_parent(const char *text)
{
    context = (struct trace_context){.is_valid = false};
    trace_context_parent(&context, span_of_text(text));
    return context.is_valid;
}

static const char *state_after(const char *const fields[], size_t n)
{
    static char text[TRACE_STATE_MAX + 1];
    is_parent(PARENT "-01");
    for (size_t i = 0; i < n; i++)
        trace_context_state(&context, span_of_text(fields[i]));
    struct span state = trace_context_state_of(&context);
    memcpy(text, state.ptr, state.len);
    text[state.len] = '\0';
    return text;
}

static const char *state_of(const char *text)
{
    return state_after((const char *const[]){text}, 1);
}

TEST(a_parent_has_ids_and_flags)
{
    assert_true(is_parent(PARENT "-01"));
    assert_int_equal(context.trace_id[0], 0x0a);
    assert_int_equal(context.trace_id[15], 0x9c);
    assert_int_equal(context.span_id[0], 0xb7);
    assert_int_equal(context.span_id[7], 0x31);
    assert_int_equal(context.flags, TRACE_FLAG_SAMPLED);
    assert_true(is_parent(PARENT "-00"));
    assert_int_equal(context.flags, 0);
    assert_true(is_parent(PARENT "-ff"));
    assert_int_equal(context.flags, TRACE_FLAG_SAMPLED | TRACE_FLAG_RANDOM);
}

TEST(later_versions_may_be_longer)
{
    assert_true(is_parent("cc-" ID "-" SPAN "-01"));
    assert_true(is_parent("cc-" ID "-" SPAN "-01-what-the-future-will-be-like"));
    assert_false(is_parent("cc-" ID "-" SPAN "-01.what-the-future-will-be-like"));
    assert_false(is_parent("cc-" ID "-" SPAN "-0"));
}

TEST(what_is_wrong_is_no_parent)
{
    static const char *const wrong[] = {
        "",
        "00",
        PARENT,
        PARENT "-",
        PARENT "-0",
        PARENT "-01-",
        PARENT "-01-xx",
        PARENT "-001",
        PARENT "-0x",
        PARENT " 01",
        " " PARENT "-01",
        "ff-" ID "-" SPAN "-01",
        "0-" ID "-" SPAN "-01",
        "000-" ID "-" SPAN "-01",
        ".0-" ID "-" SPAN "-01",
        "00_" ID "-" SPAN "-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" ID "-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01",
        "00-" ID "-B7AD6B7169203331-01",
        "00-" ID "-" SPAN "-0A",
        "00-.af7651916cd43dd8448eb211c80319c-" SPAN "-01",
        "00-0af7651916cd43dd8448eb211c8031-" SPAN "00-01",
        "00-" ID "-.7ad6b7169203331-01",
    };
    for (size_t i = 0; i < N(wrong); i++)
        if (is_parent(wrong[i]))
            fail_msg("%s", wrong[i]);
}

TEST(two_parents_are_none)
{
    is_parent(PARENT "-01");
    trace_context_parent(&context, span_of_text(PARENT "-01"));
    assert_false(context.is_valid);
    trace_context_parent(&context, span_of_text(PARENT "-01"));
    assert_false(context.is_valid);
}

TEST(states_are_lists)
{
    assert_string_equal(state_of("foo=1"), "foo=1");
    assert_string_equal(state_of("foo=1,bar=2"), "foo=1,bar=2");
    assert_string_equal(state_of(" foo=1 , bar=2\t"), "foo=1 , bar=2");
    assert_string_equal(state_of("foo=1,,bar=2"), "foo=1,,bar=2");
    assert_string_equal(state_of("tenant@system=a b"), "tenant@system=a b");
    assert_string_equal(state_of("0*/_-=!"), "0*/_-=!");
    assert_string_equal(state_after((const char *const[]){"foo=1", "", "bar=2"}, 3), "foo=1,bar=2");
}

TEST(a_wrong_state_is_none)
{
    static const char *const wrong[] = {
        "foo",       "=1",           "foo=", "Foo=1",     "foo =1",        "foo=1=2",
        "foo=1\x7f", "foo=\xc3\xa9", "@a=1", "foo=1,bar", "foo=1;bar=2=3",
    };
    for (size_t i = 0; i < N(wrong); i++)
        if (state_of(wrong[i])[0] != '\0')
            fail_msg("%s", wrong[i]);
    assert_true(context.is_valid); /* of the parent beside it */
    assert_string_equal(state_after((const char *const[]){"a=1", "b", "c=1"}, 3), "");
}

TEST(a_state_without_a_parent_is_none)
{
    trace_context_state(&context, span_of_text("foo=1"));
    assert_int_equal(trace_context_state_of(&context).len, 0);
}

TEST(states_are_bounded)
{
    char text[2 * TRACE_STATE_MAX];
    size_t len = 0;
    for (unsigned i = 0; i < 32; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%sk%u=1", i > 0 ? "," : "", i);
    assert_string_equal(state_of(text), text);
    snprintf(text + len, sizeof(text) - len, ",k32=1");
    assert_string_equal(state_of(text), "");
    memset(text, 'a', sizeof(text));
    text[256] = '=', text[257] = '1', text[258] = '\0';
    assert_string_equal(state_of(text), text); /* a key of 256 bytes */
    text[256] = 'a', text[257] = '=', text[258] = '1', text[259] = '\0';
    assert_string_equal(state_of(text), "");
    memset(text, 'a', sizeof(text));
    text[1] = '=', text[2 + 256] = '\0';
    assert_string_equal(state_of(text), text);
    const char *const twice[] = {text, text};
    assert_string_equal(state_after(twice, 2), ""); /* 517 bytes */
    text[2 + 253] = '\0';
    assert_int_equal(strlen(state_after(twice, 2)), 511);
}
