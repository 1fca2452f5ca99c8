/* SPDX-License-Identifier: MIT */
/*
 * What systemd is told (sd_notify(3), Type=notify-reload), and the sockets it hands over
 * (sd_listen_fds(3)). Without systemd each call does nothing.
 */
#ifndef STINT_NET_PROCESS_NOTIFY_H
#define STINT_NET_PROCESS_NOTIFY_H

#include "net/listen/listener.h"

void notify_ready(void);
void notify_reloading(void);
void notify_stopping(void);
void notify_alive(void); /* the watchdog's ping */
/* Another process of this service is the one to be watched from now on. */
void notify_main_pid(int pid);
/* How often notify_alive() is wanted, in ms; 0: there is no watchdog. */
uint64_t notify_watchdog_ms(void);

/* Has systemd keep the sockets that were bound here, for the next start. */
void notify_store(const struct listeners *listeners);
/*
 * What systemd gave at the start: sockets of .socket units, by the name of their port, and those
 * stored by the process before. Fills at most `most`; a name that is no port's is an error.
 */
int notify_given(struct listener_given *given, size_t most, size_t *n_given,
                 struct stint_error *error);

#endif
