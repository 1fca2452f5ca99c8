/* SPDX-License-Identifier: MIT */
/* Setup and end of both sides, and the side of the new process. */
#define _GNU_SOURCE
#include "net/process/handover.h"

#include "base/err.h"
#include "net/file.h"
#include "net/listen/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- The control socket ---------------------------------------------------------------------- */

/*
 * The Unix socket through which a successor finds a server. A successor that connects to the socket
 * of another user would give that user all clients, and a server that answers another user would
 * give away its sockets: each side trusts only processes of its own user, and root's.
 */

/*
 * Users with write access to a folder can put a socket, or a link to one, under the path. In a
 * sticky folder they can do so only before the server: there the socket's owner is checked.
 */

#define CONTROL_MODE 0600

static bool is_trusted(uid_t uid)
{
    return uid == geteuid() || uid == 0;
}

/* The peer's identity; false for a user who is not trusted. */
static bool control_peer(int fd, struct ucred *peer)
{
    socklen_t len = sizeof(*peer);
    *peer = (struct ucred){.uid = (uid_t)-1};
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &len) == 0 && is_trusted(peer->uid);
}

/*
 * Checks that users other than this one and root cannot put a socket at the path: 0, or
 * STINT_E_MISMATCH with the folder and the reason.
 */
static int control_check_folder(const char *path, struct stint_error *error)
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

/* The descriptor of a new listening socket, or a negative code. */
static int control_bind(const char *path, struct stint_error *error)
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

/* 0 with *is_there: the path is a socket of a trusted user. Or there is nothing. */
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

/* Connects; *is_there is false if no process listens. */
static int connect_to(const char *path, int fd, bool *is_there, struct stint_error *error)
{
    struct endpoint endpoint = {0};
    struct ucred peer;
    int code = address_of(path, &endpoint, error);
    if (code != 0)
        return code;
    *is_there = connect(fd, (struct sockaddr *)&endpoint.address, endpoint.address_len) == 0;
    if (!*is_there)
        return errno == ENOENT || errno == ECONNREFUSED
                   ? 0
                   : err_set(error, STINT_E_SYSTEM, "%s: %s", path, strerror(errno));
    if (control_peer(fd, &peer))
        return 0;
    return err_set(
        error, STINT_E_MISMATCH,
        "control: the process at %s runs as user %d, expected user %u or root; start as the "
        "user of the server (--user)",
        path, (int)peer.uid, (unsigned)geteuid());
}

/* Connects to the running server. *fd is -1 if there is none: 0. Otherwise a code. */
static int control_connect(const char *path, int *fd, struct stint_error *error)
{
    bool is_there = false;
    *fd = -1;
    int code = control_check_folder(path, error);
    if (code == 0)
        code = check_socket(path, &is_there, error);
    if (code != 0 || !is_there)
        return code;
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0)
        return err_set(error, STINT_E_SYSTEM, "no socket for the handover: %s", strerror(errno));
    code = connect_to(path, made, &is_there, error);
    if (code == 0 && is_there)
        *fd = made;
    else
        close(made);
    return code;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* The messages of a handover: records of one size, some with a descriptor. */

#define MESSAGE_TAKE "take/2"     /* successor: requests the sockets; with its state file */
#define MESSAGE_SOCKET "socket"   /* for each: its port, and a descriptor */
#define MESSAGE_CONTROL "control" /* the socket at which successors connect */
#define MESSAGE_ALL "all"         /* no more descriptors follow */
#define MESSAGE_SERVING "serving" /* successor: answers requests now */
#define MESSAGE_LEAVES "leaves"   /* reply to it, with the sender's pid */
#define MESSAGE_REFUSED "refused" /* instead of any reply, with one of the reasons below */
#define MESSAGE_PATIENCE_MS 5000

#define REFUSED_USER "user"       /* the successor runs as another user */
#define REFUSED_VERSION "version" /* unknown verb */
#define REFUSED_STATE "state"     /* the two keep limits in different files */
#define REFUSED_BUSY "busy"       /* too many processes at once */
#define REFUSED_LATE "late"       /* the successor did not serve in time */
#define REFUSED_TAKEN "taken"     /* another process has taken over */

/* Identifies a state file, also after it was renamed. All zero: limits are in memory. */
struct message_state {
    uint64_t device, inode;
};

struct message_socket {
    char port[15];        /* its name */
    uint8_t is_activated; /* 0 or 1 */
};

struct message {
    char verb[16];
    union {
        char word[16]; /* a reason */
        struct message_socket socket;
        struct message_state state;
        uint64_t pid;
    };
};

/* Descriptors travel as SCM_RIGHTS, one with each record. */

_Static_assert(sizeof(struct message) == 32, "records of all versions have one size");

union control {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* A record with a word; NULL: none. */
static struct message message_of(const char *verb, const char *word)
{
    struct message message = {0};
    strncpy(message.verb, verb, sizeof(message.verb) - 1);
    if (word != NULL)
        strncpy(message.word, word, sizeof(message.word) - 1);
    return message;
}

static bool message_is(const struct message *message, const char *verb)
{
    return strncmp(message->verb, verb, sizeof(message->verb)) == 0;
}

/* fd of -1: none. False with errno; EAGAIN: not now, where the socket does not block. */
static bool message_send(int socket_fd, const struct message *message, int fd)
{
    struct message copy = *message;
    union control control = {0};
    struct iovec bytes = {.iov_base = &copy, .iov_len = sizeof(copy)};
    struct msghdr header = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (fd >= 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        *rights = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
    }
    return sendmsg(socket_fd, &header, MSG_NOSIGNAL) == (ssize_t)sizeof(copy);
}

/* Waits for a whole record. False: the peer is gone, or too slow. */
static bool message_receive(int socket_fd, struct message *message, int *fd)
{
    union control control;
    struct iovec bytes = {.iov_base = message, .iov_len = sizeof(*message)};
    struct msghdr header = {
        .msg_iov = &bytes,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t len;
    do
        len = recvmsg(socket_fd, &header, MSG_WAITALL | MSG_CMSG_CLOEXEC);
    while (len < 0 && errno == EINTR);
    const struct cmsghdr *rights = len > 0 ? CMSG_FIRSTHDR(&header) : NULL;
    *fd = -1;
    if (rights != NULL && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(rights), sizeof(*fd));
    if (len == (ssize_t)sizeof(*message))
        return true;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return false;
}

/* ---- Both sides ------------------------------------------------------------------------------ */

#define SUCCESSORS_MAX 8 /* processes connected at once */

struct handover {
    struct handover_options options;
    uv_poll_t control;
    uv_poll_t started;                            /* signals the end of our own successor */
    int control_fd, predecessor_fd;               /* -1: none */
    struct successor *successors[SUCCESSORS_MAX]; /* in the order in which they came; then NULL */
    size_t open_handles;
    bool owns_path, is_listening, is_closing, has_started, is_done;
};

static void handover_listen(struct handover *handover);
static void handover_stop_listening(struct handover *handover);
static void handover_close_successors(struct handover *handover);

struct handover *handover_new(const struct handover_options *options)
{
    struct handover *handover = calloc(1, sizeof(*handover));
    if (handover == NULL)
        return NULL;
    handover->options = *options;
    handover->control_fd = handover->predecessor_fd = -1;
    return handover;
}

static void handover_on_closed(uv_handle_t *handle)
{
    struct handover *handover = handle->data;
    if (--handover->open_handles == 0 && handover->is_closing)
        free(handover);
}

/*
 * The path is left unchanged if it belongs to another process, which has taken over, or is about to
 * and may outlive this one.
 */
void handover_close(struct handover *handover)
{
    if (handover == NULL)
        return;
    handover->is_closing = true;
    handover->open_handles++; /* so that it is freed once, here or by the last handle */
    if (handover->owns_path && !handover_is_under_way(handover))
        unlink(handover->options.path);
    handover_stop_listening(handover);
    handover_close_successors(handover);
    if (handover->predecessor_fd >= 0)
        close(handover->predecessor_fd);
    if (handover->has_started)
        uv_close((uv_handle_t *)&handover->started, handover_on_closed);
    if (--handover->open_handles == 0)
        free(handover);
}

static struct message_state handover_state(const struct handover *handover)
{
    struct stat status;
    int fd = handover->options.state_fd;
    if (fd < 0 || fstat(fd, &status) != 0)
        return (struct message_state){0};
    return (struct message_state){.device = status.st_dev, .inode = status.st_ino};
}

/* ---- Replies of the predecessor -------------------------------------------------------------- */

static const struct {
    const char *word, *reason;
} reasons[] = {
    {REFUSED_USER, "it runs as another user; start as that one (--user)"},
    {REFUSED_VERSION, "it is of another version; stop it first"},
    {REFUSED_STATE, "its state is another file, or was replaced or deleted, and each would grant "
                    "all limits; stop it first"},
    {REFUSED_BUSY, "too many processes request its sockets; try again"},
    {REFUSED_LATE, "this process took too long"},
    {REFUSED_TAKEN, "another process took over from it"},
};

static int refused(const struct handover *handover, const struct message *message,
                   struct stint_error *error)
{
    const char *reason = "it gives no reason";
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (strncmp(message->word, reasons[i].word, sizeof(message->word)) == 0)
            reason = reasons[i].reason;
    return err_set(error, STINT_E_BUSY, "%s: the process there was not replaced: %s",
                   handover->options.path, reason);
}

static int unanswered(const struct handover *handover, struct stint_error *error)
{
    return err_set(error, STINT_E_BUSY,
                   "%s: the process there did not hand its sockets over within %d s; it may have "
                   "ended: try again",
                   handover->options.path, MESSAGE_PATIENCE_MS / 1000);
}

/* ---- Taking over ----------------------------------------------------------------------------- */

static void keep_listener(const struct message *message, int fd, struct listener_given *given,
                          size_t most, size_t *n_given)
{
    enum port port;
    char name[sizeof(message->socket.port) + 1] = "";
    memcpy(name, message->socket.port, sizeof(message->socket.port));
    if (*n_given < most && port_of_name(name, &port))
        given[(*n_given)++] = (struct listener_given){
            .fd = fd, .port = port, .is_activated = message->socket.is_activated != 0};
    else
        close(fd); /* a port that this version does not know */
}

static int receive_all(struct handover *handover, struct listener_given *given, size_t most,
                       size_t *n_given, struct stint_error *error)
{
    struct message message;
    int fd;
    while (message_receive(handover->predecessor_fd, &message, &fd)) {
        if (message_is(&message, MESSAGE_REFUSED))
            return refused(handover, &message, error);
        if (message_is(&message, MESSAGE_ALL))
            return handover->control_fd >= 0 ? 0 : unanswered(handover, error);
        if (fd >= 0 && message_is(&message, MESSAGE_SOCKET))
            keep_listener(&message, fd, given, most, n_given);
        else if (fd >= 0 && message_is(&message, MESSAGE_CONTROL) && handover->control_fd < 0)
            handover->control_fd = fd;
        else if (fd >= 0)
            close(fd);
    }
    return unanswered(handover, error);
}

int handover_take(struct handover *handover, struct listener_given *given, size_t most,
                  size_t *n_given, struct stint_error *error)
{
    if (handover->options.path == NULL)
        return err_set(error, STINT_E_MISMATCH,
                       "--replace needs --control or --state, to find the process to replace");
    int code = control_connect(handover->options.path, &handover->predecessor_fd, error);
    if (code != 0 || handover->predecessor_fd < 0)
        return code;
    const struct timeval patience = {.tv_sec = MESSAGE_PATIENCE_MS / 1000};
    setsockopt(handover->predecessor_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(handover->predecessor_fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    struct message take = message_of(MESSAGE_TAKE, NULL);
    take.state = handover_state(handover);
    /* If sending fails, the predecessor may have sent a reason. */
    message_send(handover->predecessor_fd, &take, -1);
    return receive_all(handover, given, most, n_given, error);
}

int handover_prepare(struct handover *handover, struct stint_error *error)
{
    struct stint_error why;
    const char *path = handover->options.path;
    if (path == NULL || handover->control_fd >= 0)
        return 0;
    if (control_check_folder(path, &why) != 0)
        log_line(handover->options.log, LOG_CONTROL_EXPOSED, LOG_TEXT("reason", why.message));
    int fd = control_bind(path, error);
    if (fd < 0)
        return fd;
    handover->control_fd = fd;
    handover->owns_path = true;
    return 0;
}

/*
 * Two servers that share one table never grant a unit twice, and no server at all is worse: if the
 * predecessor has ended, or does not answer, this process continues.
 */
static int replace_predecessor(struct handover *handover, struct stint_error *error)
{
    struct message serving = message_of(MESSAGE_SERVING, NULL), answer = {0};
    int fd;
    message_send(handover->predecessor_fd, &serving, -1);
    bool is_answered = message_receive(handover->predecessor_fd, &answer, &fd);
    if (is_answered && fd >= 0)
        close(fd);
    close(handover->predecessor_fd);
    handover->predecessor_fd = -1;
    if (is_answered && message_is(&answer, MESSAGE_REFUSED))
        return refused(handover, &answer, error);
    if (is_answered && message_is(&answer, MESSAGE_LEAVES))
        log_line(handover->options.log, LOG_TAKEN_OVER, LOG_NUMBER("from", answer.pid));
    else
        log_line(handover->options.log, LOG_PREDECESSOR_LOST,
                 LOG_TEXT("control", handover->options.path));
    return 0;
}

int handover_commit(struct handover *handover, struct stint_error *error)
{
    int code = handover->predecessor_fd >= 0 ? replace_predecessor(handover, error) : 0;
    if (code != 0 || handover->control_fd < 0)
        return code;
    handover->owns_path = true;
    handover_listen(handover);
    return 0;
}

/*
 * The side of the old process. Several processes may connect at once, each with its own time limit:
 * one that hangs does not block the others. Nothing here waits, as the loop also ends the process.
 */

#define ASK_MS 5000    /* to send the request, and to read the sockets */
#define SERVE_MS 30000 /* from then to serving */

enum successor_stage {
    SUCCESSOR_CONNECTED, /* has requested nothing yet */
    SUCCESSOR_TAKES,     /* is sent the sockets */
    SUCCESSOR_STARTS,    /* has them */
};

struct successor {
    struct handover *handover;
    uv_poll_t poll;
    uv_timer_t patience;
    int fd;
    int pid;
    enum successor_stage stage;
    size_t n_sent; /* records: the listeners, the control socket, the end of the list */
    struct message message;
    size_t message_len; /* bytes of it that were read */
    unsigned open_handles;
};

/* ---- End of a successor's connection --------------------------------------------------------- */

static void on_successor_closed(uv_handle_t *handle)
{
    struct successor *successor = handle->data;
    struct handover *handover = successor->handover;
    if (--successor->open_handles > 0)
        return;
    free(successor);
    if (--handover->open_handles == 0 && handover->is_closing)
        free(handover);
}

static void remove_successor(struct successor *successor)
{
    struct successor **all = successor->handover->successors;
    size_t i = 0;
    while (all[i] != successor)
        i++;
    for (; i + 1 < SUCCESSORS_MAX; i++)
        all[i] = all[i + 1];
    all[SUCCESSORS_MAX - 1] = NULL;
    uv_close((uv_handle_t *)&successor->poll, on_successor_closed);
    uv_close((uv_handle_t *)&successor->patience, on_successor_closed);
    close(successor->fd);
}

/* Bytes that do not fit the socket's buffer are dropped: the connection ends after them. */
static void refuse_fd(int fd, const char *word)
{
    struct message refused = message_of(MESSAGE_REFUSED, word);
    message_send(fd, &refused, -1);
}

/* A peer that requests nothing, such as a server that checks whether the path is in use, is not
 * reported as a failure. */
static void end_successor(struct successor *successor, const char *word, const char *reason)
{
    if (successor->stage != SUCCESSOR_CONNECTED && reason != NULL)
        log_line(successor->handover->options.log, LOG_HANDOVER_FAILED, LOG_TEXT("reason", reason));
    if (word != NULL)
        refuse_fd(successor->fd, word);
    remove_successor(successor);
}

static void handover_close_successors(struct handover *handover)
{
    while (handover->successors[0] != NULL)
        end_successor(handover->successors[0], handover->is_done ? REFUSED_TAKEN : NULL, NULL);
}

bool handover_is_under_way(const struct handover *handover)
{
    for (size_t i = 0; i < SUCCESSORS_MAX && handover->successors[i] != NULL; i++)
        if (handover->successors[i]->stage != SUCCESSOR_CONNECTED)
            return true;
    return false;
}

/* ---- Messages to a successor ----------------------------------------------------------------- */

static void on_successor(uv_poll_t *poll, int status, int events);

static void on_patience_over(uv_timer_t *timer)
{
    end_successor(timer->data, REFUSED_LATE,
                  "the process that was to take over did not serve in time");
}

/* The record at n_sent, with its descriptor. */
static bool send_next(const struct successor *successor)
{
    const struct handover *handover = successor->handover;
    const struct listeners *listeners = handover->options.listeners;
    struct message message = message_of(MESSAGE_ALL, NULL);
    int fd = -1;
    if (successor->n_sent < listeners->n_all) {
        const struct listener *listener = &listeners->all[successor->n_sent];
        message = message_of(MESSAGE_SOCKET, port_name(listener->port));
        message.socket.is_activated = listener->is_activated;
        fd = listener->fd;
    } else if (successor->n_sent == listeners->n_all) {
        message = message_of(MESSAGE_CONTROL, NULL);
        fd = handover->control_fd;
    }
    return message_send(successor->fd, &message, fd);
}

static void send_sockets(struct successor *successor)
{
    size_t n_records = successor->handover->options.listeners->n_all + 2;
    while (successor->n_sent < n_records && send_next(successor))
        successor->n_sent++;
    bool is_sent = successor->n_sent == n_records;
    if (!is_sent && errno != EAGAIN) {
        end_successor(successor, NULL, strerror(errno));
        return;
    }
    int writes = is_sent ? 0 : UV_WRITABLE;
    uv_poll_start(&successor->poll, UV_READABLE | UV_DISCONNECT | writes, on_successor);
    if (!is_sent)
        return;
    successor->stage = SUCCESSOR_STARTS;
    uv_timer_start(&successor->patience, on_patience_over, SERVE_MS, 0);
}

/* Different state files: each process would keep limits of its own. */
static bool has_other_state(const struct successor *successor)
{
    struct message_state ours = handover_state(successor->handover);
    return memcmp(&successor->message.state, &ours, sizeof(ours)) != 0;
}

static void leave(struct successor *successor)
{
    struct handover *handover = successor->handover;
    struct message leaves = message_of(MESSAGE_LEAVES, NULL);
    int pid = successor->pid;
    leaves.pid = (uint64_t)getpid();
    handover->is_done = true;
    handover->owns_path = false;
    handover_stop_listening(handover);
    message_send(successor->fd, &leaves, -1);
    remove_successor(successor);
    handover_close_successors(handover);
    handover->options.handed_over(handover->options.arg, pid);
}

static void answer(struct successor *successor)
{
    const struct message *message = &successor->message;
    enum successor_stage stage = successor->stage;
    if (message_is(message, MESSAGE_SERVING) && stage == SUCCESSOR_STARTS)
        leave(successor);
    else {
        successor->stage = SUCCESSOR_TAKES; /* a request has come, even if an unknown one */
        if (!message_is(message, MESSAGE_TAKE) || stage != SUCCESSOR_CONNECTED)
            end_successor(successor, REFUSED_VERSION, "the successor has another version");
        else if (has_other_state(successor))
            end_successor(successor, REFUSED_STATE,
                          "the process that was to take over keeps its limits in another file");
        else
            send_sockets(successor);
    }
}

static void on_successor(uv_poll_t *poll, int status, int events)
{
    struct successor *successor = poll->data;
    if (status == 0 && (events & (UV_READABLE | UV_DISCONNECT)) == 0) {
        send_sockets(successor);
        return;
    }
    /* Without a buffer for descriptors: the kernel closes those that come. */
    ssize_t got = recv(successor->fd, (char *)&successor->message + successor->message_len,
                       sizeof(successor->message) - successor->message_len, MSG_DONTWAIT);
    if (got <= 0 && (got == 0 || (errno != EAGAIN && errno != EINTR))) {
        end_successor(successor, NULL, "the process that was to take over ended before it served");
        return;
    }
    successor->message_len += got > 0 ? (size_t)got : 0;
    if (successor->message_len == sizeof(successor->message)) {
        successor->message_len = 0;
        answer(successor);
    } else if ((events & UV_WRITABLE) != 0)
        send_sockets(successor);
}

/* ---- New connections ------------------------------------------------------------------------- */

/* Closes a connection without a request to free its entry; false if all entries are in use. */
static bool make_space(struct handover *handover)
{
    if (handover->successors[SUCCESSORS_MAX - 1] == NULL)
        return true;
    for (size_t i = 0; i < SUCCESSORS_MAX; i++)
        if (handover->successors[i]->stage == SUCCESSOR_CONNECTED) {
            end_successor(handover->successors[i], REFUSED_BUSY, NULL);
            return true;
        }
    return false;
}

static void add_successor(struct handover *handover, int fd, int pid)
{
    struct successor *successor = make_space(handover) ? calloc(1, sizeof(*successor)) : NULL;
    if (successor == NULL || uv_poll_init(handover->options.loop, &successor->poll, fd) != 0) {
        free(successor);
        refuse_fd(fd, REFUSED_BUSY);
        close(fd);
        return;
    }
    uv_timer_init(handover->options.loop, &successor->patience);
    successor->handover = handover;
    successor->poll.data = successor->patience.data = successor;
    successor->open_handles = 2;
    successor->fd = fd;
    successor->pid = pid;
    handover->open_handles++;
    size_t i = 0;
    while (handover->successors[i] != NULL)
        i++;
    handover->successors[i] = successor;
    uv_timer_start(&successor->patience, on_patience_over, ASK_MS, 0);
    uv_poll_start(&successor->poll, UV_READABLE | UV_DISCONNECT, on_successor);
}

static void on_control(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct handover *handover = poll->data;
    struct ucred peer;
    int fd = accept4(handover->control_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (control_peer(fd, &peer)) {
        add_successor(handover, fd, (int)peer.pid);
        return;
    }
    log_line(handover->options.log, LOG_HANDOVER_FAILED,
             LOG_TEXT("reason", "a process of another user requested the sockets"),
             LOG_NUMBER("user", (uint64_t)peer.uid));
    refuse_fd(fd, REFUSED_USER);
    close(fd);
}

static void handover_listen(struct handover *handover)
{
    handover->control.data = handover;
    handover->open_handles++;
    handover->is_listening = true;
    uv_poll_init(handover->options.loop, &handover->control, handover->control_fd);
    uv_poll_start(&handover->control, UV_READABLE, on_control);
}

static void handover_stop_listening(struct handover *handover)
{
    if (handover->is_listening)
        uv_close((uv_handle_t *)&handover->control, handover_on_closed);
    handover->is_listening = false;
    if (handover->control_fd >= 0)
        close(handover->control_fd);
    handover->control_fd = -1;
}

/* Both sides of a socket pair: one byte requests a start, one reports the end of the child. */
struct respawn_helper {
    pid_t pid;
    int fd;
};

/* ---- A successor started by this process ----------------------------------------------------- */

/* It has taken over by then, or never will. */
static void on_started_ended(uv_poll_t *poll, int status, int events)
{
    struct handover *handover = poll->data;
    (void)status, (void)events;
    char byte; /* of the child's end; none at that of the helper */
    bool was_it = recv(handover->options.respawn_helper->fd, &byte, 1, MSG_DONTWAIT) == 1;
    handover->has_started = false;
    uv_close((uv_handle_t *)poll, handover_on_closed);
    if (!handover->is_done)
        log_line(handover->options.log, LOG_HANDOVER_FAILED,
                 LOG_TEXT("reason", was_it ? "the process that was started to take over has ended"
                                           : "the process that starts successors has ended"));
}

int handover_start_successor(struct handover *handover, struct stint_error *error)
{
    if (handover == NULL || handover->options.path == NULL ||
        handover->options.respawn_helper == NULL)
        return err_set(error, STINT_E_MISMATCH,
                       "a successor finds this process by its --control socket, and it has none");
    if (handover->has_started || handover->is_done)
        return err_set(error, STINT_E_BUSY, "a successor was started already");
    int fd = handover->options.respawn_helper->fd;
    if (send(fd, "s", 1, MSG_NOSIGNAL) != 1 ||
        uv_poll_init(handover->options.loop, &handover->started, fd) != 0)
        return err_set(error, STINT_E_SYSTEM, "the process that starts successors has ended");
    handover->started.data = handover;
    handover->open_handles++;
    handover->has_started = true;
    uv_poll_start(&handover->started, UV_READABLE | UV_DISCONNECT, on_started_ended);
    return 0;
}

/* ---- In the respawn helper ------------------------------------------------------------------- */

struct duty {
    char *const *argv;
    int server, children; /* requests of the server, and signals of ended children */
    sigset_t signals;     /* blocked before; restored in the child */
};

static void start(const struct duty *duty)
{
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &duty->signals, NULL);
        execv(duty->argv[0], duty->argv);
        _exit(127);
    }
    if (pid < 0 && write(duty->server, "e", 1) != 1)
        _exit(0);
}

static void tell_ends(const struct duty *duty)
{
    struct signalfd_siginfo info;
    if (read(duty->children, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        if (write(duty->server, "e", 1) != 1)
            _exit(0);
}

/* Signals are for the server: a terminal or systemd sends them to both. */
static _Noreturn void be_respawn_helper(struct duty *duty)
{
    sigset_t all, child;
    sigfillset(&all);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &all, &duty->signals);
    prctl(PR_SET_NAME, "stint respawn");
    /* Other inherited descriptors must not stay open in this process. */
    duty->server = dup2(duty->server, STDERR_FILENO + 1);
    fcntl(duty->server, F_SETFD, FD_CLOEXEC); /* dup2() has cleared it */
    close_range(STDERR_FILENO + 2, ~0u, 0);
    duty->children = signalfd(-1, &child, SFD_CLOEXEC);
    struct pollfd polled[] = {{.fd = duty->server, .events = POLLIN},
                              {.fd = duty->children, .events = POLLIN}};
    for (;;) {
        char byte;
        if (poll(polled, 2, -1) < 0)
            continue;
        if (polled[1].revents != 0)
            tell_ends(duty);
        if (polled[0].revents != 0 && read(duty->server, &byte, 1) != 1)
            _exit(0); /* the server is gone */
        if (polled[0].revents != 0)
            start(duty);
    }
}

/* ---- In the server --------------------------------------------------------------------------- */

int respawn_helper_new(struct respawn_helper **respawn_helper, char *const *argv,
                       struct stint_error *error)
{
    int pair[2] = {-1, -1};
    struct respawn_helper *made = calloc(1, sizeof(*made));
    if (made == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 ||
        (made->pid = fork()) < 0) {
        int reason = errno;
        if (pair[0] >= 0)
            close(pair[0]), close(pair[1]);
        free(made);
        return err_set(error, STINT_E_SYSTEM, "no process for starting a successor: %s",
                       strerror(reason));
    }
    if (made->pid == 0) {
        struct duty duty = {.argv = argv, .server = pair[1]};
        close(pair[0]);
        be_respawn_helper(&duty);
    }
    close(pair[1]);
    made->fd = pair[0];
    *respawn_helper = made;
    return 0;
}

void respawn_helper_free(struct respawn_helper *respawn_helper)
{
    if (respawn_helper == NULL)
        return;
    close(respawn_helper->fd);
    while (waitpid(respawn_helper->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    free(respawn_helper);
}
