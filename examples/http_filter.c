/* SPDX-License-Identifier: MIT */
/*
 * A web server that limits its clients: 429 for one that asks too often, 503 when all together do.
 *
 *     cc -std=c17 http_filter.c $(pkg-config --cflags --libs stint libmicrohttpd) -o http_filter
 *     ./http_filter 8081 'window 100/1m' 'window 1000/1s'
 *
 * The first quota is each client's, the second that of the server as a whole. Port 0 takes a free
 * one; it is printed. The server ends with its standard input.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <microhttpd.h>
#include <stint.h>

#define SECOND UINT64_C(1000000000)
#define CLIENT_MAX 46
#define FIELD_MAX 128

enum { OF_CLIENT, OF_SERVER, QUOTAS };

struct filter {
    struct stint_table *table;
    struct stint_quota quotas[QUOTAS];
};

/* Up, as a client that comes back too early would be denied again. */
static uint64_t whole_seconds(uint64_t ns)
{
    return ns / SECOND + (ns % SECOND != 0);
}

/*
 * The key of a client: its address without the port, since it opens as many connections as it
 * likes, and of IPv6 the first 64 bits, since as many addresses are its own.
 */
static size_t read_client(struct MHD_Connection *connection, char *client)
{
    char text[INET6_ADDRSTRLEN];
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *from = info->client_addr;
    const void *bytes = from->sa_family == AF_INET6
                            ? (const void *)&((const struct sockaddr_in6 *)from)->sin6_addr
                            : (const void *)&((const struct sockaddr_in *)from)->sin_addr;
    if (inet_ntop(from->sa_family, bytes, text, sizeof(text)) == NULL)
        return 0;
    int len = stint_address_key(client, CLIENT_MAX, text, strlen(text), 32, 64);
    return len > 0 ? (size_t)len : 0;
}

/* Both quotas or none: what the server refuses is not charged to the client. */
static struct stint_decision decide(const struct filter *filter, struct MHD_Connection *connection)
{
    static const char server[] = "all";
    char client[CLIENT_MAX];
    const struct stint_item items[QUOTAS] = {
        [OF_CLIENT] = {&filter->quotas[OF_CLIENT], client, read_client(connection, client), 1},
        [OF_SERVER] = {&filter->quotas[OF_SERVER], server, strlen(server), 1},
    };
    return stint_take_all(filter->table, items, QUOTAS, stint_now(filter->table));
}

/* What is left, and of what: in the words of the IETF's draft of the RateLimit fields. */
static void add_fields(struct MHD_Response *response, const struct filter *filter,
                       const struct stint_decision *decision)
{
    static const char *const names[QUOTAS] = {[OF_CLIENT] = "client", [OF_SERVER] = "server"};
    const struct stint_quota *quota = &filter->quotas[decision->binding];
    const char *name = names[decision->binding];
    char field[FIELD_MAX];
    snprintf(field, sizeof(field), "\"%s\";q=%" PRIu32 ";w=%" PRIu64, name, decision->limit,
             whole_seconds(quota->period_ns));
    MHD_add_response_header(response, "RateLimit-Policy", field);
    snprintf(field, sizeof(field), "\"%s\";r=%" PRIu32 ";t=%" PRIu64, name, decision->remaining,
             whole_seconds(decision->reset_after_ns));
    MHD_add_response_header(response, "RateLimit", field);
    if (decision->outcome != STINT_DENY)
        return;
    snprintf(field, sizeof(field), "%" PRIu64, whole_seconds(decision->retry_after_ns));
    MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, field);
}

/* An MHD_AccessHandlerCallback, called by several threads at once. */
static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload_data,
                              size_t *upload_size, void **request)
{
    static char texts[][24] = {"served\n", "too many requests\n", "busy\n"};
    const struct filter *filter = arg;
    struct stint_decision decision = decide(filter, connection);
    bool allowed = decision.outcome == STINT_ALLOW, by_client = decision.binding == OF_CLIENT;
    char *text = texts[allowed ? 0 : by_client ? 1 : 2];
    unsigned status = allowed     ? MHD_HTTP_OK
                      : by_client ? MHD_HTTP_TOO_MANY_REQUESTS
                                  : MHD_HTTP_SERVICE_UNAVAILABLE;
    (void)url, (void)method, (void)version, (void)upload_data, (void)upload_size, (void)request;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    add_fields(response, filter, &decision);
    enum MHD_Result queued = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return queued;
}

static void serve(struct filter *filter, uint16_t port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD, port, NULL, NULL, answer, filter, MHD_OPTION_SOCK_ADDR,
        (struct sockaddr *)&here, MHD_OPTION_THREAD_POOL_SIZE, 2u, MHD_OPTION_END);
    if (daemon == NULL) {
        fprintf(stderr, "http_filter: cannot listen on port %u\n", (unsigned)port);
        exit(1);
    }
    printf("http://127.0.0.1:%u\n",
           (unsigned)MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    MHD_stop_daemon(daemon);
}

int main(int argc, char **argv)
{
    struct filter filter;
    struct stint_error error;

    if (argc != 4) {
        fprintf(stderr, "usage: http_filter PORT QUOTA-OF-CLIENT QUOTA-OF-SERVER\n");
        return 2;
    }
    if (stint_quota_parse(&filter.quotas[OF_CLIENT], argv[2], &error) < 0 ||
        stint_quota_parse(&filter.quotas[OF_SERVER], argv[3], &error) < 0 ||
        stint_table_open(&filter.table, NULL, &error) < 0) {
        fprintf(stderr, "http_filter: %s\n", error.message);
        return 1;
    }
    serve(&filter, (uint16_t)atoi(argv[1]));
    stint_table_close(filter.table);
    return 0;
}
