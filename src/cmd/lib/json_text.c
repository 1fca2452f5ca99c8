/* SPDX-License-Identifier: MIT */
/* Keys are any bytes, JSON strings are UTF-8. */
#include "cmd/lib/json_text.h"

#include "base/utf8.h"
#include "cmd/lib/print.h"

#include <stdio.h>
#include <stdlib.h>

json_t *json_text_key(struct span key)
{
    char *text = malloc(3 * key.len + 1);
    size_t len = 0;
    if (text == NULL)
        return NULL;
    for (size_t at = 0; at < key.len;) {
        size_t n = utf8_length(key.ptr + at, key.len - at);
        memcpy(text + len, n > 0 ? (const char *)key.ptr + at : UTF8_REPLACEMENT, n > 0 ? n : 3);
        len += n > 0 ? n : 3;
        at += n > 0 ? n : 1;
    }
    json_t *value = json_stringn(text, len);
    free(text);
    return value;
}

json_t *json_text_ns(uint64_t ns)
{
    return ns > INT64_MAX ? json_null() : json_integer((json_int_t)ns);
}

int json_text_print(json_t *object, bool pretty)
{
    int failed =
        object == NULL || json_dumpf(object, stdout, pretty ? JSON_INDENT(2) : JSON_COMPACT) != 0;
    if (!failed)
        putchar('\n');
    else if (!ferror(stdout))
        print_message("out of memory");
    json_decref(object);
    return failed ? -1 : 0;
}
