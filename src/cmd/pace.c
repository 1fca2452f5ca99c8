/* SPDX-License-Identifier: MIT */
/*
 * `stint pace`: standard input to standard output, at a quota.
 *
 * No line that was read is lost. The first SIGINT, SIGTERM or SIGHUP ends reading, and what was
 * read is still released at the quota; the second ends the program, and so does an output that is
 * closed: what was not released then goes to --rest, or to standard error.
 */
#define _GNU_SOURCE
#include "algorithm/algorithm.h"
#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/held_lines.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define READ_SIZE 4096u /* bytes: reads little more than can be released */
#define BATCH_MAX (1u << 20)

struct pace {
    struct stint_quota quotas[STINT_ITEMS_MAX];
    struct stint_item items[STINT_ITEMS_MAX];
    size_t n_quotas;
    size_t batch; /* lines */
    uint64_t linger_ns;
    const char *rest;
    struct stint_table *table;
    struct held_lines held;
    uint64_t read_ns;   /* when bytes were last read */
    uint64_t first_ns;  /* when the first held line was read */
    bool ended;         /* nothing more is read */
    unsigned n_signals; /* seen before this step */
};

static const struct args_option options_known[] = {
    {"quota", "SPEC", 0, "Lines per time; several are taken all or nothing",
     ARGS_QUOTAS(struct pace, quotas, n_quotas)},
    {"batch", "N", 0, "Release up to N lines at once (default 1)",
     ARGS_NUMBER(struct pace, batch, BATCH_MAX)},
    {"linger", "TIME", 0,
     "Release a batch that is not full TIME after its first line (default: when the input ends)",
     ARGS_DURATION(struct pace, linger_ns)},
    {"rest", "FILE", 0, "Append lines that can no longer be released to FILE",
     ARGS_FILE(struct pace, rest)},
    {0},
};

/* Fills the list for the limiter, and refuses a batch that would never be allowed. */
static void check_batch(struct argp_state *state, void *input)
{
    struct pace *pace = input;
    if (pace->n_quotas == 0)
        argp_error(state, "expected --quota, for example --quota '100/1m'");
    for (size_t i = 0; i < pace->n_quotas; i++) {
        const struct stint_quota *quota = &pace->quotas[i];
        uint32_t capacity = most_units(quota);
        if (pace->batch > capacity)
            argp_error(state, "a batch of %zu lines can never fit a quota that grants %lu at once",
                       pace->batch, (unsigned long)capacity);
        for (size_t j = 0; j < i; j++) /* equal ones would be one, charged twice */
            if (pace->quotas[j].derived.params_hash[0] == quota->derived.params_hash[0])
                argp_error(state, "two quotas are equal");
        pace->items[i] = (struct stint_item){.quota = quota, .key = ""};
    }
}

static void refuse_word(struct argp_state *state, void *input, char *word)
{
    (void)input;
    argp_error(state, "lines come from standard input; found '%s'", word);
}

/*
 * Returns how many bytes were written: all, or fewer if the output fails, or a signal after the
 * first n_before ends the write.
 */
static size_t write_all(int fd, const char *bytes, size_t len, unsigned n_before)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = write(fd, bytes + done, len - done);
        if (n < 0 && (errno != EINTR || interrupts_seen() > n_before))
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    return done;
}

/* Releases the first lines. A line that a closed output took in part counts as not released. */
static bool release(struct pace *pace, size_t n_lines)
{
    struct held_lines *held = &pace->held;
    size_t len = held_lines_length(held, n_lines);
    const char *bytes = held->bytes + held->begin;
    size_t done = write_all(STDOUT_FILENO, bytes, len, 1);
    if (done == len) {
        held_lines_drop(held, n_lines);
        pace->first_ns = pace->read_ns;
        return true;
    }
    if (interrupts_seen() <= 1)
        print_message("cannot write to standard output: %s", strerror(errno));
    size_t n_whole = 0;
    for (size_t i = 0; i < done; i++)
        n_whole += bytes[i] == '\n';
    held_lines_drop(held, n_whole);
    return false;
}

static bool end_reading(struct pace *pace)
{
    pace->ended = true;
    if (held_lines_complete(&pace->held))
        return true;
    print_message("out of memory");
    return false;
}

static bool read_more(struct pace *pace)
{
    char *space = held_lines_space(&pace->held, READ_SIZE);
    if (space == NULL || pace->held.n_partial > HELD_LINE_MAX) {
        print_message(space == NULL ? "out of memory"
                                    : "a line is longer than %u bytes; no more is read",
                      HELD_LINE_MAX);
        return false;
    }
    ssize_t n = read(STDIN_FILENO, space, READ_SIZE);
    if (n < 0 && errno != EINTR && errno != EAGAIN) {
        print_message("cannot read standard input: %s", strerror(errno));
        return false;
    }
    if (n == 0)
        return end_reading(pace);
    bool first = pace->held.n_lines == 0;
    held_lines_added(&pace->held, n > 0 ? (size_t)n : 0);
    pace->read_ns = stint_now(pace->table);
    if (first)
        pace->first_ns = pace->read_ns;
    return true;
}

/* Waits for input, a signal, or the time; STINT_NEVER_NS is no time limit. */
static bool wait_ns(struct pace *pace, uint64_t ns, bool wants_input)
{
    int fd = wants_input ? STDIN_FILENO : -1;
    return interrupt_wait(fd, ns, pace->n_signals) ? read_more(pace) : true;
}

/* Whether the first lines are a batch, and if not, the time until they are one at the latest. */
static bool batch_ready(const struct pace *pace, size_t n_lines, uint64_t now_ns, uint64_t *left_ns)
{
    *left_ns = STINT_NEVER_NS;
    if (n_lines == 0)
        return false;
    if (n_lines == pace->batch || pace->ended)
        return true;
    if (pace->linger_ns == STINT_NEVER_NS)
        return false;
    uint64_t waited_ns = now_ns - pace->first_ns;
    *left_ns = waited_ns < pace->linger_ns ? pace->linger_ns - waited_ns : 0;
    return *left_ns == 0;
}

/* Releases a batch, or waits for what is missing: lines, time, or units of the quota. */
static bool step(struct pace *pace)
{
    uint64_t now_ns = stint_now(pace->table), left_ns;
    size_t n_lines = pace->held.n_lines < pace->batch ? pace->held.n_lines : pace->batch;
    if (pace->n_signals > 0 && !pace->ended && !end_reading(pace))
        return false;
    bool wants_input = !pace->ended && n_lines < pace->batch;
    if (!batch_ready(pace, n_lines, now_ns, &left_ns))
        return wait_ns(pace, left_ns, wants_input);
    for (size_t i = 0; i < pace->n_quotas; i++)
        pace->items[i].cost = (uint32_t)n_lines;
    struct stint_decision decision =
        stint_take_all(pace->table, pace->items, pace->n_quotas, now_ns);
    if (decision.outcome == STINT_ALLOW)
        return release(pace, n_lines);
    if (decision.outcome != STINT_NEVER)
        return wait_ns(pace, decision.retry_after_ns, wants_input);
    print_message("no wait is long enough for %zu lines at once", n_lines);
    return false;
}

/* Saves the lines that were read and not released. The last may be only what was read of it. */
static void save_rest(struct pace *pace)
{
    struct held_lines *held = &pace->held;
    char cut[80] = "";
    if (held->n_partial > 0)
        snprintf(cut, sizeof(cut), "; the last one is cut after %zu bytes", held->n_partial);
    if (!held_lines_complete(held) || held->n_lines == 0)
        return;
    int fd = STDERR_FILENO;
    if (pace->rest != NULL)
        fd = open(pace->rest, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) {
        print_message("cannot open %s: %s%s", pace->rest, strerror(errno), err_advice(errno));
        fd = STDERR_FILENO;
    }
    print_message("%zu line%s read and not released%s%s", held->n_lines,
                  held->n_lines == 1 ? " was" : "s were", cut,
                  fd == STDERR_FILENO ? "; here they are:" : "");
    size_t len = held_lines_length(held, held->n_lines);
    const char *bytes = held->bytes + held->begin;
    unsigned n_signals = interrupts_seen(); /* one more ends the program at once */
    size_t written = write_all(fd, bytes, len, n_signals);
    if (written < len && fd != STDERR_FILENO) {
        print_message("%s has only %zu of their %zu bytes: %s%s; here are the others:", pace->rest,
                      written, len, strerror(errno), err_advice(errno));
        written += write_all(STDERR_FILENO, bytes + written, len - written, n_signals);
    }
    if (written < len)
        print_message("and could not all be saved: %s", strerror(errno));
    if (fd != STDERR_FILENO)
        close(fd);
}

static int run(struct pace *pace)
{
    bool whole = true;
    while (whole && pace->n_signals < 2 && !(pace->ended && pace->held.n_lines == 0)) {
        whole = step(pace);
        pace->n_signals = interrupts_seen();
    }
    bool released = pace->ended && pace->held.n_lines == 0;
    save_rest(pace);
    return whole && released ? CMD_DONE : CMD_BAD_INPUT;
}

static int open_table(struct pace *pace, struct stint_error *error)
{
    struct stint_table_options table = {
        .keys = 2 * STINT_ITEMS_MAX, .keys16 = 2 * STINT_ITEMS_MAX, .tickets = 1, .blocks = 1};
    for (size_t i = 0; i < pace->n_quotas; i++) {
        size_t size = stint_state_size(&pace->quotas[i]);
        if (size > 16 && size > table.wide_size)
            table.wide_size = (uint32_t)size;
    }
    table.keys_wide = table.wide_size > 0 ? 2 * STINT_ITEMS_MAX : 0;
    int code = stint_table_open(&pace->table, &table, error);
    for (size_t i = 0; code == 0 && i < pace->n_quotas; i++)
        code = stint_table_accepts(pace->table, &pace->quotas[i], error);
    return code;
}

int pace_main(int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = refuse_word, .end = check_batch},
        .doc = "Copies lines from standard input to standard output no faster than the quota "
               "allows; a line is a unit.\v"
               "The first SIGINT, SIGTERM or SIGHUP ends reading; what was read is still released, "
               "at the "
               "quota. A second one ends the program: lines that were read and not released go to "
               "--rest, or to standard error. So do they when the output is closed.",
    };
    static struct pace pace = {.batch = 1, .linger_ns = STINT_NEVER_NS};
    struct stint_error error;
    args_parse(&command, argc, argv, &pace);
    interrupt_count_all();
    signal(SIGPIPE, SIG_IGN);
    int result = CMD_BAD_INPUT;
    if (open_table(&pace, &error) == 0)
        result = run(&pace);
    else
        print_message("%s", error.message);
    stint_table_close(pace.table);
    held_lines_deinit(&pace.held);
    return result;
}
