/* SPDX-License-Identifier: MIT */
/* One thread binds all sockets, before there are others: the umask belongs to the process. */
#define _GNU_SOURCE
#include "net/listen/bind_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUEUE_MAX 4096 /* connections that wait to be accepted; the kernel may allow fewer */

static int fail(const struct endpoint *endpoint, const char *setting, struct stint_error *error)
{
    char text[ENDPOINT_TEXT_SIZE];
    const char *advice = errno == EADDRNOTAVAIL ? "; give an interface of this machine that address"
                         : endpoint->address.ss_family == AF_UNIX ? err_advice(errno)
                         : errno == EACCES                        ? "; ports below 1024 need root"
                                                                  : "";
    return err_set(error, errno == EADDRINUSE ? STINT_E_BUSY : STINT_E_SYSTEM,
                   "cannot listen at %s: %s%s%s choose another with --%s",
                   endpoint_text((const struct sockaddr *)&endpoint->address, text),
                   errno == EADDRINUSE ? "the address is in use" : strerror(errno), advice,
                   advice[0] != '\0' ? ", or" : ";", setting);
}

static int close_and_fail(int fd, const struct endpoint *endpoint, const char *setting,
                          struct stint_error *error)
{
    int reason = errno;
    if (fd >= 0)
        close(fd);
    errno = reason;
    return fail(endpoint, setting, error);
}

static bool set_option(int fd, int level, int option)
{
    int on = 1;
    return setsockopt(fd, level, option, &on, sizeof(on)) == 0;
}

static int open_socket(const struct endpoint *endpoint)
{
    return socket(endpoint->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static bool bind_to(int fd, const struct endpoint *endpoint)
{
    return bind(fd, (const struct sockaddr *)&endpoint->address, endpoint->address_len) == 0;
}

static bool listens_anywhere_v6(const struct endpoint *endpoint)
{
    const struct sockaddr_in6 *v6 = (const void *)&endpoint->address;
    return v6->sin6_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

/* ":7379" includes IPv4, regardless of net.ipv6.bindv6only. */
static bool prepare_tcp(int fd, const struct endpoint *endpoint)
{
    int off = 0;
    return set_option(fd, SOL_SOCKET, SO_REUSEADDR) &&
           (!listens_anywhere_v6(endpoint) ||
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0);
}

/*
 * Another server of the same user that shares its sockets would permit a further one, and the
 * kernel would give each a part of the connections. A bind without sharing detects that.
 */
static int probe_tcp(const struct endpoint *endpoint, const char *setting,
                     struct stint_error *error)
{
    int fd = open_socket(endpoint);
    if (fd < 0 || !prepare_tcp(fd, endpoint) || !bind_to(fd, endpoint))
        return close_and_fail(fd, endpoint, setting, error);
    close(fd);
    return 0;
}

int bind_socket_beside(const struct endpoint *endpoint, const char *setting,
                       struct stint_error *error)
{
    int fd = open_socket(endpoint);
    if (fd < 0 || !prepare_tcp(fd, endpoint) || !set_option(fd, SOL_SOCKET, SO_REUSEPORT) ||
        !bind_to(fd, endpoint) || listen(fd, QUEUE_MAX) != 0)
        return close_and_fail(fd, endpoint, setting, error);
    return fd;
}

bool bind_socket_is_shareable(int fd)
{
    int on = 0;
    socklen_t len = sizeof(on);
    return getsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, &len) == 0 && on != 0;
}

/* Removes a Unix socket without a listener from the path. */
static int remove_stale(const struct endpoint *endpoint, const char *setting,
                        struct stint_error *error)
{
    const struct sockaddr_un *address = (const void *)&endpoint->address;
    struct stat status;
    if (lstat(address->sun_path, &status) != 0)
        return errno == ENOENT ? 0 : fail(endpoint, setting, error);
    if (!S_ISSOCK(status.st_mode))
        return err_set(error, STINT_E_BUSY,
                       "cannot listen at unix:%s: there is a file that is no socket; remove it, or "
                       "choose another path with --%s",
                       address->sun_path, setting);
    int fd = open_socket(endpoint);
    if (fd < 0)
        return fail(endpoint, setting, error);
    bool is_refused = connect(fd, (const struct sockaddr *)address, endpoint->address_len) != 0 &&
                      errno == ECONNREFUSED;
    close(fd);
    if (!is_refused) {
        errno = EADDRINUSE;
        return fail(endpoint, setting, error);
    }
    return unlink(address->sun_path) == 0 ? 0 : fail(endpoint, setting, error);
}

static int bind_unix(const struct endpoint *endpoint, const char *setting,
                     struct stint_error *error)
{
    int code = remove_stale(endpoint, setting, error);
    if (code != 0)
        return code;
    int fd = open_socket(endpoint);
    if (fd < 0)
        return fail(endpoint, setting, error);
    mode_t before = umask(0777 & ~endpoint->mode);
    bool is_bound = bind_to(fd, endpoint);
    umask(before);
    return is_bound && listen(fd, QUEUE_MAX) == 0 ? fd
                                                  : close_and_fail(fd, endpoint, setting, error);
}

int bind_socket(const struct endpoint *endpoint, const char *setting, struct stint_error *error)
{
    if (endpoint->address.ss_family == AF_UNIX)
        return bind_unix(endpoint, setting, error);
    int code = probe_tcp(endpoint, setting, error);
    return code != 0 ? code : bind_socket_beside(endpoint, setting, error);
}
