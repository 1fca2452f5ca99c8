/* SPDX-License-Identifier: MIT */
/* Reads until the end, whatever size the file system reports. */
#define _GNU_SOURCE
#include "net/file.h"

#include "base/ns.h"
#include "base/siphash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <uv.h>

#define PIPEFS_MAGIC 0x50495045 /* linux/magic.h */

/* An anonymous pipe, made by pipe(): the process that made it has passed it on, so it has a
 * writer. */
static bool is_handed_over(int fd, const struct stat *status)
{
    struct statfs system;
    return S_ISFIFO(status->st_mode) && fstatfs(fd, &system) == 0 &&
           (unsigned long)system.f_type == PIPEFS_MAGIC;
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a named pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

int file_open(const char *path, struct stint_error *error)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return err_set(error, STINT_E_SYSTEM, "%s: %s%s", path, strerror(errno), err_advice(errno));
    int code = 0;
    if (fstat(fd, &status) != 0)
        code = err_set(error, STINT_E_SYSTEM, "%s: %s%s", path, strerror(errno), err_advice(errno));
    else if (is_handed_over(fd, &status))
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    else if (!S_ISREG(status.st_mode))
        code = err_set(error, STINT_E_SYSTEM, "%s: this is %s; give the path of a regular file",
                       path, kind_of(status.st_mode));
    if (code == 0)
        return fd;
    close(fd);
    return code;
}

int file_check(const char *path, struct stint_error *error)
{
    int fd = file_open(path, error);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

#define READ_SIZE 65536u

/* A realloc() that leaves no copy, as the bytes may be secrets. False: they are gone. */
static bool resize(char **bytes, size_t *len, size_t size)
{
    char *other = size > 0 ? malloc(size) : NULL;
    if (other != NULL && *len > 0)
        memcpy(other, *bytes, *len);
    if (*len > 0)
        explicit_bzero(*bytes, *len);
    free(*bytes);
    *bytes = other;
    *len = other != NULL ? *len : 0;
    return other != NULL;
}

static int no_memory(const char *path, struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "%s: no memory to read it", path);
}

static int read_all(int fd, const char *path, size_t max, char **bytes, size_t *len,
                    struct stint_error *error)
{
    for (size_t size = 0; *len <= max;) {
        if (*len == size && !resize(bytes, len, size = 2 * size + READ_SIZE))
            return no_memory(path, error);
        ssize_t got = read(fd, *bytes + *len, size - *len);
        if (got == 0)
            return 0;
        if (got < 0 && errno != EINTR)
            return err_set(error, STINT_E_SYSTEM, "%s: %s%s", path, strerror(errno),
                           err_advice(errno));
        *len += got > 0 ? (size_t)got : 0;
    }
    return err_set(error, STINT_E_RANGE, "%s: expected a file of at most %zu bytes", path, max);
}

int file_bytes_read(int fd, const char *path, size_t max, char **bytes, size_t *len,
                    struct stint_error *error)
{
    *bytes = NULL;
    *len = 0;
    int code = read_all(fd, path, max, bytes, len, error);
    if (code == 0 && !resize(bytes, len, *len + 1))
        code = no_memory(path, error);
    if (code == 0)
        (*bytes)[*len] = '\0';
    else
        (void)resize(bytes, len, 0);
    return code;
}

int file_text_read(const char *path, size_t max, char **text, struct stint_error *error)
{
    size_t len;
    char *all;
    int fd = file_open(path, error);
    if (fd < 0)
        return fd;
    int code = file_bytes_read(fd, path, max, &all, &len, error);
    close(fd);
    if (code == 0 && memchr(all, '\0', len) != NULL)
        code = err_set(error, STINT_E_SYNTAX, "%s: there is a zero byte in it", path);
    if (code == 0)
        *text = all;
    else
        free(all);
    return code;
}

void file_folder(const char *path, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/');
    int len = slash == path ? 1 : slash != NULL ? (int)(slash - path) : 0;
    snprintf(folder, size, "%.*s", len > 0 ? len : 1, len > 0 ? path : ".");
}

/* ---- Watching -------------------------------------------------------------------------------- */

/* The main thread checks for changes, which is cheap; another thread reads the files. */

/* A delay, so that a change of several files can finish. */
#define SETTLE_MS 100
#define PATH_SIZE 4096

struct watch {
    struct watch_options options;
    char **paths;
    uv_timer_t again, settle;
    uv_fs_event_t *events;
    size_t n_events;
    size_t open_handles;
    uint64_t print; /* a fingerprint of all paths at the last check */
};

/* ---- Fingerprints ---------------------------------------------------------------------------- */

static uint64_t print_of(const char *path, const struct stat *status)
{
    static const uint64_t no_secret[2];
    const uint64_t metrics[] = {
        status->st_dev,
        status->st_ino,
        (uint64_t)status->st_size,
        (uint64_t)status->st_mtim.tv_sec,
        (uint64_t)status->st_mtim.tv_nsec,
        (uint64_t)status->st_ctim.tv_sec,
        (uint64_t)status->st_ctim.tv_nsec,
    };
    uint64_t name = siphash13_128(no_secret, 0, path, strlen(path)).lo;
    return siphash13_128(no_secret, name, metrics, sizeof(metrics)).lo;
}

static uint64_t print_of_folder(const char *path)
{
    uint64_t print = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char name[PATH_SIZE];
        struct stat status;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        /* A sum, as the order of a folder's entries has no meaning. */
        if (entry->d_name[0] != '.' && stat(name, &status) == 0)
            print += print_of(name, &status);
    }
    if (folder != NULL)
        closedir(folder);
    return print;
}

static uint64_t print_of_all(const struct watch *watch)
{
    uint64_t print = 0;
    for (size_t i = 0; i < watch->options.n_paths; i++) {
        struct stat status;
        if (stat(watch->paths[i], &status) != 0)
            continue;
        print += S_ISDIR(status.st_mode) ? print_of_folder(watch->paths[i])
                                         : print_of(watch->paths[i], &status);
    }
    return print;
}

/* ---- When to check --------------------------------------------------------------------------- */

static void look(uv_timer_t *timer)
{
    struct watch *watch = timer->data;
    uint64_t print = print_of_all(watch);
    if (print == watch->print)
        return;
    watch->print = print;
    watch->options.changed(watch->options.arg);
}

static void on_event(uv_fs_event_t *event, const char *name, int events, int status)
{
    (void)name, (void)events, (void)status;
    struct watch *watch = event->data;
    uv_timer_start(&watch->settle, look, SETTLE_MS, 0);
}

/* The folder to watch for changes of the path. */
static void folder_of(const char *path, char folder[PATH_SIZE])
{
    struct stat status;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        snprintf(folder, PATH_SIZE, "%s", path);
    else
        file_folder(path, folder, PATH_SIZE);
}

static void listen_at(struct watch *watch, const char *path)
{
    char folder[PATH_SIZE];
    uv_fs_event_t *event = &watch->events[watch->n_events];
    folder_of(path, folder);
    if (uv_fs_event_init(watch->options.loop, event) != 0)
        return;
    event->data = watch;
    watch->n_events++;
    watch->open_handles++;
    int code = uv_fs_event_start(event, on_event, folder, 0);
    if (code != 0)
        log_line(watch->options.log, LOG_WATCH_FAILED, LOG_TEXT("path", folder),
                 LOG_TEXT("reason", uv_strerror(code)));
}

static void free_watch(struct watch *watch)
{
    for (size_t i = 0; watch->paths != NULL && i < watch->options.n_paths; i++)
        free(watch->paths[i]);
    free(watch->paths);
    free(watch->events);
    free(watch);
}

static bool copy_paths(struct watch *watch, const struct watch_options *options)
{
    watch->paths = calloc(options->n_paths + 1, sizeof(char *));
    watch->events = calloc(WATCH_PATHS_MAX, sizeof(uv_fs_event_t));
    if (watch->paths == NULL || watch->events == NULL)
        return false;
    for (size_t i = 0; i < options->n_paths; i++)
        if ((watch->paths[i] = strdup(options->paths[i])) == NULL)
            return false;
    return true;
}

struct watch *watch_new(const struct watch_options *options)
{
    struct watch *watch = calloc(1, sizeof(*watch));
    if (watch == NULL)
        return NULL;
    watch->options = *options;
    if (!copy_paths(watch, options)) {
        free_watch(watch);
        return NULL;
    }
    uv_timer_init(options->loop, &watch->again);
    uv_timer_init(options->loop, &watch->settle);
    watch->again.data = watch->settle.data = watch;
    watch->open_handles = 2;
    for (size_t i = 0; i < options->n_paths && i < WATCH_PATHS_MAX; i++)
        listen_at(watch, watch->paths[i]);
    watch->print = print_of_all(watch);
    uint64_t every_ms = options->every_ns / NS_PER_MS > 0 ? options->every_ns / NS_PER_MS : 1;
    uv_timer_start(&watch->again, look, every_ms, every_ms);
    return watch;
}

void watch_mark(struct watch *watch)
{
    if (watch != NULL)
        watch->print = print_of_all(watch);
}

bool watch_is_of(const struct watch *watch, const char *const *paths, size_t n_paths,
                 uint64_t every_ns)
{
    if (n_paths != watch->options.n_paths || every_ns != watch->options.every_ns)
        return false;
    for (size_t i = 0; i < n_paths; i++)
        if (strcmp(paths[i], watch->paths[i]) != 0)
            return false;
    return true;
}

static void on_closed(uv_handle_t *handle)
{
    struct watch *watch = handle->data;
    if (--watch->open_handles == 0)
        free_watch(watch);
}

void watch_close(struct watch *watch)
{
    if (watch == NULL)
        return;
    uv_close((uv_handle_t *)&watch->again, on_closed);
    uv_close((uv_handle_t *)&watch->settle, on_closed);
    for (size_t i = 0; i < watch->n_events; i++)
        uv_close((uv_handle_t *)&watch->events[i], on_closed);
}
