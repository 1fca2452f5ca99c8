/* SPDX-License-Identifier: MIT */
/*
 * The least that a server on libuv can do: sends back what it got, one thread, one write for each
 * read. What stint takes beside it is what a decision and its protocol cost.
 *
 * usage: echo_uv PORT
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define READ_SIZE 65536
#define QUEUE_MAX 4096

static char bytes[READ_SIZE]; /* of whichever connection is being read */

static void give_bytes(uv_handle_t *handle, size_t wanted, uv_buf_t *buf)
{
    (void)handle, (void)wanted;
    *buf = uv_buf_init(bytes, sizeof(bytes));
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

/* A benchmark's clients read what they asked for: an echo that does not fit ends the connection. */
static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    if (len == 0)
        return;
    uv_buf_t echo = uv_buf_init(buf->base, len > 0 ? (unsigned)len : 0);
    if (len < 0 || uv_try_write(stream, &echo, 1) != len)
        uv_close((uv_handle_t *)stream, free_handle);
}

static void on_connection(uv_stream_t *listener, int status)
{
    uv_tcp_t *client = status == 0 ? malloc(sizeof(*client)) : NULL;
    if (client == NULL)
        return;
    uv_tcp_init(listener->loop, client);
    if (uv_accept(listener, (uv_stream_t *)client) == 0) {
        uv_tcp_nodelay(client, 1);
        uv_read_start((uv_stream_t *)client, give_bytes, on_read);
    } else
        uv_close((uv_handle_t *)client, free_handle);
}

static int fail(const char *what, int code)
{
    fprintf(stderr, "echo_uv: %s: %s\n", what, uv_strerror(code));
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: echo_uv PORT\n", stderr);
        return 2;
    }
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t listener;
    struct sockaddr_in address;
    uv_tcp_init(loop, &listener);
    int code = uv_ip4_addr("127.0.0.1", atoi(argv[1]), &address);
    if (code == 0)
        code = uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0);
    if (code == 0)
        code = uv_listen((uv_stream_t *)&listener, QUEUE_MAX, on_connection);
    if (code != 0)
        return fail(argv[1], code);
    return uv_run(loop, UV_RUN_DEFAULT);
}
