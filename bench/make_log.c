/* SPDX-License-Identifier: MIT */
/*
 * usage: make_log MEGABYTES [SEED] >FILE
 * An access log in the combined format such as a busy site writes: some hundred requests a second,
 * clients by Zipf's algorithm (one in ten on IPv6), a few thousand paths with queries, agents and
 * referers of everyday lengths, times in whole seconds and now and then a line a second late.
 */
#include "keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CLIENTS 200000
#define PATHS 5000
#define DRAWS ((size_t)1 << 20)
#define REQUESTS_PER_S 400
#define BEGIN_S 1767225600 /* 2026-01-01 */

static const char *const agents[] = {
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like "
    "Gecko) Version/17.5 Mobile/15E148 Safari/604.1",
    "curl/7.88.1",
    "python-requests/2.31.0",
    "Mozilla/5.0 (compatible; crawler/2.1; +https://example.org/bot.html)",
};
static const char *const folders[] = {"products", "api/v2/items", "static/js",
                                      "blog",     "account",      "search"};
static const char *const methods[] = {"GET", "GET", "GET", "GET", "GET", "POST", "HEAD", "PUT"};
static const int statuses[] = {200, 200, 200, 200, 200, 200, 304, 301, 404, 403, 500, 200};

#define PICK(list, number) (list)[(number) % (sizeof(list) / sizeof(*(list)))]

static void print_client(uint32_t client)
{
    struct rng rng = {client};
    uint64_t bits = rng_next(&rng);
    if (client % 10 == 9)
        printf("2001:db8:%x:%x::%x", (unsigned)(bits & 0xffff), (unsigned)(bits >> 16 & 0xffff),
               (unsigned)(bits >> 32 & 0xffff));
    else
        printf("%u.%u.%u.%u", (unsigned)(11 + bits % 180), (unsigned)(bits >> 16 & 0xff),
               (unsigned)(bits >> 24 & 0xff), (unsigned)(bits >> 32 & 0xff));
}

static void print_line(uint32_t client, uint32_t path, const char *stamp, uint64_t bits)
{
    print_client(client);
    printf(" - - [%s +0000] \"%s /%s/%u", stamp, PICK(methods, bits >> 8), PICK(folders, path),
           (unsigned)path);
    if (bits % 3 == 0)
        printf("?page=%u&sort=price", (unsigned)(bits >> 20 & 31));
    printf(" HTTP/1.1\" %d %u \"", PICK(statuses, bits >> 32), (unsigned)(bits >> 40 & 0xffff));
    if (bits % 2 == 0)
        printf("https://www.example.com/%s/%u", PICK(folders, path / 7), (unsigned)(path / 7));
    else
        putchar('-');
    printf("\" \"%s\"\n", PICK(agents, client));
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3 || ftello(stdout) < 0) {
        fprintf(stderr, "usage: make_log MEGABYTES [SEED] >FILE (a file, not a pipe)\n");
        return 2;
    }
    long long size = strtoll(argv[1], NULL, 10) * 1000000;
    struct rng rng = {argc > 2 ? strtoull(argv[2], NULL, 10) : 1};
    struct sequence clients = sequence_zipf(CLIENTS, DRAWS, rng_next(&rng));
    struct sequence paths = sequence_zipf(PATHS, DRAWS, rng_next(&rng));
    char stamp[2][32] = {"", ""}; /* of this second and of the last */
    for (uint64_t line = 0; ftello(stdout) < size; line++) {
        uint64_t bits = rng_next(&rng);
        for (int late = 0; late < 2 && line % REQUESTS_PER_S == 0; late++) {
            time_t at = (time_t)(BEGIN_S + line / REQUESTS_PER_S) - late;
            strftime(stamp[late], sizeof(stamp[late]), "%d/%b/%Y:%H:%M:%S", gmtime(&at));
        }
        /* Beyond the draws, the same ranks are other clients for some: the tail goes on. */
        uint64_t shift = line / DRAWS * (line % 3);
        uint32_t client = (uint32_t)((clients.index[line % DRAWS] + shift) % CLIENTS);
        print_line(client, paths.index[(line * 7 + line / DRAWS) % DRAWS], stamp[bits >> 57 == 0],
                   bits);
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
