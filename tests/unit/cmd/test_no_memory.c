/* SPDX-License-Identifier: MIT */
/*
 * Each reader of bytes from elsewhere, with its first allocation refused, then its second, and so
 * on until it needs no more: it says that there is no memory, and keeps nothing.
 */
#define _GNU_SOURCE
#include "unit/refusals.h"
#include "unit/test_protobuf.h"

#include "cmd/lib/input.h"
#include "net/upstream/collector_conn.h"
#include "proto/grpc/grpc.h"
#include "proto/page.h"
#include "rules/rules.h"
#include "rules/yaml/rules_load.h"
#include "xds/discovery.h"
#include "xds/rate_limit_config.h"

#include <sys/mman.h>
#include <unistd.h>

#define PADDING_MAX 1000

/* ---- Memory ---------------------------------------------------------------------------------- */

enum { MEMORY };

REFUSES(MEMORY, ENOMEM, void *, malloc, NULL, (size_t size), (size))
REFUSES(MEMORY, ENOMEM, void *, calloc, NULL, (size_t n, size_t size), (n, size))
REFUSES(MEMORY, ENOMEM, void *, realloc, NULL, (void *bytes, size_t size), (bytes, size))

/* ---- Readers: whether they could; if not, why where they say it ------------------------------ */

static bool load(const struct rules_file *file, struct stint_error *error)
{
    struct rules_diagnostics diagnostics;
    struct rules *rules = rules_load(file, 1, NULL, &diagnostics);
    bool is_loaded = rules != NULL;
    if (!is_loaded) {
        bool has_text = diagnostics.n_diagnostics > 0;
        err_set(error, STINT_E_SYSTEM, "%s",
                has_text ? diagnostics.diagnostics[0].message : "out of memory");
    }
    rules_diagnostics_free(&diagnostics);
    rules_unref(rules);
    return is_loaded;
}

/*
 * Arenas allocate many values at once: longer content moves the end of a chunk from one value to
 * another.
 */
static int padding;

static bool load_yaml(struct stint_error *error)
{
    static const char format[] =
        "domain: edge%0*d\n"
        "descriptors:\n"
        "  - key: a\n"
        "    rate_limit: &usual {unit: minute, requests_per_unit: 100, name: n}\n"
        "    metadata: {any: [thing, {at: all}]}\n"
        "    ban: {after: 5, for: 15m}\n"
        "    descriptors:\n"
        "      - {key: b, value: '*x', rate_limit: {<<: *usual, name: m}}\n"
        "      - {key: c, value: y, rate_limit: {<<: [*usual], name: p, replaces: [{name: n}]}}\n";
    char text[sizeof(format) + PADDING_MAX];
    snprintf(text, sizeof(text), format, padding, 0);
    const struct rules_file file = {.path = "a.yaml", .text = span_of_text(text)};
    return load(&file, error);
}

static struct wire config_message(void)
{
    static const uint8_t zero[] = {2 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0}; /* a double */
    struct wire config = {.len = 0}, descriptor = {.len = 0}, policy = {.len = 0};
    struct wire map = {.len = 0}, entry = {.len = 0}, value = {.len = 0}, list = {.len = 0};
    wire_text(&config, 1, "name");
    wire_text(&config, 2, "edge");
    wire_text(&descriptor, 1, "k");
    wire_number(&policy, 1, 2);
    wire_number(&policy, 2, 9);
    wire_message(&descriptor, 3, &policy);
    wire_bytes(&value, span_of(zero, sizeof(zero)));
    for (int i = 0; i < padding / 16; i++)
        wire_message(&list, 1, &value);
    value.len = 0;
    wire_message(&value, 6, &list);
    wire_text(&entry, 1, "n");
    wire_message(&entry, 2, &value);
    wire_message(&map, 1, &entry);
    wire_message(&descriptor, 8, &map);
    wire_message(&config, 3, &descriptor);
    return config;
}

static bool load_config(struct stint_error *error)
{
    struct wire config = config_message();
    const struct rules_file file = {
        .path = "xds://c:1/edge", .text = wired(&config), .read = rate_limit_config_read};
    return load(&file, error);
}

static bool read_response(struct stint_error *error)
{
    struct wire config = config_message(), resource = {.len = 0}, response = {.len = 0};
    struct rules_file files[1];
    struct arena arena = {0};
    size_t n = 0;
    wire_text(&resource, 1, "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig");
    wire_message(&resource, 2, &config);
    wire_message(&response, 2, &resource);
    bool is_read = discovery_files(wired(&response), "xds://c:1", &arena, files, &n, error) == 0;
    assert_true(!is_read || n == 1);
    arena_free(&arena);
    return is_read;
}

/* Longer than the space that is taken at first; it is packed as it is read. */
static bool read_gzip(struct stint_error *error)
{
    static uint8_t message[100000];
    struct span packed, plain;
    struct grpc_zip *zip = grpc_zip_new();
    error->message[0] = '\0';
    bool is_read = zip != NULL && grpc_zip_write(zip, span_of(message, sizeof(message)), &packed) &&
                   grpc_zip_read(zip, packed, sizeof(message), &plain, error) == 0;
    if (!is_read && error->message[0] == '\0')
        err_set(error, STINT_E_SYSTEM, "no memory"); /* the caller's to say */
    grpc_zip_free(zip);
    return is_read;
}

static bool write_page(struct stint_error *error)
{
    static char text[100000];
    struct page page = {0};
    memset(text, 'x', sizeof(text) - 1);
    page_add(&page, "text");
    page_add_json(&page, "and", span_of_text(text));
    page_print(&page, "%s", text);
    bool is_whole = !page.failed;
    if (!is_whole)
        err_set(error, STINT_E_SYSTEM, "no memory");
    page_free(&page);
    return is_whole;
}

static bool open_collector(bool is_grpc, struct stint_error *error)
{
    const struct collector_url url = {.authority = "c:1", .path = "/", .is_grpc = is_grpc};
    struct collector_conn conn;
    bool is_open = collector_conn_open(&conn, &(struct collector_conn_options){
                                                  .url = &url,
                                                  .body_max = 1024,
                                                  .link = {.backoff_first_ns = NS_PER_S},
                                              });
    if (is_open)
        link_free(conn.link, 0);
    else
        err_set(error, STINT_E_SYSTEM, "no memory");
    return is_open;
}

static bool open_http_collector(struct stint_error *error)
{
    return open_collector(false, error);
}

static bool open_grpc_collector(struct stint_error *error)
{
    return open_collector(true, error);
}

static bool read_file(struct span bytes, struct stint_error *error)
{
    struct input input;
    char path[64];
    uint8_t some[64];
    int fd = memfd_create("packed", MFD_CLOEXEC);
    assert_true(fd >= 0 && write(fd, bytes.ptr, bytes.len) == (ssize_t)bytes.len);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    bool is_open = input_open(&input, path, error) == 0;
    if (is_open) {
        assert_int_equal(input_fill(&input, some, sizeof(some), error), 0);
        input_close(&input);
    }
    close(fd);
    return is_open;
}

/* A member of a file, and a frame, without content. */
static bool read_gzip_file(struct stint_error *error)
{
    static const char bytes[] = "\x1f\x8b\x08\0\0\0\0\0\0\x03\x03\0\0\0\0\0\0\0\0\0";
    return read_file(span_of(bytes, sizeof(bytes) - 1), error);
}

static bool read_zstd_file(struct stint_error *error)
{
    static const char bytes[] = "\x28\xb5\x2f\xfd\x20\0\x01\0\0";
    return read_file(span_of(bytes, sizeof(bytes) - 1), error);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    bool (*read)(struct stint_error *error);
} readers[] = {
    {"a file of rules", load_yaml},
    {"rules of a control plane", load_config},
    {"a response of a control plane", read_response},
    {"a gzip message", read_gzip},
    {"a page", write_page},
    {"a gzip file", read_gzip_file},
    {"a zstd file", read_zstd_file},
    {"a collector over HTTP", open_http_collector},
    {"a collector over gRPC", open_grpc_collector},
};

/* How many allocations it needs. */
static long refuse_each(const char *name, bool (*read)(struct stint_error *error))
{
    bool is_read = false;
    long n = 0;
    for (; !is_read; n++) {
        struct stint_error error = {.message = ""};
        refuse(MEMORY, n);
        is_read = read(&error);
        bool was_refused = refused();
        if (is_read == was_refused || (was_refused && strstr(error.message, "memory") == NULL))
            fail_msg("%s: allocation %ld refused: %d, read: %d, %s", name, n, was_refused, is_read,
                     error.message);
    }
    return n - 1;
}

TEST(a_reader_without_memory_says_so)
{
    for (size_t i = 0; i < N(readers); i++)
        for (padding = 1; padding < PADDING_MAX; padding += 16)
            assert_true(refuse_each(readers[i].name, readers[i].read) > 0);
}
