/* SPDX-License-Identifier: MIT */
/* Lists and files of keys: what is a name, what is a secret, and what no message may hold. */
#define _GNU_SOURCE
#include "unit/test.h"

#include "cmd/pool/pool_keys.h"

#include <sys/stat.h>
#include <unistd.h>

/* In memory of exactly the size that the reader asks for, so that a step too far is seen. */
static int parse_bytes(struct pool_keys *keys, const char *bytes, size_t len,
                       struct stint_error *error)
{
    char *text = malloc(len + 1);
    assert_non_null(text);
    memcpy(text, bytes, len);
    text[len] = '?';
    *keys = (struct pool_keys){.path = "FILE"};
    return pool_keys_parse_file(keys, text, len, error);
}

static int parse_file(struct pool_keys *keys, const char *text, struct stint_error *error)
{
    return parse_bytes(keys, text, strlen(text), error);
}

static void assert_key(const struct pool_keys *keys, size_t i, const char *name, const char *secret)
{
    assert_true(i < keys->n_keys);
    assert_string_equal(keys->keys[i].name, name);
    if (secret == NULL) {
        assert_null(keys->keys[i].secret.ptr);
        return;
    }
    assert_int_equal(keys->keys[i].secret.len, strlen(secret));
    assert_memory_equal(keys->keys[i].secret.ptr, secret, strlen(secret));
}

static void assert_refused(const char *text, const char *message)
{
    struct pool_keys keys;
    struct stint_error error = {0};
    assert_true(parse_file(&keys, text, &error) < 0);
    assert_string_equal(error.message, message);
    pool_keys_deinit(&keys);
}

/* Names stand alone or before a secret; comments and blank lines are no keys, but count as lines.
 */
TEST(test_a_file_of_names_and_secrets)
{
    struct pool_keys keys;
    assert_int_equal(parse_file(&keys,
                                "# ours\n\nalpha\n  beta s3cret\n\t# theirs\ngamma\t \tx\r\n"
                                "delta \r\n \t\nepsilon#1 #2",
                                NULL),
                     0);
    assert_int_equal(keys.n_keys, 5);
    assert_key(&keys, 0, "alpha", NULL);
    assert_key(&keys, 1, "beta", "s3cret");
    assert_key(&keys, 2, "gamma", "x");
    assert_key(&keys, 3, "delta", NULL);
    assert_key(&keys, 4, "epsilon#1", "#2");
    assert_int_equal(keys.keys[1].position, 4);
    assert_int_equal(keys.keys[4].position, 9);
    assert_true(keys.holds_secrets);
    pool_keys_deinit(&keys);
}

/* A secret holds whatever bytes there are up to the newline, but for blanks that it begins with. */
TEST(test_a_secret_is_any_bytes)
{
    struct pool_keys keys;
    static const char line[] = "k # a\tb='\"\\\xff\0\x01\x7f  \nl m";
    assert_int_equal(parse_bytes(&keys, line, sizeof(line) - 1, NULL), 0);
    assert_int_equal(keys.n_keys, 2);
    assert_int_equal(keys.keys[0].secret.len, 15);
    assert_memory_equal(keys.keys[0].secret.ptr, "# a\tb='\"\\\xff\0\x01\x7f  ", 15);
    assert_key(&keys, 1, "l", "m");
    pool_keys_deinit(&keys);
    /* Every byte but the newline, within a secret; at its end a carriage return is of the newline.
     */
    for (int byte = 0; byte < 256; byte++) {
        char text[] = "k a??b\n";
        text[3] = (char)byte;
        text[4] = (char)byte;
        if (byte == '\n')
            continue;
        assert_int_equal(parse_bytes(&keys, text, sizeof(text) - 1, NULL), 0);
        assert_int_equal(keys.n_keys, 1);
        assert_int_equal(keys.keys[0].secret.len, 4);
        assert_memory_equal(keys.keys[0].secret.ptr, text + 2, 4);
        pool_keys_deinit(&keys);
    }
}

/* The same name twice is refused with both its lines, the first pair as one reads. */
TEST(test_a_name_twice)
{
    struct pool_keys keys;
    struct stint_error error;
    char *list = strdup("x,y,x");
    assert_refused("b 1\n#\na\nb 2\na\n", "FILE: 'b' is on line 1 and again on line 4");
    assert_refused("a\n\na\na\n", "FILE: 'a' is on line 1 and again on line 3");
    keys = (struct pool_keys){0};
    assert_int_equal(pool_keys_parse_list(&keys, list, &error), STINT_E_MISMATCH);
    assert_string_equal(error.message, "--keys: 'x' is key 1 and again key 3");
    pool_keys_deinit(&keys);
}

/* What is no name is refused with its line, and with nothing of what stands there. */
TEST(test_what_is_no_name)
{
    char text[STINT_POOL_NAME_MAX + 16];
    struct pool_keys keys;
    assert_refused("", "FILE holds no key");
    assert_refused("# nothing\n \n", "FILE holds no key");
    assert_refused("a\nb\x01secret\n", "FILE, line 2: byte 2 of a name is a control byte; names "
                                       "are printable, without blanks");
    memset(text, 'n', sizeof(text));
    text[STINT_POOL_NAME_MAX] = '\0';
    assert_int_equal(parse_file(&keys, text, NULL), 0);
    pool_keys_deinit(&keys);
    text[STINT_POOL_NAME_MAX] = 'n';
    text[STINT_POOL_NAME_MAX + 1] = '\0';
    assert_refused(text, "FILE, line 1: a name of 256 bytes; at most 255 may be");
    static const char zero[] = "a\nb\0c d\n";
    struct stint_error error;
    assert_true(parse_bytes(&keys, zero, sizeof(zero) - 1, &error) < 0);
    assert_string_equal(error.message, "FILE, line 2: a byte of the name is 0");
    pool_keys_deinit(&keys);
}

TEST(test_a_list)
{
    static const char *const wrong[][2] = {
        {"", "--keys, key 1: the name of a key is empty"},
        {"a,,b", "--keys, key 2: the name of a key is empty"},
        {"a,", "--keys, key 2: the name of a key is empty"},
        {"a, b", "--keys, key 2: byte 1 of a name is a blank; names are printable, without blanks"},
    };
    struct pool_keys keys;
    assert_int_equal(pool_keys_read(&keys, "a,b=c,\xc3\xa9", NULL), 0);
    assert_int_equal(keys.n_keys, 3);
    assert_key(&keys, 1, "b=c", NULL);
    assert_key(&keys, 2, "\xc3\xa9", NULL);
    assert_false(keys.holds_secrets || keys.seen_by_others);
    pool_keys_deinit(&keys);
    for (size_t i = 0; i < N(wrong); i++) {
        struct stint_error error;
        assert_true(pool_keys_read(&keys, wrong[i][0], &error) < 0);
        assert_string_equal(error.message, wrong[i][1]);
        pool_keys_deinit(&keys);
    }
}

/* As many keys as a pool may have, and not one more. */
TEST(test_as_many_as_may_be)
{
    size_t size = (STINT_POOL_KEYS_MAX + 1) * 8, len = 0;
    char *text = malloc(size);
    struct pool_keys keys;
    struct stint_error error;
    assert_non_null(text);
    for (unsigned i = 0; i < STINT_POOL_KEYS_MAX; i++)
        len += (size_t)snprintf(text + len, size - len, "k%u\n", i);
    assert_int_equal(parse_bytes(&keys, text, len, &error), 0);
    assert_int_equal(keys.n_keys, STINT_POOL_KEYS_MAX);
    assert_key(&keys, STINT_POOL_KEYS_MAX - 1, "k65535", NULL);
    pool_keys_deinit(&keys);
    len += (size_t)snprintf(text + len, size - len, "one\n");
    assert_int_equal(parse_bytes(&keys, text, len, &error), STINT_E_RANGE);
    assert_string_equal(error.message, "FILE holds more than 65536 keys");
    pool_keys_deinit(&keys);
    free(text);
}

/* Files that others may read are told apart, since secrets may stand in them; pipes are not. */
TEST(test_who_may_read_the_file)
{
    char path[] = "/tmp/stint-keys-XXXXXX_", word[64];
    struct pool_keys keys;
    struct stint_error error;
    int fd = mkstemps(path, 1);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a one\nb two\n", 12), 12);
    close(fd);
    snprintf(word, sizeof(word), "@%s", path);
    static const struct {
        mode_t mode;
        bool others;
    } cases[] = {{0600, false}, {0640, true}, {0604, true}, {0622, false}};
    for (size_t i = 0; i < N(cases); i++) {
        assert_int_equal(chmod(path, cases[i].mode), 0);
        assert_int_equal(pool_keys_read(&keys, word, &error), 0);
        assert_key(&keys, 1, "b", "two");
        assert_true(keys.holds_secrets);
        assert_int_equal(keys.seen_by_others, cases[i].others);
        pool_keys_deinit(&keys);
    }
    unlink(path);
    assert_int_equal(pool_keys_read(&keys, word, &error), STINT_E_SYSTEM);
    pool_keys_deinit(&keys);
    assert_int_equal(pool_keys_read(&keys, "@/", &error), STINT_E_SYSTEM);
    pool_keys_deinit(&keys);
}

/* Files longer than what is read at once come whole, with the names where they were. */
TEST(test_a_long_file)
{
    enum { LINES = 5000, SECRET = 40 };
    char path[] = "/tmp/stint-keys-XXXXXX_", word[64], secret[SECRET + 1] = {0};
    struct pool_keys keys;
    int fd = mkstemps(path, 1);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    for (int i = 0; i < LINES; i++) {
        memset(secret, 'a' + i % 26, SECRET);
        fprintf(file, "key%d %s\n", i, secret);
    }
    fclose(file);
    snprintf(word, sizeof(word), "@%s", path);
    assert_int_equal(pool_keys_read(&keys, word, NULL), 0);
    assert_int_equal(keys.n_keys, LINES);
    for (int i = 0; i < LINES; i++) {
        char name[16];
        memset(secret, 'a' + i % 26, SECRET);
        snprintf(name, sizeof(name), "key%d", i);
        assert_key(&keys, (size_t)i, name, secret);
    }
    pool_keys_deinit(&keys);
    unlink(path);
}

TEST(test_find)
{
    struct pool_keys keys;
    struct stint_error error;
    assert_int_equal(parse_file(&keys, "alpha xyzzy\nbeta\n", &error), 0);
    assert_ptr_equal(pool_keys_find(&keys, "beta", &error), &keys.keys[1]);
    assert_null(pool_keys_find(&keys, "bta", &error));
    assert_string_equal(error.message, "FILE holds no key 'bta'; did you mean 'beta'?");
    assert_null(pool_keys_find(&keys, "xyzzy", &error));
    assert_string_equal(error.message,
                        "FILE holds no key 'xyzzy'; give the same --keys as the command that used "
                        "it, or one of its 2 names");
    pool_keys_deinit(&keys);
}
