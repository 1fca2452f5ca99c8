/* SPDX-License-Identifier: MIT */
/*
 * What the files of io/http share. A peer is a connection, a visit is one request of it.
 *
 * http.c owns daemon, sockets and time; http_visit.c is what libmicrohttpd calls while it reads a
 * request, and sends what conn/http.h answers.
 */
#ifndef STINT_IO_HTTP_PARTS_H
#define STINT_IO_HTTP_PARTS_H

#include "io/due.h"
#include "io/http.h"
#include "io/timing.h"

#include <microhttpd.h>
#include <netinet/in.h>

#define VISIT_TARGET_SIZE 512 /* of a target that needs no memory of its own */
#define VISIT_BODY_KEPT 4096  /* bytes of a body's room that the next visit may find */
#define VISITS_KEPT 256       /* visits that are over, for the next ones */

enum peer_state {
    PEER_IDLE,      /* between requests */
    PEER_READING,   /* the request's line is there */
    PEER_WAITING,   /* suspended, until visit->due, or until a store has answered */
    PEER_ANSWERING, /* until its client has read all */
};

struct http_peer {
    struct http_peer *next, *previous;
    struct http *http;
    struct MHD_Connection *connection;
    void *owner;
    uint64_t until_ms;          /* of the loop: when it has taken too long */
    struct http_visit *waiting; /* in PEER_WAITING */
    int fd;
    bool is_refused; /* nobody is to be told of its end */
    uint8_t state;   /* enum peer_state */
    uint8_t address_len;
    char address[INET6_ADDRSTRLEN]; /* empty: a Unix socket */
};

struct http_visit {
    struct http_visit *next; /* of those that are over */
    struct http_peer *peer;
    const char *method;
    char *target; /* `room`, or memory of its own */
    size_t target_len;
    char *body;
    size_t body_len, body_size;
    uint64_t asked_ns; /* 0: not yet */
    struct due due;
    struct errand *errand; /* of a store that was asked; NULL: none was */
    bool has_begun, is_too_large;
    bool is_urgent; /* to be answered, whatever it would wait for */
    char room[VISIT_TARGET_SIZE];
};

struct http {
    uv_loop_t *loop;
    struct http_options options;
    struct http_limits limits; /* with the defaults */
    struct MHD_Daemon *daemon;
    struct http_door *door;
    struct stint_table *table;
    struct metrics_worker *metrics;
    struct timing_turn turn;
    struct http_peer *peers;
    size_t n_peers;
    struct http_peer *adopting; /* whom libmicrohttpd is being told of */
    struct http_visit *visits;  /* that are over */
    size_t n_visits;
    struct dues dues; /* of visits that wait */
    uv_poll_t poll;
    uv_timer_t wake;  /* the first of dues */
    uv_timer_t again; /* libmicrohttpd has more to do at once */
    uv_timer_t sweep; /* of those who take too long */
    unsigned n_handles;
    bool is_draining, is_closing;
    void (*closed)(void *arg);
    void *closed_arg;
    char fault[STINT_ERROR_MAX]; /* libmicrohttpd's, while it starts */
};

/* From now on the peer is in this state, and has as long as its limit says. */
void http_peer_enter(struct http_peer *peer, enum peer_state state);
/* Suspends the visit's connection until then; false where it has to be answered now. */
bool http_suspend(struct http_visit *visit, uint64_t again_at_ns);
/* The same until the errand's answers are there. */
bool http_await(struct http_visit *visit, struct errand *errand);

/* What libmicrohttpd calls. */
void *http_visit_begin(void *http, const char *uri, struct MHD_Connection *connection);
enum MHD_Result http_visit_go_on(void *http, struct MHD_Connection *connection, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *upload_len, void **visit);
void http_visit_end(void *http, struct MHD_Connection *connection, void **visit,
                    enum MHD_RequestTerminationCode why);
void http_visits_free(struct http *http);

#endif
