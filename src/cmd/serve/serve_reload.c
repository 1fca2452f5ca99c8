/* SPDX-License-Identifier: MIT */
/* Everything is read before anything is applied: after an error in one file nothing changes. */
#define _GNU_SOURCE
#include "cmd/serve/serve_reload.h"

#include "base/buf.h"
#include "table/table.h"

#include <stdlib.h>
#include <string.h>

/* The results of one reload. */
struct reading {
    struct settings settings;
    struct serve_places places;
    struct serve_loaded loaded;
};

struct serve_reload {
    struct serve_reload_options options;
    struct reading *next;     /* read, not applied */
    struct reading *in_force; /* the server points into it. NULL: its first settings */
    struct reading *before;   /* until the next load the server may point into this one, too */
};

struct serve_reload *serve_reload_new(const struct serve_reload_options *options)
{
    struct serve_reload *reload = calloc(1, sizeof(*reload));
    if (reload != NULL)
        reload->options = *options;
    return reload;
}

static void reading_free(struct reading *reading)
{
    if (reading == NULL)
        return;
    rules_unref(reading->loaded.rules);
    access_unref(reading->loaded.access);
    serve_places_deinit(&reading->places);
    settings_deinit(&reading->settings);
    free(reading);
}

void serve_reload_free(struct serve_reload *reload)
{
    if (reload == NULL)
        return;
    reading_free(reload->next);
    reading_free(reload->in_force);
    reading_free(reload->before);
    free(reload);
}

/* ---- Settings that cannot change ------------------------------------------------------------- */

struct held {
    char names[512];
    struct buf buf;
};

static void hold(struct held *held, const char *name)
{
    buf_add(&held->buf, "%s%s", held->buf.len > 0 ? ", " : "", name);
}

/*
 * Whether there are tokens, and TLS, decides which ports may be open: their files may change, but
 * they can neither be added nor removed.
 */
static int hold_presence(struct held *held, const char *name, char **value, const char *started,
                         struct stint_error *error)
{
    if ((*value == NULL) == (started == NULL))
        return 0;
    hold(held, name);
    return settings_put_text(value, started, error);
}

static int hold_what_stays(const struct serve_reload *reload, struct serve_settings *settings,
                           struct held *held, struct stint_error *error)
{
    const struct serve_settings *started = reload->options.started;
    held->buf = buf_of(held->names, sizeof(held->names));
    for (size_t i = 0; i < n_settings_known; i++)
        if (!setting_is_live(i) && !setting_is_same(i, settings, started))
            hold(held, settings_known[i].name);
    int code = hold_presence(held, "tokens", &settings->tokens, started->tokens, error);
    if (code == 0)
        code = hold_presence(held, "tls_certificate", &settings->tls_certificate,
                             started->tls_certificate, error);
    if (code == 0)
        code = hold_presence(held, "tls_key", &settings->tls_key, started->tls_key, error);
    if (configured_pools_lack(&settings->pools, server_state_pools(reload->options.server_state)))
        hold(held, "pools");
    return code;
}

static void tell_held(const struct serve_reload *reload, const struct held *held)
{
    if (held->buf.len > 0)
        log_line(reload->options.log, LOG_NEEDS_RESTART, LOG_TEXT("settings", held->names));
}

/* ---- Reading and applying -------------------------------------------------------------------- */

static int read_all(const struct serve_reload *reload, struct reading *reading,
                    struct server_options *next, struct held *held, struct stint_error *error)
{
    const struct serve_reload_options *options = &reload->options;
    struct serve_settings *settings = &reading->settings.values;
    if (options->gather(&reading->settings, options->arg, error) != 0)
        return error->code;
    int code = hold_what_stays(reload, settings, held, error);
    if (code == 0)
        code = serve_server_options(settings, &reading->places, next, error);
    if (code == 0)
        code = configured_pools_check(&settings->pools, server_state_pools(options->server_state),
                                      error);
    if (code == 0)
        code = serve_load(settings, options->started, options->log, &reading->loaded, error);
    return code;
}

int serve_reload_read(void *arg, struct server_options *next, struct stint_error *error)
{
    struct serve_reload *reload = arg;
    struct held held;
    reading_free(reload->before);
    reading_free(reload->next); /* certificates were refused after the reload had been read */
    reload->before = reload->next = NULL;
    struct reading *reading = calloc(1, sizeof(*reading));
    if (reading == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
    int code = read_all(reload, reading, next, &held, error);
    if (code != 0) {
        reading_free(reading);
        return code;
    }
    tell_held(reload, &held);
    reload->next = reading;
    return 0;
}

/* If the table refuses rules, or has no capacity for a pool, the old rules are restored. */
static int use_rules_and_pools(const struct serve_reload *reload, struct stint_error *error)
{
    struct server_state *server_state = reload->options.server_state;
    const struct configured_pools *pools = &reload->next->settings.values.pools;
    struct rules *rules = reload->next->loaded.rules, *old = server_state_rules(server_state);
    struct stint_error ignored;
    int code =
        rules != NULL || old != NULL ? server_state_set_rules(server_state, rules, error) : 0;
    if (code == 0) {
        code = configured_pools_define(pools, server_state_pools(server_state),
                                       stint_now(server_state_table(server_state)), error);
        if (code != 0 && (rules != NULL || old != NULL))
            server_state_set_rules(server_state, old, &ignored);
    }
    rules_unref(old);
    return code;
}

int serve_reload_use(void *arg, struct stint_error *error)
{
    struct serve_reload *reload = arg;
    struct serve_reload_options *options = &reload->options;
    const struct serve_settings *settings = &reload->next->settings.values;
    int code = use_rules_and_pools(reload, error);
    if (code != 0)
        return code;
    if (reload->next->loaded.access != NULL)
        access_now_set(options->access, reload->next->loaded.access);
    reload->next->loaded.access = NULL;
    log_set(options->log, serve_log_format(settings), serve_log_level(settings));
    table_set_when_full(server_state_table(options->server_state), serve_table_full(settings));
    reload->before = reload->in_force;
    reload->in_force = reload->next;
    reload->next = NULL;
    return 0;
}
