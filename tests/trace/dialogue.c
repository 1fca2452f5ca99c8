/* SPDX-License-Identifier: MIT */
/*
 * Plays dialogues with a server in virtual time: a file is a list of lines
 *
 *     | yaml                        rules, before the first line that is spoken
 *     token NAME ROLES SECRET       who may ask
 *     clock virtual                 the server's clock stands, but for STINT.CLOCK; first line
 *     pool NAME KEY SPEC            a key of a pool
 *     [ 120ms] A > COMMAND          A says it, at that time
 *     [ 120ms] A < REPLY            and is answered then: as reply_text.h has it
 *     [ 120ms] A >> BYTES           the same in bytes, with \r \n \\ and \xHH
 *     [ 120ms] A drain | over       the server ends; the connection is to be closed
 *
 * A line without a time is spoken at that of the line before. Whatever is said must be answered in
 * the next lines, or later with a time. A reply that ends in "..." is compared as far as that; <T1>
 * stands for a ticket, the same wherever it is written.
 *
 * Each file is played four times: commands as arrays or as lines, fed whole or byte by byte.
 */
#include "trace/reply_text.h"

#include "frontend/resp/resp_conn.h"
#include "proto/resp/resp_reader.h"
#include "proto/ticket_text.h"
#include "rules/yaml/rules_load.h"
#include "service/pools/pools.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>

#define START_NS (UINT64_C(60000) * 1000000000) /* where aligned windows begin, too */
#define MS UINT64_C(1000000)
#define SPEAKERS 26
#define TICKETS 10
#define TEXT_SIZE 65536
#define ARGUMENTS 512

struct speaker {
    struct conn *conn;
    char got[TEXT_SIZE]; /* bytes that are not a whole reply yet */
    size_t got_len;
    char *replies[64];
    uint64_t times_ns[64];
    size_t n_replies, n_read;
};

struct play {
    const char *path;
    unsigned line;
    bool by_lines, by_bytes; /* how commands are sent */
    bool has_virtual_clock;
    struct stint_table *table;
    struct server_state *server_state;
    struct service *service;
    struct access_now *access;
    struct resp_frontend *frontend;
    uint64_t now_ns;
    struct speaker *speakers;
    char tickets[TICKETS][TICKET_TEXT_LEN + 1];
    char yaml[TEXT_SIZE], tokens[TEXT_SIZE];
};

__attribute__((noreturn, format(printf, 2, 3))) static void fail(const struct play *play,
                                                                 const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%u: (%s, %s) ", play->path, play->line,
            play->by_lines ? "as lines" : "as arrays", play->by_bytes ? "byte by byte" : "whole");
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* ---- The server ------------------------------------------------------------------------------ */

static struct rules *load_rules(const struct play *play)
{
    struct rules_diagnostics diagnostics;
    const struct rules_file file = {.path = "rules.yaml", .text = span_of_text(play->yaml)};
    struct rules *rules = rules_load(&file, play->yaml[0] != '\0', NULL, &diagnostics);
    if (rules == NULL)
        fail(play, "rules, line %u: %s", diagnostics.diagnostics[0].line,
             diagnostics.diagnostics[0].message);
    rules_diagnostics_free(&diagnostics);
    return rules;
}

static struct access *load_tokens(const struct play *play)
{
    struct access *access = NULL;
    struct stint_error error;
    if (play->tokens[0] == '\0')
        return NULL;
    if (access_load(&access, "tokens", span_of_text(play->tokens), &error) != 0)
        fail(play, "%s", error.message);
    return access;
}

static void open_server(struct play *play)
{
    const struct stint_table_options table = {.keys = 4096,
                                              .keys16 = 4096,
                                              .keys_wide = 64,
                                              .wide_size = 1024,
                                              .requests = 1024,
                                              .clock = STINT_CLOCK_VIRTUAL};
    struct stint_error error;
    struct rules *rules = load_rules(play);
    if (stint_table_open(&play->table, &table, &error) != 0)
        fail(play, "%s", error.message);
    const struct server_state_options server_state = {.table = play->table,
                                                      .rules = rules,
                                                      .workers = 1,
                                                      .has_virtual_clock = play->has_virtual_clock};
    if (server_state_open(&play->server_state, &server_state, &error) != 0)
        fail(play, "%s", error.message);
    rules_unref(rules);
    play->service = service_new(play->server_state, 0);
    play->access = access_now_new(load_tokens(play));
    play->frontend = resp_frontend_new(play->service, play->access, NULL);
    play->now_ns = START_NS;
    stint_table_set_now(play->table, START_NS);
}

static void close_server(struct play *play)
{
    for (int i = 0; i < SPEAKERS; i++) {
        struct speaker *speaker = &play->speakers[i];
        for (size_t r = 0; r < speaker->n_replies; r++)
            free(speaker->replies[r]);
        if (speaker->conn != NULL)
            speaker->conn->ops->free(speaker->conn);
    }
    free(play->speakers);
    resp_frontend_free(play->frontend);
    access_now_free(play->access);
    service_free(play->service);
    server_state_close(play->server_state);
    stint_table_close(play->table);
}

/* ---- Replies --------------------------------------------------------------------------------- */

static void add_reply(struct play *play, struct speaker *speaker, char *text)
{
    if (speaker->n_replies == sizeof(speaker->replies) / sizeof(speaker->replies[0]))
        fail(play, "too many replies without a command between them");
    speaker->replies[speaker->n_replies] = text;
    speaker->times_ns[speaker->n_replies++] = play->now_ns;
}

static void hear(struct play *play, struct speaker *speaker)
{
    struct span output = speaker->conn->ops->output(speaker->conn);
    if (output.len > sizeof(speaker->got) - speaker->got_len)
        fail(play, "a reply of more than %d bytes", TEXT_SIZE);
    if (output.len > 0)
        memcpy(speaker->got + speaker->got_len, output.ptr, output.len);
    speaker->got_len += output.len;
    speaker->conn->ops->sent(speaker->conn, output.len, play->now_ns);
    for (;;) {
        char *text;
        size_t text_len;
        FILE *out = open_memstream(&text, &text_len);
        long len = reply_text(out, span_of(speaker->got, speaker->got_len));
        fclose(out);
        if (len < 0)
            fail(play, "no reply of RESP: %.*s", (int)speaker->got_len, speaker->got);
        if (len == 0) {
            free(text);
            break;
        }
        add_reply(play, speaker, text);
        speaker->got_len -= (size_t)len;
        memmove(speaker->got, speaker->got + len, speaker->got_len);
    }
}

static struct speaker *first_to_wake(struct play *play)
{
    struct speaker *first = NULL;
    uint64_t first_ns = STINT_NEVER_NS;
    for (int i = 0; i < SPEAKERS; i++) {
        struct conn *conn = play->speakers[i].conn;
        if (conn != NULL && conn->ops->deadline(conn) < first_ns) {
            first_ns = conn->ops->deadline(conn);
            first = &play->speakers[i];
        }
    }
    return first;
}

static void set_now(struct play *play, uint64_t now_ns)
{
    play->now_ns = now_ns;
    if (!play->has_virtual_clock)
        stint_table_set_now(play->table, now_ns);
}

static void advance(struct play *play, uint64_t now_ns)
{
    if (now_ns < play->now_ns)
        fail(play, "time goes back");
    for (struct speaker *speaker; (speaker = first_to_wake(play)) != NULL &&
                                  speaker->conn->ops->deadline(speaker->conn) <= now_ns;) {
        uint64_t deadline_ns = speaker->conn->ops->deadline(speaker->conn);
        set_now(play, deadline_ns > play->now_ns ? deadline_ns : play->now_ns);
        speaker->conn->ops->wake(speaker->conn, play->now_ns);
        hear(play, speaker);
    }
    set_now(play, now_ns);
}

/* A ticket in an expected reply: the one that was seen before, or whatever stands there now. */
static bool is_ticket(struct play *play, const char *expected, const char *got)
{
    char *ticket = play->tickets[expected[2] - '0'];
    struct request read;
    if (ticket[0] != '\0')
        return strncmp(ticket, got, TICKET_TEXT_LEN) == 0;
    if (strlen(got) < TICKET_TEXT_LEN || !ticket_text_read(span_of(got, TICKET_TEXT_LEN), &read))
        return false;
    memcpy(ticket, got, TICKET_TEXT_LEN);
    return true;
}

static bool names_ticket(const char *text)
{
    return text[0] == '<' && text[1] == 'T' && text[2] >= '0' && text[2] <= '9' && text[3] == '>';
}

static bool is_as_expected(struct play *play, const char *expected, const char *got)
{
    while (*expected != '\0') {
        if (strcmp(expected, "...") == 0)
            return true;
        if (names_ticket(expected)) {
            if (!is_ticket(play, expected, got))
                return false;
            expected += 4;
            got += TICKET_TEXT_LEN;
        } else if (*expected++ != *got++) {
            return false;
        }
    }
    return *got == '\0';
}

static void expect(struct play *play, struct speaker *speaker, const char *expected)
{
    if (speaker->n_read == speaker->n_replies)
        fail(play, "no reply; expected %s", expected);
    size_t at = speaker->n_read++;
    if (!is_as_expected(play, expected, speaker->replies[at]))
        fail(play, "replied  %s\nexpected %s", speaker->replies[at], expected);
    if (speaker->times_ns[at] != play->now_ns)
        fail(play, "replied at %.6f ms", (double)(speaker->times_ns[at] - START_NS) / (double)MS);
}

static void expect_no_more(struct play *play, struct speaker *speaker)
{
    if (speaker->n_read < speaker->n_replies)
        fail(play, "not expected: %s", speaker->replies[speaker->n_read]);
}

/* ---- Commands -------------------------------------------------------------------------------- */

static void send_bytes(struct play *play, struct speaker *speaker, const char *bytes, size_t len)
{
    size_t step = play->by_bytes ? 1 : len;
    for (size_t at = 0; at < len; at += step) {
        /* Memory that ends with the bytes, so that one read too far is seen. */
        char *piece = malloc(step);
        memcpy(piece, bytes + at, step);
        speaker->conn->ops->feed(speaker->conn, span_of(piece, step), play->now_ns);
        free(piece);
    }
    hear(play, speaker);
    advance(play, play->now_ns); /* what waited for a clock that was moved */
}

static void put_tickets(struct play *play, const char *text, char *out)
{
    while (*text != '\0') {
        if (names_ticket(text)) {
            strcpy(out, play->tickets[text[2] - '0']);
            out += strlen(out);
            text += 4;
        } else {
            *out++ = *text++;
        }
    }
    *out = '\0';
}

static void send_command(struct play *play, struct speaker *speaker, const char *text)
{
    static struct span args[ARGUMENTS];
    static uint8_t space[RESP_LINE_MAX];
    static char line[TEXT_SIZE], bytes[2 * TEXT_SIZE];
    struct resp_argv argv = {args, 0, space};
    put_tickets(play, text, line);
    if (play->by_lines) {
        strcat(line, "\r\n");
        send_bytes(play, speaker, line, strlen(line));
        return;
    }
    if (resp_line_split(span_of_text(line), ARGUMENTS, &argv) != 0)
        fail(play, "no command");
    size_t len = (size_t)sprintf(bytes, "*%zu\r\n", argv.n);
    for (size_t i = 0; i < argv.n; i++) {
        len += (size_t)sprintf(bytes + len, "$%zu\r\n", args[i].len);
        memcpy(bytes + len, args[i].ptr, args[i].len);
        len += args[i].len;
        len += (size_t)sprintf(bytes + len, "\r\n");
    }
    send_bytes(play, speaker, bytes, len);
}

static void send_raw(struct play *play, struct speaker *speaker, const char *text)
{
    static char bytes[TEXT_SIZE];
    size_t len = 0;
    for (; *text != '\0'; text++) {
        unsigned byte;
        if (text[0] != '\\') {
            bytes[len++] = *text;
        } else if (text[1] == 'x' && sscanf(text + 2, "%2x", &byte) == 1) {
            bytes[len++] = (char)byte;
            text += 3;
        } else {
            text++;
            bytes[len++] = *text == 'r' ? '\r' : *text == 'n' ? '\n' : *text;
        }
    }
    send_bytes(play, speaker, bytes, len);
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static void add_token(struct play *play, const char *text)
{
    char name[64], roles[64], secret[128], hash[ACCESS_HASH_TEXT_SIZE];
    if (sscanf(text, "%63s %63s %127s", name, roles, secret) != 3)
        fail(play, "expected token NAME ROLES SECRET");
    access_hash_text(span_of_text(secret), hash);
    sprintf(play->tokens + strlen(play->tokens), "%s %s %s\n", name, roles, hash);
}

static void add_pool_key(struct play *play, const char *text)
{
    char pool[64], name[64], spec[128];
    struct stint_error error;
    if (sscanf(text, "%63s %63s %127[^\n]", pool, name, spec) != 3)
        fail(play, "expected pool NAME KEY SPEC");
    const struct span quota = span_of_text(spec);
    const struct pools_key key = {.name = span_of_text(name), .quotas = &quota, .n_quotas = 1};
    const struct pools_definition definition = {
        .name = span_of_text(pool), .keys = &key, .n_keys = 1};
    struct pools *pools = server_state_pools(play->server_state);
    int code = pools_add(pools, definition.name, &key, play->now_ns, &error);
    if (code == STINT_E_GONE)
        code = pools_define(pools, &definition, play->now_ns, &error);
    if (code != 0)
        fail(play, "%s", error.message);
}

static void speak(struct play *play, const char *text)
{
    double ms;
    int used = 0, speaker_at = 0;
    if (sscanf(text, "[%lfms]%n", &ms, &used) == 1 && used > 0)
        advance(play, START_NS + (uint64_t)(ms * (double)MS + 0.5));
    text += used;
    while (text[speaker_at] == ' ')
        speaker_at++;
    text += speaker_at;
    if (text[0] < 'A' || text[0] > 'Z' || text[1] != ' ')
        fail(play, "expected a speaker, A to Z");
    struct speaker *speaker = &play->speakers[text[0] - 'A'];
    if (speaker->conn == NULL)
        speaker->conn = resp_conn_new(play->frontend, span_of(NULL, 0));
    text += 2;
    if (text[0] != '<')
        expect_no_more(play, speaker);
    if (strncmp(text, ">> ", 3) == 0)
        send_raw(play, speaker, text + 3);
    else if (strncmp(text, "> ", 2) == 0)
        send_command(play, speaker, text + 2);
    else if (strncmp(text, "< ", 2) == 0)
        expect(play, speaker, text + 2);
    else if (strcmp(text, "over") == 0 && !speaker->conn->ops->is_over(speaker->conn))
        fail(play, "it is not over");
    else if (strcmp(text, "drain") == 0) {
        speaker->conn->ops->drain(speaker->conn, play->now_ns);
        hear(play, speaker);
    } else if (strcmp(text, "over") != 0)
        fail(play, "expected >, >>, <, drain or over");
}

static void play_line(struct play *play, char *text)
{
    text[strcspn(text, "\n")] = '\0';
    if (text[0] == '\0' || text[0] == '#')
        return;
    if (text[0] == '|') {
        strcat(play->yaml, text + 1 + (text[1] == ' '));
        strcat(play->yaml, "\n");
        return;
    }
    if (strncmp(text, "token ", 6) == 0) {
        add_token(play, text + 6);
        return;
    }
    if (strcmp(text, "clock virtual") == 0) {
        play->has_virtual_clock = true;
        return;
    }
    if (play->frontend == NULL)
        open_server(play);
    if (strncmp(text, "pool ", 5) == 0)
        add_pool_key(play, text + 5);
    else
        speak(play, text);
}

static void play_file(const char *path, bool by_lines, bool by_bytes)
{
    static struct play play;
    static char text[TEXT_SIZE];
    play = (struct play){.path = path, .by_lines = by_lines, .by_bytes = by_bytes};
    play.speakers = calloc(SPEAKERS, sizeof(*play.speakers));
    FILE *file = fopen(path, "r");
    if (file == NULL || play.speakers == NULL)
        fail(&play, "cannot be read");
    while (fgets(text, sizeof(text), file) != NULL) {
        play.line++;
        play_line(&play, text);
    }
    fclose(file);
    if (play.frontend == NULL)
        fail(&play, "nothing is said");
    for (int i = 0; i < SPEAKERS; i++)
        expect_no_more(&play, &play.speakers[i]);
    close_server(&play);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: dialogue FILE...\n");
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        for (int way = 0; way < 4; way++)
            play_file(argv[i], way & 1, way & 2);
        printf("%s: played four ways\n", argv[i]);
    }
    return 0;
}
