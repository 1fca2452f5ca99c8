/* SPDX-License-Identifier: MIT */
/*
 * One pass over the line. Only what a key or the time needs is parsed; what follows the size
 * (referrer, user agent, other fields) may be anything.
 */
#include "sim/input/logline.h"

#include "algorithm/text.h"
#include "base/number.h"

static const char *const field_names[LOGLINE_FIELDS + 1] = {
    [LOGLINE_IP] = "ip",     [LOGLINE_USER] = "user",     [LOGLINE_METHOD] = "method",
    [LOGLINE_PATH] = "path", [LOGLINE_STATUS] = "status", [LOGLINE_FIELDS] = NULL,
};

static int malformed(struct stint_error *error, const char *found)
{
    return err_set(error, STINT_E_SYNTAX,
                   "expected HOST IDENT USER [DAY/MON/YEAR:H:M:S +ZONE] \"REQUEST\" STATUS BYTES, "
                   "found %s",
                   found);
}

/* Reads the BITS of `ip/BITS`; `text` is what follows the slash. */
static int parse_bits(uint8_t *bits, struct span text, struct stint_error *error)
{
    uint64_t number;
    if (!resp_number_read(text, 128, &number) || number == 0)
        return err_set(error, STINT_E_SYNTAX, "the prefix of ip/BITS must be from 1 to 128");
    *bits = (uint8_t)number;
    return 0;
}

static int add_field(struct logline *logline, struct span name, struct stint_error *error)
{
    if (logline->n_fields == JOINED_KEY_PARTS_MAX)
        return err_set(error, STINT_E_RANGE, "a key has at most %d fields", JOINED_KEY_PARTS_MAX);
    if (name.len > 3 && memcmp(name.ptr, "ip/", 3) == 0) {
        int code = parse_bits(&logline->v6_bits, span_of(name.ptr + 3, name.len - 3), error);
        if (code != 0)
            return code;
        name.len = 2;
    }
    for (uint8_t field = 0; field < LOGLINE_FIELDS; field++) {
        if (span_equals(name, field_names[field])) {
            logline->fields[logline->n_fields++] = field;
            return 0;
        }
    }
    return err_set(error, STINT_E_SYNTAX,
                   "there is no field '%.*s' to make a key of: expected ip, ip/BITS, user, method, "
                   "path or status, joined by +",
                   (int)name.len, (const char *)name.ptr);
}

int logline_init(struct logline *logline, const char *key_expr, struct stint_error *error)
{
    memset(logline, 0, sizeof(*logline));
    logline->v6_bits = 128;
    for (const char *from = key_expr;;) {
        size_t len = strcspn(from, "+");
        int code = add_field(logline, span_of(from, len), error);
        if (code != 0 || from[len] == '\0')
            return code;
        from += len + 1;
    }
}

/* Cuts the bytes up to the next space off the line; empty if there is none. */
static struct span cut_word(struct span *line)
{
    const uint8_t *space = memchr(line->ptr, ' ', line->len);
    if (space == NULL)
        return span_of(line->ptr, 0);
    struct span word = {line->ptr, (size_t)(space - line->ptr)};
    line->ptr += word.len + 1;
    line->len -= word.len + 1;
    return word;
}

/*
 * Cuts the user and the date off the line. The name of a user may hold spaces and brackets, so the
 * date is the first bracket whose content parses as one.
 */
static bool cut_user_and_date(struct logline *logline, struct span *line, struct span *user,
                              uint64_t *at_ns)
{
    for (size_t at = 0; at + TIMESTAMP_CLF_LEN + 2 < line->len; at++) {
        const uint8_t *bracket = memchr(line->ptr + at, '[', line->len - at);
        if (bracket == NULL)
            return false;
        at = (size_t)(bracket - line->ptr);
        size_t after = at + TIMESTAMP_CLF_LEN + 2;
        if (after < line->len && at > 0 && bracket[-1] == ' ' &&
            bracket[TIMESTAMP_CLF_LEN + 1] == ']' && line->ptr[after] == ' ' &&
            timestamp_parse_clf(at_ns, bracket + 1, &logline->date)) {
            *user = span_of(line->ptr, at - 1);
            *line = span_of(line->ptr + after + 1, line->len - after - 1);
            return true;
        }
    }
    return false;
}

/* Cuts "…" and the space after it off the line; a quote inside is written with a backslash. */
static bool cut_quoted(struct span *line, struct span *inside)
{
    if (line->len == 0 || line->ptr[0] != '"')
        return false;
    const uint8_t *from = line->ptr + 1, *end = line->ptr + line->len;
    for (const uint8_t *quote = from; quote < end; quote++) {
        quote = memchr(quote, '"', (size_t)(end - quote));
        if (quote == NULL)
            return false;
        size_t n_backslashes = 0;
        while (quote - n_backslashes > from && quote[-1 - (ptrdiff_t)n_backslashes] == '\\')
            n_backslashes++;
        if (n_backslashes % 2 == 0) {
            *inside = span_of(from, (size_t)(quote - from));
            quote += quote + 1 < end && quote[1] == ' ' ? 2 : 1;
            *line = span_of(quote, (size_t)(end - quote));
            return true;
        }
    }
    return false;
}

/* An invalid request (a scan, TLS on a plain port) is a path without a method. */
static void split_request(struct span request, struct span *method, struct span *path)
{
    static const uint8_t dash = '-';
    struct span rest = request;
    *method = cut_word(&rest);
    if (method->len == 0) {
        *method = span_of(&dash, 1);
        rest = request;
    }
    const uint8_t *space = memchr(rest.ptr, ' ', rest.len);
    *path = span_of(rest.ptr, space != NULL ? (size_t)(space - rest.ptr) : rest.len);
    const uint8_t *query = memchr(path->ptr, '?', path->len);
    if (query != NULL)
        path->len = (size_t)(query - path->ptr);
}

static bool is_number(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!text_is_digit(text.ptr[i]))
            return false;
    return text.len > 0;
}

/* Cuts STATUS and BYTES off what follows the request. */
static bool cut_status(struct span line, struct span *status)
{
    *status = cut_word(&line);
    const uint8_t *space = memchr(line.ptr, ' ', line.len);
    struct span bytes = {line.ptr, space != NULL ? (size_t)(space - line.ptr) : line.len};
    return status->len == 3 && is_number(*status) && (span_equals(bytes, "-") || is_number(bytes));
}

/* Whether the text is four numbers up to 255 without leading zeros: its own canonical form. */
static bool is_plain_v4(struct span text)
{
    size_t at = 0;
    for (int part = 0; part < 4; part++) {
        unsigned number = 0;
        size_t n_digits = 0;
        for (; at < text.len && text_is_digit(text.ptr[at]) && n_digits < 4; at++, n_digits++)
            number = number * 10 + (unsigned)(text.ptr[at] - '0');
        bool zeros = n_digits > 1 && text.ptr[at - n_digits] == '0';
        if (n_digits == 0 || n_digits > 3 || number > 255 || zeros)
            return false;
        if (part < 3 && (at >= text.len || text.ptr[at++] != '.'))
            return false;
    }
    return at == text.len;
}

/* Nearly all addresses of logs are IPv4 in canonical form: those need one pass. */
static struct span address_of(struct logline *logline, struct span host)
{
    if (is_plain_v4(host))
        return host;
    int len = stint_address_key(logline->address, sizeof(logline->address), (const char *)host.ptr,
                                host.len, 32, logline->v6_bits);
    return len < 0 ? host : span_of(logline->address, (size_t)len);
}

/* No IDENT is one: where it seems to be, the name of a virtual host stands before the HOST. */
static bool is_address(struct span ident)
{
    char address[LOGLINE_ADDRESS_MAX];
    return ident.len > 1 && (is_plain_v4(ident) ||
                             stint_address_key(address, sizeof(address), (const char *)ident.ptr,
                                               ident.len, 32, 128) >= 0);
}

int logline_parse(struct logline *logline, struct event *event, struct span line,
                  struct stint_error *error)
{
    struct span found[LOGLINE_FIELDS], request;
    if (line.len == 0)
        return EVENT_NONE;
    found[LOGLINE_IP] = cut_word(&line);
    struct span ident = cut_word(&line);
    if (found[LOGLINE_IP].len > 0 && is_address(ident)) {
        found[LOGLINE_IP] = ident;
        ident = cut_word(&line);
    }
    if (found[LOGLINE_IP].len == 0 || ident.len == 0)
        return malformed(error, "no HOST IDENT");
    uint64_t at_ns;
    if (!cut_user_and_date(logline, &line, &found[LOGLINE_USER], &at_ns))
        return malformed(error, "no date such as [28/Feb/2015:10:05:59 +0000]");
    if (!cut_quoted(&line, &request))
        return malformed(error, "no request in quotes");
    split_request(request, &found[LOGLINE_METHOD], &found[LOGLINE_PATH]);
    if (!cut_status(line, &found[LOGLINE_STATUS]))
        return malformed(error, "no STATUS BYTES");
    struct span parts[JOINED_KEY_PARTS_MAX];
    for (size_t i = 0; i < logline->n_fields; i++) {
        enum logline_field field = logline->fields[i];
        parts[i] = field == LOGLINE_IP ? address_of(logline, found[field]) : found[field];
    }
    *event = (struct event){.at_ns = at_ns, .cost = 1};
    int code = joined_key_make(&logline->joined, &event->key, parts, logline->n_fields, error);
    return code != 0 ? code : EVENT_FOUND;
}
