/* SPDX-License-Identifier: MIT */
/* Both sides: what the new process asks before it serves, and what the old one answers. */
#define _GNU_SOURCE
#include "io/handover.h"

#include "io/bind_socket.h"
#include "io/handover_message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTROL_MODE 0600

struct handover {
    struct handover_options options;
    uv_poll_t control, successor;                 /* who may take over, and who is about to */
    uv_poll_t started;                            /* the end of a successor that we had started */
    int control_fd, successor_fd, predecessor_fd; /* -1: none */
    size_t open_handles;
    bool is_closing, has_started, is_done;
};

struct handover *handover_new(const struct handover_options *options)
{
    struct handover *handover = calloc(1, sizeof(*handover));
    if (handover == NULL)
        return NULL;
    handover->options = *options;
    handover->control_fd = handover->successor_fd = handover->predecessor_fd = -1;
    return handover;
}

/* ---- The end --------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct handover *handover = handle->data;
    if (--handover->open_handles == 0 && handover->is_closing)
        free(handover);
}

static void close_poll(uv_poll_t *poll, int *fd)
{
    if (*fd < 0)
        return;
    uv_close((uv_handle_t *)poll, on_handle_closed);
    close(*fd);
    *fd = -1;
}

/* The path is left alone where it is a successor's now. */
static void stop_listening(struct handover *handover)
{
    if (handover->control_fd >= 0 && !handover->is_done)
        unlink(handover->options.path);
    close_poll(&handover->control, &handover->control_fd);
}

void handover_close(struct handover *handover)
{
    if (handover == NULL)
        return;
    handover->is_closing = true;
    handover->open_handles++; /* so that it is freed once, here or by the last handle */
    stop_listening(handover);
    close_poll(&handover->successor, &handover->successor_fd);
    if (handover->predecessor_fd >= 0)
        close(handover->predecessor_fd);
    if (handover->has_started)
        uv_close((uv_handle_t *)&handover->started, on_handle_closed);
    if (--handover->open_handles == 0)
        free(handover);
}

/* ---- The old process ------------------------------------------------------------------------- */

static void fail(struct handover *handover, const char *reason)
{
    log_line(handover->options.log, LOG_HANDOVER_FAILED, LOG_TEXT("reason", reason));
    close_poll(&handover->successor, &handover->successor_fd);
}

static bool send_listeners(struct handover *handover)
{
    const struct listeners *listeners = handover->options.listeners;
    for (size_t i = 0; i < listeners->n_all; i++)
        if (!message_send(handover->successor_fd, MESSAGE_SOCKET, port_name(listeners->all[i].port),
                          listeners->all[i].fd))
            return false;
    return message_send(handover->successor_fd, MESSAGE_ALL, "", -1);
}

static void leave(struct handover *handover)
{
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    getsockopt(handover->successor_fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
    handover->is_done = true;
    /* Closed before it is told: the successor binds the same path. */
    stop_listening(handover);
    message_send(handover->successor_fd, MESSAGE_LEAVES, "", -1);
    close_poll(&handover->successor, &handover->successor_fd);
    handover->options.handed_over(handover->options.arg, (int)peer.pid);
}

static void on_successor(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct handover *handover = poll->data;
    struct message message;
    int fd;
    if (!message_receive(handover->successor_fd, &message, &fd)) {
        fail(handover, "the process that was to take over ended before it was ready");
        return;
    }
    if (fd >= 0)
        close(fd);
    if (message_is(&message, MESSAGE_READY))
        leave(handover);
    else if (!message_is(&message, MESSAGE_TAKE))
        fail(handover, "the process that was to take over speaks another version");
    else if (!send_listeners(handover))
        fail(handover, strerror(errno));
}

static bool is_trusted(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static void on_control(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct handover *handover = poll->data;
    int fd = accept4(handover->control_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    /* One at a time; whoever else comes finds the place taken. */
    if (handover->successor_fd >= 0 || !is_trusted(fd) ||
        uv_poll_init(handover->options.loop, &handover->successor, fd) != 0) {
        close(fd);
        return;
    }
    message_prepare(fd);
    handover->successor_fd = fd;
    handover->successor.data = handover;
    handover->open_handles++;
    uv_poll_start(&handover->successor, UV_READABLE | UV_DISCONNECT, on_successor);
}

/* By then it has taken over, or it cannot any more. */
static void on_started_ended(uv_poll_t *poll, int status, int events)
{
    struct handover *handover = poll->data;
    (void)status, (void)events;
    bool was_it = starter_read(handover->options.starter);
    handover->has_started = false;
    uv_close((uv_handle_t *)poll, on_handle_closed);
    if (!handover->is_done)
        fail(handover, was_it ? "the process that was started to take over has ended"
                              : "the process that starts successors has ended");
}

int handover_start_successor(struct handover *handover, struct stint_error *error)
{
    if (handover == NULL || handover->control_fd < 0 || handover->options.starter == NULL)
        return err_set(error, STINT_E_MISMATCH,
                       "a successor finds this process by its --control socket, and it has none");
    if (handover->has_started || handover->is_done)
        return err_set(error, STINT_E_BUSY, "a successor was started already");
    if (!starter_ask(handover->options.starter) ||
        uv_poll_init(handover->options.loop, &handover->started,
                     starter_fd(handover->options.starter)) != 0)
        return err_set(error, STINT_E_SYSTEM, "the process that starts successors has ended");
    handover->started.data = handover;
    handover->open_handles++;
    handover->has_started = true;
    uv_poll_start(&handover->started, UV_READABLE | UV_DISCONNECT, on_started_ended);
    return 0;
}

/* ---- The new process ------------------------------------------------------------------------- */

static int control_endpoint(const struct handover *handover, struct endpoint *endpoint,
                            struct stint_error *error)
{
    struct sockaddr_un *address = (struct sockaddr_un *)&endpoint->address;
    const char *path = handover->options.path;
    if (strlen(path) >= sizeof(address->sun_path))
        return err_set(error, STINT_E_RANGE, "control: a path of at most %zu bytes can be a socket",
                       sizeof(address->sun_path) - 1);
    *endpoint = (struct endpoint){.address_len = sizeof(*address), .mode = CONTROL_MODE};
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, path, strlen(path) + 1);
    return 0;
}

static int receive_listeners(struct handover *handover, struct listener_given *given, size_t most,
                             size_t *n_given, struct stint_error *error)
{
    struct message message;
    int fd;
    if (!message_send(handover->predecessor_fd, MESSAGE_TAKE, "", -1))
        return err_set(error, STINT_E_SYSTEM, "%s: nobody answers there", handover->options.path);
    while (message_receive(handover->predecessor_fd, &message, &fd)) {
        if (message_is(&message, MESSAGE_ALL))
            return 0;
        enum port port;
        message.port[sizeof(message.port) - 1] = '\0';
        if (fd < 0 || *n_given == most || !port_of_name(message.port, &port)) {
            if (fd >= 0)
                close(fd); /* a port that this version does not have */
            continue;
        }
        given[(*n_given)++] = (struct listener_given){.fd = fd, .port = port};
    }
    return err_set(error, STINT_E_BUSY, "%s: the process that serves did not hand its sockets over",
                   handover->options.path);
}

int handover_take(struct handover *handover, struct listener_given *given, size_t most,
                  size_t *n_given, struct stint_error *error)
{
    struct endpoint endpoint = {.address_len = 0};
    if (handover->options.path == NULL)
        return err_set(error, STINT_E_MISMATCH,
                       "--replace needs --control or --state, to find the process to replace");
    int code = control_endpoint(handover, &endpoint, error);
    if (code != 0)
        return code;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_set(error, STINT_E_SYSTEM, "no socket for the handover: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&endpoint.address, endpoint.address_len) != 0) {
        bool is_nobody = errno == ENOENT || errno == ECONNREFUSED;
        code = is_nobody ? 0
                         : err_set(error, STINT_E_SYSTEM, "%s: %s", handover->options.path,
                                   strerror(errno));
        close(fd);
        return code;
    }
    message_prepare(fd);
    handover->predecessor_fd = fd;
    return receive_listeners(handover, given, most, n_given, error);
}

static int replace_predecessor(struct handover *handover, struct stint_error *error)
{
    struct ucred peer = {0};
    socklen_t len = sizeof(peer);
    struct message message;
    int fd, code = 0;
    getsockopt(handover->predecessor_fd, SOL_SOCKET, SO_PEERCRED, &peer, &len);
    if (!message_send(handover->predecessor_fd, MESSAGE_READY, "", -1) ||
        !message_receive(handover->predecessor_fd, &message, &fd) ||
        !message_is(&message, MESSAGE_LEAVES))
        code = err_set(error, STINT_E_BUSY, "%s: the process that serves did not leave",
                       handover->options.path);
    close(handover->predecessor_fd);
    handover->predecessor_fd = -1;
    if (code == 0)
        log_line(handover->options.log, LOG_TAKEN_OVER, LOG_NUMBER("from", (uint64_t)peer.pid));
    return code;
}

int handover_begin(struct handover *handover, struct stint_error *error)
{
    struct endpoint endpoint;
    int code = handover->predecessor_fd >= 0 ? replace_predecessor(handover, error) : 0;
    if (code != 0 || handover->options.path == NULL)
        return code;
    code = control_endpoint(handover, &endpoint, error);
    if (code != 0)
        return code;
    int fd = bind_socket(&endpoint, error);
    if (fd == STINT_E_BUSY)
        return err_set(error, fd,
                       "control: somebody serves at %s already; --replace takes over from it, "
                       "another --control serves beside it",
                       handover->options.path);
    if (fd < 0)
        return fd;
    handover->control_fd = fd;
    handover->control.data = handover;
    handover->open_handles++;
    uv_poll_init(handover->options.loop, &handover->control, fd);
    uv_poll_start(&handover->control, UV_READABLE, on_control);
    return 0;
}
