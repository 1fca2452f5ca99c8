/* SPDX-License-Identifier: MIT */
/* Lines of a log, and what servers say, are others': nothing of them may steer the terminal. */
#include "cmd/say.h"

#include <stdarg.h>

static bool is_control(uint8_t c)
{
    return c < 0x20 || c == 0x7f;
}

void say_plainly(char *text)
{
    for (char *c = text; *c != '\0'; c++)
        if (is_control((uint8_t)*c))
            *c = '?';
}

void say(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    say_plainly(text);
    fflush(stdout);
    fprintf(stderr, "stint: %s\n", text);
}

void say_key(FILE *out, struct span key)
{
    size_t from = 0;
    for (size_t at = 0; at < key.len; at++)
        if (is_control(key.ptr[at])) {
            fwrite(key.ptr + from, 1, at - from, out);
            fprintf(out, "\\x%02x", key.ptr[at]);
            from = at + 1;
        }
    fwrite(key.ptr + from, 1, key.len - from, out);
}
