/* SPDX-License-Identifier: MIT */
/* A redis-server on a socket, or a memcached at a port that the system chooses. */
#define _GNU_SOURCE
#include "behaviour/store.h"

#include "base/ns.h"
#include "cmd/store/shared_session.h"
#include "cmd/store/store_word.h"
#include "service/service_parts.h"
#include "unit/test_server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GIVEN_MAX 4
#define STARTS_S 20

static struct {
    const char *name; /* NULL: the table */
    uint64_t epoch_ns;
    char folder[64];
    pid_t pid;
    struct store_given given;
    unsigned n_prefixes;
    bool charges_hits, checks_debt;
    struct given {
        char prefix[16];
        struct shared_session *store;
        struct backend *stores[1];
    } each[GIVEN_MAX];
    size_t n_given;
} used;

/* ---- The server ------------------------------------------------------------------------------ */

static void path_of(char *path, size_t size, const char *name)
{
    snprintf(path, size, "%s/%s", used.folder, name);
}

static void run_server(void)
{
    char path[96];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen("/dev/null", "w", stdout) == NULL) /* which is the test's report */
        _exit(127);
    if (strcmp(used.name, "redis") == 0) {
        path_of(path, sizeof(path), "socket");
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path, "--save", "",
               "--appendonly", "no", "--dir", used.folder, "--loglevel", "warning", NULL);
    } else {
        path_of(path, sizeof(path), "port");
        setenv("MEMCACHED_PORT_FILENAME", path, 1);
        execlp("memcached", "memcached", "-l", "127.0.0.1", "-p", "-1", "-U", "0", "-t", "1", "-u",
               geteuid() == 0 ? "root" : "", NULL);
    }
    perror(used.name);
    _exit(127);
}

static bool redis_answers(char *url, size_t size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    path_of(address.sun_path, sizeof(address.sun_path), "socket");
    snprintf(url, size, "unix:%s", address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    bool answers = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return answers;
}

/* It writes its ports once it listens. */
static bool memcached_answers(char *url, size_t size)
{
    char path[96], line[64];
    unsigned port = 0;
    path_of(path, sizeof(path), "port");
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    while (port == 0 && fgets(line, sizeof(line), file) != NULL)
        (void)sscanf(line, "TCP INET: %u", &port);
    fclose(file);
    snprintf(url, size, "memcached://127.0.0.1:%u", port);
    return port != 0;
}

/* In real time: another process starts. */
static void wait_for_server(char *url, size_t size)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    bool is_redis = strcmp(used.name, "redis") == 0;
    for (int i = 0; i < STARTS_S * 100; i++) {
        if (is_redis ? redis_answers(url, size) : memcached_answers(url, size))
            return;
        if (waitpid(used.pid, NULL, WNOHANG) != 0)
            break;
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "%s does not start; is it installed?\n", used.name);
    exit(2);
}

bool store_begin(const char *name, uint64_t epoch_ns)
{
    static char url[128];
    struct stint_error error;
    if (strcmp(name, "table") == 0)
        return true;
    if (strcmp(name, "redis") != 0 && strcmp(name, "memcached") != 0)
        return false;
    used.name = name;
    used.epoch_ns = epoch_ns;
    strcpy(used.folder, "/tmp/stint-behaviour-XXXXXX");
    assert_non_null(mkdtemp(used.folder));
    used.pid = fork();
    assert_true(used.pid >= 0);
    if (used.pid == 0)
        run_server();
    wait_for_server(url, sizeof(url));
    used.given = (struct store_given){.text = url, .timeout_ns = STARTS_S * NS_PER_S};
    assert_int_equal(store_word_url(&used.given.url, url, &error), 0);
    return true;
}

void store_end(void)
{
    static const char *const files[] = {"socket", "port"};
    char path[96];
    if (used.name == NULL)
        return;
    kill(used.pid, SIGTERM);
    waitpid(used.pid, NULL, 0);
    for (size_t i = 0; i < N(files); i++) {
        path_of(path, sizeof(path), files[i]);
        unlink(path);
    }
    rmdir(used.folder);
}

/* ---- What services are given ----------------------------------------------------------------- */

const char *store_keys(void)
{
    return used.name != NULL ? ", store: red" : "";
}

void store_set_hits(bool charges, bool checks_debt)
{
    used.charges_hits = charges;
    used.checks_debt = checks_debt;
}

void store_give(struct service *service)
{
    struct stint_error error;
    service->evaluation.charges_hits = used.charges_hits;
    service->evaluation.checks_debt = used.checks_debt;
    if (used.name == NULL)
        return;
    assert_true(used.n_given < GIVEN_MAX);
    struct given *given = &used.each[used.n_given++];
    snprintf(given->prefix, sizeof(given->prefix), "b%u:", used.n_prefixes++);
    if (shared_session_open(&given->store, &used.given, given->prefix, used.epoch_ns, &error) != 0)
        fail_msg("%s", error.message);
    given->stores[0] = &given->store->blocking;
    const struct evaluation_stores stores = {.stores = given->stores,
                                             .n_stores = 1,
                                             .counters = 1,
                                             .timeout_ns = STARTS_S * NS_PER_S,
                                             .items_on_error = RULE_STORE_ERROR_ERROR};
    service_set_stores(service, &stores);
}

void store_take_back(void)
{
    while (used.n_given > 0)
        shared_session_close(used.each[--used.n_given].store);
}
