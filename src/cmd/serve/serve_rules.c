/* SPDX-License-Identifier: MIT */
/* One build of all sources: those that are in force, and the one that changes. */
#define _GNU_SOURCE
#include "cmd/serve/serve_rules.h"

#include "base/buf.h"
#include "cmd/lib/file_at.h"
#include "cmd/serve/serve_stores.h"
#include "xds/discovery.h"
#include "xds/last_good.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A response that was accepted, owned; NULL: none. */
struct accepted {
    uint8_t *bytes;
    size_t len;
};

struct serve_rules {
    const struct serve_settings *started;
    struct log *log;
    struct control_plane_config planes[XDS_SOURCES_MAX];
    size_t n_planes;
    struct accepted accepted[XDS_SOURCES_MAX]; /* of each control plane */
    struct loaded_rules in_force;              /* without its rules */
    bool is_used;                              /* rules of all sources are in force */
    int kept_fd;                               /* xds/last_good.h; -1: not kept */
    uint64_t kept_sequence;
};

static struct span span_of_accepted(const struct accepted *accepted)
{
    return span_of(accepted->bytes, accepted->len);
}

static bool set_accepted(struct accepted *accepted, struct span response)
{
    uint8_t *copy = malloc(response.len + 1);
    if (copy == NULL)
        return false;
    if (response.len > 0)
        memcpy(copy, response.ptr, response.len);
    free(accepted->bytes);
    accepted->bytes = copy;
    accepted->len = response.len;
    return true;
}

/* ---- Building -------------------------------------------------------------------------------- */

/* The texts of all sources; each array but the last is borrowed. */
struct build {
    const struct loaded_rules *files;
    struct span responses[XDS_SOURCES_MAX]; /* NULL: none */
};

static int tell_diagnostics(const struct rules_diagnostics *diagnostics, struct stint_error *error)
{
    const struct rules_fault *first = &diagnostics->diagnostics[0];
    size_t n_others = diagnostics->n_diagnostics + diagnostics->n_more - 1;
    struct buf message = buf_of(error->message, sizeof(error->message));
    error->code = STINT_E_SYNTAX;
    buf_add(&message, "%s", first->file);
    if (first->line > 0)
        buf_add(&message, ":%" PRIu32 ":%" PRIu32, first->line, first->column);
    buf_add(&message, ": %s", first->message);
    if (n_others > 0 && first->line > 0)
        buf_add(&message, " (and %zu more: `stint rules check` prints all)", n_others);
    else if (n_others > 0)
        buf_add(&message, " (and %zu more)", n_others);
    return error->code;
}

/* Warnings are for authors of files. What a program has written has no lines, and is meant. */
static void tell_warnings(struct log *log, const struct rules_diagnostics *diagnostics)
{
    for (size_t i = 0; i < diagnostics->n_warnings; i++) {
        const struct rules_fault *warning = &diagnostics->warnings[i];
        if (warning->line > 0)
            log_line(log, LOG_RULES_WARNING, LOG_TEXT("file", warning->file),
                     LOG_NUMBER("line", warning->line), LOG_NUMBER("column", warning->column),
                     LOG_TEXT("reason", warning->message));
    }
}

/* Files first, then the resources of each control plane. */
static int gather(const struct serve_rules *rules, const struct build *build, struct arena *arena,
                  struct rules_file **files, size_t *n_files, struct stint_error *error)
{
    size_t n = build->files->files.n_files;
    for (size_t i = 0; i < rules->n_planes; i++)
        n += discovery_count(build->responses[i]);
    *files = calloc(n + 1, sizeof(**files));
    if (*files == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the rules");
    *n_files = build->files->files.n_files;
    if (*n_files > 0)
        memcpy(*files, build->files->files.files, *n_files * sizeof(**files));
    int code = 0;
    for (size_t i = 0; i < rules->n_planes && code == 0; i++)
        code = discovery_files(build->responses[i], rules->planes[i].url.text, arena,
                               *files + *n_files, n_files, error);
    return code;
}

static int load_all(const struct serve_rules *rules, const struct build *build,
                    const struct rules_file *files, size_t n_files, struct rules **made,
                    struct stint_error *error)
{
    struct serve_store_names stores;
    struct rules_load_options options = {
        .merge_domains = build->files->merge_domains,
        .default_algorithm = build->files->default_algorithm,
    };
    struct rules_diagnostics diagnostics = {0};
    int code = serve_store_rules(rules->started, &stores, &options, error);
    if (code != 0)
        return code;
    *made = rules_load(files, n_files, &options, &diagnostics);
    if (*made == NULL)
        code = tell_diagnostics(&diagnostics, error);
    else
        tell_warnings(rules->log, &diagnostics);
    rules_diagnostics_free(&diagnostics);
    return code;
}

static int build_rules(const struct serve_rules *rules, const struct build *build,
                       struct rules **made, struct stint_error *error)
{
    struct arena arena = {0};
    struct rules_file *files = NULL;
    size_t n_files = 0;
    *made = NULL;
    int code = gather(rules, build, &arena, &files, &n_files, error);
    if (code == 0)
        code = load_all(rules, build, files, n_files, made, error);
    free(files);
    arena_free(&arena);
    return code;
}

static struct build build_of(const struct serve_rules *rules, const struct loaded_rules *files)
{
    struct build build = {.files = files};
    for (size_t i = 0; i < rules->n_planes; i++)
        build.responses[i] = span_of_accepted(&rules->accepted[i]);
    return build;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* The elements of `rules` that are files. NULL: no memory. */
static const char **paths_of(const struct serve_settings *settings, size_t *n_paths)
{
    const char **paths = calloc(settings->rules.n_texts + 1, sizeof(*paths));
    *n_paths = 0;
    for (size_t i = 0; paths != NULL && i < settings->rules.n_texts; i++)
        if (!xds_url_is(settings->rules.texts[i]))
            paths[(*n_paths)++] = settings->rules.texts[i];
    return paths;
}

/* Rules without limits are refused, unless that is allowed, or a control plane may send some. */
static int check_empty(const struct serve_rules *rules, const struct serve_settings *settings,
                       const char *const *paths, size_t n_paths, const struct loaded_rules *loaded,
                       struct stint_error *error)
{
    struct stint_error why;
    int code = rules_files_check(paths, n_paths, &loaded->files, loaded->rules, &why);
    if (code == 0 || rules->n_planes > 0)
        return 0;
    if (!settings->rules_may_be_empty)
        return err_set(error, code, "%s", why.message);
    log_line(rules->log, LOG_RULES_EMPTY, LOG_TEXT("reason", why.message));
    return 0;
}

static void drop_kept(struct serve_rules *rules, const char *reason)
{
    log_line(rules->log, LOG_XDS_DROPPED, LOG_TEXT("reason", reason));
    for (size_t i = 0; i < rules->n_planes; i++) {
        free(rules->accepted[i].bytes);
        rules->accepted[i] = (struct accepted){.bytes = NULL};
    }
}

/* At the start, files that conflict with what a control plane sent long ago are right. */
static int load_files(struct serve_rules *rules, struct loaded_rules *loaded, bool is_start,
                      struct stint_error *error)
{
    struct build build = build_of(rules, loaded), alone = {.files = loaded};
    int code = build_rules(rules, &build, &loaded->rules, error);
    if (code == 0 || !is_start ||
        memcmp(build.responses, alone.responses, sizeof(build.responses)) == 0)
        return code;
    struct stint_error why = *error;
    code = build_rules(rules, &alone, &loaded->rules, error);
    if (code == 0)
        drop_kept(rules, why.message);
    return code;
}

/* No rules yet, and how they are to be read. */
static struct loaded_rules no_rules(const struct serve_settings *settings)
{
    return (struct loaded_rules){
        .merge_domains = settings->merge_domains,
        .default_algorithm = (uint8_t)(STINT_WINDOW + settings->default_algorithm),
    };
}

int serve_rules_load(struct serve_rules *rules, const struct serve_settings *settings,
                     struct loaded_rules *loaded, struct stint_error *error)
{
    size_t n_paths;
    *loaded = no_rules(settings);
    if (settings->rules.n_texts == 0 && rules->n_planes == 0)
        return 0;
    const char **paths = paths_of(settings, &n_paths);
    if (paths == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the rules");
    int code = rules_files_read(paths, n_paths, &loaded->files, error);
    if (code == 0)
        code = load_files(rules, loaded, settings == rules->started, error);
    if (code == 0)
        code = check_empty(rules, settings, paths, n_paths, loaded, error);
    free(paths);
    if (code != 0)
        loaded_rules_free(loaded);
    return code;
}

void serve_rules_use(struct serve_rules *rules, struct loaded_rules *loaded)
{
    rules_files_free(&rules->in_force.files);
    rules->in_force = *loaded;
    rules->in_force.rules = NULL;
    rules->is_used = true;
    loaded->files = (struct rules_files){0};
    if (rules->n_planes == 0) /* no other source is ever built with them */
        rules_files_free(&rules->in_force.files);
}

void loaded_rules_free(struct loaded_rules *loaded)
{
    rules_unref(loaded->rules);
    rules_files_free(&loaded->files);
    *loaded = (struct loaded_rules){.rules = NULL};
}

/* ---- What is kept over a restart ------------------------------------------------------------- */

static off_t slot_of(uint64_t sequence)
{
    return (off_t)(sequence % LAST_GOOD_SLOTS * LAST_GOOD_SLOT);
}

static bool write_kept(struct serve_rules *rules)
{
    struct last_good all[XDS_SOURCES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < rules->n_planes; i++)
        if (rules->accepted[i].bytes != NULL)
            all[n++] = (struct last_good){span_of_text(rules->planes[i].url.text),
                                          span_of_accepted(&rules->accepted[i])};
    size_t size = last_good_size(all, n);
    uint8_t *bytes = malloc(size + 1), head[LAST_GOOD_HEAD];
    if (bytes == NULL)
        return false;
    struct span content = last_good_write(all, n, bytes, size);
    off_t slot = slot_of(rules->kept_sequence + 1);
    last_good_write_head(head, rules->kept_sequence + 1, content);
    bool is_written =
        file_write_at(rules->kept_fd, content.ptr, content.len, slot + LAST_GOOD_HEAD) &&
        fdatasync(rules->kept_fd) == 0 && file_write_at(rules->kept_fd, head, sizeof(head), slot) &&
        fdatasync(rules->kept_fd) == 0;
    rules->kept_sequence += is_written;
    free(bytes);
    return is_written;
}

static void keep(struct serve_rules *rules)
{
    if (rules->kept_fd >= 0 && !write_kept(rules))
        log_line(rules->log, LOG_XDS_NOT_KEPT, LOG_TEXT("reason", strerror(errno)));
}

/* The content of a slot, owned; NULL: it has none that is whole. */
static uint8_t *read_slot(int fd, uint64_t slot, struct last_good_head *head)
{
    uint8_t bytes[LAST_GOOD_HEAD];
    struct stat status;
    off_t at = slot_of(slot);
    if (!file_read_at(fd, bytes, sizeof(bytes), at) || !last_good_read_head(bytes, head) ||
        fstat(fd, &status) != 0 ||
        (uint64_t)status.st_size < (uint64_t)at + sizeof(bytes) + head->len)
        return NULL;
    uint8_t *content = malloc(head->len + 1);
    if (content != NULL && file_read_at(fd, content, head->len, at + LAST_GOOD_HEAD) &&
        last_good_is_whole(bytes, span_of(content, head->len)))
        return content;
    free(content);
    return NULL;
}

static void take_kept(struct serve_rules *rules, struct span content)
{
    struct last_good all[XDS_SOURCES_MAX];
    struct stint_error error;
    size_t n;
    if (last_good_read(content, all, &n, &error) != 0)
        return;
    for (size_t i = 0; i < n; i++)
        for (size_t plane = 0; plane < rules->n_planes; plane++)
            if (span_equals(all[i].url, rules->planes[plane].url.text) &&
                set_accepted(&rules->accepted[plane], all[i].message))
                log_line(rules->log, LOG_XDS_KEPT,
                         LOG_TEXT("control_plane", rules->planes[plane].url.text));
}

static void read_kept(struct serve_rules *rules)
{
    uint8_t *newest = NULL;
    size_t len = 0;
    for (uint64_t slot = 0; slot < LAST_GOOD_SLOTS; slot++) {
        struct last_good_head head;
        uint8_t *content = read_slot(rules->kept_fd, slot, &head);
        if (content != NULL && head.sequence > rules->kept_sequence) {
            free(newest);
            newest = content;
            len = head.len;
            rules->kept_sequence = head.sequence;
        } else
            free(content);
    }
    if (newest != NULL)
        take_kept(rules, span_of(newest, len));
    free(newest);
}

/* The descriptor stays open: a server in its sandbox opens no file for writing. */
static int open_kept(struct serve_rules *rules, struct stint_error *error)
{
    char path[4096];
    const char *state = rules->started->state;
    if (state == NULL || rules->n_planes == 0)
        return 0;
    int len = snprintf(path, sizeof(path), "%s.xds", state);
    if (len < 0 || (size_t)len >= sizeof(path))
        return err_set(error, STINT_E_RANGE, "%s: the path is too long", state);
    rules->kept_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (rules->kept_fd < 0)
        return err_set(error, STINT_E_SYSTEM, "%s: %s%s", path, strerror(errno), err_advice(errno));
    read_kept(rules);
    return 0;
}

/* ---- Control planes -------------------------------------------------------------------------- */

static int check_words(const char *setting, const struct text_list *words, char separator,
                       const char *expected, struct stint_error *error)
{
    for (size_t i = 0; i < words->n_texts; i++) {
        const char *at = strchr(words->texts[i], separator);
        if (at == NULL || at == words->texts[i])
            return err_set(error, STINT_E_SYNTAX, "%s: expected %s, found '%.100s'", setting,
                           expected, words->texts[i]);
    }
    return 0;
}

static int check_headers(const struct text_list *headers, struct stint_error *error)
{
    int code = check_words("xds_headers", headers, ':', "NAME:VALUE", error);
    for (size_t i = 0; i < headers->n_texts && code == 0; i++) {
        const char *header = headers->texts[i];
        if (!grpc_link_takes_header(header) || strlen(strchr(header, ':')) > 4096)
            code = err_set(error, STINT_E_SYNTAX,
                           "xds_headers: expected NAME:VALUE with a name in lower case that gRPC "
                           "does not use itself, found '%.100s'",
                           header);
    }
    if (code == 0 && headers->n_texts > GRPC_LINK_HEADERS_MAX)
        code = err_set(error, STINT_E_RANGE, "xds_headers: expected at most %d, found %zu",
                       GRPC_LINK_HEADERS_MAX, headers->n_texts);
    return code;
}

static int check_tls(const struct serve_rules *rules, struct stint_error *error)
{
    const struct serve_settings *started = rules->started;
    bool any = false;
    for (size_t i = 0; i < rules->n_planes; i++)
        any = any || rules->planes[i].url.is_tls;
    if (started->xds_key_file != NULL && started->xds_cert_file == NULL)
        return err_set(error, STINT_E_MISMATCH, "xds_key_file goes with xds_cert_file");
    if (!any && (started->xds_ca_file != NULL || started->xds_cert_file != NULL))
        return err_set(error, STINT_E_MISMATCH,
                       "xds_ca_file and xds_cert_file are for control planes in TLS, and none is: "
                       "expected xdss://HOST:PORT in rules");
    return 0;
}

static int add_plane(struct serve_rules *rules, const char *text, struct stint_error *error)
{
    const struct serve_settings *started = rules->started;
    if (rules->n_planes == XDS_SOURCES_MAX)
        return err_set(error, STINT_E_RANGE, "rules: expected at most %d control planes",
                       XDS_SOURCES_MAX);
    struct control_plane_config *plane = &rules->planes[rules->n_planes];
    struct stint_error why;
    int code = xds_url_parse(&plane->url, text, &why);
    if (code != 0)
        return err_set(error, code, "rules: %s", why.message);
    for (size_t i = 0; i < rules->n_planes; i++)
        if (strcmp(rules->planes[i].url.text, plane->url.text) == 0)
            return err_set(error, STINT_E_MISMATCH, "rules: %s is there twice", plane->url.text);
    plane->tls = (struct upstream_tls_paths){.ca_file = started->xds_ca_file,
                                             .cert_file = started->xds_cert_file,
                                             .key_file = started->xds_key_file};
    plane->tls_name = started->xds_server_name;
    plane->metadata = started->xds_metadata.texts;
    plane->n_metadata = started->xds_metadata.n_texts;
    plane->headers = started->xds_headers.texts;
    plane->n_headers = started->xds_headers.n_texts;
    plane->backoff_first_ns = started->xds_backoff;
    plane->backoff_max_ns = started->xds_backoff_max;
    rules->n_planes++;
    return 0;
}

static int add_planes(struct serve_rules *rules, struct stint_error *error)
{
    const struct serve_settings *started = rules->started;
    int code = 0;
    for (size_t i = 0; i < started->rules.n_texts && code == 0; i++)
        if (xds_url_is(started->rules.texts[i]))
            code = add_plane(rules, started->rules.texts[i], error);
    if (code == 0)
        code = check_words("xds_metadata", &started->xds_metadata, '=', "KEY=VALUE", error);
    if (code == 0)
        code = check_headers(&started->xds_headers, error);
    return code == 0 ? check_tls(rules, error) : code;
}

const struct control_plane_config *serve_rules_control_planes(const struct serve_rules *rules,
                                                              size_t *n)
{
    *n = rules->n_planes;
    return rules->planes;
}

bool serve_rules_are_same(const struct serve_rules *rules, const struct serve_settings *settings)
{
    size_t n = 0;
    for (size_t i = 0; i < settings->rules.n_texts; i++) {
        struct xds_url url;
        struct stint_error ignored;
        if (!xds_url_is(settings->rules.texts[i]))
            continue;
        if (n == rules->n_planes || xds_url_parse(&url, settings->rules.texts[i], &ignored) != 0 ||
            strcmp(url.text, rules->planes[n].url.text) != 0 ||
            strcmp(url.node, rules->planes[n].url.node) != 0)
            return false;
        n++;
    }
    return n == rules->n_planes;
}

int serve_rules_offer(struct serve_rules *rules, struct server_state *server_state, size_t plane,
                      struct span response, struct stint_error *error)
{
    struct build build = build_of(rules, &rules->in_force);
    struct rules *made;
    bool is_known = rules->is_used && build.responses[plane].ptr != NULL;
    if (is_known && discovery_is_same(build.responses[plane], response))
        return 0;
    build.responses[plane] = response;
    struct accepted accepted = {.bytes = NULL};
    if (!set_accepted(&accepted, response))
        return err_set(error, STINT_E_SYSTEM, "no memory to keep the rules");
    int code = build_rules(rules, &build, &made, error);
    if (code == 0)
        code = server_state_set_rules(server_state, made, error);
    rules_unref(made);
    if (code != 0) {
        free(accepted.bytes);
        return code;
    }
    free(rules->accepted[plane].bytes);
    rules->accepted[plane] = accepted;
    rules->is_used = true;
    keep(rules);
    return 0;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

int serve_rules_open(struct serve_rules **rules, const struct serve_settings *started,
                     struct log *log, struct stint_error *error)
{
    struct serve_rules *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
    made->started = started;
    made->log = log;
    made->kept_fd = -1;
    made->in_force = no_rules(started); /* of control planes, where the files cannot be used */
    int code = add_planes(made, error);
    if (code == 0)
        code = open_kept(made, error);
    if (code == 0)
        *rules = made;
    else
        serve_rules_close(made);
    return code;
}

void serve_rules_close(struct serve_rules *rules)
{
    if (rules == NULL)
        return;
    for (size_t i = 0; i < rules->n_planes; i++)
        free(rules->accepted[i].bytes);
    rules_files_free(&rules->in_force.files);
    if (rules->kept_fd >= 0)
        close(rules->kept_fd);
    free(rules);
}
