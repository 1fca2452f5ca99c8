/* SPDX-License-Identifier: MIT */
/* URLs of stores: what each part becomes, what is refused, and that no message tells a secret. */
#include "unit/test.h"

#include "backend/url.h"

static struct store_url url;
static struct stint_error error;

static void read_url(const char *text)
{
    if (store_url_parse(&url, text, &error) != 0)
        fail_msg("%s: %s", text, error.message);
}

static void assert_shown(const char *text, const char *shown)
{
    char space[STORE_URL_TEXT_SIZE];
    read_url(text);
    assert_string_equal(store_url_text(&url, space), shown);
}

TEST(parts_are_told_apart)
{
    read_url("rediss://ann:s%2Fe%40c@store.example:7000,[::1],10.0.0.1/3");
    assert_int_equal(url.kind, STORE_REDIS);
    assert_true(url.is_tls);
    assert_string_equal(url.user, "ann");
    assert_string_equal(url.password, "s/e@c");
    assert_int_equal(url.n_hosts, 3);
    assert_string_equal(url.hosts[0].name, "store.example");
    assert_int_equal(url.hosts[0].port, 7000);
    assert_string_equal(url.hosts[1].name, "::1");
    assert_int_equal(url.hosts[1].port, 6379);
    assert_string_equal(url.hosts[2].name, "10.0.0.1");
    assert_int_equal(url.database, 3);

    read_url("redis-sentinel://:pw@a,b:5000/my%20master/2");
    assert_int_equal(url.kind, STORE_REDIS_SENTINEL);
    assert_false(url.is_tls);
    assert_string_equal(url.user, "");
    assert_int_equal(url.hosts[0].port, 26379);
    assert_int_equal(url.hosts[1].port, 5000);
    assert_string_equal(url.master, "my master");
    assert_int_equal(url.database, 2);

    read_url("valkeys-cluster://a/0");
    assert_int_equal(url.kind, STORE_REDIS_CLUSTER);
    assert_true(url.is_tls);

    read_url("memcached://a,b:1");
    assert_int_equal(url.kind, STORE_MEMCACHED);
    assert_int_equal(url.hosts[0].port, 11211);

    assert_false(url.is_tls);
    read_url("memcacheds://ann:pw@a:1,b");
    assert_int_equal(url.kind, STORE_MEMCACHED);
    assert_true(url.is_tls);
    assert_string_equal(url.user, "ann");
    assert_string_equal(url.password, "pw");
    assert_int_equal(url.n_hosts, 2);

    read_url("unix:/run/redis.sock");
    assert_int_equal(url.n_hosts, 0);
    assert_string_equal(url.path, "/run/redis.sock");
    read_url("unix://ann:pw@/run/redis.sock");
    assert_string_equal(url.password, "pw");
    assert_string_equal(url.path, "/run/redis.sock");
}

/* A password may hold an @ as it is, since a host cannot. */
TEST(the_last_at_ends_the_password)
{
    read_url("redis://:a@b:c@host");
    assert_string_equal(url.password, "a@b:c");
    assert_string_equal(url.hosts[0].name, "host");
}

TEST(secrets_are_not_shown)
{
    assert_shown("redis://ann:hush@a", "redis://ann:***@a:6379");
    assert_shown("redis://:hush@[::1]:1,b/7", "redis://:***@[::1]:1,b:6379/7");
    assert_shown("redis-sentinel://a/main", "redis-sentinel://a:26379/main");
    assert_shown("unix://:hush@/s", "unix://:***@/s");
    assert_shown("unix:///s", "unix:/s");
    static const char *const refused[] = {
        "redis://:hush@",    "redis://:hush@:7",          "redis://:hush@a:b",
        "redis://:hush@a/x", "redis://:hu/sh@a",          "redis://:hush%zz@a",
        "redis://hush@a",    "redis://ann:hush@a/1?db=2", "http://ann:hush@a",
        "unix://:hush@s",    "redis-sentinel://:hush@a",  "memcached://:hush@a",
    };
    for (size_t i = 0; i < N(refused); i++) {
        error.message[0] = '\0';
        assert_int_not_equal(store_url_parse(&url, refused[i], &error), 0);
        assert_null(strstr(error.message, "hu"));
        assert_true(strlen(error.message) > 20);
    }
}

TEST(what_cannot_be_meant_is_refused)
{
    static const struct {
        const char *text, *told;
    } cases[] = {
        {"", "begins with redis://"},
        {"redis", "begins with redis://"},
        {"redis:a", "begins with redis://"},
        {"redisx://a", "begins with redis://"},
        {"redis://", "'' is not a host"},
        {"redis://a,", "'' is not a host"},
        {"redis://a:", "'a:' is not a host"},
        {"redis://a:0", "'a:0' is not a host"},
        {"redis://a:65536", "'a:65536' is not a host"},
        {"redis://a:+1", "not a host"},
        {"redis://a:1:2", "not a host"},
        {"redis://[::1", "not a host"},
        {"redis://[::1]7", "not a host"},
        {"redis://a!b", "not a host"},
        {"redis://a/x", "'/x' is not a database"},
        {"redis://a/65536", "not a database"},
        {"redis://a/1/2", "not a database"},
        {"redis://a b", "no spaces"},
        {"redis://a?x", "no ?"},
        {"redis-cluster://a/1", "has no databases"},
        {"redis-sentinel://a", "/MASTER-NAME"},
        {"redis-sentinel://a/m/x", "'/x' is not a database"},
        {"redis://ann@a", "expected user:password@"},
        {"redis://ann:@a", "expected user:password@"},
        {"redis://:%0@a", "hexadecimal"},
        {"redis://:%00@a", "hexadecimal"},
        {"unix:", "begins with /"},
        {"unix:/", "begins with /"},
        {"unix:a", "begins with /"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        assert_int_not_equal(store_url_parse(&url, cases[i].text, &error), 0);
        if (strstr(error.message, cases[i].told) == NULL)
            fail_msg("%s: %s", cases[i].text, error.message);
    }
}

TEST(what_is_too_long_is_refused)
{
    char text[4096] = "redis://";
    for (int i = 0; i < STORE_HOSTS_MAX; i++)
        strcat(text, i > 0 ? ",a" : "a");
    read_url(text);
    assert_int_equal(url.n_hosts, STORE_HOSTS_MAX);
    strcat(text, ",a");
    assert_int_equal(store_url_parse(&url, text, &error), STINT_E_RANGE);

    strcpy(text, "redis://:");
    memset(text + 9, 'p', STORE_WORD_SIZE - 1);
    strcpy(text + 9 + STORE_WORD_SIZE - 1, "@a");
    read_url(text);
    assert_int_equal(strlen(url.password), STORE_WORD_SIZE - 1);
    strcpy(text + 9 + STORE_WORD_SIZE - 1, "p@a");
    assert_int_equal(store_url_parse(&url, text, &error), STINT_E_RANGE);

    strcpy(text, "redis://");
    memset(text + 8, 'h', STORE_HOST_SIZE);
    text[8 + STORE_HOST_SIZE - 1] = '\0';
    read_url(text);
    text[8 + STORE_HOST_SIZE - 1] = 'h';
    text[8 + STORE_HOST_SIZE] = '\0';
    assert_int_equal(store_url_parse(&url, text, &error), STINT_E_SYNTAX);

    strcpy(text, "unix:/");
    memset(text + 6, 's', STORE_PATH_SIZE);
    text[5 + STORE_PATH_SIZE - 1] = '\0';
    read_url(text);
    text[5 + STORE_PATH_SIZE - 1] = 's';
    text[5 + STORE_PATH_SIZE] = '\0';
    assert_int_equal(store_url_parse(&url, text, &error), STINT_E_RANGE);
}
