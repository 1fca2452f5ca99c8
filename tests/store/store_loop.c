/* SPDX-License-Identifier: MIT */
/* Timer and pipe are closed only once the stores have let go of theirs. */
#include "store_loop.h"

#include "base/ns.h"

#include <stdio.h>

static void on_turn(uv_timer_t *timer)
{
    struct store_loop *store_loop = timer->data;
    store_loop->turn(store_loop);
}

static void on_space(uv_handle_t *handle, size_t wanted, uv_buf_t *buf)
{
    struct store_loop *store_loop = handle->data;
    (void)wanted;
    *buf = uv_buf_init(store_loop->bytes, sizeof(store_loop->bytes));
}

static void on_input(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    struct store_loop *store_loop = stream->data;
    (void)buf;
    if (len >= 0)
        return;
    uv_read_stop(stream);
    uv_timer_stop(&store_loop->timer);
    store_loop->is_ending = true;
    store_loop->ended(store_loop);
}

bool store_loop_open(struct store_loop *store_loop, const char *url)
{
    struct stint_error error;
    const struct stores_options options = {.loop = &store_loop->loop,
                                           .configs = &store_loop->config,
                                           .n_configs = 1,
                                           .seed = uv_hrtime()};
    uv_loop_init(&store_loop->loop);
    uv_timer_init(&store_loop->loop, &store_loop->timer);
    uv_pipe_init(&store_loop->loop, &store_loop->input, 0);
    store_loop->timer.data = store_loop->input.data = store_loop;
    if (store_url_parse(&store_loop->config.url, url, &error) == 0 &&
        stores_open(&store_loop->stores, &options, &error) == 0)
        return true;
    fprintf(stderr, "%s\n", error.message);
    return false;
}

int store_loop_run(struct store_loop *store_loop)
{
    uv_timer_start(&store_loop->timer, on_turn, 0, 1);
    uv_pipe_open(&store_loop->input, 0);
    uv_read_start((uv_stream_t *)&store_loop->input, on_space, on_input);
    uv_run(&store_loop->loop, UV_RUN_DEFAULT);
    return uv_loop_close(&store_loop->loop) == 0 ? 0 : 1;
}

static void on_end(uv_timer_t *timer)
{
    struct store_loop *store_loop = timer->data;
    store_loop->closing(store_loop);
    stores_close(store_loop->stores);
    uv_close((uv_handle_t *)&store_loop->timer, NULL);
    uv_close((uv_handle_t *)&store_loop->input, NULL);
}

static void on_drained(void *arg)
{
    struct store_loop *store_loop = arg;
    uv_timer_start(&store_loop->timer, on_end, 0, 0);
}

void store_loop_close(struct store_loop *store_loop)
{
    stores_drain(store_loop->stores, uv_hrtime() + NS_PER_S, on_drained, store_loop);
}
