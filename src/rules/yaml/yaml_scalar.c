/* SPDX-License-Identifier: MIT */
/* Reads texts of at most NUMBER_MAX characters: longer ones are never numbers. */
#include "rules/yaml/yaml_scalar.h"

#include "algorithm/text.h"

#include <math.h>
#include <stdlib.h>

#define NUMBER_MAX 80

bool yaml_flag(const struct yaml_value *value, bool *flag)
{
    static const char *const words[2][11] = {
        {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"},
        {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"},
    };
    for (size_t i = 0; i < 22 && value->kind == YAML_TEXT && !value->is_string; i++)
        if (text_is(value->text, words[i / 11][i % 11])) {
            *flag = i >= 11;
            return true;
        }
    return false;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* A text without its underscores. */
struct plain {
    char text[NUMBER_MAX + 1];
    size_t len;
};

static bool read_plain(const struct yaml_value *value, struct plain *plain)
{
    const struct span *text = &value->text;
    plain->len = 0;
    if (value->kind != YAML_TEXT || text->len == 0 || text->ptr[0] == '_')
        return false;
    for (size_t i = 0; i < text->len; i++) {
        if (text->ptr[i] == '_')
            continue;
        if (plain->len == NUMBER_MAX)
            return false;
        plain->text[plain->len++] = (char)text->ptr[i];
    }
    plain->text[plain->len] = '\0';
    return true;
}

static unsigned digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    char small = (char)(c | 0x20);
    return small >= 'a' && small <= 'f' ? (unsigned)(small - 'a') + 10 : 16;
}

/* Skips 0x, 0o, 0b or the 0 of an octal number, which give the base of the rest. */
static unsigned read_base(const char **digits)
{
    const char *text = *digits;
    if (text[0] != '0' || text[1] == '\0')
        return 10;
    *digits += 2;
    switch (text[1] | 0x20) {
    case 'x':
        return 16;
    case 'o':
        return 8;
    case 'b':
        return 2;
    default:
        *digits -= 1;
        return 8;
    }
}

bool yaml_whole(const struct yaml_value *value, struct yaml_whole *whole)
{
    struct plain plain;
    if (!read_plain(value, &plain))
        return false;
    const char *digits = plain.text, *end = plain.text + plain.len;
    *whole = (struct yaml_whole){.is_negative = *digits == '-'};
    if (*digits == '-' || *digits == '+')
        digits++;
    unsigned base = read_base(&digits);
    if (digits == end)
        return false;
    for (; digits < end; digits++) {
        unsigned digit = digit_value(*digits);
        if (digit >= base)
            return false;
        if (whole->magnitude > (UINT64_MAX - digit) / base)
            whole->is_too_large = true;
        else
            whole->magnitude = whole->magnitude * base + digit;
    }
    return true;
}

static size_t skip_digits(const char *text)
{
    size_t n = 0;
    while (text[n] >= '0' && text[n] <= '9')
        n++;
    return n;
}

/* strtod() accepts more than YAML does: hexadecimal, infinities, blanks. */
static bool looks_real(const char *text)
{
    if (*text == '+' || *text == '-')
        text++;
    size_t n_digits = skip_digits(text);
    text += n_digits;
    if (*text == '.') {
        size_t n_more = skip_digits(text + 1);
        n_digits += n_more;
        text += 1 + n_more;
    }
    if (n_digits == 0)
        return false;
    if (*text == 'e' || *text == 'E') {
        text += text[1] == '+' || text[1] == '-' ? 2 : 1;
        size_t n_exponent = skip_digits(text);
        if (n_exponent == 0)
            return false;
        text += n_exponent;
    }
    return *text == '\0';
}

bool yaml_real(const struct yaml_value *value, double *real)
{
    struct plain plain;
    if (!read_plain(value, &plain) || strlen(plain.text) != plain.len || !looks_real(plain.text))
        return false;
    *real = strtod(plain.text, NULL);
    return isfinite(*real);
}
