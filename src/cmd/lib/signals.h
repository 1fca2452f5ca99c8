/* SPDX-License-Identifier: MIT */
/* Signals that commands handle. */
#ifndef STINT_CMD_LIB_SIGNALS_H
#define STINT_CMD_LIB_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * ^C in a long run: the first one ends the work, and the results so far are printed. From here on
 * SIGINT is counted; a second one ends the program, as by default. A signal that is ignored, as in
 * the background of a script or under nohup, stays so.
 */
void interrupt_catch(void);
/*
 * The same for SIGTERM and SIGHUP. `leave`, if not NULL, is called before the second one ends the
 * program: by a handler of signals.
 */
void interrupt_catch_all(void (*leave)(void));
/* Those three are counted, and end system calls that wait, but not the program. */
void interrupt_count_all(void);
unsigned interrupts_seen(void);
/* Whether there was one. Then it is forgotten, and the next one is the first of the work ahead. */
bool interrupt_take(void);
/*
 * Waits until a read of the file (-1: none) would not wait: true. False: the time is over
 * (STINT_NEVER_NS: no limit), or, also at once, more than n_before interrupts were seen.
 */
bool interrupt_wait(int fd, uint64_t ns, unsigned n_before);
/* Ends the program by the last signal's default action: shells end their loops by that. */
void interrupt_end(void);

/*
 * A table's file is mapped. If another process truncates it, or its disk fails, an access raises
 * SIGBUS. The program then prints which file it was, and ends with CMD_BAD_INPUT. For the program
 * only: the library installs no signal handlers.
 */
void bus_error_install(void);

#endif
