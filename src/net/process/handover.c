/* SPDX-License-Identifier: MIT */
/* Setup and end of both sides, and the side of the new process. */
#define _GNU_SOURCE
#include "net/process/control_socket.h"
#include "net/process/handover_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct handover *handover_new(const struct handover_options *options)
{
    struct handover *handover = calloc(1, sizeof(*handover));
    if (handover == NULL)
        return NULL;
    handover->options = *options;
    handover->control_fd = handover->predecessor_fd = -1;
    return handover;
}

void handover_on_closed(uv_handle_t *handle)
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

struct message_state handover_state(const struct handover *handover)
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
        if (message_has_word(message, reasons[i].word))
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
    char name[sizeof(message->word) + 1] = "";
    memcpy(name, message->word, sizeof(message->word));
    if (*n_given < most && port_of_name(name, &port))
        given[(*n_given)++] = (struct listener_given){.fd = fd, .port = port};
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
    message_prepare(handover->predecessor_fd);
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
