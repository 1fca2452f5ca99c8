/* SPDX-License-Identifier: MIT */
/*
 * The parts of gRPC above HTTP/2: messages with a prefix of five bytes, compressed or not, statuses
 * in trailers, and deadlines. Bytes only; streams and sessions are in frontend/grpc/grpc_conn.h.
 */
#ifndef STINT_PROTO_GRPC_GRPC_H
#define STINT_PROTO_GRPC_GRPC_H

#include "base/span.h"
#include "stint.h"

#include <stdbool.h>

enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16,
};

/* "INVALID_ARGUMENT", or "" for an unknown number. */
const char *grpc_status_name(int status);

/* grpc-timeout: at most eight digits and one of H M S m u n. False for anything else. */
bool grpc_timeout_read(struct span text, uint64_t *timeout_ns);

/* grpc-message: all but printable ASCII as %XX. Text that does not fit is cut, not within %XX. */
size_t grpc_message_write(char *text, size_t size, struct span message);

/*
 * grpc-status-details-bin: after what time the server wants to be called again, by its
 * google.rpc.RetryInfo. False: it does not say, or it is malformed or larger than GRPC_DETAILS_MAX.
 * A delay of zero is returned as 1 ns.
 */
#define GRPC_DETAILS_MAX 4096
bool grpc_retry_info_read(struct span base64, uint64_t *delay_ns);

/* ---- Messages -------------------------------------------------------------------------------- */

#define GRPC_PREFIX 5

struct grpc_frame {
    bool is_compressed;
    struct span message;
};

/*
 * Reads one message from the start of the bytes: bytes used, 0 where more are needed, STINT_E_RANGE
 * for one of more than max bytes (known from its prefix), STINT_E_SYNTAX for an invalid flag.
 */
int grpc_frame_read(struct span bytes, size_t max, struct grpc_frame *frame,
                    struct stint_error *error);
/* The prefix of a message of so many bytes. */
void grpc_frame_write(uint8_t prefix[GRPC_PREFIX], bool is_compressed, size_t len);

enum grpc_encoding { GRPC_IDENTITY, GRPC_GZIP, GRPC_ENCODING_UNKNOWN };
enum grpc_encoding grpc_encoding_of(struct span name);
/* Whether the value of grpc-accept-encoding contains gzip. */
bool grpc_accepts_gzip(struct span list);

/* State for compressing and decompressing, reused. NULL: no memory. */
struct grpc_zip;
struct grpc_zip *grpc_zip_new(void);
void grpc_zip_free(struct grpc_zip *zip); /* NULL is allowed */
/*
 * The content of a gzip message, valid until the next call; at most max bytes. STINT_E_RANGE as
 * soon as it exceeds that, so that a decompression bomb costs no more. STINT_E_SYNTAX: not gzip.
 */
int grpc_zip_read(struct grpc_zip *zip, struct span message, size_t max, struct span *plain,
                  struct stint_error *error);
/* Compresses; false: no memory. */
bool grpc_zip_write(struct grpc_zip *zip, struct span plain, struct span *message);

/* ---- Frames of HTTP/2 ------------------------------------------------------------------------ */

/*
 * The position between the frames of an HTTP/2 connection (RFC 9113, 3.4, 4.1 and 4.3): in the
 * preface, a frame, or a block of header fields that consists of several frames. nghttp2 does not
 * report the end of frames that it skips, so its callbacks cannot enforce a time limit for a frame.
 */

#define HTTP2_PREFACE 24
#define HTTP2_FRAME_HEAD 9

/* Zeroed before the first byte. */
struct http2_frames {
    uint32_t left; /* bytes of the payload that are still to come */
    uint8_t head[HTTP2_FRAME_HEAD];
    uint8_t head_len;
    uint8_t preface_len;
    bool is_in_block; /* HEADERS came without END_HEADERS, and no CONTINUATION with it since */
};

/*
 * Takes the first *len of the bytes, and up to as many more where these end in a DATA frame that
 * the next bytes complete: a message in two pieces would be copied. *len is then what it took. True
 * if one of these is at a boundary: it completes an item, or no item was open.
 */
bool http2_frames_take(struct http2_frames *frames, struct span bytes, size_t *len);

/* Whether an item is incomplete after the last byte: a preface, a frame or a block. */
bool http2_frames_are_open(const struct http2_frames *frames);

/* ---- Health ---------------------------------------------------------------------------------- */

/* The messages of grpc.health.v1.Health. */

enum health_status {
    HEALTH_UNKNOWN = 0,
    HEALTH_SERVING = 1,
    HEALTH_NOT_SERVING = 2,
    HEALTH_SERVICE_UNKNOWN = 3, /* only for Watch */
};

#define HEALTH_MESSAGE_MAX 256 /* bytes of the largest answer */

/*
 * Services with a health, which is the server's: "" for the whole server, the rate limit service,
 * and "ratelimit", the name that envoyproxy/ratelimit uses.
 */
bool health_knows(struct span service);

/* HealthCheckRequest: its service, within the message. STINT_E_SYNTAX for an invalid message. */
int health_read(struct span message, struct span *service, struct stint_error *error);
/* HealthCheckResponse, and HealthListResponse with all services, within `bytes`. */
struct span health_write(uint8_t bytes[HEALTH_MESSAGE_MAX], enum health_status status);
struct span health_write_list(uint8_t bytes[HEALTH_MESSAGE_MAX], enum health_status status);

#endif
