/* SPDX-License-Identifier: MIT */
/* Checks addresses as they were bound, not as they were configured. */
#include "net/listen/exposure.h"

static int check_address(const struct listener *listener, const struct exposure_options *options,
                         struct stint_error *error)
{
    const struct sockaddr *address = (const void *)&listener->address;
    char text[ENDPOINT_TEXT_SIZE];
    if (endpoint_is_local(address) || options->has_tokens)
        return 0;
    endpoint_text(address, text);
    if (!options->is_insecure)
        return err_set(error, STINT_E_MISMATCH,
                       "%s can be reached from other machines, and without tokens any client there "
                       "may use every command: give --tokens FILE, or --insecure to allow that",
                       text);
    log_line(options->log, LOG_INSECURE, LOG_TEXT("address", text));
    return 0;
}

int exposure_check(const struct listeners *listeners, const struct exposure_options *options,
                   struct stint_error *error)
{
    for (size_t i = 0; i < listeners->n_all; i++) {
        const struct listener *listener = &listeners->all[i];
        if (port_is_tls(listener->port) && !options->has_tls)
            return err_set(error, STINT_E_MISMATCH, "port %s needs --tls-certificate and --tls-key",
                           port_name(listener->port));
        int code = check_address(listener, options, error);
        if (code != 0)
            return code;
    }
    return 0;
}
