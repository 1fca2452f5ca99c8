/* SPDX-License-Identifier: MIT */
/*
 * Any bytes of a collector of traces, over HTTP and gRPC. Each request is answered once, and an
 * answer has its bounds. A text that is no URL of a collector is refused with a message.
 */
#include "link_steps.h"

#include "net/upstream/collector_conn.h"

struct session {
    struct link_steps steps;
    struct collector_conn conn;
    bool is_asked;
};

static void on_answer(void *arg, enum link_outcome outcome, const struct collector_answer *answer,
                      uint64_t now_ns)
{
    struct session *session = arg;
    (void)now_ns;
    MUST(session->is_asked);
    session->is_asked = false;
    MUST((outcome == LINK_DONE) == (answer != NULL));
    if (answer == NULL)
        return;
    MUST(answer->body.len <= COLLECTOR_BODY_MAX);
    MUST((answer->verdict == COLLECTOR_ACCEPTS) == (answer->reason[0] == '\0'));
    uint8_t *copy = bytes_copy(answer->body); /* all of it can be read */
    free(copy);
}

static void connecting(void *arg)
{
    MUST(!((struct session *)arg)->is_asked);
}

static void post(void *arg, unsigned what)
{
    static const uint8_t body[4096];
    struct session *session = arg;
    bool was_asked = session->is_asked;
    bool is_posted = collector_conn_post(&session->conn, span_of(body, (what & 31) * 128),
                                         session->steps.now_ns);
    MUST(!was_asked || !is_posted);
    session->is_asked = was_asked || is_posted;
}

static void converse(struct span input, bool is_grpc)
{
    const struct collector_url url = {.authority = "c:1", .path = "/v1/traces", .is_grpc = is_grpc};
    struct session session = {
        .steps = {.now_ns = NS_PER_HOUR, .connecting = connecting, .act = post, .arg = &session}};
    MUST(collector_conn_open(&session.conn, &(struct collector_conn_options){
                                                .url = &url,
                                                .body_max = 4096,
                                                .link = {.connect_ns = 10 * NS_PER_S,
                                                         .reply_ns = 10 * NS_PER_S,
                                                         .backoff_first_ns = NS_PER_S,
                                                         .backoff_max_ns = 8 * NS_PER_S,
                                                         .seed = 1},
                                                .answered = on_answer,
                                                .arg = &session,
                                            }));
    session.steps.link = session.conn.link;
    while (input.len > 0)
        link_step(&session.steps, &input);
    link_free(session.conn.link, session.steps.now_ns);
    MUST(!session.is_asked);
}

static void over_http(struct span input)
{
    converse(input, false);
}

static void over_grpc(struct span input)
{
    converse(input, true);
}

static void read_url(struct span input)
{
    struct collector_url url;
    struct stint_error error = {.message = ""};
    char *text = calloc(1, input.len + 1);
    MUST(text != NULL);
    if (input.len > 0)
        memcpy(text, input.ptr, input.len);
    int code = collector_url_parse(&url, text, &error);
    MUST((code == 0) == (error.message[0] == '\0'));
    MUST(code != 0 || (url.host.name[0] != '\0' && url.host.port > 0));
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ways[])(struct span input) = {over_http, over_grpc, read_url};
    bytes_choose(ways, sizeof(ways) / sizeof(ways[0]), span_of(data, size));
    return 0;
}
