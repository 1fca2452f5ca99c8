/* SPDX-License-Identifier: MIT */
/*
 * A table's file is mapped: when another process makes it shorter, or its disk fails, reading it
 * ends in the signal SIGBUS. The program then says which file it was, and ends with CMD_BAD_INPUT.
 */
#ifndef STINT_CMD_LIB_BUS_ERROR_H
#define STINT_CMD_LIB_BUS_ERROR_H

/* For the whole program. The library itself installs no handlers: its user's are its user's. */
void bus_error_install(void);

#endif
