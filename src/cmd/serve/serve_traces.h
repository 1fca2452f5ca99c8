/* SPDX-License-Identifier: MIT */
/* From settings to the traces of a server, and from the environment of OpenTelemetry to settings.
 */
#ifndef STINT_CMD_SERVE_SERVE_TRACES_H
#define STINT_CMD_SERVE_SERVE_TRACES_H

#include "cmd/serve/serve_settings.h"
#include "net/upstream/trace_exporter.h"
#include "rpc/grpc_link.h"
#include "service/traces.h"

/* Whether `traces` names a collector. */
bool serve_traces_are_on(const struct serve_settings *settings);

/*
 * The variables OTEL_… that an exporter of OpenTelemetry knows, as values of settings that have
 * none yet; call it last. Does nothing under --compat where TRACING_ENABLED is not true.
 * STINT_E_SYNTAX or STINT_E_RANGE, with a message that begins with the variable's name.
 */
int otel_apply(struct settings *settings, struct stint_error *error);

/* What a server needs to send traces; it points into the settings. */
struct serve_traces {
    struct traces_options options;
    struct trace_collector collector;
    struct otlp_resource_attribute attributes[OTLP_RESOURCE_ATTRIBUTES_MAX];
    const char *headers[GRPC_LINK_HEADERS_MAX];
    char instance[40]; /* a random service.instance.id, where the settings have none */
};

/* NULL in *traces: there are none. STINT_E_SYNTAX, _RANGE, _MISMATCH or _SYSTEM. */
int serve_traces_open(struct serve_traces **traces, struct settings *settings,
                      struct stint_error *error);
void serve_traces_close(struct serve_traces *traces); /* NULL is allowed */

#endif
