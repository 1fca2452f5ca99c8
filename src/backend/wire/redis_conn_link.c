/* SPDX-License-Identifier: MIT */
/* A Redis connection as a link, for the code that only moves its bytes. */
#include "backend/wire/redis_conn.h"

static enum link_wants op_wants(const struct link *link)
{
    return redis_conn_wants((const struct redis_conn *)link);
}

static void op_dialling(struct link *link, uint64_t now_ns)
{
    redis_conn_dialling((struct redis_conn *)link, now_ns);
}

static void op_connected(struct link *link, uint64_t now_ns)
{
    (void)now_ns;
    redis_conn_connected((struct redis_conn *)link);
}

static void op_lost(struct link *link, const char *why, uint64_t now_ns)
{
    redis_conn_lost((struct redis_conn *)link, why, now_ns);
}

static void op_feed(struct link *link, struct span bytes, uint64_t now_ns)
{
    redis_conn_feed((struct redis_conn *)link, bytes, now_ns);
}

static struct span op_output(const struct link *link)
{
    return redis_conn_output((const struct redis_conn *)link);
}

static void op_sent(struct link *link, size_t len)
{
    redis_conn_sent((struct redis_conn *)link, len);
}

static uint64_t op_deadline(const struct link *link)
{
    return redis_conn_deadline((const struct redis_conn *)link);
}

static void op_wake(struct link *link, uint64_t now_ns)
{
    redis_conn_wake((struct redis_conn *)link, now_ns);
}

static bool op_is_ready(const struct link *link)
{
    return redis_conn_is_ready((const struct redis_conn *)link);
}

static const char *op_fault(const struct link *link)
{
    return redis_conn_error((const struct redis_conn *)link);
}

static void op_free(struct link *link, uint64_t now_ns)
{
    redis_conn_free((struct redis_conn *)link, now_ns);
}

const struct link_ops redis_conn_ops = {
    .wants = op_wants,
    .dialling = op_dialling,
    .connected = op_connected,
    .lost = op_lost,
    .feed = op_feed,
    .output = op_output,
    .sent = op_sent,
    .deadline = op_deadline,
    .wake = op_wake,
    .is_ready = op_is_ready,
    .fault = op_fault,
    .free = op_free,
};

struct link *redis_conn_link(struct redis_conn *conn)
{
    return (struct link *)conn; /* its first member */
}
