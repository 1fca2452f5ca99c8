/* SPDX-License-Identifier: MIT */
/*
 * Users with write access to a folder can put a socket, or a link to one, under the path. In a
 * sticky folder they can do so only before the server: there the socket's owner is checked.
 */
#define _GNU_SOURCE
#include "net/process/control_socket.h"

#include "net/file/file_text.h"
#include "net/listen/bind_socket.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTROL_MODE 0600

static bool is_trusted(uid_t uid)
{
    return uid == geteuid() || uid == 0;
}

bool control_peer(int fd, struct control_peer *peer)
{
    struct ucred found;
    socklen_t len = sizeof(found);
    *peer = (struct control_peer){.uid = (uid_t)-1};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &found, &len) != 0)
        return false;
    *peer = (struct control_peer){.pid = found.pid, .uid = found.uid};
    return is_trusted(found.uid);
}

int control_check_folder(const char *path, struct stint_error *error)
{
    char folder[PATH_MAX];
    struct stat status;
    file_folder(path, folder, sizeof(folder));
    if (stat(folder, &status) != 0)
        return errno == ENOENT
                   ? 0
                   : err_set(error, STINT_E_SYSTEM, "control: %s: %s", folder, strerror(errno));
    if (!is_trusted(status.st_uid))
        return err_set(error, STINT_E_MISMATCH,
                       "control: the folder %s belongs to user %u, expected user %u or root: its "
                       "sockets are not trusted; name another path with --control",
                       folder, (unsigned)status.st_uid, (unsigned)geteuid());
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (status.st_mode & S_ISVTX) == 0)
        return err_set(error, STINT_E_MISMATCH,
                       "control: other users can write to the folder %s (mode %04o): its sockets "
                       "are not trusted; chmod go-w, or name another path with --control",
                       folder, (unsigned)status.st_mode & 07777);
    return 0;
}

static int address_of(const char *path, struct endpoint *endpoint, struct stint_error *error)
{
    struct sockaddr_un *address = (struct sockaddr_un *)&endpoint->address;
    if (strlen(path) >= sizeof(address->sun_path))
        return err_set(error, STINT_E_RANGE, "control: a path of at most %zu bytes can be a socket",
                       sizeof(address->sun_path) - 1);
    *endpoint = (struct endpoint){.address_len = sizeof(*address), .mode = CONTROL_MODE};
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, strlen(path) + 1);
    return 0;
}

int control_bind(const char *path, struct stint_error *error)
{
    struct endpoint endpoint;
    int fd = address_of(path, &endpoint, error);
    if (fd == 0)
        fd = bind_socket(&endpoint, "control", error);
    if (fd == STINT_E_BUSY)
        return err_set(error, fd,
                       "control: a server runs at %s already; --replace takes over from it, "
                       "another --control serves beside it",
                       path);
    return fd;
}

/* The owner of the file at the path; *is_there is false if there is none. */
static int check_socket(const char *path, bool *is_there, struct stint_error *error)
{
    struct stat status;
    *is_there = lstat(path, &status) == 0;
    if (!*is_there)
        return errno == ENOENT
                   ? 0
                   : err_set(error, STINT_E_SYSTEM, "control: %s: %s", path, strerror(errno));
    if (!S_ISSOCK(status.st_mode))
        return err_set(error, STINT_E_MISMATCH,
                       "control: %s is no socket; remove it, or name another path with --control",
                       path);
    if (!is_trusted(status.st_uid))
        return err_set(
            error, STINT_E_MISMATCH,
            "control: the socket %s belongs to user %u, expected user %u or root; start as "
            "the user of the server (--user)",
            path, (unsigned)status.st_uid, (unsigned)geteuid());
    return 0;
}

static int check_peer(int fd, const char *path, struct stint_error *error)
{
    struct control_peer peer;
    if (control_peer(fd, &peer))
        return 0;
    return err_set(
        error, STINT_E_MISMATCH,
        "control: the process at %s runs as user %d, expected user %u or root; start as the "
        "user of the server (--user)",
        path, (int)peer.uid, (unsigned)geteuid());
}

static int connect_to(const char *path, int *fd, struct stint_error *error)
{
    struct endpoint endpoint = {0};
    int code = address_of(path, &endpoint, error);
    if (code != 0)
        return code;
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0)
        return err_set(error, STINT_E_SYSTEM, "no socket for the handover: %s", strerror(errno));
    if (connect(made, (struct sockaddr *)&endpoint.address, endpoint.address_len) != 0) {
        bool is_alone = errno == ENOENT || errno == ECONNREFUSED;
        code = is_alone ? 0 : err_set(error, STINT_E_SYSTEM, "%s: %s", path, strerror(errno));
        close(made);
        return code;
    }
    code = check_peer(made, path, error);
    if (code == 0)
        *fd = made;
    else
        close(made);
    return code;
}

int control_connect(const char *path, int *fd, struct stint_error *error)
{
    bool is_there = false;
    *fd = -1;
    int code = control_check_folder(path, error);
    if (code == 0)
        code = check_socket(path, &is_there, error);
    return code != 0 || !is_there ? code : connect_to(path, fd, error);
}
