/* SPDX-License-Identifier: MIT */
/*
 * The part of the file system that a running server can access (Landlock). A file that is read
 * again may have been replaced under its name, so access is given to folders: the one that contains
 * it, and each that contains a link on the path to it.
 */
#define _GNU_SOURCE
#include "net/process/sandbox.h"

#include "net/file/file_text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINKS_MAX 40 /* on the way to one file, as in the kernel */

#define MAY_READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define MAY_HAVE_SOCKETS (LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE)
/* Every right of Landlock's first version. */
#define RIGHTS_1 (LANDLOCK_ACCESS_FS_MAKE_SYM * 2 - 1)
/* Later versions, by numbers that Debian's headers do not have names for yet. */
#define RIGHT_REFER (UINT64_C(1) << 13)
#define RIGHT_TRUNCATE (UINT64_C(1) << 14)
#define RIGHT_IOCTL_DEVICE (UINT64_C(1) << 15)

/* Files that libraries may read at any time: never secret, and missing on some systems. */
static const char *const of_the_system[] = {
    "/dev/null",
    "/dev/urandom",
    "/etc/crypto-policies", /* GnuTLS reads its policy at each reload */
    "/etc/gnutls",
    "/etc/localtime",
    "/proc", /* to check a state file's owner; other processes' memory is not accessible */
    "/sys/devices/system/cpu",
    "/usr/share/crypto-policies",
    "/usr/share/zoneinfo",
};

/* For resolving names. Each file by itself: its folder has others. */
static const char *const of_the_resolver[] = {
    "/etc/gai.conf",  "/etc/host.conf",   "/etc/hosts",    "/etc/nsswitch.conf",
    "/etc/protocols", "/etc/resolv.conf", "/etc/services",
};

static int fail(const char *what, struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "no confinement to files (Landlock): %s: %s", what,
                   strerror(errno));
}

static uint64_t rights_of_version(long version)
{
    return RIGHTS_1 | (version >= 2 ? RIGHT_REFER : 0) | (version >= 3 ? RIGHT_TRUNCATE : 0) |
           (version >= 5 ? RIGHT_IOCTL_DEVICE : 0);
}

/* Permits access beneath a path. A missing path is ignored. */
static bool permit(int ruleset, const char *path, uint64_t rights)
{
    struct stat status;
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == EACCES;
    if (fstat(fd, &status) == 0 && !S_ISDIR(status.st_mode))
        rights &= ~(uint64_t)LANDLOCK_ACCESS_FS_READ_DIR;
    struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
    bool is_added =
        syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
    int reason = errno;
    close(fd);
    errno = reason;
    return is_added;
}

static bool permit_folder_of(int ruleset, const char *path, uint64_t rights)
{
    char folder[PATH_MAX];
    file_folder(path, folder, sizeof(folder));
    return permit(ruleset, folder, rights);
}

/* Replaces a link's name by its target: "a/link/b" with link -> "c" becomes "a/c/b". */
static bool follow(char path[PATH_MAX], size_t name_end, const char *target)
{
    char head[PATH_MAX], next[PATH_MAX];
    snprintf(head, sizeof(head), "%.*s", (int)name_end, path);
    char *slash = strrchr(head, '/');
    if (target[0] == '/' || slash == NULL)
        head[0] = '\0';
    else
        slash[1] = '\0';
    int len = snprintf(next, sizeof(next), "%s%s%s", head, target, path + name_end);
    if (len < 0 || (size_t)len >= sizeof(next))
        return false;
    memcpy(path, next, (size_t)len + 1);
    return true;
}

/* The end of the first name in the path that is a link, and its target; 0: there is none. */
static size_t find_link(const char *path, char target[PATH_MAX])
{
    for (const char *end = path; *end != '\0';) {
        char head[PATH_MAX];
        end += strspn(end, "/");
        end += strcspn(end, "/");
        snprintf(head, sizeof(head), "%.*s", (int)(end - path), path);
        ssize_t len = readlink(head, target, PATH_MAX - 1);
        if (len > 0) {
            target[len] = '\0';
            return (size_t)(end - path);
        }
    }
    return 0;
}

/*
 * A link in the root folder is part of the system's layout, and is not replaced; access to all
 * beneath its folder would disable the sandbox.
 */
static bool permit_links(int ruleset, char path[PATH_MAX])
{
    char target[PATH_MAX], link[PATH_MAX];
    for (int i = 0; i < LINKS_MAX; i++) {
        size_t end = find_link(path, target);
        if (end == 0)
            return true;
        snprintf(link, sizeof(link), "%.*s", (int)end, path);
        if (strrchr(link, '/') != link && !permit_folder_of(ruleset, link, MAY_READ))
            return false;
        if (!follow(path, end, target))
            return true;
    }
    return true;
}

static bool permit_file(int ruleset, const char *given)
{
    char path[PATH_MAX];
    struct stat status;
    if (snprintf(path, sizeof(path), "%s", given) >= (int)sizeof(path))
        return true; /* it cannot be opened later, either */
    if (!permit_links(ruleset, path))
        return false;
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return permit(ruleset, path, MAY_READ);
    return permit_folder_of(ruleset, path, MAY_READ);
}

/* A folder may contain links to files elsewhere. */
static bool permit_reading(int ruleset, const char *path)
{
    bool is_permitted = permit_file(ruleset, path);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && is_permitted;) {
        char name[PATH_MAX];
        if ((entry = readdir(folder)) == NULL)
            break;
        int len = snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && len < (int)sizeof(name))
            is_permitted = permit_file(ruleset, name);
    }
    if (folder != NULL)
        closedir(folder);
    return is_permitted;
}

static int permit_all(int ruleset, const struct sandbox_paths *paths, struct stint_error *error)
{
    for (size_t i = 0; i < sizeof(of_the_system) / sizeof(of_the_system[0]); i++)
        if (!permit(ruleset, of_the_system[i], MAY_READ))
            return fail(of_the_system[i], error);
    for (size_t i = 0; paths->resolves && i < sizeof(of_the_resolver) / sizeof(char *); i++)
        if (!permit(ruleset, of_the_resolver[i], MAY_READ))
            return fail(of_the_resolver[i], error);
    for (size_t i = 0; i < paths->n_read; i++)
        if (!permit_reading(ruleset, paths->read[i]))
            return fail(paths->read[i], error);
    for (size_t i = 0; i < paths->n_sockets; i++)
        if (!permit_folder_of(ruleset, paths->sockets[i], MAY_HAVE_SOCKETS))
            return fail(paths->sockets[i], error);
    return 0;
}

int sandbox_files(const struct sandbox_paths *paths, struct stint_error *error)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1)
        return fail("the kernel lacks it, or it is disabled", error);
    struct landlock_ruleset_attr attr = {.handled_access_fs = rights_of_version(version)};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (ruleset < 0)
        return fail("no set of rules", error);
    int code = permit_all(ruleset, paths, error);
    if (code == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
                      syscall(SYS_landlock_restrict_self, ruleset, 0) != 0))
        code = fail("it cannot be entered", error);
    close(ruleset);
    return code;
}
