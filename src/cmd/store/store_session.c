/* SPDX-License-Identifier: MIT */
/* Runs the loop in steps until the reply has arrived. */
#define _GNU_SOURCE
#include "cmd/store/store.h"

#include "base/ns.h"
#include "net/upstream/upstream.h"

#include <assert.h>
#include <stdlib.h>
#include <uv.h>

#define WORDS_MAX 16

struct store_session {
    uv_loop_t loop;
    struct upstream *upstream;
    struct redis_conn *conn; /* the upstream's */
    void (*read)(void *arg, const struct redis_reply *reply);
    void *arg;
    enum redis_outcome outcome;
    bool is_answered;
    uint64_t took_ns;
};

static int gone(const struct store_session *session, struct stint_error *error)
{
    return err_set(error, STINT_E_GONE, "%s", link_fault(redis_conn_link(session->conn)));
}

/* The loop must not wait for further events. */
static void stop(void *arg, uint64_t now_ns)
{
    struct store_session *session = arg;
    (void)now_ns;
    uv_stop(&session->loop);
}

int store_session_open(struct store_session **session, const struct store_session_options *options,
                       struct stint_error *error)
{
    struct store_session *made = calloc(1, sizeof(*made));
    if (made == NULL || uv_loop_init(&made->loop) != 0) {
        free(made);
        return err_set(error, STINT_E_SYSTEM, "no memory for a connection");
    }
    const struct store_url *url = options->url;
    made->conn = redis_conn_new(&(struct redis_conn_options){
        .pipeline =
            {
                .user = url->user,
                .password = url->password,
                .connect_ns = options->timeout_ns,
                .reply_ns = options->timeout_ns,
                .commands_max = 4,
                .backoff_first_ns = NS_PER_HOUR, /* the first error is kept */
                .backoff_max_ns = NS_PER_HOUR,
            },
        .name = "stint-store-check",
        .database = options->database,
    });
    if (made->conn == NULL) {
        store_session_close(made);
        return err_set(error, STINT_E_SYSTEM, "no memory for a connection");
    }
    struct upstream_options upstream = {
        .link = redis_conn_link(made->conn),
        .loop = &made->loop,
        .path = url->path,
        .changed = stop,
        .arg = made,
        .tls = options->tls,
    };
    if (options->host != NULL)
        upstream.host = *options->host;
    made->upstream = upstream_new(&upstream);
    int code = 0;
    if (made->upstream == NULL) {
        redis_conn_free(made->conn, 0);
        code = err_set(error, STINT_E_SYSTEM, "no memory for a connection");
    }
    while (code == 0 && !link_is_ready(redis_conn_link(made->conn)))
        if (upstream_losses(made->upstream) > 0)
            code = gone(made, error);
        else
            uv_run(&made->loop, UV_RUN_ONCE);
    if (code == 0)
        *session = made;
    else
        store_session_close(made);
    return code;
}

void store_session_close(struct store_session *session)
{
    if (session == NULL)
        return;
    upstream_close(session->upstream);
    uv_run(&session->loop, UV_RUN_DEFAULT);
    int left = uv_loop_close(&session->loop);
    assert(left == 0);
    (void)left;
    free(session);
}

const struct redis_server *store_session_server(const struct store_session *session)
{
    return redis_conn_server(session->conn);
}

static void take_answer(void *arg, enum redis_outcome outcome, const struct redis_reply *reply,
                        uint64_t now_ns)
{
    struct store_session *session = arg;
    session->outcome = outcome;
    session->is_answered = true;
    stop(session, now_ns);
    if (reply != NULL)
        session->read(session->arg, reply);
}

int store_session_ask(struct store_session *session, const char *const *words,
                      void (*read)(void *arg, const struct redis_reply *reply), void *arg,
                      struct stint_error *error)
{
    struct span spans[WORDS_MAX];
    struct redis_command command = {.words = spans, .answered = take_answer, .arg = session};
    for (; words[command.n_words] != NULL; command.n_words++) {
        assert(command.n_words < WORDS_MAX);
        spans[command.n_words] = span_of_text(words[command.n_words]);
    }
    session->read = read;
    session->arg = arg;
    session->is_answered = false;
    uint64_t begin_ns = uv_hrtime();
    if (!redis_conn_ask(session->conn, &command, begin_ns))
        return err_set(error, STINT_E_SYSTEM, "no memory for a command");
    upstream_asked(session->upstream);
    while (!session->is_answered)
        uv_run(&session->loop, UV_RUN_ONCE);
    session->took_ns = uv_hrtime() - begin_ns;
    bool has_reply = session->outcome == REDIS_DONE || session->outcome == REDIS_REFUSED;
    return has_reply ? 0 : gone(session, error);
}

uint64_t store_session_took_ns(const struct store_session *session)
{
    return session->took_ns;
}
