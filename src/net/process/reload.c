/* SPDX-License-Identifier: MIT */
/*
 * One reload at a time: a request during a reload is answered by the next one. Each has its own
 * thread, not one of a pool: libc keeps memory for each thread that allocates, and consecutive
 * threads reuse the memory of the one before.
 */
#define _GNU_SOURCE
#include "net/process/reload.h"

#include <pthread.h>
#include <stdlib.h>

struct reload {
    struct reload_options options;
    uv_async_t message; /* a reload is to begin, or has ended */
    pthread_t thread;   /* of the reload, where has_thread */
    bool has_thread;
    pthread_mutex_t lock; /* of what follows */
    uint64_t asked, began, ended;
    bool is_running, is_loaded, is_closed;
    int code; /* of the last reload */
    struct stint_error error;
};

static void settle(struct reload *reload, int code, const struct stint_error *error)
{
    pthread_mutex_lock(&reload->lock);
    reload->code = code;
    reload->error = *error;
    reload->is_loaded = true;
    pthread_mutex_unlock(&reload->lock);
    uv_async_send(&reload->message);
}

static void *load(void *arg)
{
    struct reload *reload = arg;
    struct stint_error error = {0};
    int code = reload->options.load(reload->options.arg, &error);
    settle(reload, code, &error);
    return NULL;
}

static void end_if_loaded(struct reload *reload)
{
    pthread_mutex_lock(&reload->lock);
    bool ends = reload->is_loaded;
    reload->is_loaded = false;
    pthread_mutex_unlock(&reload->lock);
    if (!ends)
        return;
    if (reload->has_thread)
        pthread_join(reload->thread, NULL);
    reload->options.ended(reload->options.arg, reload->code, &reload->error);
    pthread_mutex_lock(&reload->lock);
    reload->ended = reload->began;
    reload->is_running = false;
    bool closes = reload->is_closed;
    pthread_mutex_unlock(&reload->lock);
    if (closes)
        uv_close((uv_handle_t *)&reload->message, NULL);
}

static void begin_if_asked(struct reload *reload)
{
    struct stint_error error;
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
    reload->has_thread = pthread_create(&reload->thread, NULL, load, reload) == 0;
    if (!reload->has_thread)
        settle(reload, err_set(&error, STINT_E_SYSTEM, "cannot start a thread to read files"),
               &error);
}

static void on_message(uv_async_t *message)
{
    struct reload *reload = message->data;
    end_if_loaded(reload);
    begin_if_asked(reload);
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
    uv_async_init(options->loop, &reload->message, on_message);
    reload->message.data = reload;
    return reload;
}

void reload_close(struct reload *reload)
{
    pthread_mutex_lock(&reload->lock);
    bool closes = !reload->is_closed && !reload->is_running; /* otherwise the reload's end closes
                                                              * it */
    reload->is_closed = true;
    pthread_mutex_unlock(&reload->lock);
    if (closes)
        uv_close((uv_handle_t *)&reload->message, NULL);
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
        uv_async_send(&reload->message);
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
