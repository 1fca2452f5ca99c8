/* SPDX-License-Identifier: MIT */
/*
 * /json in virtual time, for a test that is another program: lines of "NOW_NS BODY" come in, lines
 * of "STATUS BODY" go out. Hits are charged, as under --compat envoyproxy.
 */
#include "unit/test_http_client.h"

#include "service/service_parts.h"

#include <stdlib.h>

#define LINE_MAX_BYTES 8192

static char *read_all(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    return text;
}

int main(int argc, char **argv)
{
    static struct http_client http;
    static const struct http_config_options site;
    char line[LINE_MAX_BYTES], request[LINE_MAX_BYTES + 64];
    if (argc != 2) {
        fprintf(stderr, "usage: json_frontend RULES\n");
        return 2;
    }
    http_open(&http, read_all(argv[1]), &site, NULL);
    http.s.service->evaluation.charges_hits = true;
    while (fgets(line, sizeof(line), stdin) != NULL) {
        char *body;
        http.s.now_ns = strtoull(line, &body, 10);
        body[strcspn(body, "\n")] = '\0';
        snprintf(request, sizeof(request), "POST /json\nContent-Type: application/json\n\n%s",
                 body + 1);
        const char *answer = http_send(&http, request);
        printf("%.3s %s\n", answer, strstr(answer, "\n\n") + 2);
    }
    http_close(&http);
    return 0;
}
