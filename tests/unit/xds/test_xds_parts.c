/* SPDX-License-Identifier: MIT */
/* URLs of control planes, lists of resources, and what is kept over a restart. */
#include "unit/test_protobuf.h"

#include "xds/discovery.h"
#include "xds/last_good.h"
#include "xds/rate_limit_config.h"
#include "xds/xds_url.h"

static struct stint_error error;

/* ---- URLs ------------------------------------------------------------------------------------ */

TEST(urls_have_a_node_a_host_and_a_port)
{
    static const struct {
        const char *text, *node, *host, *authority, *shown;
        unsigned port;
        bool is_tls;
    } cases[] = {
        {"xds://plane:18001", "default", "plane", "plane:18001", "xds://plane:18001", 18001, false},
        {"xds://plane", "default", "plane", "plane:18000", "xds://plane:18000", 18000, false},
        {"xdss://a/b~c@plane:1", "a/b~c", "plane", "plane:1", "xdss://plane:1", 1, true},
        {"xds://n@m@[::1]:7", "n@m", "::1", "[::1]:7", "xds://[::1]:7", 7, false},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct xds_url url;
        assert_true(xds_url_is(cases[i].text));
        assert_int_equal(xds_url_parse(&url, cases[i].text, &error), 0);
        assert_string_equal(url.node, cases[i].node);
        assert_string_equal(url.host.name, cases[i].host);
        assert_int_equal(url.host.port, cases[i].port);
        assert_string_equal(url.authority, cases[i].authority);
        assert_string_equal(url.text, cases[i].shown);
        assert_int_equal(url.is_tls, cases[i].is_tls);
    }
}

TEST(other_texts_are_files_or_refused)
{
    static const char *const files[] = {"", "rules", "xds", "xds:/a", "/xds://a", "XDS://a"};
    static const char *const wrong[] = {"xds://",    "xds://a:",  "xds://a:0",  "xds://a:65536",
                                        "xds://a b", "xds://a/b", "xds://@a:1", "xds://[::1"};
    char long_node[XDS_NODE_SIZE + 32] = "xds://";
    struct xds_url url;
    for (size_t i = 0; i < N(files); i++)
        assert_false(xds_url_is(files[i]));
    for (size_t i = 0; i < N(wrong); i++)
        assert_true(xds_url_parse(&url, wrong[i], &error) < 0);
    memset(long_node + 6, 'n', XDS_NODE_SIZE);
    strcpy(long_node + 6 + XDS_NODE_SIZE, "@a:1");
    assert_int_equal(xds_url_parse(&url, long_node, &error), STINT_E_RANGE);
    strcpy(long_node + 6 + XDS_NODE_SIZE - 1, "@a:1");
    assert_int_equal(xds_url_parse(&url, long_node, &error), 0);
}

/* ---- Resources ------------------------------------------------------------------------------- */

static void add_resource(struct wire *message, const char *type, const char *name)
{
    struct wire any = {.len = 0}, config = {.len = 0};
    if (name != NULL)
        wire_text(&config, 1, name);
    wire_text(&any, 1, type);
    wire_message(&any, 2, &config);
    wire_message(message, 2, &any);
}

TEST(resources_become_files_with_their_names)
{
    struct arena arena = {0};
    struct wire message = {.len = 0};
    struct rules_file files[4];
    size_t n_files = 1;
    wire_text(&message, 1, "version");
    add_resource(&message, RATE_LIMIT_CONFIG_TYPE, "one");
    add_resource(&message, RATE_LIMIT_CONFIG_TYPE, NULL);
    add_resource(&message, RATE_LIMIT_CONFIG_TYPE, "two\n\x1b");
    assert_int_equal(discovery_count(wired(&message)), 3);
    assert_int_equal(
        discovery_files(wired(&message), "xds://p:1", &arena, files + 1, &n_files, &error), 0);
    assert_int_equal(n_files, 4);
    assert_string_equal(files[1].path, "xds://p:1/one");
    assert_string_equal(files[2].path, "xds://p:1/#1");
    assert_string_equal(files[3].path, "xds://p:1/two??");
    assert_true(files[1].read == rate_limit_config_read);
    arena_free(&arena);
}

TEST(another_type_is_refused)
{
    struct arena arena = {0};
    struct wire message = {.len = 0};
    struct rules_file files[2];
    size_t n_files = 0;
    add_resource(&message, RATE_LIMIT_CONFIG_TYPE, "one");
    add_resource(&message, "type.googleapis.com/envoy.config.cluster.v3.Cluster", "two");
    assert_int_equal(discovery_files(wired(&message), "xds://p:1", &arena, files, &n_files, &error),
                     STINT_E_SYNTAX);
    assert_int_equal(n_files, 0);
    assert_non_null(strstr(error.message, "resource 1: expected type "));
    arena_free(&arena);
}

/* It has no rules, but does not say that there are none. */
TEST(a_response_of_another_type_is_refused)
{
    struct arena arena = {0};
    struct wire message = {.len = 0};
    size_t n_files = 0;
    wire_text(&message, 4, RATE_LIMIT_CONFIG_TYPE);
    assert_int_equal(discovery_files(wired(&message), "xds://p:1", &arena, NULL, &n_files, &error),
                     0);
    wire_text(&message, 4, "type.googleapis.com/envoy.config.cluster.v3.Cluster");
    assert_int_equal(discovery_files(wired(&message), "xds://p:1", &arena, NULL, &n_files, &error),
                     STINT_E_SYNTAX);
    assert_non_null(strstr(error.message, "found \"type.googleapis.com/envoy.config.cluster"));
    arena_free(&arena);
}

TEST(equal_resources_are_the_same_whatever_the_version)
{
    struct wire a = {.len = 0}, b = {.len = 0}, c = {.len = 0};
    wire_text(&a, 1, "1");
    add_resource(&a, RATE_LIMIT_CONFIG_TYPE, "one");
    add_resource(&b, RATE_LIMIT_CONFIG_TYPE, "one");
    wire_text(&b, 5, "nonce");
    add_resource(&c, RATE_LIMIT_CONFIG_TYPE, "one");
    assert_true(discovery_is_same(wired(&a), wired(&b)));
    add_resource(&c, RATE_LIMIT_CONFIG_TYPE, "two");
    assert_false(discovery_is_same(wired(&a), wired(&c)));
    assert_false(discovery_is_same(wired(&c), wired(&a)));
    assert_true(discovery_is_same(span_of(NULL, 0), span_of(NULL, 0)));
    assert_false(discovery_is_same(span_of("\xff", 1), span_of("\xff", 1)));
}

/* ---- What is kept ---------------------------------------------------------------------------- */

TEST(kept_content_is_read_as_it_was_written)
{
    const struct last_good all[] = {
        {span_of_text("xds://a:1"), span_of("\0\1\2", 3)},
        {span_of_text("xds://b:2"), span_of(NULL, 0)},
    };
    struct last_good read[XDS_SOURCES_MAX];
    uint8_t bytes[256];
    size_t size = last_good_size(all, 2), n;
    assert_in_range(size, 1, sizeof(bytes));
    struct span content = last_good_write(all, 2, bytes, size);
    assert_int_equal(last_good_read(content, read, &n, &error), 0);
    assert_int_equal(n, 2);
    assert_true(span_equals(read[0].url, "xds://a:1"));
    assert_int_equal(read[0].message.len, 3);
    assert_memory_equal(read[0].message.ptr, "\0\1\2", 3);
    assert_int_equal(read[1].message.len, 0);
    assert_int_equal(last_good_read(span_of("\xff", 1), read, &n, &error), STINT_E_SYNTAX);
}

TEST(more_entries_than_sources_are_skipped)
{
    const struct last_good one = {span_of_text("u"), span_of_text("m")};
    struct last_good read[XDS_SOURCES_MAX];
    uint8_t bytes[512];
    size_t at = 0, n;
    for (int i = 0; i < XDS_SOURCES_MAX + 3; i++) {
        uint8_t entry[64];
        struct span written = last_good_write(&one, 1, entry, sizeof(entry));
        memcpy(bytes + at, written.ptr, written.len);
        at += written.len;
    }
    assert_int_equal(last_good_read(span_of(bytes, at), read, &n, &error), 0);
    assert_int_equal(n, XDS_SOURCES_MAX);
}

TEST(any_flipped_bit_is_noticed)
{
    const struct span content = span_of_text("rules");
    uint8_t head[LAST_GOOD_HEAD], copy[5];
    struct last_good_head read;
    last_good_write_head(head, 3, content);
    assert_true(last_good_read_head(head, &read));
    assert_int_equal(read.sequence, 3);
    assert_int_equal(read.len, 5);
    assert_true(last_good_is_whole(head, content));
    for (size_t bit = 0; bit < 56 * 8; bit++) {
        head[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(last_good_read_head(head, &read) && last_good_is_whole(head, content));
        head[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t bit = 0; bit < 5 * 8; bit++) {
        memcpy(copy, content.ptr, 5);
        copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(last_good_is_whole(head, span_of(copy, 5)));
    }
}

TEST(a_length_beyond_its_slot_is_no_head)
{
    uint8_t head[LAST_GOOD_HEAD];
    struct last_good_head read;
    last_good_write_head(head, 1, span_of_text(""));
    memset(head + 32, 0xff, 8);
    assert_false(last_good_read_head(head, &read));
}
