/* SPDX-License-Identifier: MIT */
/* ^C in a long run: the first one ends the work, and the results so far are printed. */
#ifndef STINT_CMD_LIB_INTERRUPT_H
#define STINT_CMD_LIB_INTERRUPT_H

#include <stdbool.h>

/* From here on SIGINT sets a flag; a second one ends the program, as by default. */
void interrupt_catch(void);
/* The same for SIGTERM and SIGHUP; a write to a pipe without a reader becomes a write error. */
void interrupt_catch_all(void);
bool interrupt_seen(void);

#endif
