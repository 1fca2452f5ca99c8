/* SPDX-License-Identifier: MIT */
/* Finds libcurl and its functions by name. */
#define _GNU_SOURCE
#include "cmd/client/curl_library.h"

#include <dlfcn.h>

/* Whatever it encrypts with, its functions are the same. Debian's package of GnuTLS' comes first.
 */
static const char *const file_names[] = {"libcurl-gnutls.so.4", "libcurl.so.4"};

static void *open_library(struct stint_error *error)
{
    for (size_t i = 0; i < sizeof(file_names) / sizeof(file_names[0]); i++) {
        void *handle = dlopen(file_names[i], RTLD_NOW | RTLD_LOCAL);
        if (handle != NULL)
            return handle;
    }
    err_set(error, STINT_E_SYSTEM, "asking a server needs libcurl (Debian: libcurl3-gnutls): %s",
            dlerror());
    return NULL;
}

/* `function` is where the pointer to it goes: POSIX has data and function pointers alike. */
static int find(void *handle, const char *name, void *function, struct stint_error *error)
{
    void *symbol = dlsym(handle, name);
    if (symbol == NULL)
        return err_set(error, STINT_E_SYSTEM, "this libcurl has no %s()", name);
    *(void **)function = symbol;
    return 0;
}

int curl_library_load(const struct curl_library **library, struct stint_error *error)
{
    static struct curl_library loaded;
    static bool is_loaded;
    *library = &loaded;
    if (is_loaded)
        return 0;
    void *handle = open_library(error);
    if (handle == NULL)
        return STINT_E_SYSTEM;
    int code = 0;
#define FIND(name)                                                                                 \
    if (code == 0)                                                                                 \
        code = find(handle, "curl_" #name, (void *)&loaded.name, error);
    CURL_LIBRARY_FUNCTIONS(FIND)
#undef FIND
    if (code == 0 && loaded.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        code = err_set(error, STINT_E_SYSTEM, "libcurl could not be made ready");
    is_loaded = code == 0;
    return code;
}

int curl_library_check_http2(const struct curl_library *library, struct stint_error *error)
{
    const curl_version_info_data *info = library->version_info(CURLVERSION_NOW);
    if ((info->features & CURL_VERSION_HTTP2) != 0)
        return 0;
    return err_set(error, STINT_E_SYSTEM,
                   "libcurl %s has no HTTP/2; install one that has (Debian: libcurl3-gnutls)",
                   info->version);
}
