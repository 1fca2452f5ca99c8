/* SPDX-License-Identifier: MIT */
/* `stint pool give-back`: a grant that was not used. */
#define _GNU_SOURCE
#include "cmd/lib/cmd.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/pool/pool.h"

#include <inttypes.h>
#include <stdio.h>

int pool_give_back(struct pool_session *session)
{
    const struct pool_options *options = session->options;
    const char *name = options->words[0];
    struct stint_error error;
    uint32_t given_back = 0;
    uint64_t now_ns = pool_session_now(session);
    if (pool_keys_find(&session->keys, name, &error) == NULL) {
        print_message("%s", error.message);
        return CMD_BAD_INPUT;
    }
    if (options->granted_at_ns != STINT_NEVER_NS && options->granted_at_ns > now_ns) {
        print_message("--granted-at is later than now: it belongs to another FILE");
        return CMD_BAD_INPUT;
    }
    if (stint_pool_give_back(session->pool, name, options->cost, options->granted_at_ns, now_ns,
                             &given_back) != 0) {
        print_message("'%s' is in the pool no more", name);
        return CMD_BAD_INPUT;
    }
    if (given_back < options->cost && pool_is_chatty(options))
        print_message("%" PRIu32 " of %" PRIu32
                      " came back; what did not stays charged until its time",
                      given_back, options->cost);
    if (!options->json) {
        printf("%" PRIu32 "\n", given_back);
        return CMD_DONE;
    }
    return json_text_print(json_pack("{s:o, s:I, s:I}", "key", json_text_key(span_of_text(name)),
                                     "cost", (json_int_t)options->cost, "given_back",
                                     (json_int_t)given_back),
                           false) != 0
               ? CMD_BAD_INPUT
               : CMD_DONE;
}
