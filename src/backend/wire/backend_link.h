/* SPDX-License-Identifier: MIT */
/*
 * A connection to a store, for the code that moves its bytes: when it wants a socket, what to send,
 * and when to wake it. It does not depend on the protocol. First member of every kind of
 * connection. One thread.
 */
#ifndef STINT_BACKEND_WIRE_BACKEND_LINK_H
#define STINT_BACKEND_WIRE_BACKEND_LINK_H

#include "base/span.h"

#include <stdbool.h>
#include <stdint.h>

struct link {
    const struct link_ops *ops;
};

enum link_wants {
    LINK_WANTS_NOTHING,
    LINK_WANTS_SOCKET, /* to be opened: dialling(), then connected() or lost() */
    LINK_WANTS_CLOSE,  /* the socket is to be closed, then lost() */
};

struct link_ops {
    enum link_wants (*wants)(const struct link *link);
    void (*dialling)(struct link *link, uint64_t now_ns);
    /* In TLS: after the handshake. */
    void (*connected)(struct link *link, uint64_t now_ns);
    /* The socket is closed, or could not be opened. `why` NULL: the connection knows. */
    void (*lost)(struct link *link, const char *why, uint64_t now_ns);

    void (*feed)(struct link *link, struct span bytes, uint64_t now_ns);
    /* Valid until the next call. */
    struct span (*output)(const struct link *link);
    void (*sent)(struct link *link, size_t len);
    /* When to call wake() at the latest; STINT_NEVER_NS: nothing is waited for. */
    uint64_t (*deadline)(const struct link *link);
    void (*wake)(struct link *link, uint64_t now_ns);

    /* Whether it has greeted, and takes commands now. */
    bool (*is_ready)(const struct link *link);
    /* Why it was not ready the last time; "" if it always was. */
    const char *(*fault)(const struct link *link);
    /* Answers what waits. */
    void (*free)(struct link *link, uint64_t now_ns);
};

static inline enum link_wants link_wants(const struct link *link)
{
    return link->ops->wants(link);
}

static inline void link_dialling(struct link *link, uint64_t now_ns)
{
    link->ops->dialling(link, now_ns);
}

static inline void link_connected(struct link *link, uint64_t now_ns)
{
    link->ops->connected(link, now_ns);
}

static inline void link_lost(struct link *link, const char *why, uint64_t now_ns)
{
    link->ops->lost(link, why, now_ns);
}

static inline void link_feed(struct link *link, struct span bytes, uint64_t now_ns)
{
    link->ops->feed(link, bytes, now_ns);
}

static inline struct span link_output(const struct link *link)
{
    return link->ops->output(link);
}

static inline void link_sent(struct link *link, size_t len)
{
    link->ops->sent(link, len);
}

static inline uint64_t link_deadline(const struct link *link)
{
    return link->ops->deadline(link);
}

static inline void link_wake(struct link *link, uint64_t now_ns)
{
    link->ops->wake(link, now_ns);
}

static inline bool link_is_ready(const struct link *link)
{
    return link->ops->is_ready(link);
}

static inline const char *link_fault(const struct link *link)
{
    return link->ops->fault(link);
}

static inline void link_free(struct link *link, uint64_t now_ns)
{
    link->ops->free(link, now_ns);
}

#endif
