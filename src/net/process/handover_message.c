/* SPDX-License-Identifier: MIT */
/* Descriptors travel as SCM_RIGHTS, one with each record. */
#define _GNU_SOURCE
#include "net/process/handover_message.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

_Static_assert(sizeof(struct message) == 32, "records of all versions have one size");

union control {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int))];
};

struct message message_of(const char *verb, const char *word)
{
    struct message message = {0};
    strncpy(message.verb, verb, sizeof(message.verb) - 1);
    if (word != NULL)
        strncpy(message.word, word, sizeof(message.word) - 1);
    return message;
}

bool message_is(const struct message *message, const char *verb)
{
    return strncmp(message->verb, verb, sizeof(message->verb)) == 0;
}

bool message_has_word(const struct message *message, const char *word)
{
    return strncmp(message->word, word, sizeof(message->word)) == 0;
}

void message_prepare(int socket_fd)
{
    struct timeval patience = {.tv_sec = MESSAGE_PATIENCE_MS / 1000};
    fcntl(socket_fd, F_SETFL, fcntl(socket_fd, F_GETFL) & ~O_NONBLOCK);
    setsockopt(socket_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(socket_fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

bool message_send(int socket_fd, const struct message *message, int fd)
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

static int descriptor_of(struct msghdr *header)
{
    int fd = -1;
    struct cmsghdr *rights = CMSG_FIRSTHDR(header);
    if (rights != NULL && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(rights), sizeof(fd));
    return fd;
}

bool message_receive(int socket_fd, struct message *message, int *fd)
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
    *fd = len > 0 ? descriptor_of(&header) : -1;
    if (len == (ssize_t)sizeof(*message))
        return true;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return false;
}

/* recv() without a buffer for descriptors: the kernel closes those that come. */
enum message_progress message_read(int socket_fd, struct message *message, size_t *len)
{
    ssize_t got = recv(socket_fd, (char *)message + *len, sizeof(*message) - *len, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return MESSAGE_PARTIAL;
    if (got <= 0)
        return MESSAGE_END;
    *len += (size_t)got;
    return *len == sizeof(*message) ? MESSAGE_WHOLE : MESSAGE_PARTIAL;
}
