/* SPDX-License-Identifier: MIT */
/* STINT.CLOCK: the time of decisions, which it moves under a virtual clock. */
#include "frontend/resp/resp_parts.h"

#include "algorithm/spec.h"
#include "base/number.h"
#include "proto/resp/resp_words.h"

static int move(const struct resp_call *call, struct stint_error *error)
{
    struct server_clock *clock = call->conn->frontend->clock;
    struct span word = call->args[1], text = call->args[2];
    uint64_t ns;
    if (resp_word_is(word, "SET")) {
        if (!resp_number_read(text, STINT_NOW_MAX, &ns))
            return resp_refuse_number("SET", text, 0, STINT_NOW_MAX, error);
        return server_clock_set(clock, ns, error);
    }
    if (!resp_word_is(word, "ADVANCE"))
        return resp_refuse_word("SET ns or ADVANCE time", word, error);
    if (spec_parse_duration(text, &ns) != 0)
        return resp_refuse_word("a time like 10m or 1h30m after ADVANCE", text, error);
    return server_clock_advance(clock, ns, error);
}

void resp_clock(struct resp_call *call)
{
    struct resp_writer *out = &call->conn->out;
    const struct server_clock *clock = call->conn->frontend->clock;
    struct stint_error error;
    bool moves = call->n_args > 1;
    if (!resp_call_may(call, moves ? ACCESS_ADMINISTER : ACCESS_ASK))
        return;
    int code = STINT_OK;
    if (moves && call->n_args != 3)
        code = err_set(&error, STINT_E_SYNTAX, "expected SET ns, ADVANCE time or nothing");
    else if (moves)
        code = move(call, &error);
    if (code != STINT_OK) {
        resp_call_refuse(call, &error);
        return;
    }
    resp_write_map(out, 2);
    resp_write_text(out, "clock");
    resp_write_text(out, clock->is_virtual ? "virtual" : "real");
    resp_write_text(out, "now");
    resp_write_digits(out, server_clock_now(clock, call->now_ns));
}
