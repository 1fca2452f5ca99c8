/* SPDX-License-Identifier: MIT */
/* The symbols of the described files, and their imports. */
#ifndef STINT_PROTO_GRPC_REFLECTION_SYMBOLS_H
#define STINT_PROTO_GRPC_REFLECTION_SYMBOLS_H

#include "base/span.h"

#include <stdbool.h>

#define REFLECTION_FILES_MAX 32
#define REFLECTION_NONE REFLECTION_FILES_MAX

struct Pb__Set;
struct Pb__File;

/* A parsed description of all files. */
struct reflection_set {
    struct Pb__Set *set;
    size_t n_files;
    struct span bytes[REFLECTION_FILES_MAX]; /* FileDescriptorProto, as sent to clients */
    struct Pb__File *files[REFLECTION_FILES_MAX];
};

bool reflection_set_read(struct reflection_set *set); /* false: no memory */
void reflection_set_free(struct reflection_set *set);

/* The index of a file, or REFLECTION_NONE. */
size_t reflection_file_named(const struct reflection_set *set, struct span name);
/* The file of any symbol: a message, field, enum, enum value, service or method. */
size_t reflection_file_defining(const struct reflection_set *set, struct span symbol);

/* The indices of a file, first, and of all its imports, each once; returns their number. */
size_t reflection_files_of(const struct reflection_set *set, size_t file,
                           size_t indices[REFLECTION_FILES_MAX]);

#endif
