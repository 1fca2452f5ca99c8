/* SPDX-License-Identifier: MIT */
/*
 * A table's file is mapped. If another process truncates it, or its disk fails, an access raises
 * SIGBUS. The program then prints which file it was, and ends with CMD_BAD_INPUT.
 */
#ifndef STINT_CMD_LIB_BUS_ERROR_H
#define STINT_CMD_LIB_BUS_ERROR_H

/* For the program only: the library installs no signal handlers. */
void bus_error_install(void);

#endif
