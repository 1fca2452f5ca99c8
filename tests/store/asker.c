/* SPDX-License-Identifier: MIT */
/* Timer and pipe are closed only once the stores have let go of theirs. */
#include "asker.h"

#include "base/ns.h"

#include <stdio.h>

static void on_turn(uv_timer_t *timer)
{
    struct asker *asker = timer->data;
    asker->turn(asker);
}

static void on_space(uv_handle_t *handle, size_t wanted, uv_buf_t *buf)
{
    struct asker *asker = handle->data;
    (void)wanted;
    *buf = uv_buf_init(asker->bytes, sizeof(asker->bytes));
}

static void on_input(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    struct asker *asker = stream->data;
    (void)buf;
    if (len >= 0)
        return;
    uv_read_stop(stream);
    uv_timer_stop(&asker->timer);
    asker->is_ending = true;
    asker->ended(asker);
}

bool asker_open(struct asker *asker, const char *url)
{
    struct stint_error error;
    const struct stores_options options = {
        .loop = &asker->loop, .configs = &asker->config, .n_configs = 1, .seed = uv_hrtime()};
    uv_loop_init(&asker->loop);
    uv_timer_init(&asker->loop, &asker->timer);
    uv_pipe_init(&asker->loop, &asker->input, 0);
    asker->timer.data = asker->input.data = asker;
    if (store_url_parse(&asker->config.url, url, &error) == 0 &&
        stores_open(&asker->stores, &options, &error) == 0)
        return true;
    fprintf(stderr, "%s\n", error.message);
    return false;
}

int asker_run(struct asker *asker)
{
    uv_timer_start(&asker->timer, on_turn, 0, 1);
    uv_pipe_open(&asker->input, 0);
    uv_read_start((uv_stream_t *)&asker->input, on_space, on_input);
    uv_run(&asker->loop, UV_RUN_DEFAULT);
    return uv_loop_close(&asker->loop) == 0 ? 0 : 1;
}

static void on_end(uv_timer_t *timer)
{
    struct asker *asker = timer->data;
    asker->closing(asker);
    stores_close(asker->stores);
    uv_close((uv_handle_t *)&asker->timer, NULL);
    uv_close((uv_handle_t *)&asker->input, NULL);
}

static void on_drained(void *arg)
{
    struct asker *asker = arg;
    uv_timer_start(&asker->timer, on_end, 0, 0);
}

void asker_close(struct asker *asker)
{
    stores_drain(asker->stores, uv_hrtime() + NS_PER_S, on_drained, asker);
}
