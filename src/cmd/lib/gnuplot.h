/* SPDX-License-Identifier: MIT */
/*
 * Starts gnuplot for `--plot FILE`: FILE.svg and FILE.png become pictures, - is drawn on standard
 * output in letters. A FILE is written when all of the picture is there, and not touched before.
 */
#ifndef STINT_CMD_LIB_GNUPLOT_H
#define STINT_CMD_LIB_GNUPLOT_H

#include "sim/picture/plot.h"

#include <argp.h>

enum gnuplot_format { GNUPLOT_NONE = 0, GNUPLOT_TERMINAL, GNUPLOT_SVG, GNUPLOT_PNG };

/* For options_known[]: the help text of every --plot. */
#define GNUPLOT_HELP "Draw FILE.svg or FILE.png through gnuplot; - draws on standard output"

struct gnuplot {
    enum gnuplot_format format; /* GNUPLOT_NONE: no --plot was given */
    const char *path;
};

/*
 * Reads the value of --plot into a struct gnuplot. An argp_error for a name that says neither svg
 * nor png; exits with CMD_BAD_INPUT where no such file could be written, before any work is done
 * for it.
 */
void gnuplot_option(struct argp_state *state, void *gnuplot, char *value);

/* Draws, and frees the plot. Returns an enum cmd_exit; what went wrong has been said. */
int gnuplot_draw(const struct gnuplot *gnuplot, struct plot *plot);

#endif
