/* SPDX-License-Identifier: MIT */
/* The HTTP settings: checked once, before the first request. */
#include "base/err.h"
#include "frontend/http/http_frontend.h"

#include <stdlib.h>

static bool copy_text(char **copy, const char *text)
{
    *copy = NULL;
    if (text == NULL)
        return true;
    size_t size = strlen(text) + 1;
    *copy = malloc(size);
    if (*copy == NULL)
        return false;
    memcpy(*copy, text, size);
    return true;
}

static int check_status(const struct http_config_options *options, struct stint_error *error)
{
    unsigned status = options->deny_status;
    if (status != 0 && (status < HTTP_DENY_STATUS_MIN || status > HTTP_DENY_STATUS_MAX))
        return err_set(error, STINT_E_RANGE, "deny_status %u: expected %d to %d", status,
                       HTTP_DENY_STATUS_MIN, HTTP_DENY_STATUS_MAX);
    if ((options->styles & ~(unsigned)HTTP_STYLES_ALL) != 0)
        return err_set(error, STINT_E_RANGE, "no such style of header fields: %u", options->styles);
    return 0;
}

static int fill(struct http_config *site, const struct http_config_options *options,
                struct stint_error *error)
{
    static const char *const by_address[] = {"address"};
    bool has_lists = options->n_descriptors > 0;
    site->deny_status = options->deny_status != 0 ? options->deny_status : 429;
    site->styles = options->styles != 0 ? options->styles : HTTP_STYLE_DEFAULT;
    site->dashboard = options->dashboard;
    site->dashboard_policy = options->dashboard_policy;
    if (!copy_text(&site->domain, options->domain) ||
        !copy_text(&site->metrics_path, options->metrics_path) ||
        !copy_text(&site->address_field, options->address_field) ||
        !copy_text(&site->uri_field, options->uri_field) ||
        !copy_text(&site->method_field, options->method_field))
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    int code = check_status(options, error);
    if (code == 0)
        code = http_proxies_new(&site->proxies, options->trusted_proxies,
                                options->n_trusted_proxies, error);
    if (code == 0)
        code = http_hosts_new(&site->hosts, options->hosts, options->n_hosts, error);
    if (code == 0)
        code = http_parts_new(&site->parts, has_lists ? options->descriptors : by_address,
                              has_lists ? options->n_descriptors : 1, error);
    return code;
}

int http_config_new(struct http_config **site, const struct http_config_options *options,
                    struct stint_error *error)
{
    struct http_config *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    int code = fill(made, options, error);
    if (code < 0) {
        http_config_free(made);
        return code;
    }
    *site = made;
    return 0;
}

void http_config_free(struct http_config *site)
{
    if (site == NULL)
        return;
    http_parts_free(site->parts);
    http_proxies_free(site->proxies);
    http_hosts_free(site->hosts);
    free(site->domain);
    free(site->metrics_path);
    free(site->address_field);
    free(site->uri_field);
    free(site->method_field);
    free(site);
}
