/* SPDX-License-Identifier: MIT */
/* Signals that commands handle. */
#ifndef STINT_CMD_LIB_SIGNALS_H
#define STINT_CMD_LIB_SIGNALS_H

#include <stdbool.h>

/*
 * ^C in a long run: the first one ends the work, and the results so far are printed. From here on
 * SIGINT sets a flag, which is cleared; a second one ends the program, as by default. A signal that
 * is ignored, as in the background of a script or under nohup, stays so.
 */
void interrupt_catch(void);
/* The same for SIGTERM and SIGHUP; a write to a pipe without a reader becomes a write error. */
void interrupt_catch_all(void);
bool interrupt_seen(void);
/* Whether there was one. Then it is forgotten, and the next one is the first of the work ahead. */
bool interrupt_take(void);
/* Waits until a read of the file would not wait. False, also at once: an interrupt was seen. */
bool interrupt_wait(int fd);

/*
 * A table's file is mapped. If another process truncates it, or its disk fails, an access raises
 * SIGBUS. The program then prints which file it was, and ends with CMD_BAD_INPUT. For the program
 * only: the library installs no signal handlers.
 */
void bus_error_install(void);

#endif
