/* SPDX-License-Identifier: MIT */
/*
 * One connection to Redis or Valkey as its socket sees it: bytes go in, bytes come out, and there
 * is a time to wake it even if nothing came. It outlives its sockets. It takes commands only while
 * its server has greeted, bounded in number, bytes and time.
 *
 * A command is sent at most once, for it may have charged a key: only after NOSCRIPT, which means
 * that nothing was done, is it sent again. Only the order identifies replies: a late one is waited
 * for and skipped, as long as the server sends anything at all; if it is silent for the time of an
 * answer, the connection is lost. One thread.
 */
#ifndef STINT_BACKEND_WIRE_REDIS_CONN_H
#define STINT_BACKEND_WIRE_REDIS_CONN_H

#include "backend/wire/backend_link.h"
#include "base/err.h"
#include "base/span.h"

#include <stdbool.h>

/* ---- Replies --------------------------------------------------------------------------------- */

/*
 * Replies of Redis and Valkey (RESP2) from bytes, and what their errors mean. hiredis' reader
 * parses; the size of a reply is limited here, before memory is allocated.
 */

#define REDIS_REPLY_BYTES_DEFAULT (4u << 20)

enum redis_type { REDIS_NIL, REDIS_INTEGER, REDIS_TEXT, REDIS_STATUS, REDIS_ERROR, REDIS_ARRAY };

struct redis_reply {
    enum redis_type type;
    int64_t number;                  /* of an integer */
    struct span text;                /* of a text, a status or an error */
    const struct redis_reply *items; /* of an array */
    size_t n_items;
};

struct redis_reader;

/* `bytes_max`: of a reply on the wire, and once more in memory. NULL: no memory. */
struct redis_reader *redis_reader_new(size_t bytes_max);
void redis_reader_free(struct redis_reader *reader); /* NULL is fine */

/* Copies the bytes. After an error no more bytes are taken. */
int redis_reader_feed(struct redis_reader *reader, struct span bytes, struct stint_error *error);
/*
 * 1 and a reply, valid until the next call; 0: more bytes are needed; STINT_E_SYNTAX for invalid
 * RESP2, STINT_E_RANGE for a reply that is too large.
 */
int redis_reader_next(struct redis_reader *reader, const struct redis_reply **reply,
                      struct stint_error *error);

/* What the first word of an error means for the caller. */
enum redis_error {
    REDIS_ERROR_OTHER,
    REDIS_ERROR_NOSCRIPT,
    REDIS_ERROR_MOVED,       /* for good; redis_redirect_parse() */
    REDIS_ERROR_ASK,         /* this once, after ASKING */
    REDIS_ERROR_TRYAGAIN,    /* the keys of a list are moving */
    REDIS_ERROR_CROSSSLOT,   /* they have no common slot */
    REDIS_ERROR_CLUSTERDOWN, /* no master for the slot */
    REDIS_ERROR_LOADING,     /* it has started, and reads its data */
    REDIS_ERROR_READONLY,    /* it is a replica: another is master now */
    REDIS_ERROR_MASTERDOWN,
    REDIS_ERROR_BUSY, /* another client's script does not end */
    REDIS_ERROR_OUT_OF_MEMORY,
    REDIS_ERROR_CANNOT_WRITE, /* MISCONF, NOREPLICAS */
    REDIS_ERROR_DENIED,       /* NOAUTH, WRONGPASS, NOPERM */
    REDIS_ERROR_KEY, /* a script or a command cannot use what the key holds; others are not affected
                      */
};

/* For the text of an error; also if a script passes on the error of a command in it. */
enum redis_error redis_error_of(struct span text);

struct redis_redirect {
    unsigned slot;
    struct span host; /* empty: the server that sent it. Borrowed from the text */
    uint16_t port;
};

/* For MOVED and ASK; false: invalid text. */
bool redis_redirect_parse(struct span text, struct redis_redirect *redirect);

/* The item after a name, in an array of alternating names and values; NULL: it is missing. */
const struct redis_reply *redis_reply_named(const struct redis_reply *reply, const char *name);
bool redis_reply_is(const struct redis_reply *reply, const char *text);
/* The items of an array of integers, at most so many; false: it is none. */
bool redis_reply_integers(const struct redis_reply *reply, int64_t *values, size_t most);

/* ---- The connection -------------------------------------------------------------------------- */

struct redis_conn;

/* `reply` is NULL but for DONE and REFUSED, and valid during the call. May send, must not feed. */
typedef void redis_answered(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                            uint64_t now_ns);
/* For a command whose reply is not needed. */
redis_answered redis_skip_reply;

/* Zero is the default. Strings are borrowed. */
struct redis_conn_options {
    struct link_options link; /* backoff_max_ns: default 2 s */
    const char *name;         /* for CLIENT LIST; without spaces. NULL: none */
    unsigned database;
    size_t reply_bytes_max; /* Default REDIS_REPLY_BYTES_DEFAULT */
    redis_answered *pushed; /* unrequested messages, as of a channel. NULL: an error */
    void *arg;
};

/* What the server reports in its greeting. */
struct redis_server {
    char version[32];
    bool is_valkey, is_replica;
    char mode[16]; /* standalone, cluster, sentinel */
};

struct redis_command {
    const struct span *words;
    size_t n_words;
    /*
     * For an EVALSHA: its text, which is loaded if the server does not know it. Borrowed until the
     * answer. Empty: none. If the server refuses to load it, that error is the answer.
     */
    struct span script;
    bool is_asking; /* follows an ASK: sent after ASKING */
    redis_answered *answered;
    void *arg;
};

/* Wants its first socket at once. NULL: no memory. */
struct redis_conn *redis_conn_new(const struct redis_conn_options *options);
/* Answers what waits. NULL is fine. */
void redis_conn_free(struct redis_conn *conn, uint64_t now_ns);

/* False: it is not ready, or too many commands wait; `answered` is not called. */
bool redis_conn_ask(struct redis_conn *conn, const struct redis_command *command, uint64_t now_ns);

/* For the owner of the socket: the first member. */
static inline struct link *redis_conn_link(struct redis_conn *conn)
{
    return (struct link *)conn;
}

const struct redis_server *redis_conn_server(const struct redis_conn *conn);

#endif
