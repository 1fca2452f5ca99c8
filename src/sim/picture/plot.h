/* SPDX-License-Identifier: MIT */
/*
 * A drawing for gnuplot: which of the programs in plots/ draws it, the variables of that program,
 * and its data. The programs are part of this library, so that a drawing needs no file beside the
 * program, wherever that is run from.
 *
 * Data are sets of rows, each begun by plot_set(). Variables are assignments, a line each; text
 * from outside goes through plot_text() alone, which leaves nothing in it that gnuplot acts on.
 */
#ifndef STINT_SIM_PICTURE_PLOT_H
#define STINT_SIM_PICTURE_PLOT_H

#include "base/err.h"
#include "base/span.h"

/* plots/NAME.gp; terminated by a zero. The first begins every drawing. */
extern const unsigned char plot_common[], plot_bars[], plot_compare[], plot_history[], plot_plan[];

struct plot_lines {
    char *bytes; /* terminated; NULL while nothing was added */
    size_t len, size;
};

struct plot {
    const unsigned char *program;
    struct plot_lines variables, data;
    bool lost; /* memory did not suffice: what is there is not the whole */
};

void plot_init(struct plot *plot, const unsigned char *program);
void plot_deinit(struct plot *plot);

void plot_data(struct plot *plot, const char *format, ...) ERR_PRINTF(2, 3);
void plot_variables(struct plot *plot, const char *format, ...) ERR_PRINTF(2, 3);

/* Begins a set of rows. */
void plot_set(struct plot *plot, const char *name);

/*
 * Assigns any bytes to `variable` as a string. What is neither printable nor UTF-8 is shown as `?`;
 * text longer than `columns` is cut, with an ellipsis.
 */
void plot_text(struct plot *plot, const char *variable, struct span text, size_t columns);
/* The same to the array `variable`, which it declares; the names of rows are short. */
void plot_names(struct plot *plot, const char *variable, const struct span *names, size_t n_names);

#endif
