/* SPDX-License-Identifier: MIT */
/*
 * Each case is a child that enters a part of the sandbox and tries one thing: what it returned, or
 * the signal that ended it, is what is asserted.
 */
#define _GNU_SOURCE
#include "unit/test.h"

#include "net/process/privileges.h"
#include "net/process/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_ENTERED 250
#define DIED 1000 /* and the number of the signal */

/* What happened to a child: 0, an errno, or DIED and a signal. */
static int outcome(int (*enter)(void), int (*attempt)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (enter() != 0)
            _exit(NOT_ENTERED);
        errno = 0;
        _exit(attempt() < 0 ? errno : 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? DIED + WTERMSIG(status) : WEXITSTATUS(status);
}

static void skip_with_sanitizers(void)
{
    if (sandbox_is_built())
        return;
    struct stint_error error;
    assert_int_equal(sandbox_enter_files(&(struct sandbox_options){.mode = SANDBOX_OFF}, &error),
                     0);
    print_message("a build with sanitizers has no sandbox to try\n");
    skip();
}

/* ---- System calls ---------------------------------------------------------------------------- */

static int enter_calls(void)
{
    struct stint_error error;
    return sandbox_calls(false, &error);
}

static int start_a_program(void)
{
    char *arguments[] = {"true", NULL};
    return execve("/bin/true", arguments, NULL);
}

static int start_a_program_by_its_file(void)
{
    return (int)syscall(SYS_execveat, -1, "/bin/true", NULL, NULL, 0);
}

static int fork_once(void)
{
    return (int)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static int trace_the_parent(void)
{
    return (int)ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

static int read_the_parents_memory(void)
{
    return (int)syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0);
}

static int load_a_program_of_the_kernels(void)
{
    return (int)syscall(SYS_bpf, 0, NULL, 0);
}

static int mount_something(void)
{
    return (int)syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL);
}

static int change_the_root(void)
{
    return chroot("/tmp");
}

static int make_a_namespace(void)
{
    return (int)syscall(SYS_unshare, 0x10000000 /* of users */);
}

static int become_root(void)
{
    return setuid(0);
}

TEST(test_what_only_strangers_call_ends_the_process)
{
    skip_with_sanitizers();
    int (*const attempts[])(void) = {
        start_a_program,
        start_a_program_by_its_file,
        fork_once,
        trace_the_parent,
        read_the_parents_memory,
        load_a_program_of_the_kernels,
        mount_something,
        change_the_root,
        make_a_namespace,
        become_root,
    };
    for (size_t i = 0; i < N(attempts); i++)
        assert_int_equal(outcome(enter_calls, attempts[i]), DIED + SIGSYS);
}

static int make_a_raw_socket(void)
{
    return socket(AF_PACKET, SOCK_RAW, 0);
}

static int make_an_internet_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static int call_out(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/dbus/system_bus_socket"};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return connect(fd, (struct sockaddr *)&address, sizeof(address));
}

static int listen_elsewhere(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    return bind(0, (struct sockaddr *)&address, sizeof(sa_family_t));
}

static int map_code(void)
{
    void *at =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? -1 : 0;
}

static int make_data_code(void)
{
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mprotect(at, 4096, PROT_READ | PROT_EXEC);
}

static int send_a_signal(void)
{
    return kill(getpid(), SIGURG);
}

static int write_a_file(void)
{
    return open("/dev/null", O_WRONLY);
}

static int make_a_file(void)
{
    return open("/tmp/stint-sandbox-test", O_RDWR | O_CREAT, 0600);
}

TEST(test_what_a_library_may_try_fails)
{
    skip_with_sanitizers();
    int (*const attempts[])(void) = {
        make_a_raw_socket, make_an_internet_socket, call_out,     listen_elsewhere, map_code,
        make_data_code,    send_a_signal,           write_a_file, make_a_file,
    };
    for (size_t i = 0; i < N(attempts); i++)
        assert_int_equal(outcome(enter_calls, attempts[i]), EPERM);
}

/* ---- With shared stores ---------------------------------------------------------------------- */

static int enter_calls_with_stores(void)
{
    struct stint_error error;
    return sandbox_calls(true, &error);
}

/* The port was closed again: the kernel refuses, and not the filter. */
static int call_a_store(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_port = htons(1);
    return fd >= 0 ? connect(fd, (struct sockaddr *)&address, sizeof(address)) : -1;
}

static int look_up_a_name(void)
{
    struct addrinfo *found = NULL;
    int code = getaddrinfo("localhost", "6379", NULL, &found);
    if (code == 0)
        freeaddrinfo(found);
    errno = EPERM;
    return code == 0 ? 0 : -1;
}

static int enter_both_with_stores(void)
{
    struct stint_error error;
    int code = sandbox_files(&(struct sandbox_paths){.resolves = true}, &error);
    return code != 0 ? code : sandbox_calls(true, &error);
}

TEST(test_a_server_with_stores_may_call_out)
{
    skip_with_sanitizers();
    assert_int_equal(outcome(enter_calls_with_stores, call_a_store), ECONNREFUSED);
    assert_int_equal(outcome(enter_both_with_stores, look_up_a_name), 0);
    assert_int_equal(outcome(enter_calls_with_stores, make_a_raw_socket), ENOSYS);
    assert_int_equal(outcome(enter_calls_with_stores, listen_elsewhere), EPERM);
    assert_int_equal(outcome(enter_calls_with_stores, start_a_program), DIED + SIGSYS);
}

static int call_what_no_list_knows(void)
{
    return (int)syscall(SYS_memfd_create, "code", 0);
}

TEST(test_a_call_that_no_list_knows_is_not_there)
{
    skip_with_sanitizers();
    assert_int_equal(outcome(enter_calls, call_what_no_list_knows), ENOSYS);
}

static void *do_nothing(void *arg)
{
    return arg;
}

static int do_what_serving_needs(void)
{
    pthread_t thread;
    char byte[16];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    void *memory = malloc(64 << 20);
    bool is_well = fd >= 0 && read(fd, byte, sizeof(byte)) > 0 && memory != NULL &&
                   eventfd(0, EFD_CLOEXEC) >= 0 && kill(getpid(), 0) == 0 &&
                   socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) >= 0 &&
                   pthread_create(&thread, NULL, do_nothing, NULL) == 0 &&
                   pthread_join(thread, NULL) == 0;
    free(memory);
    return is_well ? 0 : -1;
}

TEST(test_what_serving_needs_goes_on)
{
    skip_with_sanitizers();
    assert_int_equal(outcome(enter_calls, do_what_serving_needs), 0);
}

static int go_on[2];

static void *start_when_told(void *arg)
{
    char byte;
    (void)arg;
    if (read(go_on[0], &byte, 1) == 1)
        start_a_program();
    return NULL;
}

static int begin_a_thread_and_enter(void)
{
    pthread_t thread;
    if (pipe(go_on) != 0 || pthread_create(&thread, NULL, start_when_told, NULL) != 0)
        return -1;
    return enter_calls();
}

static int let_the_thread_start_a_program(void)
{
    ssize_t written = write(go_on[1], "g", 1);
    for (;;) /* the whole process ends here, or the program runs in its place and exits with 0 */
        if (written != 1)
            return -1;
}

TEST(test_threads_that_were_there_before_are_in_it)
{
    skip_with_sanitizers();
    assert_int_equal(outcome(begin_a_thread_and_enter, let_the_thread_start_a_program),
                     DIED + SIGSYS);
}

/* ---- Files ----------------------------------------------------------------------------------- */

static char root[64];

static const char *at(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", root, name);
    return path;
}

static void put(const char *name)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
}

/* rules/current is a link to rules/v1, as one swaps whole folders; linked/a.yaml lies elsewhere. */
SETUP
{
    strcpy(root, "/tmp/stint-sandbox-XXXXXX");
    assert_non_null(mkdtemp(root));
    const char *const folders[] = {"rules",     "rules/v1", "rules/v2", "linked",
                                   "elsewhere", "secret",   "run"};
    for (size_t i = 0; i < N(folders); i++)
        assert_int_equal(mkdir(at(folders[i]), 0755), 0);
    put("rules/v1/a.yaml");
    put("rules/v2/a.yaml");
    put("elsewhere/a.yaml");
    put("secret/key");
    assert_int_equal(symlink("v1", at("rules/current")), 0);
    assert_int_equal(symlink("../elsewhere/a.yaml", at("linked/a.yaml")), 0);
}

TEARDOWN
{
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

static int enter_files(void)
{
    struct stint_error error;
    char rules[128], linked[128], control[128];
    snprintf(rules, sizeof(rules), "%s/rules/current/a.yaml", root);
    snprintf(linked, sizeof(linked), "%s/linked", root);
    snprintf(control, sizeof(control), "%s/run/control", root);
    const char *const read_paths[] = {rules, linked, "/nowhere/at/all"};
    const char *const sockets[] = {control};
    return sandbox_files(&(struct sandbox_paths){read_paths, 3, sockets, 1, false}, &error);
}

static int opened(const char *name, int flags)
{
    return open(at(name), flags | O_CLOEXEC, 0600);
}

static int read_rules(void)
{
    return opened("rules/current/a.yaml", O_RDONLY);
}

static int read_the_next_version(void)
{
    return opened("rules/v2/a.yaml", O_RDONLY);
}

static int read_what_is_linked(void)
{
    return opened("linked/a.yaml", O_RDONLY);
}

static int bind_at(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, at(name));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return bind(fd, (struct sockaddr *)&address, sizeof(address));
}

static int bind_and_remove(void)
{
    return bind_at("run/control") == 0 ? unlink(at("run/control")) : -1;
}

static int read_a_secret(void)
{
    return opened("secret/key", O_RDONLY);
}

static int read_passwords(void)
{
    return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static int write_rules(void)
{
    return opened("rules/v1/a.yaml", O_WRONLY);
}

static int make_beside_rules(void)
{
    return opened("rules/v1/b.yaml", O_WRONLY | O_CREAT);
}

static int make_beside_the_socket(void)
{
    return opened("run/file", O_WRONLY | O_CREAT);
}

static int bind_elsewhere(void)
{
    return bind_at("secret/control");
}

static int remove_rules(void)
{
    return unlink(at("rules/v1/a.yaml"));
}

TEST(test_files)
{
    skip_with_sanitizers();
    if (outcome(enter_files, read_rules) == NOT_ENTERED) {
        struct stint_error error;
        assert_int_equal(enter_files(), STINT_E_SYSTEM);
        assert_int_equal(sandbox_files(&(struct sandbox_paths){0}, &error), STINT_E_SYSTEM);
        print_message("%s\n", error.message);
        skip();
    }
    int (*const permitted[])(void) = {read_rules, read_the_next_version, read_what_is_linked,
                                      bind_and_remove};
    for (size_t i = 0; i < N(permitted); i++)
        assert_int_equal(outcome(enter_files, permitted[i]), 0);
    int (*const denied[])(void) = {read_a_secret,          read_passwords, write_rules,
                                   make_beside_rules,      bind_elsewhere, remove_rules,
                                   make_beside_the_socket, start_a_program};
    for (size_t i = 0; i < N(denied); i++)
        assert_int_equal(outcome(enter_files, denied[i]), EACCES);
}

/* ---- Users ----------------------------------------------------------------------------------- */

static int become_nobody(void)
{
    struct stint_error error;
    return user_become("nobody", &error);
}

static int become_nobody_for_good(void)
{
    struct stint_error error;
    return become_nobody() == 0 ? user_settle(&error) : -1;
}

static int bind_a_low_port(void)
{
    for (uint16_t port = 1; port < 1024; port++) {
        struct sockaddr_in address = {
            .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno != EADDRINUSE)
            return errno == EACCES ? -1 : 0;
        close(fd);
    }
    return -1;
}

static int read_shadow(void)
{
    return open("/etc/shadow", O_RDONLY | O_CLOEXEC);
}

TEST(test_root_becomes_somebody_else)
{
    if (geteuid() != 0) {
        print_message("only root can become somebody else\n");
        skip();
    }
    assert_int_equal(outcome(become_nobody, bind_a_low_port), 0);
    assert_int_equal(outcome(become_nobody, read_shadow), EACCES);
    assert_int_equal(outcome(become_nobody, become_root), EPERM);
    assert_int_equal(outcome(become_nobody_for_good, bind_a_low_port), EACCES);
    assert_int_equal(outcome(become_nobody_for_good, become_root), EPERM);
}

TEST(test_users_that_cannot_be_meant_are_refused)
{
    struct stint_error error;
    assert_int_equal(user_become("no such user", &error), STINT_E_MISMATCH);
    assert_string_equal(error.message, "user: there is no 'no such user' here");
    assert_int_equal(user_become("root", &error), STINT_E_MISMATCH);
    assert_string_equal(error.message, "user: expected a user other than root, not 'root'");
}
