/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
/* One table has OpenTelemetry's variables; a trace's own variable precedes the common one. */
#include "cmd/serve/serve_traces.h"

#include "base/number.h"
#include "base/utf8.h"
#include "rules/arena.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TRACES_PATH "/v1/traces"
#define OFF "off"
#define VALUE_SIZE 4096 /* of a variable */
#define HEADERS_SIZE 8192

bool serve_traces_are_on(const struct serve_settings *settings)
{
    return settings->traces != NULL && strcmp(settings->traces, OFF) != 0;
}

/* ---- OpenTelemetry's environment ------------------------------------------------------------- */

struct otel {
    struct settings *settings;
    const char *shown; /* the variable that is read, for messages */
    struct stint_error *error;
};

static int refuse(const struct otel *otel, const char *expected, const char *text)
{
    return err_set(otel->error, STINT_E_SYNTAX, "%s: expected %s, not '%s'", otel->shown, expected,
                   text);
}

/* A value that is set already stays. */
static int give(const struct otel *otel, const char *setting, const char *text)
{
    size_t index = (size_t)setting_find(span_of_text(setting));
    if (otel->settings->origins[index] > SETTING_COMPAT)
        return 0;
    return settings_set(otel->settings, index, SETTING_COMPAT, otel->shown, text, otel->error);
}

/* A set variable is not empty. */
static const char *value_of(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

#define EXPORTER(name)                                                                             \
    {                                                                                              \
        "OTEL_EXPORTER_OTLP_TRACES_" name, "OTEL_EXPORTER_OTLP_" name                              \
    }

/* Of two names the first that is set is used. */
static const char *value_of_either(struct otel *otel, const char *const names[2])
{
    const char *text = NULL;
    for (size_t i = 0; i < 2 && names[i] != NULL && text == NULL; i++) {
        otel->shown = names[i];
        text = value_of(otel->shown);
    }
    return text;
}

/* %41 as A; other text stays. */
static void decode(char *text)
{
    char *out = text;
    for (; *text != '\0'; text++) {
        int high = text[0] == '%' ? number_hex_digit((uint8_t)text[1]) : -1;
        int low = high >= 0 ? number_hex_digit((uint8_t)text[2]) : -1;
        bool is_encoded = low >= 0 && high + low > 0;
        *out++ = is_encoded ? (char)(high * 16 + low) : *text;
        text += is_encoded ? 2 : 0;
    }
    *out = '\0';
}

/* "a=1,b=2", with encoded values, as elements of a list. */
static int give_pairs(const struct otel *otel, const char *setting, const char *text)
{
    char copy[VALUE_SIZE], *rest = copy;
    int code = 0;
    if (strlen(text) >= sizeof(copy))
        return err_set(otel->error, STINT_E_RANGE, "%s: expected at most %d bytes", otel->shown,
                       VALUE_SIZE - 1);
    memcpy(copy, text, strlen(text) + 1);
    for (char *pair; code == 0 && (pair = strsep(&rest, ",")) != NULL;) {
        pair += strspn(pair, " ");
        for (size_t len = strlen(pair); len > 0 && pair[len - 1] == ' '; len--)
            pair[len - 1] = '\0';
        decode(pair);
        code = pair[0] != '\0' ? give(otel, setting, pair) : 0;
    }
    explicit_bzero(copy, sizeof(copy));
    return code;
}

static int give_text(const struct otel *otel, const char *setting, const char *text)
{
    return give(otel, setting, text);
}

static int give_service(const struct otel *otel, const char *setting, const char *text)
{
    char pair[VALUE_SIZE];
    snprintf(pair, sizeof(pair), "service.name=%s", text);
    return give(otel, setting, pair);
}

static int give_milliseconds(const struct otel *otel, const char *setting, const char *text)
{
    char duration[32];
    uint64_t ms;
    if (!resp_number_read(span_of_text(text), UINT32_MAX, &ms))
        return refuse(otel, "a number of milliseconds", text);
    snprintf(duration, sizeof(duration), "%sms", text);
    return give(otel, setting, duration);
}

/* Whether the caller's decision is followed, and the share of the other requests. */
static int give_sampler(const struct otel *otel, const char *setting, const char *text)
{
    static const struct {
        const char *name, *ratio; /* NULL: OTEL_TRACES_SAMPLER_ARG */
        const char *follows;
    } samplers[] = {
        {"always_on", "1", "false"},
        {"always_off", "0", "false"},
        {"traceidratio", NULL, "false"},
        {"parentbased_always_on", "1", "true"},
        {"parentbased_always_off", "0", "true"},
        {"parentbased_traceidratio", NULL, "true"},
    };
    const char *argument = value_of("OTEL_TRACES_SAMPLER_ARG");
    (void)setting;
    for (size_t i = 0; i < sizeof(samplers) / sizeof(samplers[0]); i++) {
        if (strcmp(text, samplers[i].name) != 0)
            continue;
        const char *ratio = samplers[i].ratio;
        int code = give(otel, "traces_follow", samplers[i].follows);
        return code != 0 ? code
                         : give(otel, "traces_ratio",
                                ratio != NULL      ? ratio
                                : argument != NULL ? argument
                                                   : "1");
    }
    return refuse(otel, "always_on, always_off or traceidratio, also after parentbased_", text);
}

static const struct otel_variable {
    const char *names[2];
    int (*give)(const struct otel *otel, const char *setting, const char *text);
    const char *setting; /* NULL: under --compat TRACING_… decides instead */
} variables[] = {
    {EXPORTER("HEADERS"), give_pairs, "traces_headers"},
    {EXPORTER("TIMEOUT"), give_milliseconds, "traces_timeout"},
    {EXPORTER("CERTIFICATE"), give_text, "traces_ca_file"},
    {EXPORTER("CLIENT_CERTIFICATE"), give_text, "traces_cert_file"},
    {EXPORTER("CLIENT_KEY"), give_text, "traces_key_file"},
    {{"OTEL_SERVICE_NAME"}, give_service, "traces_attributes"},
    {{"OTEL_RESOURCE_ATTRIBUTES"}, give_pairs, "traces_attributes"},
    {{"OTEL_TRACES_SAMPLER"}, give_sampler, NULL},
};

/* The protocol of the endpoint; under --compat TRACING_… decides it. */
static int read_protocol(struct otel *otel, bool *is_grpc)
{
    static const char *const names[2] = EXPORTER("PROTOCOL");
    const char *text = otel->settings->values.is_compat ? value_of("TRACING_EXPORTER_PROTOCOL")
                                                        : value_of_either(otel, names);
    *is_grpc = text != NULL && strcmp(text, "grpc") == 0;
    if (text == NULL || *is_grpc || otel->settings->values.is_compat ||
        strcmp(text, "http/protobuf") == 0)
        return 0;
    return refuse(otel, "http/protobuf or grpc", text);
}

/* The path of traces is added to the endpoint of all signals; a path, "/" at least, stays. */
static void write_http_url(char url[VALUE_SIZE], const char *endpoint, bool is_of_traces)
{
    const char *scheme = strstr(endpoint, "://");
    bool has_path = strchr(scheme != NULL ? scheme + 3 : endpoint, '/') != NULL;
    size_t len = strlen(endpoint);
    if (!is_of_traces && endpoint[len - 1] == '/')
        len--;
    snprintf(url, VALUE_SIZE, "%.*s%s", (int)len, endpoint,
             !is_of_traces ? TRACES_PATH
             : has_path    ? ""
                           : "/");
}

/* OpenTelemetry writes http:// and https:// also where the protocol is gRPC, which has no path. */
static void write_grpc_url(char url[VALUE_SIZE], const char *endpoint)
{
    bool is_tls = strncasecmp(endpoint, "https://", 8) == 0;
    bool is_plain = strncasecmp(endpoint, "http://", 7) == 0;
    const char *rest = endpoint + (is_tls ? 8 : is_plain ? 7 : 0);
    bool is_url = is_tls || is_plain;
    snprintf(url, VALUE_SIZE, "%s%.*s",
             is_tls     ? "grpcs://"
             : is_plain ? "grpc://"
                        : "",
             (int)(is_url ? strcspn(rest, "/") : strlen(rest)), rest);
}

static int give_endpoint(struct otel *otel)
{
    static const char *const names[2] = EXPORTER("ENDPOINT");
    char url[VALUE_SIZE];
    bool is_grpc;
    const char *text = value_of_either(otel, names);
    bool is_of_traces = otel->shown == names[0];
    const char *shown = otel->shown;
    int code = text != NULL ? read_protocol(otel, &is_grpc) : 0;
    if (text == NULL || code != 0)
        return code;
    if (is_grpc)
        write_grpc_url(url, text);
    else
        write_http_url(url, text, is_of_traces);
    otel->shown = shown;
    return give(otel, "traces", url);
}

/* False: the environment says that there are no traces. */
static bool is_wanted(struct otel *otel, int *code)
{
    const char *disabled = value_of("OTEL_SDK_DISABLED");
    const char *exporter = value_of("OTEL_TRACES_EXPORTER");
    otel->shown = "OTEL_TRACES_EXPORTER";
    *code = 0;
    if (disabled != NULL && strcasecmp(disabled, "true") == 0)
        return false;
    if (exporter == NULL || strcmp(exporter, "otlp") == 0)
        return true;
    if (strcmp(exporter, "none") != 0)
        *code = refuse(otel, "otlp or none", exporter);
    return false;
}

int otel_apply(struct settings *settings, struct stint_error *error)
{
    struct otel otel = {.settings = settings, .error = error};
    int code;
    if (settings->values.is_compat && !serve_traces_are_on(&settings->values))
        return 0;
    if (!is_wanted(&otel, &code))
        return code != 0 ? code : give(&otel, "traces", OFF);
    code = give_endpoint(&otel);
    if (!serve_traces_are_on(&settings->values))
        return code;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]) && code == 0; i++) {
        const struct otel_variable *variable = &variables[i];
        if (settings->values.is_compat && variable->setting == NULL)
            continue;
        const char *text = value_of_either(&otel, variable->names);
        if (text != NULL)
            code = variable->give(&otel, variable->setting, text);
    }
    return code;
}

/* ---- Resource attributes and fields ---------------------------------------------------------- */

static bool has_name(const struct serve_traces *traces, struct span name)
{
    const struct trace_collector *collector = &traces->collector;
    for (size_t i = 0; i < collector->n_attributes; i++) {
        struct span other = traces->attributes[i].name;
        if (other.len == name.len && memcmp(other.ptr, name.ptr, name.len) == 0)
            return true;
    }
    return false;
}

/* The first of a name is used: the strongest origin comes first. */
static int add_attribute(struct serve_traces *traces, struct span name, struct span value,
                         struct stint_error *error)
{
    struct trace_collector *collector = &traces->collector;
    if (has_name(traces, name) || value.len == 0)
        return 0;
    if (collector->n_attributes == OTLP_RESOURCE_ATTRIBUTES_MAX)
        return err_set(error, STINT_E_RANGE, "traces_attributes: expected at most %d",
                       OTLP_RESOURCE_ATTRIBUTES_MAX - 3);
    if (name.len > OTLP_RESOURCE_TEXT_MAX || value.len > OTLP_RESOURCE_TEXT_MAX ||
        !utf8_is_valid(name.ptr, name.len) || !utf8_is_valid(value.ptr, value.len))
        return err_set(error, STINT_E_RANGE,
                       "traces_attributes: expected at most %d bytes of UTF-8",
                       OTLP_RESOURCE_TEXT_MAX);
    traces->attributes[collector->n_attributes++] = (struct otlp_resource_attribute){name, value};
    return 0;
}

/* A random id of version 4, as text. */
static bool make_instance(char text[40])
{
    uint8_t id[16];
    if (gnutls_rnd(GNUTLS_RND_NONCE, id, sizeof(id)) != 0)
        return false;
    id[6] = (uint8_t)((id[6] & 0x0f) | 0x40);
    id[8] = (uint8_t)((id[8] & 0x3f) | 0x80);
    struct buf buf = buf_of(text, 40);
    for (size_t i = 0; i < sizeof(id); i++)
        buf_add(&buf, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", id[i]);
    return true;
}

static int add_attributes(struct serve_traces *traces, const struct serve_settings *settings,
                          struct stint_error *error)
{
    const struct text_list *texts = &settings->traces_attributes;
    int code = 0;
    for (size_t i = 0; i < texts->n_texts && code == 0; i++) {
        const char *text = texts->texts[i], *equals = strchr(text, '=');
        if (equals == NULL || equals == text)
            return err_set(error, STINT_E_SYNTAX,
                           "traces_attributes: expected NAME=VALUE, not '%s'", text);
        code = add_attribute(traces, span_of(text, (size_t)(equals - text)),
                             span_of_text(equals + 1), error);
    }
    if (!make_instance(traces->instance))
        return err_set(error, STINT_E_SYSTEM, "traces: no random bytes");
    const struct otlp_resource_attribute others[] = {
        {span_of_text("service.name"), span_of_text("stint")},
        {span_of_text("service.version"), span_of_text(STINT_VERSION)},
        {span_of_text("service.instance.id"), span_of_text(traces->instance)},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]) && code == 0; i++)
        code = add_attribute(traces, others[i].name, others[i].value, error);
    return code;
}

/* NAME=VALUE as "name:value". No message quotes the value. */
static bool read_header(const char *text, char *header)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL)
        return false;
    size_t len = (size_t)(equals - text);
    for (size_t i = 0; i < len; i++)
        header[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] - 'A' + 'a' : text[i]);
    header[len] = ':';
    memcpy(header + len + 1, equals + 1, strlen(equals + 1) + 1);
    return grpc_link_takes_header(header);
}

static int add_headers(struct serve_traces *traces, struct settings *settings,
                       struct stint_error *error)
{
    const struct text_list *texts = &settings->values.traces_headers;
    size_t total = 0;
    for (size_t i = 0; i < texts->n_texts; i++)
        total += strlen(texts->texts[i]);
    if (texts->n_texts > GRPC_LINK_HEADERS_MAX || total > HEADERS_SIZE)
        return err_set(error, STINT_E_RANGE,
                       "traces_headers: expected at most %d, of %d bytes in all",
                       GRPC_LINK_HEADERS_MAX, HEADERS_SIZE);
    for (size_t i = 0; i < texts->n_texts; i++) {
        char *header = arena_take(&settings->arena, strlen(texts->texts[i]) + 1);
        if (header == NULL)
            return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
        if (!read_header(texts->texts[i], header))
            return err_set(error, STINT_E_SYNTAX,
                           "traces_headers: expected NAME=VALUE, with the name of a header field "
                           "that HTTP and gRPC do not use themselves");
        traces->headers[i] = header;
    }
    traces->collector.headers = traces->headers;
    traces->collector.n_headers = texts->n_texts;
    return 0;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static int read_url(struct serve_traces *traces, const struct serve_settings *settings,
                    struct stint_error *error)
{
    struct stint_error why;
    struct collector_url *url = &traces->collector.url;
    int code = collector_url_parse(url, settings->traces, &why);
    if (code != 0)
        return err_set(error, code, "traces: %s", why.message);
    if (url->path[0] == '\0' && !url->is_grpc)
        snprintf(url->path, sizeof(url->path), TRACES_PATH);
    return 0;
}

static int load_tls(struct serve_traces *traces, const struct serve_settings *settings,
                    struct stint_error *error)
{
    const struct upstream_tls_paths paths = {
        .ca_file = settings->traces_ca_file,
        .cert_file = settings->traces_cert_file,
        .key_file = settings->traces_key_file,
    };
    if (paths.key_file != NULL && paths.cert_file == NULL)
        return err_set(error, STINT_E_MISMATCH, "traces_key_file goes with traces_cert_file");
    return traces->collector.url.is_tls ? upstream_tls_load(&traces->collector.tls, &paths, error)
                                        : 0;
}

int serve_traces_open(struct serve_traces **traces, struct settings *settings,
                      struct stint_error *error)
{
    const struct serve_settings *values = &settings->values;
    *traces = NULL;
    if (!serve_traces_are_on(values))
        return 0;
    struct serve_traces *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the settings");
    made->options = (struct traces_options){.ratio = values->traces_ratio,
                                            .follows_caller = values->traces_follow};
    made->collector.timeout_ns = values->traces_timeout;
    made->collector.attributes = made->attributes;
    int code = read_url(made, values, error);
    if (code == 0)
        code = add_attributes(made, values, error);
    if (code == 0)
        code = add_headers(made, settings, error);
    if (code == 0)
        code = load_tls(made, values, error);
    if (code == 0)
        *traces = made;
    else
        serve_traces_close(made);
    return code;
}

void serve_traces_close(struct serve_traces *traces)
{
    if (traces == NULL)
        return;
    upstream_tls_free(traces->collector.tls);
    free(traces);
}
