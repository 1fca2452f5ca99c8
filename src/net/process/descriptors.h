/* SPDX-License-Identifier: MIT */
/* Open files of the process. */
#ifndef STINT_NET_PROCESS_DESCRIPTORS_H
#define STINT_NET_PROCESS_DESCRIPTORS_H

#include <stdint.h>

/* Raises their limit as far as the system allows. Returns how many connections are possible. */
uint64_t descriptors_for_connections(unsigned workers);

#endif
