/* SPDX-License-Identifier: MIT */
/* `stint pool report`: what an answer of the remote service means for the key that was used. */
#define _GNU_SOURCE
#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/pool/pool.h"
#include "cmd/pool/pool_after.h"

#include <stdio.h>
#include <string.h>

/* The report for a status; `nothing` for one that has no meaning for the key. */
struct verdict {
    bool nothing;
    enum stint_pool_outcome outcome;
    uint64_t cooldown_ns;
};

static const char *const outcome_names[] = {[STINT_POOL_OK] = "ok",
                                            [STINT_POOL_COOL] = "cool",
                                            [STINT_POOL_BACK_OFF] = "back-off",
                                            [STINT_POOL_OUT] = "out"};

/*
 * A Retry-After of 0, or of a time in the past, gives no time: taken literally it would make every
 * client return at once.
 */
static struct verdict judge(unsigned status, uint64_t after_ns)
{
    if (status >= 200 && status <= 299)
        return (struct verdict){.outcome = STINT_POOL_OK};
    if (status == 401 || status == 403)
        return (struct verdict){.outcome = STINT_POOL_OUT};
    if ((status == 429 || status == 503) && after_ns > 0)
        return (struct verdict){.outcome = STINT_POOL_COOL, .cooldown_ns = after_ns};
    if (status == 429)
        return (struct verdict){.outcome = STINT_POOL_BACK_OFF};
    return (struct verdict){.nothing = true};
}

static int read_verdict(const struct pool_session *session, struct verdict *verdict,
                        struct stint_error *error)
{
    const struct pool_options *options = session->options;
    uint64_t after_ns = 0;
    *verdict = (struct verdict){.outcome = options->outcome, .cooldown_ns = options->cool_ns};
    if (!options->has_status)
        return 0;
    int64_t wall_ns = stint_epoch_ns(session->table) + (int64_t)pool_session_now(session);
    bool says_when = options->retry_after != NULL && options->retry_after[0] != '\0';
    int code = says_when ? pool_after_read(options->retry_after, wall_ns, &after_ns, error) : 0;
    *verdict = judge(options->status, after_ns);
    return code;
}

static int print_json(const struct verdict *verdict, const struct stint_pool_status *status)
{
    return json_text_print(
        json_pack("{s:o, s:o, s:o, s:s, s:o}", "key", json_text_key(span_of_text(status->name)),
                  "reported",
                  verdict->nothing ? json_null() : json_string(outcome_names[verdict->outcome]),
                  "cooldown_ns",
                  verdict->cooldown_ns > 0 ? json_text_ns(verdict->cooldown_ns) : json_null(),
                  "standing", pool_standing_names[status->standing], "returns_after_ns",
                  json_text_ns(status->returns_after_ns)),
        false);
}

static void tell(const struct pool_session *session, const struct verdict *verdict,
                 const struct stint_pool_status *status)
{
    struct formatted formatted;
    if (verdict->nothing)
        print_message("status %03u has no meaning for the key '%s': nothing is changed",
                      session->options->status, status->name);
    else if (status->returns_after_ns == STINT_NEVER_NS)
        print_message("'%s' is %s, until it is reported ok or removed", status->name,
                      pool_standing_names[status->standing]);
    else if (status->returns_after_ns > 0)
        print_message("'%s' is %s, and returns in %s", status->name,
                      pool_standing_names[status->standing],
                      format_seconds_up(&formatted, status->returns_after_ns));
    else
        print_message("'%s' is %s", status->name, pool_standing_names[status->standing]);
}

int pool_report(struct pool_session *session)
{
    const char *name = session->options->words[0];
    struct stint_pool_status status = {0};
    struct stint_error error;
    struct verdict verdict;
    int code = pool_keys_find(&session->keys, name, &error) != NULL ? 0 : STINT_E_GONE;
    if (code == 0)
        code = read_verdict(session, &verdict, &error);
    if (code == 0 && !verdict.nothing)
        code = stint_pool_report(session->pool, name, (int)verdict.outcome, verdict.cooldown_ns,
                                 pool_session_now(session), &error);
    if (code != 0) {
        print_message("%s", error.message);
        return CMD_BAD_INPUT;
    }
    if (!pool_session_status(session, name, &status))
        return CMD_BAD_INPUT;
    if (pool_is_chatty(session->options))
        tell(session, &verdict, &status);
    return session->options->json && print_json(&verdict, &status) != 0 ? CMD_BAD_INPUT : CMD_DONE;
}
