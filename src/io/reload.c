/* SPDX-License-Identifier: MIT */
/* One reading at a time: who asks while one is under way is answered by the next. */
#define _GNU_SOURCE
#include "io/reload.h"

#include <pthread.h>
#include <stdlib.h>

struct reload {
    struct reload_options options;
    uv_async_t asked_for;
    uv_work_t work;
    pthread_mutex_t lock; /* of what follows */
    uint64_t asked, began, ended;
    bool is_running, is_closed;
    int code; /* of the reading that ended last */
    struct stint_error error;
};

static void load(uv_work_t *work)
{
    struct reload *reload = work->data;
    struct stint_error error = {0};
    int code = reload->options.load(reload->options.arg, &error);
    pthread_mutex_lock(&reload->lock);
    reload->code = code;
    reload->error = error;
    pthread_mutex_unlock(&reload->lock);
}

static void begin_if_asked(struct reload *reload);

static void on_loaded(uv_work_t *work, int status)
{
    (void)status; /* it is never cancelled */
    struct reload *reload = work->data;
    reload->options.ended(reload->options.arg, reload->code, &reload->error);
    pthread_mutex_lock(&reload->lock);
    reload->ended = reload->began;
    reload->is_running = false;
    pthread_mutex_unlock(&reload->lock);
    begin_if_asked(reload);
}

static void begin_if_asked(struct reload *reload)
{
    pthread_mutex_lock(&reload->lock);
    bool begins = !reload->is_running && !reload->is_closed && reload->asked > reload->began;
    if (begins) {
        reload->began = reload->asked;
        reload->is_running = true;
    }
    pthread_mutex_unlock(&reload->lock);
    if (!begins)
        return;
    reload->options.began(reload->options.arg);
    uv_queue_work(reload->options.loop, &reload->work, load, on_loaded);
}

static void on_asked(uv_async_t *asked_for)
{
    begin_if_asked(asked_for->data);
}

struct reload *reload_new(const struct reload_options *options)
{
    struct reload *reload = calloc(1, sizeof(*reload));
    if (reload == NULL)
        return NULL;
    if (pthread_mutex_init(&reload->lock, NULL) != 0) {
        free(reload);
        return NULL;
    }
    reload->options = *options;
    uv_async_init(options->loop, &reload->asked_for, on_asked);
    reload->asked_for.data = reload->work.data = reload;
    return reload;
}

void reload_close(struct reload *reload)
{
    pthread_mutex_lock(&reload->lock);
    bool was_closed = reload->is_closed;
    reload->is_closed = true;
    pthread_mutex_unlock(&reload->lock);
    if (!was_closed)
        uv_close((uv_handle_t *)&reload->asked_for, NULL);
}

void reload_free(struct reload *reload)
{
    if (reload == NULL)
        return;
    pthread_mutex_destroy(&reload->lock);
    free(reload);
}

uint64_t reload_ask(struct reload *reload)
{
    pthread_mutex_lock(&reload->lock);
    uint64_t asked = ++reload->asked;
    if (!reload->is_closed)
        uv_async_send(&reload->asked_for);
    pthread_mutex_unlock(&reload->lock);
    return asked;
}

bool reload_result(struct reload *reload, uint64_t asked, int *code, struct stint_error *error)
{
    pthread_mutex_lock(&reload->lock);
    bool is_known = reload->ended >= asked || reload->is_closed;
    if (reload->ended >= asked) {
        *code = reload->code;
        *error = reload->error;
    } else if (is_known)
        *code = err_set(error, STINT_E_GONE, "the server ends");
    pthread_mutex_unlock(&reload->lock);
    return is_known;
}
