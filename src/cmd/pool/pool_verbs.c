/* SPDX-License-Identifier: MIT */
/* The verbs of `stint pool`. Each returns its exit code after it has reported errors. */
#define _GNU_SOURCE
#include "cmd/pool/pool.h"

#include "base/ns.h"
#include "base/number.h"
#include "base/wide_int.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/lib/signals.h"
#include "net/file.h"
#include "sim/picture/picture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *const pool_outcome_names[] = {
    [STINT_POOL_OK] = "ok",
    [STINT_POOL_COOL] = "cool",
    [STINT_POOL_BACK_OFF] = "back-off",
    [STINT_POOL_OUT] = "out",
    NULL,
};

static const char *const standing_names[] = {
    [STINT_POOL_FREE] = "free",       [STINT_POOL_USED_UP] = "used up",
    [STINT_POOL_COOLING] = "cooling", [STINT_POOL_BACKING_OFF] = "backing off",
    [STINT_POOL_IS_OUT] = "out",
};

/* Whether messages for people are to be printed on standard error. */
static bool is_chatty(const struct pool_options *options)
{
    return options->verbose || isatty(STDERR_FILENO) == 1;
}

/* ---- next: which key may be used now, or when? ----------------------------------------------- */

/*
 * A key is charged only if its name is printed: a signal ends the program while it waits, and the
 * units of a name that could not be printed are refunded.
 */

/* Other processes may refund units before the time that is waited for: check now and then. */
#define LOOK_AGAIN_NS NS_PER_S

static void print_answer_json(const struct pool_session *session,
                              const struct stint_pool_answer *answer)
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
        print_answer_json(session, answer);
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
                             answer->granted_at_ns, stint_now(session->table), NULL);
        return CMD_BAD_INPUT; /* see main.c */
    }
    if (answer->probe && is_chatty(session->options))
        print_message("all keys are cooling; '%s' is the nearest to recover: try it, and report",
                      answer->name);
    return CMD_DONE;
}

static int none_is_free(const struct pool_session *session, const struct stint_pool_answer *answer)
{
    struct formatted wait;
    format_wait(&wait, answer->wait_ns);
    if (session->options->json)
        print_answer_json(session, answer);
    else
        puts(wait.text);
    if (is_chatty(session->options)) {
        if (answer->wait_ns == STINT_NEVER_NS)
            print_message("no key is free, and none will be before it is reported ok");
        else
            print_message("no key is free for another %s s", wait.text);
    }
    return CMD_DENIED;
}

/* Retries until a key is free, the longest wait would not suffice, or an interrupt is seen. */
static struct stint_pool_answer wait_for_key(const struct pool_session *session)
{
    uint64_t end_ns = add_sat(stint_now(session->table), session->options->wait_max_ns);
    for (;;) {
        const struct stint_pool_ask ask = {.now_ns = stint_now(session->table),
                                           .cost = session->options->cost,
                                           .probe = session->options->probe};
        struct stint_pool_answer answer = stint_pool_next(session->pool, &ask);
        uint64_t back_ns = add_sat(stint_now(session->table), answer.wait_ns);
        if (answer.name != NULL || !session->options->wait || back_ns == UINT64_MAX ||
            back_ns > end_ns)
            return answer;
        interrupt_wait(-1, min_u64(answer.wait_ns, LOOK_AGAIN_NS), 0);
        if (interrupts_seen() > 0)
            return answer;
    }
}

/* Checked before a key is charged: which one it will be is not known yet. */
static bool have_secrets(const struct pool_session *session)
{
    bool wanted = session->options->secret || session->options->both;
    for (size_t i = 0; wanted && i < session->keys.n_keys; i++)
        if (session->keys.keys[i].secret.ptr == NULL) {
            print_message("%s, line %zu: '%s' has no secret", session->keys.path,
                          session->keys.keys[i].position, session->keys.keys[i].name);
            return false;
        }
    return true;
}

static int pool_next(const struct pool_session *session)
{
    if (!have_secrets(session))
        return CMD_BAD_INPUT;
    signal(SIGPIPE, SIG_IGN);
    interrupt_count_all();
    struct stint_pool_answer answer = wait_for_key(session);
    if (answer.name != NULL)
        return hand_out(session, &answer);
    if (interrupts_seen() == 0)
        return none_is_free(session, &answer);
    if (is_chatty(session->options))
        print_message("no key was taken");
    interrupt_end();
    return CMD_BAD_INPUT;
}

/* ---- status: the state of each key, by name only --------------------------------------------- */

#define NAME_COLUMNS_MAX 40

struct view {
    const struct pool_keys *names;
    struct stint_pool_status *keys;
    size_t n_keys, n_free;
};

/* A callback of stint_pool_each(), which has the order of the keys and borrowed names. */
static bool collect(const struct stint_pool_status *status, void *arg)
{
    struct view *view = arg;
    view->keys[view->n_keys] = *status;
    view->keys[view->n_keys].name = view->names->keys[view->n_keys].name;
    view->n_keys++;
    view->n_free += status->standing == STINT_POOL_FREE;
    return true;
}

static void print_status_text(const struct view *view)
{
    size_t columns = 4;
    for (size_t i = 0; i < view->n_keys; i++) {
        size_t len = strlen(view->keys[i].name);
        columns = len > columns ? len : columns;
    }
    columns = columns < NAME_COLUMNS_MAX ? columns : NAME_COLUMNS_MAX;
    printf("%-*s  standing     remaining of limit   returns in\n", (int)columns, "key");
    for (size_t i = 0; i < view->n_keys; i++) {
        const struct stint_pool_status *key = &view->keys[i];
        struct formatted formatted;
        /* A cooldown ends some us late: the printed time is not rounded up to one more second. */
        uint64_t returns_ns = key->returns_after_ns;
        if (returns_ns != STINT_NEVER_NS)
            returns_ns -= returns_ns % NS_PER_MS;
        printf("%-*s  %-11s  %9" PRIu32 " of %-8" PRIu32 "  %s\n", (int)columns, key->name,
               standing_names[key->standing], key->decision.remaining, key->decision.limit,
               key->returns_after_ns == 0 ? "-" : format_seconds_up(&formatted, returns_ns));
    }
    printf("%zu of %zu free\n", view->n_free, view->n_keys);
}

static json_t *key_json(const struct stint_pool_status *key)
{
    return json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "key",
                     json_text_key(span_of_text(key->name)), "standing",
                     standing_names[key->standing], "weight", (json_int_t)key->weight, "failures",
                     (json_int_t)key->failures, "limit", (json_int_t)key->decision.limit,
                     "remaining", (json_int_t)key->decision.remaining, "returns_after_ns",
                     json_text_ns(key->returns_after_ns), "reset_after_ns",
                     json_text_ns(key->decision.reset_after_ns));
}

static int print_status_json(const struct pool_session *session, const struct view *view)
{
    json_t *keys = json_array();
    for (size_t i = 0; i < view->n_keys; i++)
        json_array_append_new(keys, key_json(&view->keys[i]));
    return json_text_print(json_pack("{s:o, s:o, s:I, s:o}", "pool",
                                     json_text_key(span_of_text(session->options->pool)), "now_ns",
                                     json_text_ns(stint_now(session->table)), "free",
                                     (json_int_t)view->n_free, "keys", keys),
                           true);
}

/* Keys that are out never return by themselves: no time is shown, the bar shows it. */
static int draw_status(const struct pool_session *session, const struct view *view)
{
    struct chart_bar *bars = calloc(view->n_keys, sizeof(*bars));
    struct plot plot;
    char title[STINT_POOL_NAME_MAX + 64];
    if (bars == NULL)
        return print_failure("out of memory");
    for (size_t i = 0; i < view->n_keys; i++) {
        const struct stint_pool_status *key = &view->keys[i];
        bars[i] = (struct chart_bar){
            .name = span_of_text(key->name),
            .left = key->decision.remaining,
            .most = key->decision.limit,
            .returns_in_ns = key->returns_after_ns == STINT_NEVER_NS ? 0 : key->returns_after_ns,
            .cooling_down = key->standing >= STINT_POOL_COOLING};
    }
    snprintf(title, sizeof(title), "Pool %s: what each key has left", session->options->pool);
    chart_bars(&plot, title, bars, view->n_keys);
    free(bars);
    return gnuplot_draw(&session->options->plot, &plot);
}

static int show_status(const struct pool_session *session, const struct view *view)
{
    bool draws = session->options->plot.format != GNUPLOT_NONE;
    bool on_screen = session->options->plot.format == GNUPLOT_TERMINAL;
    int result = CMD_DONE;
    if (session->options->json)
        result = print_status_json(session, view);
    else if (!on_screen)
        print_status_text(view);
    return draws && result == CMD_DONE ? draw_status(session, view) : result;
}

static int pool_status(const struct pool_session *session)
{
    struct view view = {.names = &session->keys,
                        .keys = calloc(session->keys.n_keys, sizeof(*view.keys))};
    if (view.keys == NULL)
        return print_failure("out of memory");
    stint_pool_each(session->pool, stint_now(session->table), collect, &view);
    int result = show_status(session, &view);
    free(view.keys);
    return result;
}

/* ---- report: what an answer of the remote service means for the key that was used ------------ */

/*
 * "A recipient that parses a timestamp value in an HTTP field MUST accept all three HTTP-date
 * formats" (RFC 9110, 5.6.7). The program runs in the C locale, whose names of days are English.
 */
static bool read_date(const char *text, int64_t *date_s)
{
    static const char *const forms[] = {
        "%a, %d %b %Y %H:%M:%S GMT",
        "%A, %d-%b-%y %H:%M:%S GMT",
        "%a %b %e %H:%M:%S %Y",
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct tm tm = {0};
        const char *end = strptime(text, forms[i], &tm);
        if (end == NULL || *end != '\0')
            continue;
        *date_s = (int64_t)timegm(&tm);
        return true;
    }
    return false;
}

/* Delays longer than the maximum of a table are cut to it: "not in the near future". */
int pool_after_read(const char *text, int64_t wall_ns, uint64_t *after_ns,
                    struct stint_error *error)
{
    const uint64_t seconds_max = STINT_NOW_MAX / NS_PER_S;
    size_t n_digits = strspn(text, "0123456789");
    int64_t date_s = 0;
    uint64_t seconds = seconds_max;
    if (n_digits > 0 && text[n_digits] == '\0') {
        (void)resp_number_read(span_of_text(text), seconds_max, &seconds);
        *after_ns = seconds * NS_PER_S;
        return 0;
    }
    if (!read_date(text, &date_s))
        return err_set(error, STINT_E_SYNTAX,
                       "'%s' is no Retry-After: expected seconds, like 120, or a date, like "
                       "'Sun, 06 Nov 1994 08:49:37 GMT'",
                       text);
    int64_t wall_s = wall_ns / (int64_t)NS_PER_S;
    if (date_s <= wall_s)
        *after_ns = 0;
    else if ((uint64_t)(date_s - wall_s) > seconds_max)
        *after_ns = seconds_max * NS_PER_S;
    else
        *after_ns = (uint64_t)(date_s * (int64_t)NS_PER_S - wall_ns);
    return 0;
}

/* The report for a status; `nothing` for one that has no meaning for the key. */
struct verdict {
    bool nothing;
    enum stint_pool_outcome outcome;
    uint64_t cooldown_ns;
};

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
    int64_t wall_ns = stint_epoch_ns(session->table) + (int64_t)stint_now(session->table);
    bool says_when = options->retry_after != NULL && options->retry_after[0] != '\0';
    int code = says_when ? pool_after_read(options->retry_after, wall_ns, &after_ns, error) : 0;
    *verdict = judge(options->status, after_ns);
    return code;
}

static int print_report_json(const struct verdict *verdict, const struct stint_pool_status *status)
{
    return json_text_print(
        json_pack("{s:o, s:o, s:o, s:s, s:o}", "key", json_text_key(span_of_text(status->name)),
                  "reported",
                  verdict->nothing ? json_null()
                                   : json_string(pool_outcome_names[verdict->outcome]),
                  "cooldown_ns",
                  verdict->cooldown_ns > 0 ? json_text_ns(verdict->cooldown_ns) : json_null(),
                  "standing", standing_names[status->standing], "returns_after_ns",
                  json_text_ns(status->returns_after_ns)),
        false);
}

static void tell_report(const struct pool_session *session, const struct verdict *verdict,
                        const struct stint_pool_status *status)
{
    struct formatted formatted;
    if (verdict->nothing)
        print_message("status %03u has no meaning for the key '%s': nothing is changed",
                      session->options->status, status->name);
    else if (status->returns_after_ns == STINT_NEVER_NS)
        print_message("'%s' is %s, until it is reported ok or removed", status->name,
                      standing_names[status->standing]);
    else if (status->returns_after_ns > 0)
        print_message("'%s' is %s, and returns in %s", status->name,
                      standing_names[status->standing],
                      format_seconds_up(&formatted, status->returns_after_ns));
    else
        print_message("'%s' is %s", status->name, standing_names[status->standing]);
}

struct search {
    const char *name;
    struct stint_pool_status status;
    bool found;
};

/* A callback of stint_pool_each(). */
static bool compare(const struct stint_pool_status *status, void *arg)
{
    struct search *search = arg;
    search->found = strcmp(status->name, search->name) == 0;
    if (search->found) {
        search->status = *status;
        search->status.name = search->name; /* valid only during the callback */
    }
    return !search->found;
}

static int pool_report(const struct pool_session *session)
{
    struct search search = {.name = session->options->words[0]};
    struct stint_error error;
    struct verdict verdict;
    int code = pool_keys_find(&session->keys, search.name, &error) != NULL ? 0 : STINT_E_GONE;
    if (code == 0)
        code = read_verdict(session, &verdict, &error);
    if (code == 0 && !verdict.nothing)
        code = stint_pool_report(session->pool, search.name, (int)verdict.outcome,
                                 verdict.cooldown_ns, stint_now(session->table), &error);
    if (code != 0)
        return print_failure("%s", error.message);
    stint_pool_each(session->pool, stint_now(session->table), compare, &search);
    if (!search.found)
        return CMD_BAD_INPUT;
    if (is_chatty(session->options))
        tell_report(session, &verdict, &search.status);
    return session->options->json ? print_report_json(&verdict, &search.status) : CMD_DONE;
}

/* ---- give-back: a grant that was not used ---------------------------------------------------- */

static int pool_give_back(const struct pool_session *session)
{
    const struct pool_options *options = session->options;
    const char *name = options->words[0];
    struct stint_error error;
    uint32_t given_back = 0;
    uint64_t now_ns = stint_now(session->table);
    if (pool_keys_find(&session->keys, name, &error) == NULL)
        return print_failure("%s", error.message);
    if (options->granted_at_ns != STINT_NEVER_NS && options->granted_at_ns > now_ns)
        return print_failure("--granted-at is later than now: it belongs to another FILE");
    if (stint_pool_give_back(session->pool, name, options->cost, options->granted_at_ns, now_ns,
                             &given_back) != 0)
        return print_failure("'%s' is in the pool no more", name);
    if (given_back < options->cost && is_chatty(options))
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
                           false);
}

/* ---- add and remove: change the file of keys, and notify the processes of the pool ----------- */

/*
 * The file is replaced in one step, so that readers see the old or the new one, whole; writers take
 * turns.
 */

#define SECRET_MAX 65536u /* bytes */

struct edit {
    const char *given;       /* the path as given, for messages */
    char path[PATH_MAX];     /* the resolved path of the file */
    char made[PATH_MAX + 9]; /* the new file; empty while there is none */
    int fd;                  /* of the old one, locked */
    struct stat stat;
    char *text; /* the content; wiped at the end */
    size_t len;
};

static int failed(const struct edit *edit, const char *what, struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "cannot %s %s: %s%s", what, edit->given, strerror(errno),
                   err_advice(errno));
}

/* The lock may be that of a file that was replaced while this process waited. */
static int lock(struct edit *edit, struct stint_error *error)
{
    struct stat there;
    for (;;) {
        edit->fd = open(edit->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (edit->fd < 0)
            return failed(edit, "open", error);
        if (fstat(edit->fd, &edit->stat) != 0 || !S_ISREG(edit->stat.st_mode))
            return err_set(error, STINT_E_SYSTEM, "%s is no file that could be changed",
                           edit->given);
        while (flock(edit->fd, LOCK_EX) != 0)
            if (errno != EINTR)
                return failed(edit, "lock", error);
        if (stat(edit->path, &there) != 0)
            return failed(edit, "find", error);
        if (there.st_ino == edit->stat.st_ino && there.st_dev == edit->stat.st_dev)
            return fstat(edit->fd, &edit->stat) == 0 ? 0 : failed(edit, "look at", error);
        close(edit->fd);
    }
}

static int begin_edit(struct edit *edit, const char *path, struct stint_error *error)
{
    struct stat stat_of_given;
    *edit = (struct edit){.given = path, .fd = -1};
    if (stat(path, &stat_of_given) != 0)
        return failed(edit, "find", error);
    if (!S_ISREG(stat_of_given.st_mode))
        return err_set(error, STINT_E_SYSTEM, "%s is no file that could be changed", path);
    if (realpath(path, edit->path) == NULL)
        return failed(edit, "find", error);
    int code = lock(edit, error);
    return code != 0 ? code
                     : file_bytes_read(edit->fd, edit->given, POOL_KEYS_BYTES_MAX, &edit->text,
                                       &edit->len, error);
}

static void end_edit(struct edit *edit)
{
    if (edit->made[0] != '\0')
        unlink(edit->made);
    if (edit->text != NULL)
        explicit_bzero(edit->text, edit->len);
    free(edit->text);
    if (edit->fd >= 0)
        close(edit->fd);
}

static bool write_span(int fd, struct span bytes)
{
    for (size_t done = 0; done < bytes.len;) {
        ssize_t n = write(fd, bytes.ptr + done, bytes.len - done);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Writes the new file beside the old one, with the same permissions. */
static int make_file(struct edit *edit, const struct span *parts, size_t n_parts,
                     struct stint_error *error)
{
    snprintf(edit->made, sizeof(edit->made), "%s.XXXXXX_", edit->path);
    int fd = mkostemps(edit->made, 1, O_CLOEXEC);
    if (fd < 0) {
        edit->made[0] = '\0';
        return failed(edit, "write beside", error);
    }
    /* Only the superuser may give files away: for other users, they owned it. */
    bool whole = fchown(fd, edit->stat.st_uid, edit->stat.st_gid) == 0 || errno == EPERM;
    whole = whole && fchmod(fd, edit->stat.st_mode & 07777) == 0;
    for (size_t i = 0; whole && i < n_parts; i++)
        whole = write_span(fd, parts[i]);
    whole = whole && fsync(fd) == 0;
    int code = whole ? 0 : failed(edit, "write beside", error);
    close(fd);
    return code;
}

static int replace(struct edit *edit, struct stint_error *error)
{
    if (rename(edit->made, edit->path) != 0)
        return failed(edit, "replace", error);
    edit->made[0] = '\0';
    return 0;
}

/* Finds the line of the key: its offset, and its length with the newline; false for none. */
static bool find_line(const struct edit *edit, const char *name, struct span *found)
{
    for (size_t at = 0; at < edit->len;) {
        const char *newline = memchr(edit->text + at, '\n', edit->len - at);
        size_t len = newline != NULL ? (size_t)(newline - edit->text) - at : edit->len - at;
        struct span line = span_of(edit->text + at, len), key;
        if (len > 0 && line.ptr[len - 1] == '\r')
            line.len--;
        *found = span_of(edit->text + at, len + (newline != NULL));
        if (pool_keys_name_of_line(line, &key) && span_equals(key, name))
            return true;
        at += len + 1;
    }
    return false;
}

/* The first line of standard input; it is not echoed, logged, or passed on by the command line. */
static int read_secret(char *text, size_t text_size, struct span *secret, struct stint_error *error)
{
    size_t len = 0;
    ssize_t n = 1;
    while (n != 0 && len < text_size && memchr(text, '\n', len) == NULL) {
        n = read(STDIN_FILENO, text + len, text_size - len);
        if (n < 0 && errno != EINTR)
            return err_set(error, STINT_E_SYSTEM, "cannot read standard input: %s",
                           strerror(errno));
        len += n > 0 ? (size_t)n : 0;
    }
    const char *newline = memchr(text, '\n', len);
    if (newline == NULL && len == text_size)
        return err_set(error, STINT_E_RANGE, "the secret is longer than %u bytes", SECRET_MAX - 1);
    len = newline != NULL ? (size_t)(newline - text) : len;
    if (len > 0 && text[len - 1] == '\r')
        len--;
    if (len == 0)
        return err_set(error, STINT_E_SYNTAX, "expected the secret on standard input");
    if (text[0] == ' ' || text[0] == '\t')
        return err_set(error, STINT_E_SYNTAX,
                       "the secret begins with a blank, which a file of keys cannot represent");
    *secret = span_of(text, len);
    return 0;
}

static int tell_edit(const struct pool_session *session, size_t n_keys, const char *what)
{
    const struct pool_options *options = session->options;
    if (is_chatty(options))
        print_message("'%s' is %s the pool: %zu keys", options->words[0], what, n_keys);
    if (!options->json)
        return CMD_DONE;
    return json_text_print(json_pack("{s:o, s:I}", "key",
                                     json_text_key(span_of_text(options->words[0])), "keys",
                                     (json_int_t)n_keys),
                           false);
}

static int add_with_secret(const struct pool_session *session, struct edit *edit,
                           struct span secret, struct stint_error *error)
{
    const char *name = session->options->words[0];
    struct span line;
    if (find_line(edit, name, &line))
        return err_set(error, STINT_E_MISMATCH, "%s holds a key '%s' already", edit->given, name);
    bool ends = edit->len == 0 || edit->text[edit->len - 1] == '\n';
    const struct span parts[] = {span_of(edit->text, edit->len),
                                 span_of("\n", ends ? 0 : 1),
                                 span_of_text(name),
                                 span_of(" ", secret.len > 0),
                                 secret,
                                 span_of("\n", 1)};
    int code = make_file(edit, parts, sizeof(parts) / sizeof(parts[0]), error);
    struct stint_error why;
    if (code != 0)
        return code;
    code = stint_pool_add(session->pool, &session->all[session->keys.n_keys],
                          stint_now(session->table), &why);
    return code != 0 ? err_set(error, code, "the key '%s': %s", name, why.message)
                     : replace(edit, error);
}

static int pool_add(const struct pool_session *session)
{
    const char *name = session->options->words[0];
    static char text[SECRET_MAX];
    struct span secret = span_of(NULL, 0);
    struct stint_error error;
    struct edit edit = {.fd = -1};
    int code = pool_keys_check_name(span_of_text(name), &error);
    if (code == 0 && name[0] == '#')
        code = err_set(&error, STINT_E_SYNTAX, "'%s' would be a comment in a file of keys", name);
    if (code == 0 && session->options->secret)
        code = read_secret(text, sizeof(text), &secret, &error);
    if (code == 0)
        code = begin_edit(&edit, session->keys.path, &error);
    if (code == 0)
        code = add_with_secret(session, &edit, secret, &error);
    end_edit(&edit);
    explicit_bzero(text, sizeof(text));
    if (code == 0)
        return tell_edit(session, session->keys.n_keys + 1, "in");
    return print_failure("%s", error.message);
}

static int remove_line(const struct pool_session *session, struct edit *edit,
                       struct stint_error *error)
{
    const char *name = session->options->words[0];
    struct span line;
    if (!find_line(edit, name, &line))
        return err_set(error, STINT_E_GONE, "%s holds no key '%s' any more", edit->given, name);
    size_t at = (size_t)((const char *)line.ptr - edit->text), behind = at + line.len;
    const struct span parts[] = {span_of(edit->text, at),
                                 span_of(edit->text + behind, edit->len - behind)};
    int code = make_file(edit, parts, 2, error);
    if (code == 0)
        code = stint_pool_remove(session->pool, name, stint_now(session->table), error);
    return code != 0 ? code : replace(edit, error);
}

static int pool_remove(const struct pool_session *session)
{
    const char *name = session->options->words[0];
    struct stint_error error;
    struct edit edit = {.fd = -1};
    int code = pool_keys_find(&session->keys, name, &error) != NULL ? 0 : STINT_E_GONE;
    if (code == 0 && session->keys.n_keys == 1)
        code = err_set(&error, STINT_E_MISMATCH,
                       "'%s' is the last key, and stays: add another one first", name);
    if (code == 0)
        code = begin_edit(&edit, session->keys.path, &error);
    if (code == 0)
        code = remove_line(session, &edit, &error);
    end_edit(&edit);
    if (code == 0)
        return tell_edit(session, session->keys.n_keys - 1, "out of");
    return print_failure("%s", error.message);
}

/* ---- The table of verbs ---------------------------------------------------------------------- */

int (*const pool_verbs[])(const struct pool_session *session) = {
    [POOL_NEXT] = pool_next,     [POOL_REPORT] = pool_report, [POOL_GIVE_BACK] = pool_give_back,
    [POOL_STATUS] = pool_status, [POOL_ADD] = pool_add,       [POOL_REMOVE] = pool_remove,
};
