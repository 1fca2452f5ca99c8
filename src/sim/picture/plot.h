/* SPDX-License-Identifier: MIT */
/*
 * A drawing for gnuplot: its data, and the script that draws them, as text that grows. Who starts
 * gnuplot, and where the drawing goes, is the program's business.
 *
 * Data are sets of rows, each begun by plot_set(). A script draws a set by `@data index "NAME"`,
 * wherever the data have been put; terminal and output are chosen before it runs. In the script,
 * `is_text` is 1 where the terminal draws with letters: it knows neither colours nor filled shapes.
 */
#ifndef STINT_SIM_PICTURE_PLOT_H
#define STINT_SIM_PICTURE_PLOT_H

#include "base/err.h"
#include "base/span.h"

struct plot_text {
    char *bytes; /* terminated; NULL while nothing was added */
    size_t len, size;
};

struct plot {
    struct plot_text data, script;
    uint32_t width, height; /* pixels of a picture */
    bool lost;              /* memory did not suffice: what is there is not the whole */
};

/* Colours that are told apart by colour-blind readers too, and what they stand for everywhere. */
#define PLOT_USED "#0072b2"     /* taken, admitted */
#define PLOT_TRUTH "#009e73"    /* as counted exactly */
#define PLOT_BELIEF "#d55e00"   /* as the limiter has it */
#define PLOT_WITHHELD "#f0a830" /* free, but not given */
#define PLOT_TOO_MUCH "#cc79a7" /* given, but not free */
#define PLOT_OPEN "#d6e8f5"     /* a group that takes units */
#define PLOT_COOLING "#9cc7e4"  /* a group that waits for its return */
#define PLOT_REFUSED "#8a8a8a"  /* denied for want of room */
#define PLOT_INK "#333333"      /* frames and letters */

void plot_init(struct plot *plot, uint32_t width, uint32_t height);
void plot_deinit(struct plot *plot);

/* Begins a set of rows. */
void plot_set(struct plot *plot, const char *name);
void plot_data(struct plot *plot, const char *format, ...) ERR_PRINTF(2, 3);
void plot_script(struct plot *plot, const char *format, ...) ERR_PRINTF(2, 3);

/*
 * Adds any bytes to the script as a string that gnuplot takes for nothing but letters. What is
 * neither printable nor UTF-8 is shown as `?`; text longer than `columns` is cut, with an ellipsis.
 */
void plot_quote(struct plot *plot, struct span text, size_t columns);
/* The same for a name beside an axis, which gnuplot would take for a format. */
void plot_quote_tic(struct plot *plot, struct span text, size_t columns);

/* 0, or STINT_E_SYSTEM where memory did not suffice for the whole. */
int plot_check(const struct plot *plot, struct stint_error *error);

/* ---- Axes ---- */

struct plot_unit {
    const char *name; /* "min" */
    uint64_t ns;
};

/* The one that suits a length of time: ns, us, ms, s, min, h or d. */
struct plot_unit plot_unit_of(uint64_t length_ns);

/* The step between them, 1, 2 or 5 times a power of ten: 4 to 10 make the length, fewer below 4. */
double plot_step_of(double length);

#endif
