/* SPDX-License-Identifier: MIT */
/* Tokens: what a file of them may say, who is found by which secret, and how sets are exchanged. */
#include "unit/test.h"

#include "base/ns.h"
#include "service/access/access.h"
#include "service/metrics/metrics.h"

/* Of "first" and "second", by sha256sum. */
#define FIRST "sha256:a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"
#define SECOND "sha256:16367aacb67a4a017c8da8ab95682ccb390863780f7114dda0a0e0c55644c7c4"

static struct access *load(const char *text)
{
    struct access *access = NULL;
    struct stint_error error = {0};
    if (access_load(&access, "tokens", span_of_text(text), &error) != 0)
        fail_msg("%s", error.message);
    return access;
}

static const struct access_token *find(const struct access *access, const char *name,
                                       const char *secret)
{
    return access_find(access, span_of_text(name), span_of_text(secret));
}

TEST(test_a_secret_finds_its_token)
{
    struct access *access = load("# who may ask\n"
                                 "\n"
                                 "shop ask " FIRST "\n"
                                 "\toperations  administer,metrics\t" SECOND " # on call\r\n");
    const struct access_token *shop = find(access, "", "first");
    assert_non_null(shop);
    assert_string_equal(shop->name, "shop");
    assert_int_equal(shop->roles, ACCESS_ASK);
    assert_ptr_equal(find(access, "shop", "first"), shop);
    assert_int_equal(find(access, "operations", "second")->roles,
                     ACCESS_ADMINISTER | ACCESS_METRICS);
    access_unref(access);
}

TEST(test_nothing_else_finds_one)
{
    struct access *access = load("shop ask " FIRST "\nother metrics " SECOND);
    assert_null(find(access, "", ""));
    assert_null(find(access, "", "firs"));
    assert_null(find(access, "", "first "));
    assert_null(find(access, "", FIRST)); /* the file's text is of no use to who reads it */
    assert_null(find(access, "other", "first"));
    assert_null(find(access, "shopp", "first"));
    assert_null(find(access, "SHOP", "first"));
    assert_null(access_find(access, span_of("", 0), span_of("first\0", 6)));
    access_unref(access);
}

static void assert_refused(const char *text, size_t len, const char *message)
{
    struct access *access = NULL;
    struct stint_error error = {0};
    assert_int_equal(access_load(&access, "tokens", span_of(text, len), &error), STINT_E_SYNTAX);
    assert_null(access);
    if (strstr(error.message, message) == NULL)
        fail_msg("`%s` was to hold `%s`", error.message, message);
}

TEST(test_a_fault_names_its_line_and_what_was_expected)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "every request would be rejected"},
        {"# only words\n\n", "every request would be rejected"},
        {"a ask " FIRST "\n\nb! ask " SECOND, "tokens:3: expected a name"},
        {"a", "tokens:1: expected roles"},
        {"a asks " FIRST, "tokens:1: expected roles"},
        {"a ask, " FIRST, "tokens:1: expected roles"},
        {"a ,ask " FIRST, "tokens:1: expected roles"},
        {"a ask", "tokens:1: expected sha256:"},
        {"a ask sha256:12", "tokens:1: expected sha256:"},
        {"a ask my-own-password", "tokens:1: expected sha256:"},
        {"a ask " FIRST "0", "tokens:1: expected sha256:"},
        {"a ask " FIRST " more", "tokens:1: expected nothing after"},
        {"a ask " FIRST "\na ask " SECOND, "tokens:2: the name a is also on line 1"},
        {"a ask " FIRST "\nb ask " FIRST, "tokens:2: the same secret is also on line 1"},
    };
    for (size_t i = 0; i < N(cases); i++)
        assert_refused(cases[i].text, strlen(cases[i].text), cases[i].message);
    static const char with_nul[] = "a\0b ask " FIRST;
    assert_refused(with_nul, sizeof(with_nul) - 1, "tokens:1: expected a name");
}

/* A secret that was pasted into the file by mistake must not come back in a log. */
TEST(test_a_fault_does_not_repeat_a_secret)
{
    struct access *access = NULL;
    struct stint_error error = {0};
    assert_int_equal(access_load(&access, "tokens", span_of_text("a ask hunter2"), &error),
                     STINT_E_SYNTAX);
    assert_null(strstr(error.message, "hunter2"));
}

TEST(test_too_many_tokens_are_refused)
{
    static char text[(ACCESS_TOKENS_MAX + 1) * 100];
    size_t len = 0;
    for (unsigned i = 0; i <= ACCESS_TOKENS_MAX; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "n%u ask sha256:%064x\n", i, i);
    assert_refused(text, len, "tokens:1001: more than 1000 tokens");
}

TEST(test_new_secrets_differ_and_are_found)
{
    char secret[ACCESS_SECRET_SIZE], another[ACCESS_SECRET_SIZE], hash[ACCESS_HASH_TEXT_SIZE];
    char line[128];
    assert_true(access_secret_new(secret));
    assert_true(access_secret_new(another));
    assert_int_equal(strlen(secret), ACCESS_SECRET_SIZE - 1);
    assert_string_not_equal(secret, another);
    access_hash_text(span_of_text(secret), hash);
    snprintf(line, sizeof(line), "me ask %s", hash);
    struct access *access = load(line);
    assert_non_null(find(access, "me", secret));
    assert_null(find(access, "me", another));
    access_unref(access);
    access_hash_text(span_of_text("first"), hash);
    assert_string_equal(hash, FIRST);
}

TEST(test_roles_are_read_as_they_are_written)
{
    for (unsigned roles = 1; roles <= ACCESS_ALL; roles++) {
        char text[ACCESS_ROLES_SIZE];
        access_roles_text(roles, text);
        assert_int_equal(access_roles_parse(span_of_text(text)), roles);
    }
    assert_int_equal(access_roles_parse(span_of_text("")), 0);
    assert_int_equal(access_roles_parse(span_of_text(",")), 0);
    assert_int_equal(access_roles_parse(span_of_text("ask,ask")), ACCESS_ASK);
}

static struct access *taken(struct access_now *now)
{
    struct access *access = NULL;
    uint64_t generation = UINT64_MAX;
    access_now_renew(now, &access, &generation);
    return access;
}

/* Whoever is connected keeps what he has until he looks; a token that is gone lets nobody on. */
TEST(test_sets_are_exchanged_under_who_uses_them)
{
    struct access_now *now = access_now_new(load("shop ask " FIRST "\nother ask " SECOND));
    struct access *mine = taken(now);
    struct access *kept = NULL;
    uint64_t seen = UINT64_MAX;
    assert_true(access_now_renew(now, &kept, &seen));
    assert_false(access_now_renew(now, &kept, &seen));
    const struct access_token *shop = find(mine, "", "first"), *other = find(mine, "", "second");
    access_now_set(now, load("shop ask,metrics " FIRST "\nthird ask " SECOND));
    assert_true(access_now_renew(now, &kept, &seen));
    access_unref(kept);
    assert_string_equal(shop->name, "shop"); /* still there: the reference holds it */
    struct access *newer = taken(now);
    assert_int_equal(access_again(newer, shop)->roles, ACCESS_ASK | ACCESS_METRICS);
    assert_null(access_again(newer, other));
    access_now_set(now, load("shop ask " SECOND));
    struct access *newest = taken(now);
    assert_null(access_again(newest, shop)); /* the same name with another secret */
    assert_null(access_again(NULL, shop));
    access_unref(newest);
    access_unref(newer);
    access_unref(mine);
    access_now_free(now);
}

/* ---- Guesses --------------------------------------------------------------------------------- */

#define NOW (100 * NS_PER_S)

static unsigned n_told;
static char told_address[64];

static void tell(void *arg, const char *address, const char *frontend)
{
    assert_null(arg);
    assert_string_equal(frontend, "resp");
    snprintf(told_address, sizeof(told_address), "%s", address);
    n_told++;
}

static struct access_now *counted(unsigned per_minute)
{
    struct access_now *now = access_now_new(load("shop ask " FIRST));
    const struct access_guess_options options = {.per_minute = per_minute, .refused = tell};
    assert_non_null(now);
    assert_true(access_now_count_guesses(now, &options));
    n_told = 0;
    return now;
}

/* 'k': known, 'w': wrong, 's': slowed. */
static char login(struct access_now *now, const char *peer, const char *secret, uint64_t now_ns)
{
    struct access *access = taken(now);
    const struct access_login login = {.secret = span_of_text(secret),
                                       .peer = span_of_text(peer),
                                       .frontend = METRICS_RESP,
                                       .now_ns = now_ns};
    bool is_slowed;
    const struct access_token *token = access_login(now, access, &login, &is_slowed);
    assert_false(token != NULL && is_slowed);
    access_unref(access);
    return token != NULL ? 'k' : is_slowed ? 's' : 'w';
}

TEST(test_an_address_that_guesses_is_not_listened_to)
{
    struct access_now *now = counted(5);
    for (int i = 0; i < 100; i++)
        assert_int_equal(login(now, "192.0.2.1", "first", NOW), 'k'); /* what is right is free */
    for (int i = 0; i < 5; i++)
        assert_int_equal(login(now, "192.0.2.1", "guess", NOW), 'w');
    for (int i = 0; i < 5; i++)
        assert_int_equal(login(now, "192.0.2.1", "guess", NOW), 's');
    assert_int_equal(login(now, "192.0.2.1", "first", NOW), 's');
    assert_int_equal(n_told, 11);
    assert_string_equal(told_address, "192.0.2.1");
    assert_int_equal(login(now, "192.0.2.2", "first", NOW), 'k');
    assert_int_equal(login(now, "", "first", NOW), 'k');
    assert_int_equal(login(now, "192.0.2.1", "first", NOW + 12 * NS_PER_S), 'k');
    assert_int_equal(login(now, "192.0.2.1", "guess", NOW + 12 * NS_PER_S), 'w');
    assert_int_equal(login(now, "192.0.2.1", "first", NOW + 12 * NS_PER_S), 's');
    access_now_free(now);
}

TEST(test_addresses_of_one_network_are_one)
{
    static const struct {
        const char *guesses, *same, *other, *told;
    } cases[] = {
        {"2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1", "2001:db8::"},
        {"::ffff:192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.1"},
        {"", "", "192.0.2.1", "unix"},
    };
    for (size_t i = 0; i < N(cases); i++) {
        struct access_now *now = counted(1);
        assert_int_equal(login(now, cases[i].guesses, "guess", NOW), 'w');
        assert_int_equal(login(now, cases[i].same, "first", NOW), 's');
        assert_int_equal(login(now, cases[i].other, "first", NOW), 'k');
        assert_string_equal(told_address, cases[i].told);
        access_now_free(now);
    }
}

/* However many addresses guess, none that has not is shut out. */
TEST(test_many_addresses_that_guess_shut_out_no_other)
{
    struct access_now *now = counted(1);
    char peer[32];
    for (unsigned i = 0; i < 100000; i++) {
        snprintf(peer, sizeof(peer), "10.%u.%u.%u", i >> 16, i >> 8 & 255, i & 255);
        login(now, peer, "guess", NOW);
    }
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(peer, sizeof(peer), "192.0.%u.%u", i >> 8, i & 255);
        assert_int_equal(login(now, peer, "first", NOW), 'k');
    }
    access_now_free(now);
}

TEST(test_without_a_limit_all_are_looked_at)
{
    struct access_now *now = counted(0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(login(now, "192.0.2.1", "guess", NOW), 'w');
    assert_int_equal(login(now, "192.0.2.1", "first", NOW), 'k');
    assert_int_equal(n_told, 1000);
    access_now_free(now);
}
