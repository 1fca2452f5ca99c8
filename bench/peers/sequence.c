/* SPDX-License-Identifier: MIT */
/* Writes the indices that every peer is asked for: a file of 32-bit numbers, little-endian. */
#include "../keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc != 5 || (strcmp(argv[1], "uniform") != 0 && strcmp(argv[1], "zipf") != 0)) {
        fprintf(stderr, "usage: %s uniform|zipf KEYS LENGTH FILE\n", argv[0]);
        return 2;
    }
    uint32_t n_keys = (uint32_t)strtoul(argv[2], NULL, 10);
    size_t len = strtoul(argv[3], NULL, 10);
    struct sequence sequence =
        argv[1][0] == 'u' ? sequence_uniform(n_keys, len, 1) : sequence_zipf(n_keys, len, 2);
    FILE *file = fopen(argv[4], "wb");
    for (size_t i = 0; file != NULL && i < len; i++) {
        uint32_t index = sequence.index[i];
        for (unsigned byte = 0; byte < 4; byte++)
            putc((int)(index >> 8 * byte & 0xff), file);
    }
    sequence_free(&sequence);
    if (file == NULL || ferror(file) || fclose(file) != 0) {
        perror(argv[4]);
        return 1;
    }
    return 0;
}
