/* SPDX-License-Identifier: MIT */
/*
 * Sockets from libsystemd. Notifications are sent here: sd_notify() waits while the other end of
 * its socket does not read, and the main thread would wait with it.
 */
#define _GNU_SOURCE
#include "net/process/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* Differs from the names of .socket units: these are used only if an endpoint matches. */
#define STORED_PREFIX "stored-"

/* False: there is no manager with such an address. */
static bool address_of_manager(struct sockaddr_un *address, socklen_t *len)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t path_len = path != NULL ? strlen(path) : 0;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (path_len < 2 || path_len >= sizeof(address->sun_path) || strchr("/@", path[0]) == NULL)
        return false;
    memcpy(address->sun_path, path, path_len);
    if (path[0] == '@') /* an abstract one */
        address->sun_path[0] = '\0';
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path_len);
    return true;
}

/* The errno of a failure; fd < 0: without a descriptor. */
static int send_datagram(const char *text, int fd)
{
    struct sockaddr_un address;
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {(void *)(uintptr_t)text, strlen(text)};
    struct msghdr message = {.msg_name = &address, .msg_iov = &part, .msg_iovlen = 1};
    if (!address_of_manager(&address, &message.msg_namelen))
        return 0;
    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        control.head = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(fd))};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    }
    int sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int code = sender < 0 || sendmsg(sender, &message, MSG_NOSIGNAL) < 0 ? errno : 0;
    if (sender >= 0)
        close(sender);
    return code;
}

static bool tell(struct log *log, const char *text, int fd)
{
    static bool is_reported; /* the first of a row of losses; the main thread alone calls this */
    int code = send_datagram(text, fd);
    if (code != 0 && !is_reported && log != NULL)
        log_line(log, LOG_NOTIFY_LOST, LOG_TEXT("notification", text),
                 LOG_TEXT("reason", strerror(code)));
    is_reported = code != 0 && (is_reported || log != NULL);
    return code == 0;
}

bool notify_tell(struct log *log, const char *text)
{
    return tell(log, text, -1);
}

void notify_store(struct log *log, const struct listeners *listeners)
{
    char text[64];
    for (size_t i = 0; i < listeners->n_all; i++) {
        const struct listener *listener = &listeners->all[i];
        if (listener->is_activated)
            continue;
        snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=" STORED_PREFIX "%s",
                 port_name(listener->port));
        tell(log, text, listener->fd);
    }
}

static int take(struct listener_given *given, int fd, const char *name, struct stint_error *error)
{
    bool is_stored = strncmp(name, STORED_PREFIX, strlen(STORED_PREFIX)) == 0;
    *given = (struct listener_given){.fd = fd, .is_activated = !is_stored};
    if (sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0)
        return err_set(error, STINT_E_MISMATCH, "systemd's socket '%s' is not one that listens",
                       name);
    if (!port_of_name(is_stored ? name + strlen(STORED_PREFIX) : name, &given->port))
        return err_set(error, STINT_E_MISMATCH,
                       "systemd's socket '%s': FileDescriptorName= must be resp, resp-tls, "
                       "http, http-tls, grpc or grpc-tls",
                       name);
    if (is_stored) { /* removes all of the name: those in use are stored again */
        char text[64];
        snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
        tell(NULL, text, -1);
    }
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return 0;
}

int notify_given(struct listener_given *given, size_t most, size_t *n_given,
                 struct stint_error *error)
{
    char **names = NULL;
    int n_fds = sd_listen_fds_with_names(1, &names), code = 0;
    *n_given = 0;
    if (n_fds > (int)most)
        code = err_set(error, STINT_E_RANGE, "systemd gave more than %zu sockets", most);
    for (int i = 0; i < n_fds && code == 0; i++) {
        code = take(&given[i], SD_LISTEN_FDS_START + i, names[i], error);
        *n_given += code == 0;
    }
    for (int i = 0; i < n_fds; i++)
        free(names[i]);
    free(names);
    return code;
}
