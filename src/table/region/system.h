/* SPDX-License-Identifier: MIT */
/*
 * What tables use of Linux. On macOS and the BSDs they stay within one process and in memory:
 * the names that sharing needs are defined there, and have no effect. STINT_PORTABLE is for tests
 * of that on Linux.
 */
#ifndef STINT_TABLE_REGION_SYSTEM_H
#define STINT_TABLE_REGION_SYSTEM_H

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h> /* getentropy */
#endif

#if defined(__linux__) && !defined(STINT_PORTABLE)
#define SYSTEM_IS_LINUX 1
#else
#define SYSTEM_IS_LINUX 0

#undef CLOCK_BOOTTIME
#define CLOCK_BOOTTIME CLOCK_MONOTONIC /* on macOS it counts suspend, too */
#undef F_OFD_SETLK
#define F_OFD_SETLK F_SETLK
#undef F_OFD_SETLKW
#define F_OFD_SETLKW F_SETLKW
#undef MADV_HUGEPAGE
#define MADV_HUGEPAGE MADV_NORMAL
#undef MADV_WIPEONFORK
#define MADV_WIPEONFORK MADV_NORMAL
#undef MAP_HUGETLB
#define MAP_HUGETLB 0
#undef MAP_NORESERVE
#define MAP_NORESERVE 0
/* macOS and OpenBSD have none. */
#define posix_fallocate(fd, offset, size) ftruncate(fd, (offset) + (size))
#endif

#endif
