/* SPDX-License-Identifier: MIT */
/* One libcurl handle: where it connects, what it sends along, and what came back. */
#define _GNU_SOURCE
#include "cmd/client/client.h"

#include "base/err.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "cmd/lib/args.h"
#include "net/file.h"
#include "net/listen/endpoint.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- libcurl --------------------------------------------------------------------------------- */

/*
 * libcurl is loaded at the first request: a server, and commands that make none, then start without
 * the dozen libraries that it brings along (docs/decisions/0024).
 */

/* The functions that are used. Names in parentheses are not the macros of the same name. */
#define CURL_LIBRARY_FUNCTIONS(X)                                                                  \
    X(global_init)                                                                                 \
    X(version_info)                                                                                \
    X(easy_init)                                                                                   \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_perform)                                                                                \
    X(easy_strerror)                                                                               \
    X(easy_cleanup)                                                                                \
    X(slist_append)                                                                                \
    X(slist_free_all)

#define CURL_LIBRARY_MEMBER(name) __typeof__(curl_##name) *name;

struct curl_library {
    CURL_LIBRARY_FUNCTIONS(CURL_LIBRARY_MEMBER)
};

/* Whatever it encrypts with, its functions are the same. Debian's package with GnuTLS is first. */
static const char *const file_names[] = {"libcurl-gnutls.so.4", "libcurl.so.4"};

/* 0, or STINT_E_SYSTEM if there is no libcurl. The library stays loaded. One thread. */
static int curl_library_load(const struct curl_library **library, struct stint_error *error)
{
    static struct curl_library loaded;
    static bool is_loaded;
    void *handle = NULL;
    *library = &loaded;
    if (is_loaded)
        return 0;
    for (size_t i = 0; i < sizeof(file_names) / sizeof(file_names[0]) && handle == NULL; i++)
        handle = dlopen(file_names[i], RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return err_set(error, STINT_E_SYSTEM,
                       "asking a server needs libcurl (Debian: libcurl3-gnutls): %s", dlerror());
    const char *missing = NULL;
    /* POSIX has data and function pointers alike. */
#define FIND(name)                                                                                 \
    *(void **)(void *)&loaded.name = dlsym(handle, "curl_" #name);                                 \
    missing = loaded.name == NULL ? "curl_" #name : missing;
    CURL_LIBRARY_FUNCTIONS(FIND)
#undef FIND
    if (missing != NULL)
        return err_set(error, STINT_E_SYSTEM, "this libcurl has no %s()", missing);
    is_loaded = loaded.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    return is_loaded ? 0 : err_set(error, STINT_E_SYSTEM, "libcurl could not be made ready");
}

/* 0, or STINT_E_SYSTEM if it was built without HTTP/2. */
static int curl_library_check_http2(const struct curl_library *library, struct stint_error *error)
{
    const curl_version_info_data *info = library->version_info(CURLVERSION_NOW);
    if ((info->features & CURL_VERSION_HTTP2) != 0)
        return 0;
    return err_set(error, STINT_E_SYSTEM,
                   "libcurl %s has no HTTP/2; install one that has (Debian: libcurl3-gnutls)",
                   info->version);
}

/* ---- The client ------------------------------------------------------------------------------ */

#define URL_MAX 1024
#define TYPE_MAX 128

struct client {
    const struct curl_library *curl;
    CURL *handle;
    struct curl_slist *fields, *body_fields; /* of requests without and with a body */
    char origin[URL_MAX];                    /* the URL up to its path */
    char url[2 * URL_MAX];
    char why[CURL_ERROR_SIZE];
    char type[TYPE_MAX];
    struct client_options options; /* with the defaults */
    bool is_unix;                  /* the server is a socket's path, not a URL */
    uint8_t *body;
    size_t body_len, body_size;
    bool loopback_only; /* a token would go unencrypted */
    bool left_loopback, too_long;
};

/* ---- The token ---- */

#define TOKEN_FILE_MAX 4096 /* bytes of a token */
#define TOKEN_FILE_SPACE (TOKEN_FILE_MAX + 2)

/* A token must be valid in a header field: visible ASCII. */
static bool is_token(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] <= ' ' || bytes[i] > '~')
            return false;
    return len > 0;
}

/* Terminated; no copy of it stays in memory. */
static int read_token(const char *path, char token[TOKEN_FILE_SPACE], struct stint_error *error)
{
    int fd = file_open(path, error);
    if (fd < 0)
        return fd;
    FILE *file = fdopen(fd, "re");
    if (file == NULL) {
        close(fd);
        return err_set(error, STINT_E_SYSTEM, "cannot read %s: %s", path, strerror(errno));
    }
    setvbuf(file, NULL, _IONBF, 0); /* no copy of a secret stays behind */
    size_t n = fread(token, 1, TOKEN_FILE_MAX + 1, file), len = 0;
    fclose(file);
    while (len < n && token[len] != '\n')
        len++;
    len -= len > 0 && len < n && token[len - 1] == '\r';
    token[len] = '\0';
    if (len <= TOKEN_FILE_MAX && is_token(token, len))
        return 0;
    return err_set(error, STINT_E_RANGE,
                   "%s: expected a token of visible ASCII, up to %d bytes, as the first line", path,
                   TOKEN_FILE_MAX);
}

/* ---- Where to ---- */

/* What libcurl is not asked about: only it reads HOST and PORT. */
static int set_server(struct client *client, struct stint_error *error)
{
    static const char unix_prefix[] = "unix:";
    const char *server = client->options.server;
    if (strncmp(server, unix_prefix, strlen(unix_prefix)) == 0) {
        const char *path = server + strlen(unix_prefix);
        if (path[0] != '/')
            return err_set(error, STINT_E_SYNTAX, "expected unix:/PATH, found '%s'", server);
        snprintf(client->origin, sizeof(client->origin), "%s://localhost",
                 client->options.is_tls ? "https" : "http");
        client->is_unix = true;
        client->curl->easy_setopt(client->handle, CURLOPT_UNIX_SOCKET_PATH, path);
        /* There is no name that a certificate could bear. */
        client->curl->easy_setopt(client->handle, CURLOPT_SSL_VERIFYHOST, 0L);
        return 0;
    }
    size_t prefix = strncmp(server, "http://", 7) == 0    ? 7
                    : strncmp(server, "https://", 8) == 0 ? 8
                                                          : 0;
    size_t host = strcspn(server + prefix, "/");
    bool ends = strcmp(server + prefix + host, "") == 0 || strcmp(server + prefix + host, "/") == 0;
    if (prefix == 0 || host == 0 || !ends || strpbrk(server, "@?#\\ ") != NULL ||
        prefix + host >= sizeof(client->origin))
        return err_set(error, STINT_E_SYNTAX,
                       "expected http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH, found '%s'",
                       server);
    snprintf(client->origin, sizeof(client->origin), "%.*s", (int)(prefix + host), server);
    return 0;
}

/*
 * A curl_opensocket_callback: the last word on where a token goes is had here, where the address is
 * known, and not by the look of a name.
 */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct client *client = arg;
    (void)purpose;
    if (client->loopback_only && !endpoint_is_local(&address->addr)) {
        client->left_loopback = true;
        return CURL_SOCKET_BAD;
    }
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

/* ---- What is sent along ---- */

static int add_field(struct client *client, struct curl_slist **fields, const char *field,
                     struct stint_error *error)
{
    struct curl_slist *longer = client->curl->slist_append(*fields, field);
    if (longer == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    *fields = longer;
    return 0;
}

static int add_token(struct client *client, const char *token_file, struct stint_error *error)
{
    static const char bearer[] = "Authorization: Bearer ";
    char field[sizeof(bearer) + TOKEN_FILE_SPACE];
    memcpy(field, bearer, sizeof(bearer));
    int code = read_token(token_file, field + strlen(bearer), error);
    if (code == 0)
        code = add_field(client, &client->fields, field, error);
    if (code == 0)
        code = add_field(client, &client->body_fields, field, error);
    explicit_bzero(field, sizeof(field));
    return code;
}

static int set_fields(struct client *client, struct stint_error *error)
{
    static const char accept[] = "Accept: application/json";
    static const char *const of_json[] = {accept, "Content-Type: application/json", NULL};
    int code = add_field(client, &client->fields, accept, error);
    for (const char *const *field = client->options.fields != NULL ? client->options.fields
                                                                   : of_json;
         code == 0 && *field != NULL; field++)
        code = add_field(client, &client->body_fields, *field, error);
    if (code == 0 && client->options.token_file != NULL)
        code = add_token(client, client->options.token_file, error);
    return code;
}

/* ---- What comes back ---- */

/* A curl_write_callback; any other number than `n` ends the answer. */
static size_t keep_body(char *bytes, size_t size, size_t n, void *arg)
{
    struct client *client = arg;
    (void)size; /* always 1 */
    if (n > CLIENT_ANSWER_MAX - client->body_len) {
        client->too_long = true;
        return 0;
    }
    if (client->body_len + n > client->body_size) {
        size_t larger = max_u64(client->body_len + n, 2 * client->body_size);
        uint8_t *body = realloc(client->body, larger);
        if (body == NULL)
            return 0;
        client->body = body;
        client->body_size = larger;
    }
    memcpy(client->body + client->body_len, bytes, n);
    client->body_len += n;
    return n;
}

/* A curl_write_callback: one line of a head or of trailers, with CR and LF at its end. */
static size_t pass_field(char *line, size_t size, size_t len, void *arg)
{
    const struct client *client = arg;
    const char *colon = memchr(line, ':', len), *end = line + len;
    (void)size; /* always 1 */
    while (end > line && (end[-1] == '\r' || end[-1] == '\n'))
        end--;
    if (colon == NULL && end > line)
        return len; /* the status line */
    const char *value = colon != NULL ? colon + 1 : end;
    while (value < end && *value == ' ')
        value++;
    return client->options.on_field(client->options.on_field_arg,
                                    span_of(line, colon != NULL ? (size_t)(colon - line) : 0),
                                    span_of(value, (size_t)(end - value)))
               ? len
               : 0;
}

/* What an error is about, as far as the command line said it. */
static const char *shown(const struct client *client)
{
    return client->is_unix ? client->options.server : client->url;
}

static int explain(const struct client *client, CURLcode why, struct stint_error *error)
{
    if (client->left_loopback)
        return err_set(error, STINT_E_MISMATCH,
                       "%s is another host: the token would go there unencrypted; expected "
                       "https://, or --insecure",
                       client->origin);
    const char *server = shown(client);
    if (client->too_long)
        return err_set(error, STINT_E_RANGE, "%s: the answer is longer than %u bytes", server,
                       CLIENT_ANSWER_MAX);
    const char *text = client->why[0] != '\0' ? client->why : client->curl->easy_strerror(why);
    if (client->options.is_http2 && (why == CURLE_HTTP2 || why == CURLE_GOT_NOTHING))
        return err_set(error, STINT_E_SYSTEM, "%s: %s; the answer was not HTTP/2", server, text);
    long os_error = 0;
    if (why == CURLE_COULDNT_CONNECT)
        client->curl->easy_getinfo(client->handle, CURLINFO_OS_ERRNO, &os_error);
    bool is_missing = why == CURLE_COULDNT_CONNECT || why == CURLE_COULDNT_RESOLVE_HOST;
    /* A long address leaves no space: then the advice is cut, not the reason. */
    return err_set(error, STINT_E_SYSTEM, "%s: %s%s%s", server,
                   os_error != 0 ? strerror((int)os_error) : text,
                   is_missing ? "; start a server with `stint serve`, or name one with " : "",
                   is_missing ? client->options.server_choice : "");
}

/* ---- Questions ---- */

int client_ask(struct client *client, const char *path, const struct span *body, uint64_t wait_ns,
               struct client_answer *answer, struct stint_error *error)
{
    const struct curl_library *curl = client->curl;
    CURL *handle = client->handle;
    /* libcurl takes 0 for "never". */
    uint64_t timeout_ms = add_sat(client->options.timeout_ns, wait_ns) / NS_PER_MS + 1;
    client->body_len = 0;
    client->why[0] = '\0';
    client->left_loopback = client->too_long = false;
    snprintf(client->url, sizeof(client->url), "%s%s", client->origin, path);
    curl->easy_setopt(handle, CURLOPT_URL, client->url);
    curl->easy_setopt(handle, CURLOPT_TIMEOUT_MS, (long)min_u64(timeout_ms, INT32_MAX));
    curl->easy_setopt(handle, body != NULL ? CURLOPT_POST : CURLOPT_HTTPGET, 1L);
    curl->easy_setopt(handle, CURLOPT_HTTPHEADER,
                      body != NULL ? client->body_fields : client->fields);
    if (body != NULL) {
        curl->easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->len);
        curl->easy_setopt(handle, CURLOPT_POSTFIELDS, body->ptr);
    }
    CURLcode done = curl->easy_perform(handle);
    if (done != CURLE_OK)
        return explain(client, done, error);
    long status = 0, version = 0;
    char *type = NULL;
    curl->easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    curl->easy_getinfo(handle, CURLINFO_HTTP_VERSION, &version);
    curl->easy_getinfo(handle, CURLINFO_CONTENT_TYPE, &type);
    if (client->options.is_http2 && version != CURL_HTTP_VERSION_2_0)
        return err_set(error, STINT_E_SYSTEM, "%s: the answer was not HTTP/2", shown(client));
    snprintf(client->type, sizeof(client->type), "%s", type != NULL ? type : "");
    client->type[strcspn(client->type, "; \t")] = '\0';
    *answer = (struct client_answer){.status = (int)status,
                                     .type = client->type,
                                     .body = span_of(client->body, client->body_len)};
    return 0;
}

/* ---- A client ---- */

static bool is_encrypted(const struct client *client)
{
    return strncmp(client->origin, "https://", strlen("https://")) == 0;
}

static void set_handle(struct client *client)
{
    const struct client_options *options = &client->options;
    const struct curl_library *curl = client->curl;
    CURL *handle = client->handle;
    curl->easy_setopt(handle, CURLOPT_ERRORBUFFER, client->why);
    curl->easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(handle, CURLOPT_PROXY, ""); /* also none of the environment */
    curl->easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl->easy_setopt(handle, CURLOPT_OPENSOCKETDATA, client);
    curl->easy_setopt(handle, CURLOPT_WRITEFUNCTION, keep_body);
    curl->easy_setopt(handle, CURLOPT_WRITEDATA, client);
    curl->easy_setopt(handle, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (options->is_http2)
        curl->easy_setopt(handle, CURLOPT_HTTP_VERSION,
                          (long)(is_encrypted(client) ? CURL_HTTP_VERSION_2TLS
                                                      : CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE));
    if (options->on_field != NULL) {
        curl->easy_setopt(handle, CURLOPT_HEADERFUNCTION, pass_field);
        curl->easy_setopt(handle, CURLOPT_HEADERDATA, client);
    }
    if (options->ca_file != NULL)
        curl->easy_setopt(handle, CURLOPT_CAINFO, options->ca_file);
    if (options->cert_file != NULL)
        curl->easy_setopt(handle, CURLOPT_SSLCERT, options->cert_file);
    if (options->key_file != NULL)
        curl->easy_setopt(handle, CURLOPT_SSLKEY, options->key_file);
    if (options->insecure) {
        curl->easy_setopt(handle, CURLOPT_SSL_VERIFYPEER, 0L);
        curl->easy_setopt(handle, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

/* They are opened by their names, in a library. */
static int check_files(const struct client_options *options, struct stint_error *error)
{
    const char *const files[] = {options->ca_file, options->cert_file, options->key_file};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (files[i] != NULL && file_check(files[i], error) != 0)
            return STINT_E_SYSTEM;
    return 0;
}

static int prepare(struct client *client, struct stint_error *error)
{
    struct client_options *options = &client->options;
    int code = curl_library_load(&client->curl, error);
    if (code == 0 && options->is_http2)
        code = curl_library_check_http2(client->curl, error);
    if (code != 0)
        return code;
    if (options->server == NULL)
        options->server = CLIENT_SERVER_DEFAULT;
    if (options->server_choice == NULL)
        options->server_choice = "--server or STINT_URL";
    if (options->timeout_ns == 0)
        options->timeout_ns = CLIENT_TIMEOUT_NS_DEFAULT;
    client->handle = client->curl->easy_init();
    if (client->handle == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    code = set_server(client, error);
    if (code == 0)
        code = check_files(options, error);
    if (code == 0)
        code = set_fields(client, error);
    client->loopback_only =
        options->token_file != NULL && !options->insecure && !is_encrypted(client);
    if (code == 0)
        set_handle(client);
    return code;
}

int client_open(struct client **client, const struct client_options *options,
                struct stint_error *error)
{
    struct client *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    made->options = *options;
    int code = prepare(made, error);
    if (code == 0)
        *client = made;
    else
        client_close(made);
    return code;
}

void client_close(struct client *client)
{
    if (client == NULL)
        return;
    if (client->handle != NULL)
        client->curl->easy_cleanup(client->handle);
    if (client->curl != NULL) {
        client->curl->slist_free_all(client->fields);
        client->curl->slist_free_all(client->body_fields);
    }
    free(client->body);
    free(client);
}

/* ---- The options of a command line that choose the server and the way to it ------------------ */

static const char *from_environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static const struct args_option options_known[] = {
    {"server", "URL", 0,
     "http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH (default: STINT_URL of the "
     "environment, or " CLIENT_SERVER_DEFAULT ")",
     ARGS_TEXT(struct client_options, server)},
    {"token-file", "FILE", 0,
     "Send the first line of FILE as a token (default: STINT_TOKEN_FILE of the environment)",
     ARGS_TEXT(struct client_options, token_file)},
    {"ca-file", "FILE", 0,
     "TLS: certificates that may sign the server's (default: those that the system trusts)",
     ARGS_TEXT(struct client_options, ca_file)},
    {"cert-file", "FILE", 0, "TLS: show this certificate (PEM)",
     ARGS_TEXT(struct client_options, cert_file)},
    {"key-file", "FILE", 0, "TLS: the key of --cert-file (PEM)",
     ARGS_TEXT(struct client_options, key_file)},
    {"timeout", "DURATION", 0, "How long an answer may take (default 5s)",
     ARGS_TIMEOUT(struct client_options, timeout_ns)},
    {"insecure", NULL, 0,
     "Send a token unencrypted to other hosts too, and believe any certificate",
     ARGS_FLAG(struct client_options, insecure)},
    {0},
};

static void begin(void *input)
{
    struct client_options *options = input;
    options->server = from_environment("STINT_URL");
    options->token_file = from_environment("STINT_TOKEN_FILE");
}

static void check(struct argp_state *state, void *input)
{
    const struct client_options *options = input;
    if (options->key_file != NULL && options->cert_file == NULL)
        argp_error(state, "--key-file is the key of a certificate; expected --cert-file too");
}

const struct args_set client_set = {options_known, .begin = begin, .end = check};
const struct args_set client_set_without_server = {options_known + 1, .begin = begin,
                                                   .end = check}; /* --server is the first */
