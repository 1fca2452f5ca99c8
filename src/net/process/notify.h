/* SPDX-License-Identifier: MIT */
/*
 * Notifications to systemd, and the sockets that it has from one start to the next. Without systemd
 * these do nothing. The main thread calls them.
 */
#ifndef STINT_NET_PROCESS_NOTIFY_H
#define STINT_NET_PROCESS_NOTIFY_H

#include "net/listen/listener.h"
#include "net/log/log.h"

/*
 * A notification such as "READY=1", without waiting. False: it was lost, for example because
 * systemd does not read; the first of a row is logged.
 */
bool notify_tell(struct log *log, const char *text);
/* Stores the sockets that were bound here in systemd, for the next start. */
void notify_store(struct log *log, const struct listeners *listeners);
/*
 * The descriptors from systemd at the start: sockets of .socket units, by the name of their port,
 * and those that the previous process stored. Fills at most `most`; an unknown name is an error.
 */
int notify_given(struct listener_given *given, size_t most, size_t *n_given,
                 struct stint_error *error);

#endif
