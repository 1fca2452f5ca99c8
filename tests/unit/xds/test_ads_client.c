/* SPDX-License-Identifier: MIT */
/* The client of a control plane in virtual time. */
#include "unit/test_grpc_server.h"

#include "proto/grpc/wire.h"
#include "xds/ads_client.h"

#define REQUESTS_MAX 64
#define FIRST_BACKOFF (10 * S)
#define MAX_BACKOFF (60 * S)

/* One DiscoveryRequest, as it came. */
struct heard {
    char version[64], nonce[64], error[STINT_ERROR_MAX];
};

struct peer {
    struct grpc_server server;
    struct ads_client *client;
    unsigned n_received;
    struct heard heard[REQUESTS_MAX];
    size_t n_heard;
};

static struct peer *peer;

static void on_received(void *arg)
{
    assert_ptr_equal(arg, peer);
    peer->n_received++;
}

/* ---- The control plane ----------------------------------------------------------------------- */

static void keep(char *to, size_t size, struct span text)
{
    assert_true(text.len < size);
    memcpy(to, text.ptr, text.len);
    to[text.len] = '\0';
}

static void hear_error(struct heard *heard, struct span status)
{
    static const struct wire_message message = {2, {0, WIRE_VARINT, WIRE_BYTES}};
    struct wire_value value;
    int number;
    while ((number = wire_read(&message, &status, &value)) > 0)
        if (number == 2)
            keep(heard->error, sizeof(heard->error), value.bytes);
    assert_int_equal(number, 0);
}

static void hear_request(struct span message)
{
    static const struct wire_message request = {
        6, {0, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES, WIRE_BYTES}};
    struct heard *heard = &peer->heard[peer->n_heard++];
    struct wire_value value;
    int number;
    assert_true(peer->n_heard <= REQUESTS_MAX);
    *heard = (struct heard){.version = ""};
    while ((number = wire_read(&request, &message, &value)) > 0) {
        if (number == 1)
            keep(heard->version, sizeof(heard->version), value.bytes);
        else if (number == 5)
            keep(heard->nonce, sizeof(heard->nonce), value.bytes);
        else if (number == 6)
            hear_error(heard, value.bytes);
    }
    assert_int_equal(number, 0);
}

/* Until the client has subscribed, and the control plane has sent its header fields. */
static void connect_peer(void)
{
    const nghttp2_nv status = FIELD(":status", "200");
    server_open_link(&peer->server);
    respond(&peer->server, &status, 1);
}

SETUP
{
    static const char *const metadata[] = {"zone=a"};
    peer = calloc(1, sizeof(*peer));
    peer->server.now_ns = 1000 * S;
    peer->server.hear = hear_request;
    peer->client = ads_client_new(&(struct ads_client_options){
        .link = {.connect_ns = 10 * S,
                 .backoff_first_ns = FIRST_BACKOFF,
                 .backoff_max_ns = MAX_BACKOFF,
                 .seed = 7},
        .authority = "plane:18000",
        .node = {"node", metadata, 1},
        .received = on_received,
        .arg = peer,
    });
    peer->server.link = ads_client_link(peer->client);
}

TEARDOWN
{
    link_free(peer->server.link, peer->server.now_ns);
    nghttp2_session_del(peer->server.session);
    free(peer);
}

/* A DiscoveryResponse without resources, with its prefix. */
static struct span response(struct wire *wire, const char *version, const char *nonce)
{
    struct wire message = {.len = 0};
    wire_text(&message, 1, version);
    wire_text(&message, 5, nonce);
    return framed(wire, &message);
}

static void send_response(const char *version, const char *nonce)
{
    struct wire wire;
    send_bytes(&peer->server, response(&wire, version, nonce));
}

static void answer(const char *refusal)
{
    struct ads_response taken, none;
    assert_true(ads_client_take(peer->client, &taken));
    assert_false(ads_client_take(peer->client, &none));
    ads_client_answer(peer->client, &taken, refusal, peer->server.now_ns);
    ads_response_free(&taken);
    exchange(&peer->server);
}

static void lose(void)
{
    link_lost(peer->server.link, "gone", peer->server.now_ns);
    assert_in_range(link_deadline(peer->server.link) - peer->server.now_ns, FIRST_BACKOFF / 2,
                    FIRST_BACKOFF);
    wait_for(&peer->server, FIRST_BACKOFF);
}

static void assert_heard(size_t index, const char *version, const char *nonce, const char *error)
{
    assert_int_equal(peer->n_heard, index + 1);
    assert_string_equal(peer->heard[index].version, version);
    assert_string_equal(peer->heard[index].nonce, nonce);
    assert_string_equal(peer->heard[index].error, error);
}

/* ---- Subscribing and answering --------------------------------------------------------------- */

TEST(the_first_request_has_neither_version_nor_nonce)
{
    connect_peer();
    assert_heard(0, "", "", "");
}

TEST(an_accepted_response_is_acknowledged_by_version_and_nonce)
{
    connect_peer();
    send_response("1", "n1");
    assert_int_equal(peer->n_received, 1);
    assert_int_equal(peer->n_heard, 1);
    answer(NULL);
    assert_heard(1, "1", "n1", "");
}

TEST(a_refused_response_leaves_the_old_version)
{
    connect_peer();
    send_response("1", "n1");
    answer("no rules");
    assert_heard(1, "", "n1", "no rules");
    wait_for(&peer->server, ADS_REFUSED_NS);
    send_response("2", "n2");
    answer(NULL);
    wait_for(&peer->server, ADS_ACCEPTED_NS);
    send_response("3", "n3");
    answer("no limit");
    assert_heard(3, "2", "n3", "no limit");
}

TEST(a_reason_is_sent_as_utf8)
{
    connect_peer();
    send_response("1", "n1");
    answer("found \"\xff\xe2\x82\xac\xe2\x82\"");
    assert_heard(1, "", "n1", "found \"?\xe2\x82\xac??\"");
}

TEST(one_response_is_pending_and_the_next_waits)
{
    connect_peer();
    send_response("1", "n1");
    send_response("2", "n2");
    assert_int_equal(peer->n_received, 1);
    answer(NULL);
    assert_int_equal(peer->n_received, 1);
    assert_int_equal(link_deadline(peer->server.link), peer->server.now_ns + ADS_ACCEPTED_NS);
    wait_for(&peer->server, ADS_ACCEPTED_NS - 1);
    assert_int_equal(peer->n_received, 1);
    wait_for(&peer->server, 1);
    assert_int_equal(peer->n_received, 2);
    answer(NULL);
    assert_heard(2, "2", "n2", "");
}

/* The timer has not fired yet, and other bytes come. */
TEST(a_waiting_response_is_read_with_later_bytes)
{
    connect_peer();
    send_response("1", "n1");
    answer(NULL);
    send_response("2", "n2");
    assert_int_equal(peer->n_received, 1);
    peer->server.now_ns += 2 * ADS_ACCEPTED_NS;
    nghttp2_submit_ping(peer->server.session, NGHTTP2_FLAG_NONE, NULL);
    exchange(&peer->server);
    assert_int_equal(peer->n_received, 2);
}

TEST(an_answer_to_an_ended_stream_is_not_sent)
{
    struct ads_response taken;
    connect_peer();
    send_response("1", "n1");
    assert_true(ads_client_take(peer->client, &taken));
    lose();
    connect_peer();
    ads_client_answer(peer->client, &taken, NULL, peer->server.now_ns);
    ads_response_free(&taken);
    exchange(&peer->server);
    assert_heard(1, "", "", ""); /* the second subscription, and nothing after it */
    send_response("2", "n1 again");
    answer("no rules");
    assert_heard(2, "1", "n1 again", "no rules"); /* the version accepted meanwhile */
}

/* Which closes it when that is sent, while the link still has a response to be answered. */
TEST(a_stream_that_the_client_resets_ends_the_connection)
{
    static const uint8_t again[] = {0, 0, 1, NGHTTP2_HEADERS, 4, 0, 0, 0, 1, 0x88}; /* 200 */
    struct ads_response taken;
    connect_peer();
    send_response("1", "n1");
    assert_true(ads_client_take(peer->client, &taken));
    link_feed(peer->server.link, span_of(again, sizeof(again)), peer->server.now_ns);
    assert_int_equal(link_wants(peer->server.link), LINK_WANTS_CLOSE);
    assert_string_equal(link_fault(peer->server.link),
                        "the control plane has ended the stream: PROTOCOL_ERROR");
    ads_client_answer(peer->client, &taken, NULL, peer->server.now_ns);
    ads_response_free(&taken);
}

TEST(a_response_in_pieces_is_one)
{
    struct wire wire;
    connect_peer();
    struct span bytes = response(&wire, "1", "n1");
    for (size_t i = 0; i < bytes.len; i++) {
        assert_int_equal(peer->n_received, 0);
        send_bytes(&peer->server, span_of(bytes.ptr + i, 1));
    }
    assert_int_equal(peer->n_received, 1);
}

/* ---- Back-off -------------------------------------------------------------------------------- */

TEST(the_wait_grows_up_to_its_bound_with_jitter)
{
    uint64_t bound_ns = FIRST_BACKOFF;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(link_wants(peer->server.link), LINK_WANTS_SOCKET);
        link_dialling(peer->server.link, peer->server.now_ns);
        link_lost(peer->server.link, "refused", peer->server.now_ns);
        uint64_t wait_ns = link_deadline(peer->server.link) - peer->server.now_ns;
        assert_in_range(wait_ns, bound_ns / 2, bound_ns);
        peer->server.now_ns += wait_ns;
        link_wake(peer->server.link, peer->server.now_ns);
        bound_ns = 2 * bound_ns < MAX_BACKOFF ? 2 * bound_ns : MAX_BACKOFF;
    }
}

TEST(a_peer_that_ends_each_stream_is_called_again_after_a_wait)
{
    for (int i = 0; i < 20; i++) {
        connect_peer();
        nghttp2_submit_rst_stream(peer->server.session, NGHTTP2_FLAG_NONE, peer->server.stream,
                                  NGHTTP2_REFUSED_STREAM);
        exchange(&peer->server);
        assert_given_up(&peer->server, "has ended the stream: REFUSED_STREAM");
        lose();
    }
}

TEST(a_goaway_with_an_error_ends_the_connection)
{
    connect_peer();
    nghttp2_submit_goaway(peer->server.session, NGHTTP2_FLAG_NONE, 1, NGHTTP2_ENHANCE_YOUR_CALM,
                          NULL, 0);
    exchange(&peer->server);
    assert_given_up(&peer->server, "ENHANCE_YOUR_CALM");
}

TEST(a_graceful_goaway_leaves_the_stream)
{
    connect_peer();
    nghttp2_submit_goaway(peer->server.session, NGHTTP2_FLAG_NONE, 1, NGHTTP2_NO_ERROR, NULL, 0);
    exchange(&peer->server);
    send_response("1", "n1");
    answer(NULL);
    assert_heard(1, "1", "n1", "");
}

/* ---- Silence --------------------------------------------------------------------------------- */

TEST(an_open_stream_without_a_response_is_normal)
{
    connect_peer();
    for (unsigned i = 1; i <= 50; i++) {
        wait_for(&peer->server, ADS_SILENCE_NS);
        assert_int_equal(peer->server.n_pings, i); /* nghttp2 answers it */
        assert_true(link_is_ready(peer->server.link));
    }
}

TEST(a_peer_that_answers_no_ping_is_given_up)
{
    connect_peer();
    peer->server.is_mute = true;
    wait_for(&peer->server, ADS_SILENCE_NS);
    assert_int_equal(link_deadline(peer->server.link), peer->server.now_ns + ADS_PING_NS);
    wait_for(&peer->server, ADS_PING_NS - 1);
    assert_true(link_is_ready(peer->server.link));
    wait_for(&peer->server, 1);
    assert_given_up(&peer->server, "has not answered a PING within 20 s");
}

TEST(a_peer_without_http2_is_given_up)
{
    link_dialling(peer->server.link, peer->server.now_ns);
    link_connected(peer->server.link, peer->server.now_ns);
    assert_false(link_is_ready(peer->server.link));
    link_wake(peer->server.link, peer->server.now_ns + 10 * S);
    assert_given_up(&peer->server, "the control plane has not greeted within 10000 ms");
}

TEST(a_slow_response_is_given_up)
{
    struct wire wire;
    connect_peer();
    struct span bytes = response(&wire, "1", "a nonce of some length");
    uint64_t begin_ns = peer->server.now_ns;
    for (size_t i = 0; i + 1 < bytes.len; i++) {
        send_bytes(&peer->server, span_of(bytes.ptr + i, 1));
        assert_int_equal(link_deadline(peer->server.link), begin_ns + ADS_MESSAGE_NS);
        wait_for(&peer->server, S);
    }
    wait_for(&peer->server, begin_ns + ADS_MESSAGE_NS - peer->server.now_ns);
    assert_given_up(&peer->server, "has not sent the rest of a response within 60 s");
}

/* ---- Hostile peers --------------------------------------------------------------------------- */

TEST(bytes_that_are_no_http2_end_the_connection)
{
    connect_peer();
    feed_raw(&peer->server, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    assert_int_equal(link_wants(peer->server.link), LINK_WANTS_CLOSE);
}

/* They cost their sender nearly nothing. */
TEST(a_flood_of_frames_ends_the_connection)
{
    static const uint8_t floods[][17] = {
        {0, 0, 8, NGHTTP2_PING, 0, 0, 0, 0, 0},
        {0, 0, 0, NGHTTP2_SETTINGS, 0, 0, 0, 0, 0},
        {0, 0, 0, NGHTTP2_DATA, 0, 0, 0, 0, 1},
        {0, 0, 4, NGHTTP2_WINDOW_UPDATE, 0, 0, 0, 0, 0, 0, 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
        size_t n = 0;
        connect_peer();
        for (; n < 2 * GRPC_LINK_FRAMES_MAX && link_is_ready(peer->server.link); n++)
            feed_raw(&peer->server, floods[i], 9u + floods[i][2]);
        assert_in_range(n, GRPC_LINK_FRAMES_MAX / 2, GRPC_LINK_FRAMES_MAX);
        assert_given_up(&peer->server, "frames without content");
        lose();
    }
}

TEST(a_normal_number_of_frames_is_no_flood)
{
    connect_peer();
    for (int i = 0; i < 5 * GRPC_LINK_FRAMES_MAX; i++) {
        nghttp2_submit_ping(peer->server.session, NGHTTP2_FLAG_NONE, NULL);
        wait_for(&peer->server, GRPC_LINK_FRAMES_NS / (GRPC_LINK_FRAMES_MAX / 2));
    }
    assert_true(link_is_ready(peer->server.link));
}

TEST(a_response_above_the_limit_is_refused_by_its_prefix)
{
    uint8_t prefix[GRPC_PREFIX];
    connect_peer();
    grpc_frame_write(prefix, false, ADS_MESSAGE_MAX + 1);
    send_bytes(&peer->server, span_of(prefix, GRPC_PREFIX));
    assert_given_up(&peer->server, "16777216");
}

TEST(a_pending_response_closes_the_window)
{
    static uint8_t zeroes[4 * ADS_WINDOW];
    connect_peer();
    send_response("1", "n1");
    unsigned n_before = peer->server.n_window_updates;
    send_bytes(&peer->server, span_of(zeroes, sizeof(zeroes)));
    assert_in_range(peer->server.data_left, sizeof(zeroes) - ADS_WINDOW, sizeof(zeroes));
    assert_int_equal(peer->server.n_window_updates, n_before);
    assert_int_equal(peer->n_received, 1);
}

/* Responses of one unknown field, each as long as the window to its last byte. */
TEST(a_window_that_a_response_fills_opens_again)
{
    static uint8_t bytes[ADS_WINDOW];
    struct wire head = {.len = 0};
    size_t len = sizeof(bytes) - GRPC_PREFIX;
    grpc_frame_write(bytes, false, len);
    wire_varint(&head, 15 << 3 | 2);
    wire_varint(&head, len - 1 - 3);
    assert_int_equal(head.len, 1 + 3);
    memcpy(bytes + GRPC_PREFIX, head.bytes, head.len);
    connect_peer();
    for (unsigned i = 1; i <= 3; i++) {
        send_bytes(&peer->server, span_of(bytes, sizeof(bytes)));
        assert_int_equal(peer->n_received, i);
        answer(NULL);
        wait_for(&peer->server, ADS_ACCEPTED_NS);
    }
}

TEST(malformed_responses_end_the_connection)
{
    static const struct {
        uint8_t bytes[16];
        size_t len;
        const char *why;
    } cases[] = {
        {{0, 0, 0, 0, 1, 0xff}, 6, "malformed protobuf"},
        {{1, 0, 0, 0, 1, 0}, 6, "compressed"},
        {{7, 0, 0, 0, 0}, 5, "the control plane's response"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        connect_peer();
        send_bytes(&peer->server, span_of(cases[i].bytes, cases[i].len));
        assert_given_up(&peer->server, cases[i].why);
        assert_int_equal(peer->n_received, 0);
        lose();
    }
}

TEST(a_long_version_or_nonce_ends_the_connection)
{
    char text[DISCOVERY_TEXT_MAX + 2] = "";
    memset(text, 'v', DISCOVERY_TEXT_MAX);
    connect_peer();
    send_response(text, "n");
    assert_int_equal(peer->n_received, 1);
    lose();
    text[DISCOVERY_TEXT_MAX] = 'v';
    connect_peer();
    send_response("v", text);
    assert_given_up(&peer->server, "more than 1024 bytes");
    lose();
    connect_peer();
    send_response(text, "n");
    assert_given_up(&peer->server, "more than 1024 bytes");
}

TEST(a_status_of_http_or_grpc_is_the_reason)
{
    const nghttp2_nv denied[] = {FIELD(":status", "200"), FIELD("grpc-status", "7")};
    const nghttp2_nv missing[] = {FIELD(":status", "404")};
    server_open_link(&peer->server);
    respond_without_data(&peer->server, denied, 2);
    assert_given_up(&peer->server, "PERMISSION_DENIED");
    lose();
    server_open_link(&peer->server);
    respond_without_data(&peer->server, missing, 1);
    assert_given_up(&peer->server, "HTTP status 404");
}

TEST(large_header_fields_end_the_connection)
{
    static char value[GRPC_LINK_HEADER_MAX + 1];
    memset(value, 'x', GRPC_LINK_HEADER_MAX);
    const nghttp2_nv fields[] = {FIELD(":status", "200"), FIELD("x", value)};
    server_open_link(&peer->server);
    respond_without_data(&peer->server, fields, 2);
    assert_given_up(&peer->server, "header fields have more than 16384 bytes");
}
