/* SPDX-License-Identifier: MIT */
/* What both sides of a handover share: handover.c takes over, handover_give.c is replaced. */
#ifndef STINT_NET_PROCESS_HANDOVER_PARTS_H
#define STINT_NET_PROCESS_HANDOVER_PARTS_H

#include "net/process/handover.h"
#include "net/process/handover_message.h"

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

/* Identifies the file that keeps the limits. */
struct message_state handover_state(const struct handover *handover);

/* Begins and ends listening for successors. */
void handover_listen(struct handover *handover);
void handover_stop_listening(struct handover *handover);
void handover_close_successors(struct handover *handover);

/* The close callback of all handles. */
void handover_on_closed(uv_handle_t *handle);

#endif
