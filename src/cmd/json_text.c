/* SPDX-License-Identifier: MIT */
/* Keys are any bytes, JSON strings are UTF-8. */
#include "cmd/json_text.h"

#include "cmd/say.h"

#include <stdio.h>
#include <stdlib.h>

/* Bytes of the UTF-8 character that begins at `text`, by RFC 3629; 0 if there is none. */
static size_t utf8_length(const uint8_t *text, size_t len)
{
    uint8_t lead = text[0];
    size_t need = lead < 0x80   ? 1
                  : lead < 0xc2 ? 0
                  : lead < 0xe0 ? 2
                  : lead < 0xf0 ? 3
                  : lead < 0xf5 ? 4
                                : 0;
    if (need == 0 || need > len)
        return 0;
    for (size_t i = 1; i < need; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (lead == 0xe0 && text[1] < 0xa0) || (lead == 0xf0 && text[1] < 0x90);
    bool surrogate = lead == 0xed && text[1] >= 0xa0;
    bool beyond = lead == 0xf4 && text[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : need;
}

json_t *json_text_key(struct span key)
{
    char *text = malloc(3 * key.len + 1);
    size_t len = 0;
    if (text == NULL)
        return NULL;
    for (size_t at = 0; at < key.len;) {
        size_t n = utf8_length(key.ptr + at, key.len - at);
        memcpy(text + len, n > 0 ? (const char *)key.ptr + at : "\xef\xbf\xbd", n > 0 ? n : 3);
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
        say("out of memory");
    json_decref(object);
    return failed ? -1 : 0;
}
