/* SPDX-License-Identifier: MIT */
/*
 * Notifications to systemd (sd_notify(3), Type=notify-reload), and the sockets from it
 * (sd_listen_fds(3)). Without systemd each call does nothing.
 */
#ifndef STINT_NET_PROCESS_NOTIFY_H
#define STINT_NET_PROCESS_NOTIFY_H

#include "net/listen/listener.h"

void notify_ready(void);
void notify_reloading(void);
void notify_stopping(void);
void notify_alive(void); /* the watchdog's ping */
/* From now on systemd is to watch another process of this service. */
void notify_main_pid(int pid);
/* The interval of notify_alive() in ms; 0: there is no watchdog. */
uint64_t notify_watchdog_ms(void);

/* Stores the sockets that were bound here in systemd, for the next start. */
void notify_store(const struct listeners *listeners);
/*
 * The descriptors from systemd at the start: sockets of .socket units, by the name of their port,
 * and those that the previous process stored. Fills at most `most`; an unknown name is an error.
 */
int notify_given(struct listener_given *given, size_t most, size_t *n_given,
                 struct stint_error *error);

#endif
