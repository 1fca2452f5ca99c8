/* SPDX-License-Identifier: MIT */
/* Settings of stores: how they are written, what a server gets of them, and who sees passwords. */
#define _GNU_SOURCE
#include "unit/test.h"

#include "cmd/serve/serve_stores.h"
#include "cmd/store/store_word.h"

#include <unistd.h>

static int set(struct settings *settings, const char *name, const char *text,
               struct stint_error *error)
{
    int index = setting_find(span_of_text(name));
    assert_true(index >= 0);
    return settings_set(settings, (size_t)index, SETTING_OPTION, name, text, error);
}

/* Names and values in turn, up to NULL. */
static void gather(struct settings *settings, const char *const *said)
{
    struct stint_error error;
    assert_int_equal(settings_init(settings, &error), 0);
    for (; said[0] != NULL; said += 2)
        if (set(settings, said[0], said[1], &error) != 0)
            fail_msg("%s", error.message);
}

static struct serve_stores *opened(struct settings *settings)
{
    struct serve_stores *stores;
    struct stint_error error;
    if (serve_stores_open(&stores, &settings->values, &error) != 0)
        fail_msg("%s", error.message);
    return stores;
}

/* ---- What a server gets ---------------------------------------------------------------------- */

TEST(test_without_stores_there_are_none)
{
    static const char *const said[] = {NULL};
    struct settings settings;
    struct rules_load_options options = {.n_stores = 7};
    gather(&settings, said);
    struct serve_stores *stores = opened(&settings);
    assert_int_equal(stores->names.n_names, 0);
    assert_int_equal(stores->evaluation.n_stores, 0);
    assert_int_equal(stores->evaluation.items, 0);
    assert_int_equal(stores->evaluation.nodes, 1);
    assert_null(stores->tls);
    assert_int_equal(serve_store_rules(&settings.values, &stores->names, &options, NULL), 0);
    assert_int_equal(options.n_stores, 0);
    assert_int_equal(options.default_store, 0);
    assert_int_equal(options.default_on_error, RULE_STORE_ERROR_DENY);
    serve_stores_close(stores);
    arena_free(&settings.arena);
}

TEST(test_stores_are_configured_as_the_settings_say)
{
    static const char *const said[] = {
        "store",
        "fast=redis://10.0.0.1:7000/3",
        "store",
        "valkey-cluster://u:p%40@a,b:1",
        "store_prefix",
        "mine:",
        "store_timeout",
        "70ms",
        "store_connect_timeout",
        "1s",
        "store_on_error",
        "local",
        "store_nodes",
        "5",
        "deny_cache",
        "100",
        "deny_cache_max",
        "300ms",
        "after_failover",
        "half",
        "lease_keys",
        "77",
        NULL,
    };
    struct settings settings;
    struct rules_load_options options = {0};
    gather(&settings, said);
    struct serve_stores *stores = opened(&settings);
    assert_int_equal(stores->names.n_names, 2);
    assert_string_equal(stores->names.names[0], "fast");
    assert_string_equal(stores->names.names[1], "default");
    assert_int_equal(stores->configs[0].url.kind, STORE_REDIS);
    assert_int_equal(stores->configs[0].url.database, 3);
    assert_int_equal(stores->configs[1].url.kind, STORE_REDIS_CLUSTER);
    assert_string_equal(stores->configs[1].url.password, "p@");
    for (size_t i = 0; i < 2; i++) {
        const struct store_config *config = &stores->configs[i];
        assert_null(config->tls);
        assert_string_equal(config->prefix, "mine:");
        assert_int_equal(config->reply_ns, 70 * NS_PER_MS);
        assert_int_equal(config->connect_ns, NS_PER_S);
        assert_int_equal(config->denials, 100);
        assert_int_equal(config->deny_cache_max_ns, 300 * NS_PER_MS);
        assert_int_equal(config->failover_policy, FAILOVER_HALF);
    }
    assert_int_equal(stores->configs[0].lease_keys, 77);
    assert_int_equal(stores->evaluation.n_stores, 2);
    assert_int_equal(stores->evaluation.items, 2);
    assert_int_equal(stores->evaluation.throttle, 2);
    assert_int_equal(stores->evaluation.timeout_ns, 70 * NS_PER_MS);
    assert_int_equal(stores->evaluation.items_on_error, RULE_STORE_ERROR_LOCAL);
    assert_int_equal(stores->evaluation.nodes, 5);
    assert_null(stores->evaluation.node);
    assert_int_equal(serve_store_rules(&settings.values, &stores->names, &options, NULL), 0);
    assert_int_equal(options.n_stores, 2);
    assert_int_equal(options.default_store, 2);
    assert_int_equal(options.default_on_error, RULE_STORE_ERROR_LOCAL);
    serve_stores_close(stores);
    arena_free(&settings.arena);
}

TEST(test_what_is_left_out_is_the_default)
{
    static const char *const said[] = {"store", "unix:/run/redis.sock", "deny_cache_max", "0",
                                       NULL};
    struct settings settings;
    gather(&settings, said);
    struct serve_stores *stores = opened(&settings);
    const struct store_config *config = &stores->configs[0];
    assert_string_equal(config->prefix, "stint:");
    assert_int_equal(config->reply_ns, 50 * NS_PER_MS);
    assert_int_equal(config->connect_ns, 250 * NS_PER_MS);
    assert_int_equal(config->denials, 0); /* 0 would be the default of the cache itself */
    assert_int_equal(config->failover_policy, FAILOVER_TRUSTS);
    assert_int_equal(stores->evaluation.items_on_error, RULE_STORE_ERROR_ERROR);
    serve_stores_close(stores);
    arena_free(&settings.arena);
}

TEST(test_nodes_have_names)
{
    static const char *const said[] = {"store",
                                       "redis://a",
                                       "store_node_names",
                                       "n1",
                                       "store_node_names",
                                       "n2",
                                       "store_node_names",
                                       "n3",
                                       "store_node",
                                       "n2",
                                       NULL};
    struct settings settings;
    gather(&settings, said);
    struct serve_stores *stores = opened(&settings);
    assert_int_equal(stores->evaluation.nodes, 3);
    assert_string_equal(stores->evaluation.node, "n2");
    assert_string_equal(stores->evaluation.node_names[2], "n3");
    serve_stores_close(stores);
    arena_free(&settings.arena);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static void write_file(char *path, const char *text)
{
    strcpy(path, "/tmp/stint-store-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

TEST(test_a_url_may_fallback_a_file)
{
    static const char *const texts[] = {"redis://:word@h:1\n# not looked at\n", "redis://:word@h:1",
                                        "redis://:word@h:1\r\n"};
    for (size_t i = 0; i < N(texts); i++) {
        char path[64], word[80];
        struct settings settings;
        write_file(path, texts[i]);
        snprintf(word, sizeof(word), "fast=@%s", path);
        const char *const said[] = {"store", word, NULL};
        gather(&settings, said);
        struct serve_stores *stores = opened(&settings);
        assert_string_equal(stores->names.names[0], "fast");
        assert_int_equal(stores->names.default_store, 0);
        assert_string_equal(stores->configs[0].url.password, "word");
        assert_string_equal(stores->configs[0].url.hosts[0].name, "h");
        serve_stores_close(stores);
        arena_free(&settings.arena);
        unlink(path);
    }
}

TEST(test_a_bad_file_is_told_and_not_what_is_in_it)
{
    char path[64], word[80], expected[256];
    struct settings settings;
    struct serve_stores *stores;
    struct stint_error error;
    write_file(path, "http://:secret@host\n");
    snprintf(word, sizeof(word), "fast=@%s", path);
    const char *const said[] = {"store", word, NULL};
    gather(&settings, said);
    assert_int_equal(serve_stores_open(&stores, &settings.values, &error), STINT_E_SYNTAX);
    assert_null(stores);
    snprintf(expected, sizeof(expected), "store fast: %s: a store's URL begins with redis://",
             path);
    assert_memory_equal(error.message, expected, strlen(expected));
    assert_null(strstr(error.message, "secret"));
    unlink(path);
    assert_int_equal(serve_stores_open(&stores, &settings.values, &error), STINT_E_SYSTEM);
    assert_non_null(strstr(error.message, path));
    arena_free(&settings.arena);
}

/* ---- What does not go together --------------------------------------------------------------- */

TEST(test_what_does_not_go_together_is_refused)
{
    static const struct {
        const char *said[9];
        const char *told;
    } cases[] = {
        {{"store", "redis://a", "store", "redis://b", NULL},
         "store: there are two that are called default, as a store without a name is: expected "
         "NAME=URL for the others"},
        {{"store", "default=redis://a", "store", "redis://b", NULL},
         "store: there are two that are called default, as a store without a name is: expected "
         "NAME=URL for the others"},
        {{"store", "x=redis://a", "store", "x=redis://b", NULL},
         "store: there are two that are called x"},
        {{"store", "redis://a", "store_ca_file", "/ca", NULL},
         "store_ca_file and store_cert_file are for stores in TLS, and none is: expected rediss:// "
         "or valkeys://"},
        {{"store", "rediss://a", "store_key_file", "/key", NULL},
         "store_key_file goes with store_cert_file"},
        {{"store_node", "n1", NULL},
         "store_node is to be one of store_node_names, and these are "
         "not"},
        {{"store_node_names", "n1", NULL},
         "store_node is to be one of store_node_names, and these "
         "are not"},
        {{"store_node", "n1", "store_node_names", "n2", NULL},
         "store_node is to be one of store_node_names, and these are not"},
        {{"store_node", "n1", "store_node_names", "n1", "store_node_names", "n1", NULL},
         "store_node_names: n1 is there twice"},
        {{"store_node", "n1", "store_node_names", "n1", "store_nodes", "2", NULL},
         "store_nodes is 2, and store_node_names has 1"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct settings settings;
        struct serve_stores *stores;
        struct stint_error error;
        gather(&settings, cases[i].said);
        assert_int_not_equal(serve_stores_open(&stores, &settings.values, &error), 0);
        assert_string_equal(error.message, cases[i].told);
        assert_null(stores);
        arena_free(&settings.arena);
    }
}

TEST(test_certificates_are_read)
{
    static const char *const said[] = {"store", "rediss://a", "store_ca_file", "/no/such/file",
                                       NULL};
    struct settings settings;
    struct serve_stores *stores;
    struct stint_error error;
    gather(&settings, said);
    assert_int_not_equal(serve_stores_open(&stores, &settings.values, &error), 0);
    assert_non_null(strstr(error.message, "/no/such/file"));
    arena_free(&settings.arena);
    static const char *const system[] = {"store", "rediss://a", "store", "b=redis://b", NULL};
    gather(&settings, system);
    stores = opened(&settings);
    assert_non_null(stores->configs[0].tls);
    assert_null(stores->configs[1].tls);
    serve_stores_close(stores);
    arena_free(&settings.arena);
}

TEST(test_there_are_so_many_stores_and_no_more)
{
    static const char *const said[] = {NULL};
    struct settings settings;
    struct serve_stores *stores;
    struct stint_error error;
    char word[64];
    gather(&settings, said);
    for (unsigned i = 0; i < STORES_MAX; i++) {
        snprintf(word, sizeof(word), "s%u=redis://h%u", i, i);
        assert_int_equal(set(&settings, "store", word, &error), 0);
    }
    stores = opened(&settings);
    assert_int_equal(stores->names.n_names, STORES_MAX);
    serve_stores_close(stores);
    assert_int_equal(set(&settings, "store", "one.more-_=redis://h", &error), 0);
    assert_int_equal(serve_stores_open(&stores, &settings.values, &error), STINT_E_RANGE);
    assert_string_equal(error.message, "store: expected at most 16 stores, found 17");
    arena_free(&settings.arena);
}

/* ---- Words ----------------------------------------------------------------------------------- */

TEST(test_what_is_no_store_is_refused_without_its_password)
{
    static const struct {
        const char *text, *told;
    } cases[] = {
        {"redis:secret@host", "store: a store's URL begins with "},
        {"http://:secret@host", "store: a store's URL begins with "},
        {"fast=redis://:secret@", "store: "},
        {"a b=redis://:secret@host", "store: the name of a store has 1 to 32 letters, digits and "},
        {"=redis://:secret@host", "store: the name of a store has 1 to 32 letters, digits and "},
        {"abcdefghijklmnopqrstuvwxyz0123456=redis://h", "store: the name of a store has 1 to 32 "},
        {"none=redis://h", "store: no store can be called none: rules say so for the table"},
        {"@", "store: expected the path of a file behind @"},
        {"x=@", "store: expected the path of a file behind @"},
        {"x=", "store: a store's URL begins with "},
        {"", "store: a store's URL begins with "},
    };
    static const char *const said[] = {NULL};
    struct settings settings;
    gather(&settings, said);
    for (size_t i = 0; i < N(cases); i++) {
        struct stint_error error;
        assert_int_not_equal(set(&settings, "store", cases[i].text, &error), 0);
        assert_non_null(strstr(error.message, cases[i].told));
        assert_null(strstr(error.message, "secret"));
    }
    arena_free(&settings.arena);
}

TEST(test_passwords_are_taken_out)
{
    static const struct {
        const char *text, *shown, *hidden;
    } cases[] = {
        {"redis://:secret@h:1/2", "redis://:***@h:1/2", "redis://:******@h:1/2"},
        {"x=rediss://u:a:b@h,i:7", "x=rediss://u:***@h,i:7", "x=rediss://u:***@h,i:7"},
        {"redis://:a%40@h", "redis://:***@h", "redis://:****@h"},
        {"redis://:a@b@h", "redis://:***@h", "redis://:***@h"},
        {"unix://:pw@/run/r", "unix://:***@/run/r", "unix://:**@/run/r"},
        {"redis:secret@h", "redis:***@h", "redis:******@h"},
        {"redis://h:1", "redis://h:1", "redis://h:1"},
        {"unix:/run/a@b", "unix:/run/a@b", "unix:/run/a@b"},
        {"x=@/etc/a:b@c", "x=@/etc/a:b@c", "x=@/etc/a:b@c"},
        {"", "", ""},
    };
    for (size_t i = 0; i < N(cases); i++) {
        char text[64];
        char *shown = store_word_shown(cases[i].text);
        assert_string_equal(shown, cases[i].shown);
        free(shown);
        strcpy(text, cases[i].text);
        store_word_hide(text);
        assert_string_equal(text, cases[i].hidden);
    }
}
