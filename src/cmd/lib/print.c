/* SPDX-License-Identifier: MIT */
/* Lines of a log and messages of servers are untrusted: they must not control the terminal. */
#include "cmd/lib/print.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <string.h>

#define SHOWN_SPACE 16 /* of one character */

/* Shows the character that `text` begins with; returns its length in bytes. */
static size_t show(const uint8_t *text, size_t len, char shown[SHOWN_SPACE])
{
    size_t n = utf8_length(text, len);
    uint32_t code = n > 0 ? utf8_code_point(text, n) : text[0];
    if (n == 0 || (code < 0x80 && utf8_is_hidden(code)))
        snprintf(shown, SHOWN_SPACE, "\\x%02x", (unsigned)code);
    else if (utf8_is_hidden(code))
        snprintf(shown, SHOWN_SPACE, "\\u{%x}", (unsigned)code);
    else
        snprintf(shown, SHOWN_SPACE, "%.*s", (int)n, (const char *)text);
    return n > 0 ? n : 1;
}

const char *format_text(char *to, size_t size, struct span text)
{
    char shown[SHOWN_SPACE];
    size_t used = 0;
    for (size_t at = 0; at < text.len;) {
        at += show(text.ptr + at, text.len - at, shown);
        size_t len = strlen(shown);
        if (used + len >= size)
            break;
        memcpy(to + used, shown, len);
        used += len;
    }
    to[used] = '\0';
    return to;
}

void print_escaped(FILE *out, struct span key)
{
    char shown[SHOWN_SPACE];
    for (size_t at = 0; at < key.len;) {
        at += show(key.ptr + at, key.len - at, shown);
        fputs(shown, out);
    }
}

void hide_controls(char *text)
{
    const uint8_t *from = (const uint8_t *)text;
    char *to = text;
    for (size_t len = strlen(text); len > 0;) {
        size_t n = utf8_length(from, len), whole = n > 0 ? n : 1;
        bool hidden = n == 0 || utf8_is_hidden(utf8_code_point(from, n));
        if (hidden)
            *to = '?';
        else
            memmove(to, from, n);
        to += hidden ? 1 : n;
        from += whole;
        len -= whole;
    }
    *to = '\0';
}

void print_message(const char *format, ...)
{
    char text[1024], shown[4 * sizeof(text)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    format_text(shown, sizeof(shown), span_of_text(text));
    fflush(stdout);
    fprintf(stderr, "stint: %s\n", shown);
}
