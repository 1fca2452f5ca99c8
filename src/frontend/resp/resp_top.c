/* SPDX-License-Identifier: MIT */
/* STINT.TOP: the keys requested or denied most. */
#include "frontend/resp/resp_parts.h"

#include "base/number.h"
#include "proto/resp/resp_words.h"
#include "service/top_keys.h"

#include <assert.h>
#include <stdlib.h>

#define TOP_DEFAULT 10
#define TOP_MAX 1000

struct top {
    uint64_t n;
    enum top_keys_order order;
};

static int read_top(const struct resp_call *call, struct top *top, struct stint_error *error)
{
    size_t at = 1;
    *top = (struct top){TOP_DEFAULT, TOP_KEYS_ASKED};
    if (at < call->n_args && call->args[at].len > 0 && call->args[at].ptr[0] <= '9') {
        if (!resp_number_read(call->args[at], TOP_MAX, &top->n) || top->n == 0)
            return resp_refuse_number("the number of keys", call->args[at], 1, TOP_MAX, error);
        at++;
    }
    if (at < call->n_args && resp_word_is(call->args[at], "DENIED")) {
        top->order = TOP_KEYS_DENIED;
        at++;
    } else if (at < call->n_args && resp_word_is(call->args[at], "ASKED")) {
        at++;
    }
    if (at < call->n_args)
        return resp_refuse_word("[n] [ASKED | DENIED]", call->args[at], error);
    return STINT_OK;
}

static void write_key(struct resp_writer *out, const struct top_key *key)
{
    resp_write_map(out, 5);
    resp_write_text(out, "key");
    resp_write_bulk(out, span_of(key->name, key->name_len));
    resp_write_text(out, "domain");
    resp_write_text(out, key->domain);
    resp_write_text(out, "rule");
    resp_write_text(out, key->rule);
    resp_write_text(out, "asked_per_s");
    resp_write_double(out, key->asked_per_s);
    resp_write_text(out, "denied_per_s");
    resp_write_double(out, key->denied_per_s);
}

void resp_top(struct resp_call *call)
{
    struct resp_writer *out = &call->conn->out;
    struct top_keys *top_keys =
        server_state_top_keys(service_server_state(call->conn->frontend->service));
    struct stint_error error;
    struct top top;
    if (!resp_call_may(call, ACCESS_METRICS))
        return;
    if (read_top(call, &top, &error) != STINT_OK) {
        resp_call_refuse(call, &error);
        return;
    }
    assert(top.n > 0);
    struct top_key *keys = calloc(top.n, sizeof(*keys));
    if (keys == NULL) {
        resp_write_error(out, "FULL", "no memory for an answer");
        return;
    }
    size_t n = top_keys != NULL ? top_keys_read(top_keys, top.order, call->now_ns, keys, top.n) : 0;
    resp_write_array(out, n);
    for (size_t i = 0; i < n; i++)
        write_key(out, &keys[i]);
    free(keys);
}
