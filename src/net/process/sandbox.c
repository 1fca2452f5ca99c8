/* SPDX-License-Identifier: MIT */
/* Two parts of the kernel: access to files, and system calls. A system may lack either. */
#define _GNU_SOURCE
#include "net/process/sandbox.h"

#include "net/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- Files ----------------------------------------------------------------------------------- */

/*
 * The part of the file system that a running server can access (Landlock). A file that is read
 * again may have been replaced under its name, so access is given to folders: the one that contains
 * it, and each that contains a link on the path to it.
 */

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
    "/etc/pki/ca-trust", /* CA certificates, for each connection to a control plane */
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
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

static int files_fail(const char *what, struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "no confinement to files (Landlock): %s: %s", what,
                   strerror(errno));
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
            return files_fail(of_the_system[i], error);
    for (size_t i = 0; paths->resolves && i < sizeof(of_the_resolver) / sizeof(char *); i++)
        if (!permit(ruleset, of_the_resolver[i], MAY_READ))
            return files_fail(of_the_resolver[i], error);
    for (size_t i = 0; i < paths->n_read; i++)
        if (!permit_reading(ruleset, paths->read[i]))
            return files_fail(paths->read[i], error);
    for (size_t i = 0; i < paths->n_sockets; i++)
        if (!permit_folder_of(ruleset, paths->sockets[i], MAY_HAVE_SOCKETS))
            return files_fail(paths->sockets[i], error);
    return 0;
}

int sandbox_files(const struct sandbox_paths *paths, struct stint_error *error)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1)
        return files_fail("the kernel lacks it, or it is disabled", error);
    struct landlock_ruleset_attr attr = {.handled_access_fs =
                                             RIGHTS_1 | (version >= 2 ? RIGHT_REFER : 0) |
                                             (version >= 3 ? RIGHT_TRUNCATE : 0) |
                                             (version >= 5 ? RIGHT_IOCTL_DEVICE : 0)};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (ruleset < 0)
        return files_fail("no set of rules", error);
    int code = permit_all(ruleset, paths, error);
    if (code == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
                      syscall(SYS_landlock_restrict_self, ruleset, 0) != 0))
        code = files_fail("it cannot be entered", error);
    if (code == 0)
        err_in_sandbox();
    close(ruleset);
    return code;
}

/* ---- System calls ---------------------------------------------------------------------------- */

/*
 * The system calls that a running server keeps, as a filter of the kernel (seccomp).
 * docs/decisions/0028 explains why some of the others end the process and the rest only fail.
 */

/* The formatter would spread lists and tables over many lines. */
/* clang-format off */
/* Old calls are listed with their successors: which of them libc uses depends on the processor. */
static const char *const allowed[] = {
    /* Memory; executable memory is below. */
    "brk", "madvise", "mremap", "msync", "munmap",
    /* Threads; their creation is below. */
    "exit", "exit_group", "futex", "futex_time64", "getpid", "gettid", "membarrier",
    "restart_syscall", "rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "sched_getaffinity", "sched_yield", "set_robust_list", "sigaltstack", "sigreturn", "wait4",
    "waitid", "waitpid",
    /* Time and the machine. */
    "clock_getres", "clock_getres_time64", "clock_gettime", "clock_gettime64", "clock_nanosleep",
    "clock_nanosleep_time64", "getcpu", "getrandom", "getrusage", "gettimeofday", "nanosleep",
    "sysinfo", "time", "times", "uname",
    /* The identity of the process. */
    "getegid", "getegid32", "geteuid", "geteuid32", "getgid", "getgid32", "getuid", "getuid32",
    /* Files: those that are read again, and the paths of sockets that are removed at the end. */
    "access", "close", "faccessat", "faccessat2", "fcntl", "fcntl64", "fdatasync", "fstat",
    "fstat64", "fstatat64", "fsync", "getcwd", "getdents", "getdents64", "lseek", "_llseek",
    "lstat", "lstat64", "newfstatat", "pread64", "pwrite64", "read", "readlink",
    "readlinkat", "readv", "stat", "stat64", "statx", "unlink", "unlinkat", "write", "writev",
    /* Waiting for events. */
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait",
    "eventfd", "eventfd2", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch",
    "pipe", "pipe2", "poll", "ppoll", "ppoll_time64",
    /* Existing sockets; new ones are below. */
    "accept", "accept4", "getpeername", "getsockname", "getsockopt", "recv", "recvfrom", "recvmsg",
    "send", "sendmsg", "sendto", "setsockopt", "shutdown",
};

/* No library of the server uses these: a process that does runs foreign code. */
static const char *const deadly[] = {
    "acct", "add_key", "adjtimex", "bpf", "capset", "chroot", "clock_adjtime", "clock_settime",
    "create_module", "delete_module", "execve", "execveat", "finit_module", "fork", "fsconfig",
    "fsmount", "fsopen", "init_module", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load",
    "keyctl", "mknod", "mknodat", "mount", "mount_setattr", "move_mount", "name_to_handle_at",
    "open_by_handle_at", "open_tree", "perf_event_open", "personality", "pidfd_getfd", "pivot_root",
    "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "reboot",
    "request_key", "setdomainname", "setfsgid", "setfsuid", "setgid", "setgroups", "sethostname",
    "setns", "setregid", "setresgid", "setresuid", "setreuid", "settimeofday", "setuid", "swapoff",
    "swapon", "umount", "umount2", "unshare", "userfaultfd", "vfork", "vhangup",
};

/* No new listening address. */
static const char *const refused[] = {"bind", "listen"};

/* For outgoing connections: also used by libc's resolver. */
static const char *const of_connections[] = {"connect", "recvmmsg", "sendmmsg"};

#ifdef __s390__
#define CLONE_FLAGS_ARGUMENT 1
#else
#define CLONE_FLAGS_ARGUMENT 0
#endif

struct condition {
    const char *call;
    uint32_t action;
    unsigned n_arguments;
    struct scmp_arg_cmp arguments[2];
};

/* A comparison of an argument, for the initialisers below. */
#define IF(argument, ...) {.arg = (argument), __VA_ARGS__}
#define EQUALS(value) .op = SCMP_CMP_EQ, .datum_a = (value)
#define DIFFERS(value) .op = SCMP_CMP_NE, .datum_a = (value)
#define MASKED(mask, value) .op = SCMP_CMP_MASKED_EQ, .datum_a = (mask), .datum_b = (value)
#define ALLOWED_IF(name, ...) {name, SCMP_ACT_ALLOW, 1, {IF(__VA_ARGS__)}}
#define REFUSED_IF(name, ...) {name, SCMP_ACT_ERRNO(EPERM), 1, {IF(__VA_ARGS__)}}
#define WRITES (O_ACCMODE | O_CREAT | O_TRUNC)

static const struct condition conditions[] = {
    /* Memory is never both writable and executable. */
    ALLOWED_IF("mmap", 2, MASKED(PROT_EXEC, 0)),
    REFUSED_IF("mmap", 2, MASKED(PROT_EXEC, PROT_EXEC)),
    ALLOWED_IF("mmap2", 2, MASKED(PROT_EXEC, 0)),
    REFUSED_IF("mmap2", 2, MASKED(PROT_EXEC, PROT_EXEC)),
    ALLOWED_IF("mprotect", 2, MASKED(PROT_EXEC, 0)),
    REFUSED_IF("mprotect", 2, MASKED(PROT_EXEC, PROT_EXEC)),
    /* Files are opened for reading. Files for writing were opened before. */
    ALLOWED_IF("open", 1, MASKED(WRITES, O_RDONLY)),
    REFUSED_IF("open", 1, MASKED(O_ACCMODE, O_WRONLY)),
    REFUSED_IF("open", 1, MASKED(O_ACCMODE, O_RDWR)),
    ALLOWED_IF("openat", 2, MASKED(WRITES, O_RDONLY)),
    REFUSED_IF("openat", 2, MASKED(O_ACCMODE, O_WRONLY)),
    REFUSED_IF("openat", 2, MASKED(O_ACCMODE, O_RDWR)),
    /* Threads only. A filter cannot see the flags of clone3: without it libc uses clone. */
    ALLOWED_IF("clone", CLONE_FLAGS_ARGUMENT, MASKED(CLONE_THREAD, CLONE_THREAD)),
    {"clone", SCMP_ACT_KILL_PROCESS, 1, {IF(CLONE_FLAGS_ARGUMENT, MASKED(CLONE_THREAD, 0))}},
    /* Only checks whether the owner of a state file is alive; other signals are not allowed. */
    ALLOWED_IF("kill", 1, EQUALS(0)),
    REFUSED_IF("kill", 1, DIFFERS(0)),
    ALLOWED_IF("prctl", 0, EQUALS(PR_SET_NAME)),
    ALLOWED_IF("ioctl", 1, EQUALS(FIONBIO)),
    ALLOWED_IF("ioctl", 1, EQUALS(FIOCLEX)),
    ALLOWED_IF("ioctl", 1, EQUALS(FIONREAD)),
    /* Limits are read, not set. */
    {"prlimit64", SCMP_ACT_ALLOW, 2, {IF(0, EQUALS(0)), IF(2, EQUALS(0))}},
};

/* Without outgoing connections. */
static const struct condition without_connections[] = {
    /* A message to systemd uses a socket of its own. */
    {"socket", SCMP_ACT_ALLOW, 2, {IF(0, EQUALS(AF_UNIX)), IF(1, MASKED(0xf, SOCK_DGRAM))}},
    REFUSED_IF("socket", 0, DIFFERS(AF_UNIX)),
    {"connect", SCMP_ACT_ERRNO(EPERM), 0, {IF(0, EQUALS(0))}},
};

/* For stores and collectors. The resolver gets the addresses of this machine (AF_NETLINK). */
static const struct condition with_connections[] = {
    ALLOWED_IF("socket", 0, EQUALS(AF_UNIX)),
    ALLOWED_IF("socket", 0, EQUALS(AF_INET)),
    ALLOWED_IF("socket", 0, EQUALS(AF_INET6)),
    ALLOWED_IF("socket", 0, EQUALS(AF_NETLINK)),
};
/* clang-format on */

/* Names and conditions; the action is that of the names. */
struct calls {
    const char *const *names;
    size_t n_names;
    uint32_t action;
    const struct condition *rules;
    size_t n_rules;
};

static int calls_fail(const char *what, int code, struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "no filter of system calls (seccomp): %s: %s", what,
                   strerror(code < 0 ? -code : code));
}

/* A name unknown on this processor or to this library needs no rule: the default is strict. */
static int add(scmp_filter_ctx filter, const char *call, uint32_t action, unsigned n_arguments,
               const struct scmp_arg_cmp *arguments, struct stint_error *error)
{
    int number = seccomp_syscall_resolve_name(call);
    if (number == __NR_SCMP_ERROR)
        return 0;
    int code = seccomp_rule_add_array(filter, action, number, n_arguments, arguments);
    return code == 0 ? 0 : calls_fail(call, code, error);
}

static int add_all(scmp_filter_ctx filter, const struct calls *calls, struct stint_error *error)
{
    int code = 0;
    for (size_t i = 0; i < calls->n_names && code == 0; i++)
        code = add(filter, calls->names[i], calls->action, 0, NULL, error);
    for (size_t i = 0; i < calls->n_rules && code == 0; i++) {
        const struct condition *rule = &calls->rules[i];
        code = add(filter, rule->call, rule->action, rule->n_arguments, rule->arguments, error);
    }
    return code;
}

static int set_attributes(scmp_filter_ctx filter, struct stint_error *error)
{
    const struct {
        enum scmp_filter_attr attribute;
        uint32_t value;
    } attributes[] = {
        {SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS}, /* calls of another word size */
        {SCMP_FLTATR_CTL_NNP, 1},
        {SCMP_FLTATR_CTL_TSYNC, 1}, /* all existing threads */
        /* Kernels before 5.16 slow down processes with a filter, by mitigations for untrusted
         * code. */
        {SCMP_FLTATR_CTL_SSB, 1},
        {SCMP_FLTATR_CTL_OPTIMIZE, 2}, /* a binary tree */
    };
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        int code = seccomp_attr_set(filter, attributes[i].attribute, attributes[i].value);
        if (code != 0)
            return calls_fail("its attributes", code, error);
    }
    return 0;
}

int sandbox_calls(bool connects, struct stint_error *error)
{
#define NAMES(list) .names = (list), .n_names = sizeof(list) / sizeof((list)[0])
#define RULES(list) .rules = (list), .n_rules = sizeof(list) / sizeof((list)[0])
    static const struct calls always[] = {
        {NAMES(allowed), .action = SCMP_ACT_ALLOW, RULES(conditions)},
        {NAMES(deadly), .action = SCMP_ACT_KILL_PROCESS},
        {NAMES(refused), .action = SCMP_ACT_ERRNO(EPERM)},
    };
    static const struct calls when_connecting[] = {
        [false] = {RULES(without_connections)},
        [true] = {NAMES(of_connections), .action = SCMP_ACT_ALLOW, RULES(with_connections)},
    };
#undef RULES
#undef NAMES
    /* abort() and assert() send a signal to a thread; only threads of this process are allowed. */
    const struct scmp_arg_cmp of_ours = IF(0, EQUALS((scmp_datum_t)getpid()));
    /* Newer calls fail as on an old kernel; libc and libuv have fallbacks for them. */
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (filter == NULL)
        return calls_fail("memory", ENOMEM, error);
    int code = set_attributes(filter, error);
    for (size_t i = 0; code == 0 && i < sizeof(always) / sizeof(always[0]); i++)
        code = add_all(filter, &always[i], error);
    if (code == 0)
        code = add_all(filter, &when_connecting[connects], error);
    if (code == 0)
        code = add(filter, "tgkill", SCMP_ACT_ALLOW, 1, &of_ours, error);
    int loaded = code == 0 ? seccomp_load(filter) : 0;
    if (loaded != 0)
        code = calls_fail("the kernel rejects it", loaded, error);
    seccomp_release(filter);
    return code;
}

/* ---- Which parts are entered ----------------------------------------------------------------- */

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#endif

bool sandbox_is_built(void)
{
#ifdef HAS_SANITIZER
    return false;
#else
    return true;
#endif
}

/* SANDBOX_ON returns the error; SANDBOX_AUTO continues without the part. */
static int entered(const struct sandbox_options *options, int code, const char *part,
                   struct stint_error *error)
{
    if (code == 0) {
        log_line(options->log, LOG_SANDBOXED, LOG_TEXT("part", part));
        return 0;
    }
    if (!sandbox_is_built())
        err_set(error, code, "a build with sanitizers cannot run in a sandbox");
    if (options->mode == SANDBOX_ON) {
        struct stint_error why = *error;
        return err_set(error, code, "sandbox: %s; auto would serve without", why.message);
    }
    log_line(options->log, LOG_SANDBOX_LACKS, LOG_TEXT("part", part),
             LOG_TEXT("reason", error->message));
    return 0;
}

static size_t add_unix_paths(const struct listeners *listeners, const char **paths, size_t most)
{
    size_t n_paths = 0;
    for (size_t i = 0; i < listeners->n_all && n_paths < most; i++) {
        const struct sockaddr_un *address = (const void *)&listeners->all[i].address;
        if (address->sun_family == AF_UNIX && address->sun_path[0] != '\0')
            paths[n_paths++] = address->sun_path;
    }
    return n_paths;
}

int sandbox_enter_files(const struct sandbox_options *options, struct stint_error *error)
{
    if (options->mode == SANDBOX_OFF)
        return 0;
    const char *sockets[LISTENERS_MAX + 1];
    size_t n_sockets = add_unix_paths(options->listeners, sockets, LISTENERS_MAX);
    if (options->control != NULL)
        sockets[n_sockets++] = options->control;
    const struct sandbox_paths paths = {
        .read = options->read_paths,
        .n_read = options->n_read_paths,
        .sockets = sockets,
        .n_sockets = n_sockets,
        .resolves = options->connects,
    };
    int code = sandbox_is_built() ? sandbox_files(&paths, error) : STINT_E_SYSTEM;
    return entered(options, code, "files", error);
}

int sandbox_enter_calls(const struct sandbox_options *options, struct stint_error *error)
{
    if (options->mode == SANDBOX_OFF)
        return 0;
    int code = sandbox_is_built() ? sandbox_calls(options->connects, error) : STINT_E_SYSTEM;
    return entered(options, code, "system calls", error);
}
