/* SPDX-License-Identifier: MIT */
/* One call for each socket: rpc/grpc_link.h has the messages, and this file what they mean. */
#include "xds/ads_client.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "proto/grpc/grpc.h"

#include <stdlib.h>
#include <string.h>

#define METHOD "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
#define OUTPUT_MAX (256 << 10) /* unsent bytes, above which the peer does not read */

struct ads_client {
    struct grpc_link grpc; /* first */
    struct ads_client_options options;
    uint64_t stream;                      /* counts them */
    char version[DISCOVERY_TEXT_MAX + 1]; /* accepted last; on this stream, or before */
    size_t version_len;
    struct ads_response response;
    bool has_response; /* not taken yet */
    bool is_waiting;   /* for the answer to a response */
    uint64_t next_ns;  /* no response is handed over before */
    uint64_t message_since_ns, heard_ns;
    uint64_t ping_ends_ns; /* STINT_NEVER_NS: none was sent */
    uint64_t now_ns;
};

static struct ads_client *of(struct link *link)
{
    return (struct ads_client *)(void *)link;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static int add_request(struct ads_client *client, const struct discovery_request *request)
{
    size_t size = discovery_request_size(request);
    uint8_t *bytes = malloc(size);
    bool is_sent =
        bytes != NULL &&
        grpc_link_send(&client->grpc, discovery_request_write(request, bytes, size), false);
    free(bytes);
    return is_sent ? 0
                   : grpc_link_fail(&client->grpc, "no memory for a request to the control plane");
}

static int end_stream(struct ads_client *client)
{
    const char *text = client->grpc.end.text;
    return grpc_link_fail(&client->grpc, "the control plane has ended the stream%s%s",
                          text[0] != '\0' ? ":" : "", text);
}

/* nghttp2 may reset the stream itself, for a frame that must not come; sending that closes it. */
static int flush(struct ads_client *client)
{
    int code = client->grpc.has_ended ? 0 : grpc_link_flush(&client->grpc);
    return code == 0 && client->grpc.has_ended ? end_stream(client) : code;
}

/* ---- Responses ------------------------------------------------------------------------------- */

/* Moves a whole message out, and leaves what follows it. */
static int hand_over(struct ads_client *client, struct span message, size_t used)
{
    struct ads_response *response = &client->response;
    struct wire_bytes rest = {NULL, 0, 0};
    struct stint_error error;
    struct span after = span_of(client->grpc.in.ptr + used, client->grpc.in.len - used);
    if (discovery_response_read(message, &response->parts, &error) != 0)
        return grpc_link_fail(&client->grpc, "the control plane's response: %s", error.message);
    if (!wire_bytes_reserve(&rest, after.len + 1, ADS_WINDOW + ADS_MESSAGE_MAX))
        return grpc_link_fail(&client->grpc, "no memory for a response");
    wire_bytes_add(&rest, after);
    response->bytes = client->grpc.in.ptr;
    response->message = message;
    response->stream = client->stream;
    client->grpc.in = rest;
    client->has_response = client->is_waiting = true;
    client->options.received(client->options.arg);
    return 0;
}

/* Hands over the next response, if it is there and none is pending. */
static int read_response(struct ads_client *client)
{
    struct grpc_frame frame;
    struct stint_error error;
    if (client->is_waiting || client->next_ns > client->now_ns)
        return 0;
    int used = grpc_frame_read(span_of(client->grpc.in.ptr, client->grpc.in.len), ADS_MESSAGE_MAX,
                               &frame, &error);
    if (used < 0)
        return grpc_link_fail(&client->grpc, "the control plane's response: %s", error.message);
    if (used == 0) {
        grpc_link_open_window(&client->grpc);
        return 0;
    }
    if (frame.is_compressed)
        return grpc_link_fail(&client->grpc,
                              "the control plane's response is compressed, which was not offered");
    return hand_over(client, frame.message, (size_t)used);
}

/* ---- A connection ---------------------------------------------------------------------------- */

/* Forgets the last connection. A response that was taken may still be answered, without effect. */
static void reset(struct ads_client *client)
{
    if (client->has_response)
        ads_response_free(&client->response);
    client->has_response = client->is_waiting = false;
    client->ping_ends_ns = STINT_NEVER_NS;
    client->stream++;
}

static bool begin(struct link *link)
{
    struct ads_client *client = of(link);
    const struct discovery_request subscription = {.node = client->options.node};
    reset(client);
    return grpc_link_begin(&client->grpc) && grpc_link_call(&client->grpc) &&
           add_request(client, &subscription) == 0 && flush(client) == 0;
}

/* ---- Time ------------------------------------------------------------------------------------ */

static bool is_receiving(const struct ads_client *client)
{
    return client->grpc.in.len > 0 && !client->is_waiting;
}

static uint64_t message_ends_ns(const struct ads_client *client)
{
    return is_receiving(client)
               ? max_u64(client->message_since_ns, client->next_ns) + ADS_MESSAGE_NS
               : STINT_NEVER_NS;
}

static void arm(struct ads_client *client)
{
    bool is_held = !client->is_waiting && client->grpc.unconsumed > 0 &&
                   client->next_ns > client->now_ns; /* else the peer's window would stay shut */
    uint64_t ping_ns = client->ping_ends_ns != STINT_NEVER_NS ? client->ping_ends_ns
                                                              : client->heard_ns + ADS_SILENCE_NS;
    if (!link_is_ready(&client->grpc.link)) {
        client->grpc.link.earliest_ns = STINT_NEVER_NS;
        return;
    }
    client->grpc.link.earliest_ns = min_u64(min_u64(ping_ns, message_ends_ns(client)),
                                            is_held ? client->next_ns : STINT_NEVER_NS);
}

static void look_for_peer(struct ads_client *client)
{
    if (client->ping_ends_ns <= client->now_ns) {
        grpc_link_fail(&client->grpc, "the control plane has not answered a PING within %u s",
                       (unsigned)(ADS_PING_NS / NS_PER_S));
    } else if (client->ping_ends_ns == STINT_NEVER_NS &&
               client->heard_ns + ADS_SILENCE_NS <= client->now_ns) {
        client->ping_ends_ns = client->now_ns + ADS_PING_NS;
        grpc_link_ping(&client->grpc);
    }
}

static void be_late(struct link *link, uint64_t now_ns)
{
    struct ads_client *client = of(link);
    client->now_ns = now_ns;
    link->earliest_ns = STINT_NEVER_NS;
    if (link->state != LINK_READY)
        return;
    look_for_peer(client);
    if (message_ends_ns(client) <= now_ns)
        grpc_link_fail(&client->grpc,
                       "the control plane has not sent the rest of a response within %u s",
                       (unsigned)(ADS_MESSAGE_NS / NS_PER_S));
    if (link->state == LINK_READY && read_response(client) == 0)
        (void)flush(client);
    arm(client);
}

/* ---- The link -------------------------------------------------------------------------------- */

static int read_bytes(struct link *link, struct span bytes, uint64_t now_ns)
{
    struct ads_client *client = of(link);
    size_t before = client->grpc.in.len;
    client->now_ns = client->heard_ns = now_ns;
    client->ping_ends_ns = STINT_NEVER_NS;
    int code = grpc_link_read(&client->grpc, bytes, now_ns);
    if (before == 0)
        client->message_since_ns = now_ns;
    /* Also a response that had to wait: these bytes may have come before the timer. */
    if (code == 0)
        code = read_response(client);
    if (code == 0)
        code = flush(client);
    arm(client);
    return code;
}

static void free_client(struct link *link)
{
    struct ads_client *client = of(link);
    reset(client);
    grpc_link_clear(&client->grpc);
}

static const struct link_codec codec = {
    .server = "the control plane",
    .begin = begin,
    .read = read_bytes,
    .be_late = be_late,
    .free = free_client,
};

struct ads_client *ads_client_new(const struct ads_client_options *options)
{
    struct ads_client *client = calloc(1, sizeof(*client));
    if (client == NULL)
        return NULL;
    struct link_options link = options->link;
    link.commands_max = 1; /* it has none */
    link.bytes_max = OUTPUT_MAX;
    client->options = *options;
    client->ping_ends_ns = STINT_NEVER_NS;
    const struct grpc_link_options grpc = {
        .method = METHOD,
        .authority = options->authority,
        .is_tls = options->is_tls,
        .headers = options->headers,
        .n_headers = options->n_headers,
        .window = ADS_WINDOW,
        .output_max = OUTPUT_MAX,
    };
    if (grpc_link_init(&client->grpc, &codec, &link, &grpc))
        return client;
    free(client);
    return NULL;
}

bool ads_client_take(struct ads_client *client, struct ads_response *response)
{
    if (!client->has_response)
        return false;
    client->has_response = false;
    *response = client->response;
    client->response = (struct ads_response){.bytes = NULL};
    return true;
}

/* protobuf refuses other text, and a message may quote a peer's bytes, or be cut in a character. */
static const char *utf8_text(char text[STINT_ERROR_MAX], const char *refusal)
{
    struct buf buf = buf_of(text, STINT_ERROR_MAX);
    buf_add(&buf, "%s", refusal);
    size_t len = strlen(text), step;
    for (size_t i = 0; i < len; i += step) {
        step = utf8_length((const uint8_t *)text + i, len - i);
        if (step == 0) {
            text[i] = '?';
            step = 1;
        }
    }
    return text;
}

void ads_client_answer(struct ads_client *client, const struct ads_response *response,
                       const char *refusal, uint64_t now_ns)
{
    char text[STINT_ERROR_MAX];
    const struct discovery_response *parts = &response->parts;
    if (refusal == NULL) {
        assert(parts->version.len <= DISCOVERY_TEXT_MAX);
        if (parts->version.len > 0)
            memcpy(client->version, parts->version.ptr, parts->version.len);
        client->version_len = parts->version.len;
    }
    if (response->stream != client->stream || !client->is_waiting)
        return;
    client->is_waiting = false;
    client->now_ns = client->message_since_ns = now_ns;
    client->next_ns = now_ns + (refusal == NULL ? ADS_ACCEPTED_NS : ADS_REFUSED_NS);
    if (!link_is_ready(&client->grpc.link))
        return;
    const struct discovery_request request = {
        .node = client->options.node,
        .version = span_of(client->version, client->version_len),
        .nonce = parts->nonce,
        .refusal = refusal != NULL ? utf8_text(text, refusal) : NULL,
    };
    if (add_request(client, &request) == 0)
        (void)flush(client);
    arm(client);
}

void ads_response_free(struct ads_response *response)
{
    free(response->bytes);
    *response = (struct ads_response){.bytes = NULL};
}
