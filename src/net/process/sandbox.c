/* SPDX-License-Identifier: MIT */
/* Which parts of the sandbox are entered, and the result if the system lacks one. */
#define _GNU_SOURCE
#include "net/process/sandbox.h"

#include <sys/un.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#endif

bool sandbox_is_built(void)
{
#ifdef HAS_SANITIZER
    return false;
#else
    return true;
#endif
}

static int not_built(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "a build with sanitizers cannot run in a sandbox");
}

/* SANDBOX_ON returns the error; SANDBOX_AUTO continues without the part. */
static int entered(const struct sandbox_options *options, int code, const char *part,
                   struct stint_error *error)
{
    if (code == 0) {
        log_line(options->log, LOG_SANDBOXED, LOG_TEXT("part", part));
        return 0;
    }
    if (options->mode == SANDBOX_ON) {
        struct stint_error why = *error;
        return err_set(error, code, "sandbox: %s; auto would serve without", why.message);
    }
    log_line(options->log, LOG_SANDBOX_LACKS, LOG_TEXT("part", part),
             LOG_TEXT("reason", error->message));
    return 0;
}

static size_t add_unix_paths(const struct listeners *listeners, const char **paths, size_t most)
{
    size_t n_paths = 0;
    for (size_t i = 0; i < listeners->n_all && n_paths < most; i++) {
        const struct sockaddr_un *address = (const void *)&listeners->all[i].address;
        if (address->sun_family == AF_UNIX && address->sun_path[0] != '\0')
            paths[n_paths++] = address->sun_path;
    }
    return n_paths;
}

int sandbox_enter_files(const struct sandbox_options *options, struct stint_error *error)
{
    if (options->mode == SANDBOX_OFF)
        return 0;
    const char *sockets[LISTENERS_MAX + 1];
    size_t n_sockets = add_unix_paths(options->listeners, sockets, LISTENERS_MAX);
    if (options->control != NULL)
        sockets[n_sockets++] = options->control;
    int code = !sandbox_is_built() ? not_built(error)
                                   : sandbox_files(
                                         &(struct sandbox_paths){
                                             .read = options->read_paths,
                                             .n_read = options->n_read_paths,
                                             .sockets = sockets,
                                             .n_sockets = n_sockets,
                                             .resolves = options->connects,
                                         },
                                         error);
    return entered(options, code, "files", error);
}

int sandbox_enter_calls(const struct sandbox_options *options, struct stint_error *error)
{
    if (options->mode == SANDBOX_OFF)
        return 0;
    int code = sandbox_is_built() ? sandbox_calls(options->connects, error) : not_built(error);
    return entered(options, code, "system calls", error);
}
