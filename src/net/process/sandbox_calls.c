/* SPDX-License-Identifier: MIT */
/*
 * The system calls that a running server keeps, as a filter of the kernel (seccomp).
 * docs/decisions/0028 explains why some of the others end the process and the rest only fail.
 */
#define _GNU_SOURCE
#include "net/process/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* For stores. The resolver asks the kernel for this machine's addresses (AF_NETLINK). */
static const struct condition with_connections[] = {
    ALLOWED_IF("socket", 0, EQUALS(AF_UNIX)),
    ALLOWED_IF("socket", 0, EQUALS(AF_INET)),
    ALLOWED_IF("socket", 0, EQUALS(AF_INET6)),
    ALLOWED_IF("socket", 0, EQUALS(AF_NETLINK)),
};
/* clang-format on */

static int fail(const char *what, int code, struct stint_error *error)
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
    return code == 0 ? 0 : fail(call, code, error);
}

static int add_all(scmp_filter_ctx filter, const char *const *calls, size_t n_calls,
                   uint32_t action, struct stint_error *error)
{
    int code = 0;
    for (size_t i = 0; i < n_calls && code == 0; i++)
        code = add(filter, calls[i], action, 0, NULL, error);
    return code;
}

static int add_conditions(scmp_filter_ctx filter, const struct condition *rules, size_t n_rules,
                          struct stint_error *error)
{
    int code = 0;
    for (size_t i = 0; i < n_rules && code == 0; i++)
        code = add(filter, rules[i].call, rules[i].action, rules[i].n_arguments, rules[i].arguments,
                   error);
    return code;
}

/* abort() and assert() send a signal to a thread; only threads of this process are allowed. */
static int add_signals(scmp_filter_ctx filter, struct stint_error *error)
{
    const struct scmp_arg_cmp of_ours = IF(0, EQUALS((scmp_datum_t)getpid()));
    return add(filter, "tgkill", SCMP_ACT_ALLOW, 1, &of_ours, error);
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
            return fail("its attributes", code, error);
    }
    return 0;
}

int sandbox_calls(bool connects, struct stint_error *error)
{
#define N(list) (sizeof(list) / sizeof((list)[0]))
#define ADD_ALL(calls, action) add_all(filter, calls, N(calls), action, error)

    /* Newer calls fail as on an old kernel; libc and libuv have fallbacks for them. */
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (filter == NULL)
        return fail("memory", ENOMEM, error);
    int code = set_attributes(filter, error);
    if (code == 0)
        code = ADD_ALL(allowed, SCMP_ACT_ALLOW);
    if (code == 0)
        code = ADD_ALL(deadly, SCMP_ACT_KILL_PROCESS);
    if (code == 0)
        code = ADD_ALL(refused, SCMP_ACT_ERRNO(EPERM));
    if (code == 0)
        code = add_conditions(filter, conditions, N(conditions), error);
    if (code == 0 && connects)
        code = ADD_ALL(of_connections, SCMP_ACT_ALLOW);
    if (code == 0)
        code = connects
                   ? add_conditions(filter, with_connections, N(with_connections), error)
                   : add_conditions(filter, without_connections, N(without_connections), error);
    if (code == 0)
        code = add_signals(filter, error);
    if (code == 0) {
        int loaded = seccomp_load(filter);
        code = loaded == 0 ? 0 : fail("the kernel rejects it", loaded, error);
    }
    seccomp_release(filter);
    return code;
#undef ADD_ALL
#undef N
}
