/* SPDX-License-Identifier: MIT */
/* Calls libsystemd. */
#define _GNU_SOURCE
#include "net/process/notify.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* Differs from the names of .socket units: these are used only if an endpoint matches. */
#define STORED_PREFIX "stored-"

void notify_store(const struct listeners *listeners)
{
    char text[64];
    for (size_t i = 0; i < listeners->n_all; i++) {
        const struct listener *listener = &listeners->all[i];
        if (listener->is_activated)
            continue;
        snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=" STORED_PREFIX "%s",
                 port_name(listener->port));
        sd_pid_notify_with_fds(0, 0, text, &listener->fd, 1);
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
    if (is_stored) /* removes all of the name: those in use are stored again */
        sd_notifyf(0, "FDSTOREREMOVE=1\nFDNAME=%s", name);
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
