/* SPDX-License-Identifier: MIT */
/* Bytes from a link to its session and back. */
#define _GNU_SOURCE
#include "cmd/rls/rls.h"

#include <poll.h>

#define READ_SIZE 65536

int rls_client_open(struct rls_client *client, const struct rls_options *options, const char *token,
                    void (*answered)(void *arg, const struct rls_answer *answer), void *arg,
                    struct stint_error *error)
{
    bool is_local = strncmp(options->link.server, "unix:", 5) == 0;
    *client = (struct rls_client){NULL, NULL};
    int code = rls_link_open(&client->link, &options->link, error);
    if (code != 0)
        return code;
    client->session = rls_session_new(&(struct rls_session_options){
        .authority = is_local ? "localhost" : options->link.server,
        .token = token,
        .is_tls = options->link.is_tls,
        .answered = answered,
        .arg = arg,
    });
    if (client->session != NULL)
        return 0;
    rls_client_close(client);
    return err_set(error, STINT_E_SYSTEM, "out of memory");
}

void rls_client_close(struct rls_client *client)
{
    rls_session_free(client->session);
    rls_link_close(client->link);
    *client = (struct rls_client){NULL, NULL};
}

static int send_output(struct rls_client *client, struct stint_error *error)
{
    struct span output;
    while ((output = rls_session_output(client->session)).len > 0) {
        int sent = rls_link_write(client->link, output, error);
        if (sent <= 0)
            return sent;
        rls_session_sent(client->session, (size_t)sent);
    }
    return 0;
}

int rls_client_move(struct rls_client *client, struct stint_error *error)
{
    static uint8_t bytes[READ_SIZE];
    int code = send_output(client, error);
    while (code == 0) {
        int len = rls_link_read(client->link, bytes, sizeof(bytes), error);
        if (len <= 0) {
            code = len;
            break;
        }
        code = rls_session_feed(client->session, span_of(bytes, (size_t)len), error);
        if (len < READ_SIZE && !rls_link_has_bytes(client->link))
            break;
    }
    if (code == 0)
        code = send_output(client, error);
    /* Once what it thinks of the server is sent, a session knows that there is nothing to wait for.
     */
    return code == 0 ? rls_session_feed(client->session, span_of("", 0), error) : code;
}

short rls_client_events(struct rls_client *client)
{
    return rls_session_output(client->session).len > 0 ? POLLIN | POLLOUT : POLLIN;
}
