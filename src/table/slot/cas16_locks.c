/* SPDX-License-Identifier: MIT */
/* The spin locks of machines without a 16-byte swap; see cas16.h. Empty elsewhere. */
#include "table/slot/cas16.h"

#if !CAS16_LOCK_FREE
uint32_t cas16_locks[CAS16_LOCKS];
#endif

typedef int cas16_locks_is_not_empty;
