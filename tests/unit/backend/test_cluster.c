/* SPDX-License-Identifier: MIT */
/* Slots of keys, maps of slots as nodes tell them, and masters as sentinels do. */
#include "unit/test.h"

#include "backend/redis/cluster.h"
#include "backend/redis/sentinel.h"

static struct cluster *cluster;
static struct redis_reader *reader;
static struct stint_error error;
static const struct store_host asked = {"asked", 7000};

SETUP
{
    cluster = calloc(1, sizeof(*cluster));
    reader = redis_reader_new(1 << 20);
    assert_false(cluster == NULL || reader == NULL);
}

TEARDOWN
{
    free(cluster);
    redis_reader_free(reader);
}

static const struct redis_reply *reply_of(const char *bytes)
{
    const struct redis_reply *reply = NULL;
    assert_int_equal(redis_reader_feed(reader, span_of_text(bytes), &error), 0);
    assert_int_equal(redis_reader_next(reader, &reply, &error), 1);
    return reply;
}

static void assert_master(unsigned slot, const char *name, unsigned port)
{
    const struct store_host *host = cluster_master(cluster, slot);
    assert_non_null(host);
    assert_string_equal(host->name, name);
    assert_int_equal(host->port, port);
}

/* The first is the check value of CRC-16/XMODEM. */
TEST(keys_have_slots)
{
    assert_int_equal(cluster_slot_of(span_of_text("123456789")), 0x31c3);
    assert_int_equal(cluster_slot_of(span_of_text("")), 0);
    assert_int_equal(cluster_slot_of(span_of_text("foo")), 12182);
    assert_int_equal(cluster_slot_of(span_of_text("a{foo}b")), 12182);
    assert_int_equal(cluster_slot_of(span_of_text("{foo}{bar}")), 12182);
    static const char *const whole[] = {"a{}foo", "a{foo", "a}foo{", "{}"};
    for (size_t i = 0; i < 4; i++)
        assert_int_not_equal(cluster_slot_of(span_of_text(whole[i])), 12182);
    assert_int_equal(cluster_slot_of(span_of_text("{{foo}}")),
                     cluster_slot_of(span_of_text("{foo")));
}

#define NODE(host, port) "*3\r\n$1\r\n" host "\r\n:" port "\r\n$2\r\nid\r\n"
#define THREE                                                                                      \
    "*3\r\n*4\r\n:0\r\n:5460\r\n" NODE("a", "1") NODE("d", "4") "*3\r\n:5461\r\n:10922\r\n" NODE(  \
        "b", "2") "*4\r\n:10923\r\n:16383\r\n*3\r\n$-1\r\n:3\r\n$2\r\nid\r\n" NODE("e", "5")

TEST(a_map_is_read)
{
    assert_null(cluster_master(cluster, 0));
    assert_int_equal(cluster_read(cluster, reply_of(THREE), &asked, &error), 0);
    assert_int_equal(cluster->n_masters, 3);
    assert_int_equal(cluster->n_replicas, 2);
    assert_int_equal(cluster->n_slots_served, CLUSTER_SLOTS);
    assert_master(0, "a", 1);
    assert_master(5460, "a", 1);
    assert_master(5461, "b", 2);
    assert_master(10922, "b", 2);
    assert_master(16383, "asked", 3); /* which does not know its name */

    /* Another takes its place whole. */
    assert_int_equal(
        cluster_read(cluster, reply_of("*1\r\n*3\r\n:7\r\n:8\r\n" NODE("z", "9")), &asked, &error),
        0);
    assert_int_equal(cluster->n_masters, 1);
    assert_int_equal(cluster->n_slots_served, 2);
    assert_null(cluster_master(cluster, 6));
    assert_master(8, "z", 9);
    assert_int_equal(cluster_read(cluster, reply_of("*0\r\n"), &asked, &error), 0);
    assert_null(cluster_master(cluster, 8));
}

TEST(what_is_no_map_changes_nothing)
{
    static const char *const wrong[] = {
        "+OK\r\n",
        "-ERR This instance has cluster support disabled\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n:2\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n" NODE("a", "1"),
        "*1\r\n*3\r\n:-1\r\n:1\r\n" NODE("a", "1"),
        "*1\r\n*3\r\n:2\r\n:1\r\n" NODE("a", "1"),
        "*1\r\n*3\r\n:0\r\n:1\r\n" NODE("a", "0"),
        "*1\r\n*3\r\n:0\r\n:1\r\n" NODE("a", "65536"),
        "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n",
        "*2\r\n*3\r\n:0\r\n:1\r\n" NODE("y", "1") "*0\r\n",
    };
    for (size_t i = 0; i < N(wrong); i++) {
        assert_int_equal(cluster_read(cluster, reply_of(THREE), &asked, &error), 0);
        assert_int_not_equal(cluster_read(cluster, reply_of(wrong[i]), &asked, &error), 0);
        assert_null(cluster_master(cluster, 0));
        assert_int_equal(cluster->n_slots_served, 0);
    }
}

TEST(a_slot_moves)
{
    struct redis_redirect redirect;
    assert_true(redis_redirect_parse(span_of_text("MOVED 5 b:2"), &redirect));
    assert_true(cluster_move(cluster, &redirect, &asked)); /* into a map of nothing */
    assert_master(5, "b", 2);
    assert_int_equal(cluster->n_slots_served, 1);
    assert_int_equal(cluster_read(cluster, reply_of(THREE), &asked, &error), 0);
    assert_true(cluster_move(cluster, &redirect, &asked));
    assert_master(5, "b", 2);
    assert_master(6, "a", 1);
    assert_int_equal(cluster->n_masters, 3);
    assert_int_equal(cluster->n_slots_served, CLUSTER_SLOTS);
    assert_true(redis_redirect_parse(span_of_text("MOVED 16383 :8"), &redirect));
    assert_true(cluster_move(cluster, &redirect, &asked));
    assert_master(16383, "asked", 8);
    /* A cluster that tells of ever new nodes fills no more than the room for them. */
    for (unsigned port = 1; port <= CLUSTER_MASTERS_MAX + 1; port++) {
        redirect.host = span_of_text("many");
        redirect.port = (uint16_t)port;
        assert_true(cluster_move(cluster, &redirect, &asked) == (port <= CLUSTER_MASTERS_MAX - 4));
    }
}

TEST(sentinels_tell_the_master)
{
    struct store_host master = {"old", 1};
    static const char *const wrong[] = {"*-1\r\n",
                                        "+OK\r\n",
                                        "*1\r\n$1\r\na\r\n",
                                        "*2\r\n$1\r\na\r\n$1\r\n0\r\n",
                                        "*2\r\n$0\r\n\r\n$1\r\n1\r\n",
                                        "*2\r\n$1\r\na\r\n$5\r\n65536\r\n"};
    for (size_t i = 0; i < N(wrong); i++)
        assert_int_equal(sentinel_read_master(&master, "m", reply_of(wrong[i]), &error),
                         i == 0 ? STINT_E_GONE : STINT_E_SYNTAX);
    assert_string_equal(master.name, "old");
    assert_int_equal(
        sentinel_read_master(&master, "m", reply_of("*2\r\n$3\r\n::1\r\n$4\r\n6379\r\n"), &error),
        0);
    assert_string_equal(master.name, "::1");
    assert_int_equal(master.port, 6379);
}

#define MESSAGE(len, text)                                                                         \
    "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$" len "\r\n" text "\r\n"

TEST(sentinels_tell_of_a_switch)
{
    struct store_host master = {"old", 1};
    static const char *const wrong[] = {
        "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n",
        "*3\r\n$7\r\nmessage\r\n$5\r\n+down\r\n$9\r\nm a 1 b 2\r\n",
        MESSAGE("9", "n a 1 b 2"),
        MESSAGE("9", "m a 1 b 0"),
        MESSAGE("7", "m a 1 b"),
        MESSAGE("11", "m a 1 b 2 c"),
        MESSAGE("1", "m"),
    };
    for (size_t i = 0; i < N(wrong); i++)
        assert_false(sentinel_read_switch(&master, "m", reply_of(wrong[i])));
    assert_string_equal(master.name, "old");
    assert_true(sentinel_read_switch(&master, "m", reply_of(MESSAGE("9", "m a 1 b 2"))));
    assert_string_equal(master.name, "b");
    assert_int_equal(master.port, 2);
}
