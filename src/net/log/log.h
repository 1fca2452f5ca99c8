/* SPDX-License-Identifier: MIT */
/*
 * The log of a running server: one line for each event on standard error, as text or JSON.
 *
 * Every line is of a kind in the table below, which gives its level, name and message; fields hold
 * the varying parts. A stint_cell8 for each kind drops lines that come too fast; the next line has
 * their number. The log never waits for its reader: lines that cannot be written are counted, and
 * reported later. Any thread. Fields never contain tokens, TLS keys, or bytes of requests, except
 * the domain and the keys of descriptors that no rule limits (service/unmatched.c), escaped.
 */
#ifndef STINT_NET_LOG_LOG_H
#define STINT_NET_LOG_LOG_H

#include "stint.h"

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

#define LOG_KINDS(X)                                                                               \
    X(STARTED, INFO, "started", "serving")                                                         \
    X(LISTENS, INFO, "listens", "listening")                                                       \
    X(STATE_OPENED, INFO, "state_opened", "state opened")                                          \
    X(STATE_FILLED, WARN, "state_filled",                                                          \
      "the machine went down uncleanly: every live key is full for one period")                    \
    X(CLOCK_VIRTUAL, WARN, "clock_virtual",                                                        \
      "limits use a virtual clock, which callers move: for tests only")                            \
    X(DESCRIPTORS_FEW, WARN, "descriptors_few",                                                    \
      "fewer connections are possible than configured: raise the limit of open files")             \
    X(INSECURE, WARN, "insecure", "clients that reach this address are served without a token")    \
    X(RUNS_AS_ROOT, WARN, "runs_as_root", "serving as root: set --user NAME")                      \
    X(SANDBOXED, INFO, "sandboxed", "dropped privileges that serving does not need")               \
    X(SANDBOX_LACKS, WARN, "sandbox_lacks", "a part of the sandbox is not available here")         \
    X(RULES_LACK, ERROR, "rules_lack", "serving without rules: a file cannot be used")             \
    X(RULES_EMPTY, WARN, "rules_empty", "serving without limits: there are no rules")              \
    X(COMPAT_IGNORED, WARN, "compat_ignored",                                                      \
      "variables of envoyproxy/ratelimit that have no effect here")                                \
    X(COMPAT_LOCAL, WARN, "compat_local",                                                          \
      "only this machine can connect: --insecure or --tokens opens the ports")                     \
    X(ACCEPT_PAUSED, WARN, "accept_paused", "no descriptor or memory is left: accepting pauses")   \
    X(REFUSED, WARN, "refused", "connection refused")                                              \
    X(TLS_FAILED, INFO, "tls_failed", "TLS failed")                                                \
    X(AUTH_FAILED, WARN, "auth_failed", "a wrong secret, or one after too many wrong ones")        \
    X(RELOADED, INFO, "reloaded", "settings, rules, tokens and certificates reloaded")             \
    X(RULES_WARNING, WARN, "rules_warning", "rules that may contain a mistake")                    \
    X(NEEDS_RESTART, WARN, "needs_restart", "changed settings that need a restart")                \
    X(RELOAD_FAILED, ERROR, "reload_failed", "nothing was changed: a file cannot be used")         \
    X(WATCH_FAILED, WARN, "watch_failed", "changes are found only by periodic checks")             \
    X(DOMAIN_UNKNOWN, WARN, "domain_unknown",                                                      \
      "requests in a domain that no file of rules has: they are not limited")                      \
    X(UNMATCHED, INFO, "unmatched", "descriptors that no rule matches: they are not limited")      \
    X(TABLE_FULL, WARN, "table_full",                                                              \
      "states were evicted and the use of their keys forgotten: raise keys, keys16 or keys_wide, " \
      "or choose --table-full inherit")                                                            \
    X(WORKER_STUCK, ERROR, "worker_stuck", "a worker does not return to its loop")                 \
    X(CLOCK_AHEAD, WARN, "clock_ahead",                                                            \
      "another server's clock is ahead: on memcached, limits hold in windows shorter by that")     \
    X(STATE_DAMAGED, ERROR, "state_damaged",                                                       \
      "states in memcached were damaged: their keys are denied as if all units were used now")     \
    X(STORE_AWAY, WARN, "store_away",                                                              \
      "a store is unavailable: on_store_error of the rules applies; see stint store check")        \
    X(STORE_BACK, INFO, "store_back", "a store is available again")                                \
    X(XDS_CONNECTED, INFO, "xds_connected", "connected to a control plane")                        \
    X(XDS_LOST, WARN, "xds_lost",                                                                  \
      "no connection to a control plane: its last rules stay in force")                            \
    X(XDS_ACCEPTED, INFO, "xds_accepted", "rules of a control plane are in force")                 \
    X(XDS_REFUSED, ERROR, "xds_refused",                                                           \
      "rules of a control plane cannot be used: its last ones stay in force")                      \
    X(XDS_KEPT, INFO, "xds_kept", "rules that a control plane sent before the restart")            \
    X(XDS_DROPPED, WARN, "xds_dropped",                                                            \
      "rules that a control plane sent before the restart cannot be used any more")                \
    X(XDS_NOT_KEPT, WARN, "xds_not_kept",                                                          \
      "rules of a control plane are not in the state file: a restart needs the control plane")     \
    X(TRACES_FAIL, WARN, "traces_fail",                                                            \
      "traces are not accepted by their collector: spans wait, then they are dropped")             \
    X(TRACES_SENT, INFO, "traces_sent", "the collector accepts traces again")                      \
    X(HANDED_OVER, INFO, "handed_over", "another process has taken the sockets")                   \
    X(HANDOVER_FAILED, ERROR, "handover_failed", "the sockets were not handed over")               \
    X(CONTROL_EXPOSED, WARN, "control_exposed",                                                    \
      "this process cannot be replaced: others could change its control socket")                   \
    X(PREDECESSOR_LOST, WARN, "predecessor_lost",                                                  \
      "the previous process ended, or does not answer: serving without its reply")                 \
    X(TAKEN_OVER, INFO, "taken_over", "took the sockets of another process")                       \
    X(NOTIFY_LOST, WARN, "notify_lost",                                                            \
      "systemd did not take a notification: only the first of a row is reported")                  \
    X(LINES_LOST, WARN, "lines_lost", "the log was not read, and lines of it were lost")           \
    X(DRAINING, INFO, "draining", "accepting no more connections, answering open requests")        \
    X(DRAIN_LATE, WARN, "drain_late", "open connections are closed: the time to drain is over")    \
    X(STOPPED, INFO, "stopped", "stopped")                                                         \
    X(FAILED, ERROR, "failed", "the server cannot start, or had to end")

enum log_kind {
#define LOG_ENUM(kind, level, name, message) LOG_##kind,
    LOG_KINDS(LOG_ENUM)
#undef LOG_ENUM
        LOG_KIND_COUNT
};

/* A text, or a number where `text` is NULL. */
struct log_field {
    const char *name;
    const char *text;
    uint64_t number;
};
#define LOG_TEXT(field_name, value) ((struct log_field){.name = (field_name), .text = (value)})
#define LOG_NUMBER(field_name, value) ((struct log_field){.name = (field_name), .number = (value)})

struct log;

struct log *log_new(int fd, enum log_format format, enum log_level least); /* NULL: no memory */
void log_free(struct log *log);
/* Reports lost lines, if a line can be written now: call periodically. */
void log_flush(struct log *log);
/* For the lines from now on. */
void log_set(struct log *log, enum log_format format, enum log_level least);

void log_write(struct log *log, enum log_kind kind, const struct log_field *fields,
               size_t n_fields);

/* log_line(log, LOG_LISTENS, LOG_TEXT("frontend", "resp"), …); at least one field. */
#define log_line(log, kind, ...)                                                                   \
    log_write(log, kind, (const struct log_field[]){__VA_ARGS__},                                  \
              sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))

/* ---- Reports --------------------------------------------------------------------------------- */

/* What a server logs periodically: evictions of a full table, and names that no rule limits. */

struct server_state;

struct eviction_report {
    uint64_t evictions, units; /* those reported; at first those stored in a state file */
    uint64_t next_ns;          /* no line before this time */
};

void eviction_report_init(struct eviction_report *report, const struct stint_table *table);

/* Writes a line if there were evictions: at once, then at most once a minute. */
void eviction_report(struct eviction_report *report, const struct stint_table *table,
                     uint64_t now_ns, struct log *log);

/* Writes which domains and keys of requests no rule limits: each once. */
void unmatched_report(struct server_state *server_state, struct log *log);

#endif
