/* SPDX-License-Identifier: MIT */
/*
 * `stint rls load`: calls that are due at a steady rate, whether the server keeps up or not. How
 * long an answer took is counted from the instant at which its call was due: a server that stalls
 * is charged for everybody who would have asked meanwhile.
 */
#define _GNU_SOURCE
#include "cmd/rls/rls.h"

#include "base/ns.h"
#include "base/wide_int.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/format.h"
#include "cmd/lib/interrupt.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/lib/progress.h"
#include "proto/grpc/grpc.h"
#include "proto/grpc/rls_limit.h"
#include "table/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

/* Latencies by their logarithm: 64 steps in each doubling, so at most 1.6 % from the truth. */
#define STEPS 64
#define STEP_BITS 6
#define BUCKETS (STEPS * (64 - STEP_BITS + 1))
#define STATUSES 17    /* of gRPC */
#define BURST_MAX 1000 /* calls that are begun before answers are looked at again */

struct load {
    const struct rls_options *options;
    struct rls_writer *writer;
    struct rls_client *clients;
    struct pollfd *fds;
    uint64_t begun_ns, random;
    uint64_t sent, answered, ok, over_limit, broken; /* broken: without a status of gRPC */
    uint64_t by_status[STATUSES];
    uint64_t latencies[BUCKETS], latency_max_ns, ended_ns;
    char status_message[STINT_ERROR_MAX]; /* of the first call that failed */
};

/* ---- Latencies ------------------------------------------------------------------------------- */

static size_t bucket_of(uint64_t ns)
{
    if (ns < STEPS)
        return (size_t)ns;
    unsigned shift = 63 - (unsigned)__builtin_clzll(ns) - STEP_BITS;
    return STEPS * (size_t)shift + (size_t)(ns >> shift);
}

/* The upper edge of a bucket. */
static uint64_t edge_of(size_t bucket)
{
    if (bucket < 2 * STEPS)
        return bucket;
    size_t shift = bucket / STEPS - 1;
    return ((uint64_t)(bucket - STEPS * shift + 1) << shift) - 1;
}

static uint64_t percentile_ns(const struct load *load, double share)
{
    uint64_t wanted = (uint64_t)((double)load->answered * share), seen = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        seen += load->latencies[i];
        if (seen > wanted)
            return min_u64(edge_of(i), load->latency_max_ns);
    }
    return load->latency_max_ns;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* The instant at which a call is due: the rate's, exactly, so that no rounding adds up. */
static uint64_t due_ns(const struct load *load, uint64_t call)
{
    uint64_t rate = load->options->rate;
    return load->begun_ns + call / rate * NS_PER_S + call % rate * NS_PER_S / rate;
}

static void on_answer(void *arg, const struct rls_answer *answer)
{
    struct load *load = arg;
    struct stint_error error;
    uint64_t now_ns = clock_boot_ns(), took_ns = now_ns - due_ns(load, answer->tag);
    bool has_status = answer->grpc_status >= 0 && answer->grpc_status < STATUSES;
    load->answered++;
    load->ended_ns = now_ns;
    load->latencies[bucket_of(took_ns)]++;
    load->latency_max_ns = max_u64(load->latency_max_ns, took_ns);
    if (has_status)
        load->by_status[answer->grpc_status]++;
    else
        load->broken++;
    if (answer->grpc_status != GRPC_OK) {
        if (load->status_message[0] == '\0')
            memcpy(load->status_message, answer->status_message, sizeof(load->status_message));
        return;
    }
    int code = rls_message_code(answer->message, &error);
    load->ok += code == RLS_CODE_OK;
    load->over_limit += code == RLS_OVER_LIMIT;
}

static uint64_t draw(struct load *load)
{
    load->random ^= load->random << 13;
    load->random ^= load->random >> 7;
    load->random ^= load->random << 17;
    return load->random;
}

static int send_due(struct load *load, uint64_t now_ns, uint64_t total, struct stint_error *error)
{
    const struct rls_options *options = load->options;
    for (int i = 0; i < BURST_MAX && load->sent < total && due_ns(load, load->sent) <= now_ns;
         i++) {
        struct rls_session *session = load->clients[load->sent % options->connections].session;
        struct span message = rls_writer_write(load->writer, draw(load) % options->keys);
        int code = rls_session_ask(session, RLS_PATH, message, 0, load->sent, error);
        if (code != 0)
            return code;
        load->sent++;
    }
    return 0;
}

static int move_all(struct load *load, struct stint_error *error)
{
    int code = 0;
    for (unsigned i = 0; i < load->options->connections && code == 0; i++)
        code = rls_client_move(&load->clients[i], error);
    return code;
}

/* Until something came, or the next call is due. */
static void wait_until(struct load *load, uint64_t until_ns)
{
    uint64_t now_ns = clock_boot_ns();
    uint64_t wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    const struct timespec wait = {.tv_sec = (time_t)(wait_ns / NS_PER_S),
                                  .tv_nsec = (long)(wait_ns % NS_PER_S)};
    for (unsigned i = 0; i < load->options->connections; i++)
        load->fds[i] = (struct pollfd){rls_link_fd(load->clients[i].link),
                                       rls_client_events(&load->clients[i]), 0};
    ppoll(load->fds, load->options->connections, &wait, NULL);
}

/* All calls, then the rest of the answers for as long as one may take. */
static int run(struct load *load, struct stint_error *error)
{
    const struct rls_options *options = load->options;
    uint64_t whole_s = options->duration_ns / NS_PER_S, rest_ns = options->duration_ns % NS_PER_S;
    uint64_t total = options->rate * whole_s + options->rate * rest_ns / NS_PER_S;
    uint64_t patience_ends_ns = UINT64_MAX;
    struct progress progress = {.what = "calls"};
    int code = 0;
    progress_begin(&progress, total);
    load->begun_ns = clock_boot_ns();
    while (code == 0 && (load->sent < total || load->answered < load->sent)) {
        uint64_t now_ns = clock_boot_ns();
        if (interrupt_seen())
            total = load->sent;
        if (load->sent == total && patience_ends_ns == UINT64_MAX)
            patience_ends_ns = now_ns + options->timeout_ns;
        if (now_ns >= patience_ends_ns)
            break;
        code = send_due(load, now_ns, total, error);
        if (code == 0)
            code = move_all(load, error);
        if (code == 0 && load->answered < total)
            wait_until(load, load->sent < total ? due_ns(load, load->sent) : patience_ends_ns);
        progress_step(&progress, load->answered);
    }
    progress_end(&progress);
    return code;
}

/* ---- What it was ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    double share;
} percentiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}};
#define N_PERCENTILES (sizeof(percentiles) / sizeof(percentiles[0]))

static double seconds_of(const struct load *load)
{
    uint64_t ns = load->ended_ns > load->begun_ns ? load->ended_ns - load->begun_ns : 1;
    return (double)ns / NS_PER_S;
}

static uint64_t unanswered(const struct load *load)
{
    return load->sent - load->answered;
}

static bool is_whole(const struct load *load)
{
    return load->sent > 0 && load->by_status[GRPC_OK] == load->sent;
}

static void print_json(const struct load *load)
{
    json_t *latency = json_object(), *statuses = json_object();
    for (size_t i = 0; i < N_PERCENTILES; i++)
        json_object_set_new(latency, percentiles[i].name,
                            json_integer((json_int_t)percentile_ns(load, percentiles[i].share)));
    json_object_set_new(latency, "max", json_integer((json_int_t)load->latency_max_ns));
    for (int i = 0; i < STATUSES; i++)
        if (load->by_status[i] > 0)
            json_object_set_new(statuses, grpc_status_name(i),
                                json_integer((json_int_t)load->by_status[i]));
    json_text_print(json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:o}", "sent",
                              (json_int_t)load->sent, "unanswered", (json_int_t)unanswered(load),
                              "broken_off", (json_int_t)load->broken, "ok", (json_int_t)load->ok,
                              "over_limit", (json_int_t)load->over_limit, "seconds",
                              seconds_of(load), "calls_per_second",
                              (double)load->answered / seconds_of(load), "statuses", statuses,
                              "latency_ns", latency),
                    false);
}

static void print_text(const struct load *load)
{
    struct formatted count, other;
    printf("%s calls in %.2f s, %s a second of %s that were due\n",
           format_count(&count, load->sent), seconds_of(load),
           format_count(&other, (uint64_t)((double)load->answered / seconds_of(load))),
           format_count(&(struct formatted){0}, load->options->rate));
    printf("OK %s, OVER_LIMIT %s\n", format_count(&count, load->ok),
           format_count(&other, load->over_limit));
    for (int i = 1; i < STATUSES; i++)
        if (load->by_status[i] > 0)
            printf("%s %s\n", grpc_status_name(i), format_count(&count, load->by_status[i]));
    if (unanswered(load) + load->broken > 0)
        printf("without an answer %s\n", format_count(&count, unanswered(load) + load->broken));
    for (size_t i = 0; i < N_PERCENTILES; i++)
        printf("%-6s %9.3f ms\n", percentiles[i].name,
               (double)percentile_ns(load, percentiles[i].share) / 1e6);
    printf("%-6s %9.3f ms\n", "max", (double)load->latency_max_ns / 1e6);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int open_all(struct load *load, const char *token, struct stint_error *error)
{
    const struct rls_options *options = load->options;
    load->writer = rls_writer_new(&options->evaluation);
    load->clients = calloc(options->connections, sizeof(load->clients[0]));
    load->fds = calloc(options->connections, sizeof(load->fds[0]));
    if (load->writer == NULL || load->clients == NULL || load->fds == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    int code = 0;
    for (unsigned i = 0; i < options->connections && code == 0; i++)
        code = rls_client_open(&load->clients[i], options, token, on_answer, load, error);
    return code;
}

static void close_all(struct load *load)
{
    for (unsigned i = 0; load->clients != NULL && i < load->options->connections; i++)
        rls_client_close(&load->clients[i]);
    rls_writer_free(load->writer);
    free(load->clients);
    free(load->fds);
}

int rls_load_main(int argc, char **argv)
{
    static struct load load; /* its histogram is large */
    static struct rls_options options;
    struct stint_error error;
    char token[TOKEN_FILE_SPACE];
    rls_options_parse(&options, RLS_LOAD, argc, argv);
    load.options = &options;
    load.random = options.seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    int code = options.token_file != NULL ? token_file_read(options.token_file, token, &error) : 0;
    if (code == 0)
        code = open_all(&load, options.token_file != NULL ? token : NULL, &error);
    explicit_bzero(token, sizeof(token));
    interrupt_catch();
    if (code == 0)
        code = run(&load, &error);
    if (load.sent > 0)
        options.json ? print_json(&load) : print_text(&load);
    if (code != 0)
        print_message("%s", error.message);
    else if (load.status_message[0] != '\0')
        print_message("%s: %s", options.link.server, load.status_message);
    close_all(&load);
    if (code == STINT_E_SYNTAX && load.sent == 0)
        return CMD_BAD_USAGE;
    return code == 0 && is_whole(&load) ? CMD_DONE : CMD_BAD_INPUT;
}
