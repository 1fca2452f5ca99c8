/* SPDX-License-Identifier: MIT */
/* Reads a sample of a server. */
#define _GNU_SOURCE
#include "cmd/lib/json_text.h"
#include "cmd/top/top.h"

#include <string.h>

/* A server's message if it returns no metrics, without its control characters. */
static int refused(const struct client_answer *answer, const char *path, struct stint_error *error)
{
    if (answer->status == 401 || answer->status == 403)
        return err_set(error, STINT_E_MISMATCH,
                       "the server wants a token with the role metrics: --token-file (it answered "
                       "%s with %d)",
                       path, answer->status);
    return err_set(error, STINT_E_MISMATCH,
                   "the server answered %s with status %d; is it a stint server?", path,
                   answer->status);
}

static json_t *ask(struct client *client, const char *path, struct stint_error *error)
{
    struct client_answer answer;
    if (client_get(client, path, &answer, error) != 0)
        return NULL;
    if (answer.status != 200) {
        refused(&answer, path, error);
        return NULL;
    }
    json_t *object =
        json_loadb((const char *)answer.body.ptr, answer.body.len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        err_set(error, STINT_E_SYNTAX, "the server's answer to %s is not a JSON object", path);
        return NULL;
    }
    return object;
}

int top_look(struct client *client, const struct top_options *options, struct top_look *look,
             struct stint_error *error)
{
    char path[64];
    /* A key of several servers may be far down in the list of each. */
    size_t n_keys = options->n_servers > 1 ? TOP_KEYS_MAX : options->keys;
    snprintf(path, sizeof(path), "/v1/top?order=%s&n=%zu",
             options->order == TOP_ASKED ? "asked" : "denied", n_keys);
    *look = (struct top_look){.stats = ask(client, "/v1/stats", error)};
    if (look->stats != NULL)
        look->keys = ask(client, path, error);
    if (look->keys != NULL)
        return 0;
    top_forget(look);
    return error->code != 0 ? error->code : STINT_E_SYSTEM;
}

void top_forget(struct top_look *look)
{
    json_decref(look->stats);
    json_decref(look->keys);
    json_decref(look->servers);
    *look = (struct top_look){NULL, NULL, NULL};
}

int top_print_json(const struct top_look *look)
{
    json_t *keys = json_object_get(look->keys, "keys");
    return json_text_print(json_pack("{s:O, s:O*, s:O*}", "stats", look->stats, "keys", keys,
                                     "servers", look->servers),
                           false);
}
