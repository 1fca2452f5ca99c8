/* SPDX-License-Identifier: MIT */
/*
 * `stint pool add` and `remove`: change the file of keys, and notify the processes of the pool.
 *
 * The file is replaced in one step, so that readers see the old or the new one, whole; writers take
 * turns. The pool is updated first: if it found a changed list by itself while it is in use, it
 * would have to grant nothing for one period.
 */
#define _GNU_SOURCE
#include "cmd/lib/cmd.h"
#include "cmd/lib/json_text.h"
#include "cmd/lib/print.h"
#include "cmd/pool/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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
    return err_set(error, STINT_E_SYSTEM, "cannot %s %s: %s", what, edit->given, strerror(errno));
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

static int read_text(struct edit *edit, struct stint_error *error)
{
    size_t size = (size_t)edit->stat.st_size;
    if (size > POOL_KEYS_BYTES_MAX)
        return err_set(error, STINT_E_RANGE, "%s is no file of keys: it is too long", edit->given);
    edit->text = malloc(size + 1);
    if (edit->text == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    while (edit->len < size) {
        ssize_t n = read(edit->fd, edit->text + edit->len, size - edit->len);
        if (n < 0 && errno != EINTR)
            return failed(edit, "read", error);
        if (n == 0)
            break;
        edit->len += n > 0 ? (size_t)n : 0;
    }
    return 0;
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
    return code != 0 ? code : read_text(edit, error);
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

static int tell(const struct pool_session *session, size_t n_keys, const char *what)
{
    const struct pool_options *options = session->options;
    if (pool_is_chatty(options))
        print_message("'%s' is %s the pool: %zu keys", options->words[0], what, n_keys);
    if (!options->json)
        return CMD_DONE;
    return json_text_print(json_pack("{s:o, s:I}", "key",
                                     json_text_key(span_of_text(options->words[0])), "keys",
                                     (json_int_t)n_keys),
                           false) != 0
               ? CMD_BAD_INPUT
               : CMD_DONE;
}

static int add_with_secret(struct pool_session *session, struct edit *edit, struct span secret,
                           struct stint_error *error)
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
    if (code == 0)
        code = pool_session_add(session, name, error);
    return code != 0 ? code : replace(edit, error);
}

int pool_add(struct pool_session *session)
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
        return tell(session, session->keys.n_keys + 1, "in");
    print_message("%s", error.message);
    return CMD_BAD_INPUT;
}

static int remove_line(struct pool_session *session, struct edit *edit, struct stint_error *error)
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
        code = stint_pool_remove(session->pool, name, pool_session_now(session), error);
    return code != 0 ? code : replace(edit, error);
}

int pool_remove(struct pool_session *session)
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
        return tell(session, session->keys.n_keys - 1, "out of");
    print_message("%s", error.message);
    return CMD_BAD_INPUT;
}
