/* SPDX-License-Identifier: MIT */
/*
 * A client of gRPC as a link without a socket: one call at a time over HTTP/2, with messages in
 * both directions. First member of a client of one service, whose codec calls these functions. What
 * it sees of its peer is bounded: header fields, frames without content, and bytes of messages that
 * the client has not used.
 */
#ifndef STINT_RPC_GRPC_LINK_H
#define STINT_RPC_GRPC_LINK_H

#include "backend/wire/backend_link.h"

#define GRPC_LINK_HEADER_MAX (16 << 10)     /* bytes of a block of header fields */
#define GRPC_LINK_FRAMES_MAX 1000           /* without content, in GRPC_LINK_FRAMES_NS */
#define GRPC_LINK_FRAMES_NS (10 * NS_PER_S) /* of the limit of frames */
#define GRPC_LINK_HEADERS_MAX 32            /* of options.headers */
#define GRPC_LINK_STATUS_SIZE 128           /* of the text of a status */

struct grpc_link_options {
    const char *method;    /* /package.Service/Method */
    const char *authority; /* HOST:PORT */
    bool is_tls;
    const char *const *headers; /* NAME:VALUE, n_headers of them, NAME in lower case */
    size_t n_headers;
    uint32_t window;   /* bytes of messages that the peer may send ahead */
    size_t output_max; /* unsent bytes; with more the peer does not read */
};

/* How a call has ended. */
struct grpc_end {
    unsigned http_status;             /* 0: there was none */
    int status;                       /* grpc-status; -1: there was none */
    uint64_t retry_ns;                /* what google.rpc.RetryInfo asks for; 0: nothing */
    char text[GRPC_LINK_STATUS_SIZE]; /* of both, for messages; "": the peer said nothing */
};

struct nghttp2_session;

struct grpc_link {
    struct link link; /* first */
    struct grpc_link_options options;
    struct nghttp2_session *session;
    bool has_settings, has_goaway;
    uint64_t now_ns;
    /* The call. */
    int32_t stream_id; /* 0: there is none */
    bool has_ended;    /* `end` says how; until the next call */
    struct grpc_end end;
    struct wire_bytes out; /* messages that HTTP/2 has not read yet */
    size_t out_read;
    bool is_last;         /* no message follows `out` */
    struct wire_bytes in; /* messages with their prefixes, as received; the client removes them */
    size_t unconsumed;    /* bytes for which the peer's window was not opened again */
    /* What the peer costs. */
    size_t field_bytes, n_frames;
    uint64_t frames_since_ns;
};

/*
 * Whether options.headers may have it: a name in lower case that HTTP and gRPC do not use
 * themselves, and a value without control characters.
 */
bool grpc_link_takes_header(const char *header);

/* ---- Start and end --------------------------------------------------------------------------- */

/* Zeroed before; strings are borrowed. False: no memory. */
bool grpc_link_init(struct grpc_link *grpc, const struct link_codec *codec,
                    const struct link_options *link, const struct grpc_link_options *options);
/* For the codec's free(). */
void grpc_link_clear(struct grpc_link *grpc);

/* ---- For a codec ----------------------------------------------------------------------------- */

/* In begin(): forgets the last connection. False: no memory. */
bool grpc_link_begin(struct grpc_link *grpc);
/*
 * In read(): the link may be ready then, `in` may have more, and the call may have ended. Call
 * grpc_link_flush() after it. A code: the connection is given up.
 */
int grpc_link_read(struct grpc_link *grpc, struct span bytes, uint64_t now_ns);
/* What is to be sent becomes the link's output. */
int grpc_link_flush(struct grpc_link *grpc);
/* Gives the connection up; the first reason counts. Always a negative code. */
int grpc_link_fail(struct grpc_link *grpc, const char *format, ...) ERR_PRINTF(2, 3);

/* ---- A call ---------------------------------------------------------------------------------- */

/* There must be none. False: no memory, or the peer allows no more. */
bool grpc_link_call(struct grpc_link *grpc);
/* Sends a message by the next flush; it is copied. False: no memory, or output_max is passed. */
bool grpc_link_send(struct grpc_link *grpc, struct span message, bool is_last);
/* The peer may send as many bytes again as it has sent. */
void grpc_link_open_window(struct grpc_link *grpc);
/* Checks that the peer is there: any bytes answer. */
void grpc_link_ping(struct grpc_link *grpc);

#endif
