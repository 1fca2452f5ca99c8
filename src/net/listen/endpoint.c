/* SPDX-License-Identifier: MIT */
/* Addresses with ports and paths of Unix sockets, from text and back. */
#define _GNU_SOURCE
#include "net/listen/endpoint.h"

#include "base/buf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Sockets --------------------------------------------------------------------------------- */

/* One thread binds all sockets, before there are others: the umask belongs to the process. */

#define QUEUE_MAX 4096 /* connections that wait to be accepted; the kernel may allow fewer */

/* For errno; closes fd unless it is -1. */
static int fail(int fd, const struct endpoint *endpoint, const char *setting,
                struct stint_error *error)
{
    int reason = errno;
    if (fd >= 0)
        close(fd);
    errno = reason;
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

/* ":7379" includes IPv4, regardless of net.ipv6.bindv6only. */
static bool prepare_tcp(int fd, const struct endpoint *endpoint)
{
    int off = 0;
    const struct sockaddr_in6 *v6 = (const void *)&endpoint->address;
    return set_option(fd, SOL_SOCKET, SO_REUSEADDR) &&
           (v6->sin6_family != AF_INET6 || !IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) ||
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
        return fail(fd, endpoint, setting, error);
    close(fd);
    return 0;
}

int bind_socket_beside(const struct endpoint *endpoint, const char *setting,
                       struct stint_error *error)
{
    int fd = open_socket(endpoint);
    if (fd < 0 || !prepare_tcp(fd, endpoint) || !set_option(fd, SOL_SOCKET, SO_REUSEPORT) ||
        !bind_to(fd, endpoint) || listen(fd, QUEUE_MAX) != 0)
        return fail(fd, endpoint, setting, error);
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
        return errno == ENOENT ? 0 : fail(-1, endpoint, setting, error);
    if (!S_ISSOCK(status.st_mode))
        return err_set(error, STINT_E_MISMATCH,
                       "cannot listen at unix:%s: there is a file that is no socket; remove it, or "
                       "choose another path with --%s",
                       address->sun_path, setting);
    int fd = open_socket(endpoint);
    if (fd < 0)
        return fail(-1, endpoint, setting, error);
    bool is_refused = connect(fd, (const struct sockaddr *)address, endpoint->address_len) != 0 &&
                      errno == ECONNREFUSED;
    close(fd);
    if (!is_refused) {
        errno = EADDRINUSE;
        return fail(-1, endpoint, setting, error);
    }
    return unlink(address->sun_path) == 0 ? 0 : fail(-1, endpoint, setting, error);
}

static int bind_unix(const struct endpoint *endpoint, const char *setting,
                     struct stint_error *error)
{
    int code = remove_stale(endpoint, setting, error);
    if (code != 0)
        return code;
    int fd = open_socket(endpoint);
    if (fd < 0)
        return fail(-1, endpoint, setting, error);
    mode_t before = umask(0777 & ~endpoint->mode);
    bool is_bound = bind_to(fd, endpoint);
    umask(before);
    return is_bound && listen(fd, QUEUE_MAX) == 0 ? fd : fail(fd, endpoint, setting, error);
}

int bind_socket(const struct endpoint *endpoint, const char *setting, struct stint_error *error)
{
    if (endpoint->address.ss_family == AF_UNIX)
        return bind_unix(endpoint, setting, error);
    int code = probe_tcp(endpoint, setting, error);
    return code != 0 ? code : bind_socket_beside(endpoint, setting, error);
}

/* ---- Text ------------------------------------------------------------------------------------ */

#define UNIX_PREFIX "unix:"
#define MODE_PREFIX ",mode="

static int refuse(struct stint_error *error, const char *text)
{
    return err_set(
        error, STINT_E_SYNTAX,
        "'%s' is not an address to listen at: expected ADDRESS:PORT such as 127.0.0.1:7379, "
        "[::1]:7379, localhost:7379 or :7379, unix:/PATH[,mode=0660], or off",
        text);
}

static bool parse_number(const char *text, int base, unsigned long max, unsigned long *number)
{
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    *number = strtoul(text, &end, base);
    return *end == '\0' && *number <= max;
}

static int parse_unix(struct endpoint *endpoint, const char *text, struct stint_error *error)
{
    struct sockaddr_un *address = (struct sockaddr_un *)&endpoint->address;
    const char *path = text + strlen(UNIX_PREFIX);
    const char *mode = strstr(path, MODE_PREFIX);
    size_t path_len = mode != NULL ? (size_t)(mode - path) : strlen(path);
    unsigned long bits = ENDPOINT_MODE_DEFAULT;
    if (mode != NULL && !parse_number(mode + strlen(MODE_PREFIX), 8, 0777, &bits))
        return err_set(error, STINT_E_SYNTAX, "'%s': expected a mode from 0000 to 0777", text);
    if (path[0] != '/')
        return err_set(error, STINT_E_SYNTAX, "'%s': expected a path that begins with /", text);
    if (path_len >= sizeof(address->sun_path))
        return err_set(error, STINT_E_RANGE, "'%s': a path of at most %zu bytes can be a socket",
                       text, sizeof(address->sun_path) - 1);
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, path_len);
    endpoint->address_len = sizeof(*address);
    endpoint->mode = (unsigned)bits;
    return 0;
}

static bool set_ip(struct endpoint *endpoint, sa_family_t family, const char *host, uint16_t port)
{
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&endpoint->address;
    struct sockaddr_in *v4 = (struct sockaddr_in *)&endpoint->address;
    bool is_v6 = family == AF_INET6;
    endpoint->address.ss_family = family;
    v4->sin_port = htons(port); /* at the same place in IPv6 */
    endpoint->address_len = is_v6 ? sizeof(*v6) : sizeof(*v4);
    return inet_pton(family, host, is_v6 ? (void *)&v6->sin6_addr : (void *)&v4->sin_addr) == 1;
}

static bool set_host(struct endpoint *endpoint, char *host, uint16_t port)
{
    size_t len = strlen(host);
    if (len == 0)
        return set_ip(endpoint, AF_INET6, "::", port);
    /* Not looked up: an entry in /etc/hosts or DNS could be an address that others reach. */
    if (strcmp(host, "localhost") == 0)
        return set_ip(endpoint, AF_INET, "127.0.0.1", port);
    if (host[0] != '[')
        return set_ip(endpoint, AF_INET, host, port);
    if (host[len - 1] != ']')
        return false;
    host[len - 1] = '\0';
    return set_ip(endpoint, AF_INET6, host + 1, port);
}

int endpoint_parse(struct endpoint *endpoint, const char *text, struct stint_error *error)
{
    *endpoint = (struct endpoint){.mode = ENDPOINT_MODE_DEFAULT};
    if (strcmp(text, "off") == 0)
        return 0;
    if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
        return parse_unix(endpoint, text, error);
    char host[INET6_ADDRSTRLEN + 3];
    const char *colon = strrchr(text, ':');
    unsigned long port;
    if (colon == NULL || (size_t)(colon - text) >= sizeof(host) ||
        !parse_number(colon + 1, 10, UINT16_MAX, &port))
        return refuse(error, text);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    return set_host(endpoint, host, (uint16_t)port) ? 0 : refuse(error, text);
}

const char *endpoint_text(const struct sockaddr *address, char text[ENDPOINT_TEXT_SIZE])
{
    struct buf buf = buf_of(text, ENDPOINT_TEXT_SIZE);
    char host[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_UNIX) {
        const struct sockaddr_un *local = (const void *)address;
        buf_add(&buf, UNIX_PREFIX "%.*s", (int)sizeof(local->sun_path), local->sun_path);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)address;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        buf_add(&buf, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)address;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        buf_add(&buf, "%s:%u", host, ntohs(v4->sin_port));
    }
    return text;
}

bool endpoint_is_off(const struct endpoint *endpoint)
{
    return endpoint->address_len == 0;
}

bool endpoint_is_local(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
               IN_LOOPBACKNET;
    if (address->sa_family != AF_INET6)
        return address->sa_family == AF_UNIX;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) ||
           (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == IN_LOOPBACKNET);
}
