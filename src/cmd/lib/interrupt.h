/* SPDX-License-Identifier: MIT */
/* ^C in a long run: the first ends the work, and what there is so far is printed. */
#ifndef STINT_CMD_LIB_INTERRUPT_H
#define STINT_CMD_LIB_INTERRUPT_H

#include <stdbool.h>

/* From here on SIGINT is remembered; a second one ends the program as it always did. */
void interrupt_catch(void);
/* The same of SIGTERM and SIGHUP, and a pipe that nobody reads any more is a fault of writing. */
void interrupt_catch_all(void);
bool interrupt_seen(void);

#endif
