/* SPDX-License-Identifier: MIT */
/*
 * `stint pool next`: which key may be used now, or when?
 *
 * A key is charged only if its name is printed: signals are delivered while the program waits, and
 * the units of a name that could not be printed are refunded.
 */
#define _GNU_SOURCE
#include "base/ns.h"
#include "base/wide_int.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/pool/pool.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Other processes may refund units before the time that is waited for: check now and then. */
#define LOOK_AGAIN_NS NS_PER_S

static struct stint_pool_answer ask(const struct pool_session *session)
{
    const struct stint_pool_ask ask = {.now_ns = pool_session_now(session),
                                       .cost = session->options->cost,
                                       .probe = session->options->probe};
    return stint_pool_next(session->pool, &ask);
}

static void print_json(const struct pool_session *session, const struct stint_pool_answer *answer)
{
    char granted_at[40];
    snprintf(granted_at, sizeof(granted_at), "%" PRIu64 ".%09" PRIu64,
             answer->granted_at_ns / NS_PER_S, answer->granted_at_ns % NS_PER_S);
    bool free = answer->name != NULL;
    (void)json_text_print(json_pack("{s:o, s:b, s:I, s:o, s:I, s:I, s:o}", "key",
                                    free ? json_text_key(span_of_text(answer->name)) : json_null(),
                                    "probe", (int)answer->probe, "cost",
                                    (json_int_t)session->options->cost, "granted_at",
                                    free ? json_string(granted_at) : json_null(), "limit",
                                    (json_int_t)answer->decision.limit, "remaining",
                                    (json_int_t)answer->decision.remaining, "wait_ns",
                                    json_text_ns(free ? 0 : answer->wait_ns)),
                          false);
}

static void print_key(const struct pool_session *session, const struct stint_pool_answer *answer)
{
    const struct pool_options *options = session->options;
    if (options->json) {
        print_json(session, answer);
        return;
    }
    if (!options->secret)
        fputs(answer->name, stdout);
    if (options->both)
        putchar(' ');
    if (options->secret || options->both) {
        const struct pool_key *key = pool_keys_find(&session->keys, answer->name, NULL);
        fwrite(key->secret.ptr, 1, key->secret.len, stdout);
    }
    putchar('\n');
}

static int hand_out(const struct pool_session *session, const struct stint_pool_answer *answer)
{
    print_key(session, answer);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        stint_pool_give_back(session->pool, answer->name, session->options->cost,
                             answer->granted_at_ns, pool_session_now(session), NULL);
        return CMD_BAD_INPUT; /* see main.c */
    }
    if (answer->probe && pool_is_chatty(session->options))
        print_message("all keys are cooling; '%s' is the nearest to recover: try it, and report",
                      answer->name);
    return CMD_DONE;
}

static int none_is_free(const struct pool_session *session, const struct stint_pool_answer *answer)
{
    struct formatted wait;
    format_wait(&wait, answer->wait_ns);
    if (session->options->json)
        print_json(session, answer);
    else
        puts(wait.text);
    if (pool_is_chatty(session->options)) {
        if (answer->wait_ns == STINT_NEVER_NS)
            print_message("no key is free, and none will be before it is reported ok");
        else
            print_message("no key is free for another %s s", wait.text);
    }
    return CMD_DENIED;
}

/* Sleeps, unless a blocked signal arrives; returns its number, or 0. */
static int sleep_for(const sigset_t *signals, uint64_t ns)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / NS_PER_S),
                                  .tv_nsec = (long)(ns % NS_PER_S)};
    int number = sigtimedwait(signals, NULL, &time);
    return number > 0 ? number : 0;
}

/* Retries until a key is free, the longest wait would not suffice, or a signal arrives. */
static struct stint_pool_answer wait_for_key(const struct pool_session *session,
                                             const sigset_t *signals, int *signal_number)
{
    uint64_t end_ns = add_sat(pool_session_now(session), session->options->wait_max_ns);
    for (;;) {
        struct stint_pool_answer answer = ask(session);
        uint64_t back_ns = add_sat(pool_session_now(session), answer.wait_ns);
        if (answer.name != NULL || !session->options->wait || back_ns == UINT64_MAX ||
            back_ns > end_ns)
            return answer;
        *signal_number = sleep_for(signals, min_u64(answer.wait_ns, LOOK_AGAIN_NS));
        if (*signal_number != 0)
            return answer;
    }
}

/* Ends by the signal's default action: shells end their loops by that. */
static void die_of(const struct pool_session *session, const sigset_t *signals, int number)
{
    if (pool_is_chatty(session->options))
        print_message("no key was taken");
    signal(number, SIG_DFL);
    raise(number);
    sigprocmask(SIG_UNBLOCK, signals, NULL);
}

/* Checked before a key is charged: which one it will be is not known yet. */
static bool have_secrets(const struct pool_session *session)
{
    bool wanted = session->options->secret || session->options->both;
    for (size_t i = 0; wanted && i < session->keys.n_keys; i++)
        if (session->keys.keys[i].secret.ptr == NULL) {
            print_message("%s, line %zu: '%s' has no secret", session->keys.path,
                          session->keys.keys[i].place, session->keys.keys[i].name);
            return false;
        }
    return true;
}

/* A process started in the background may have these signals ignored; then they stay so. */
static void block_signals(sigset_t *signals)
{
    static const int ends[] = {SIGINT, SIGTERM};
    sigemptyset(signals);
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        struct sigaction inherited;
        if (sigaction(ends[i], NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN)
            sigaddset(signals, ends[i]);
    }
    sigprocmask(SIG_BLOCK, signals, NULL);
}

int pool_next(struct pool_session *session)
{
    sigset_t signals;
    int signal_number = 0;
    if (!have_secrets(session))
        return CMD_BAD_INPUT;
    signal(SIGPIPE, SIG_IGN);
    block_signals(&signals);
    struct stint_pool_answer answer = wait_for_key(session, &signals, &signal_number);
    if (signal_number != 0) {
        die_of(session, &signals, signal_number);
        return CMD_BAD_INPUT;
    }
    return answer.name != NULL ? hand_out(session, &answer) : none_is_free(session, &answer);
}
