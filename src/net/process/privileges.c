/* SPDX-License-Identifier: MIT */
/* Capabilities by system calls: libc has these, but no header for them. */
#define _GNU_SOURCE
#include "net/process/privileges.h"

#include "base/err.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPARE 64 /* for files, loops and sockets that are no connections */
#define SPARE_OF_A_WORKER 16

/*
 * Two ways: the limit is for files that the kernel writes; a core_pattern that is a program gets a
 * dump regardless of the limit, unless the process is not dumpable. The hard limit is unchanged, so
 * that a successor may have another setting.
 */
int rlimits_core_dumps(bool is_allowed, struct stint_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) != 0)
        return err_set(error, STINT_E_SYSTEM, "cannot read the limit of core dumps: %s",
                       strerror(errno));
    limit.rlim_cur = is_allowed ? limit.rlim_max : 0;
    if (setrlimit(RLIMIT_CORE, &limit) != 0 || prctl(PR_SET_DUMPABLE, is_allowed, 0, 0, 0) != 0)
        return err_set(error, STINT_E_SYSTEM, "cannot %s core dumps: %s",
                       is_allowed ? "allow" : "forbid", strerror(errno));
    return 0;
}

uint64_t rlimits_connections(unsigned workers)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return UINT64_MAX;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    uint64_t spare = SPARE + SPARE_OF_A_WORKER * (uint64_t)workers;
    return limit.rlim_cur > spare ? limit.rlim_cur - spare : 1;
}

/* Capabilities are two words since there are more than 32. */
struct rights {
    struct __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3];
};

static bool get_rights(struct rights *rights)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    return syscall(SYS_capget, &header, rights->words) == 0;
}

static bool set_rights(const struct rights *rights)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    return syscall(SYS_capset, &header, rights->words) == 0;
}

/* Keeps the capability to bind a low port, unless a container has removed that one, too. */
static bool keep_right_to_bind(void)
{
    struct rights had, kept = {0};
    if (!get_rights(&had))
        return false;
    kept.words[0].permitted = had.words[0].permitted & (1u << CAP_NET_BIND_SERVICE);
    kept.words[0].effective = kept.words[0].permitted;
    return set_rights(&kept);
}

int user_become(const char *name, struct stint_error *error)
{
    const struct passwd *user = getpwnam(name);
    if (user == NULL)
        return err_set(error, STINT_E_MISMATCH, "user: there is no '%s' here", name);
    if (user->pw_uid == 0)
        return err_set(error, STINT_E_MISMATCH, "user: expected a user other than root, not '%s'",
                       name);
    if (user->pw_uid == geteuid() && user->pw_uid == getuid())
        return 0;
    if (geteuid() != 0)
        return err_set(error, STINT_E_MISMATCH, "user: only root can become '%s'", name);
    if (initgroups(name, user->pw_gid) != 0 ||
        setresgid(user->pw_gid, user->pw_gid, user->pw_gid) != 0 ||
        prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 ||
        setresuid(user->pw_uid, user->pw_uid, user->pw_uid) != 0 || !keep_right_to_bind() ||
        prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0)
        return err_set(error, STINT_E_SYSTEM, "user: cannot become '%s': %s", name,
                       strerror(errno));
    return 0;
}

static bool has_rights(void)
{
    struct rights rights = {0};
    bool is_known = get_rights(&rights);
    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        if (rights.words[i].permitted != 0 || rights.words[i].effective != 0)
            return true;
    return !is_known;
}

int user_settle(struct stint_error *error)
{
    static const struct rights none;
    if (geteuid() == 0)
        return 0;
    if ((has_rights() && !set_rights(&none)) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return err_set(error, STINT_E_SYSTEM, "user: cannot give up rights: %s", strerror(errno));
    if (has_rights() || setuid(0) == 0)
        return err_set(error, STINT_E_SYSTEM, "user: rights that were given up are still there");
    return 0;
}
