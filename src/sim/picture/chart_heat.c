/* SPDX-License-Identifier: MIT */
/* The heat map. The colours are those of viridis: they grow lighter evenly, for every eye. */
#include "sim/picture/chart.h"

#include <math.h>

#define CELL_WIDTH_PX 62
#define CELL_HEIGHT_PX 38
#define BESIDE_PX 250 /* names of rows, and the bar of colours */
#define AROUND_PX 160 /* title, names of columns, label */
#define WIDTH_MIN_PX 640
#define NAME_COLUMNS 24
#define TITLE_COLUMNS 110

static void ends_of(const struct chart_matrix *matrix, double *lowest, double *highest)
{
    *lowest = matrix->lowest;
    *highest = matrix->highest;
    if (*lowest != 0 || *highest != 0)
        return;
    *lowest = INFINITY;
    *highest = -INFINITY;
    for (size_t i = 0; i < matrix->n_x * matrix->n_y; i++) {
        /* Neither is true of NAN. */
        if (matrix->values[i] < *lowest)
            *lowest = matrix->values[i];
        if (matrix->values[i] > *highest)
            *highest = matrix->values[i];
    }
    if (*lowest > *highest)
        *lowest = *highest = 0;
    if (*lowest == *highest) /* all alike: the scale needs a length */
        *highest = *lowest + 1;
}

/* Which of the rows of a set: cells whose letters are to be white, black, or which are empty. */
enum cells { ON_DARK, ON_LIGHT, EMPTY };

static void add_cells(struct plot *plot, const struct chart_matrix *matrix, enum cells which,
                      double middle)
{
    for (size_t y = 0; y < matrix->n_y; y++)
        for (size_t x = 0; x < matrix->n_x; x++) {
            double value = matrix->values[y * matrix->n_x + x];
            enum cells of = isnan(value) ? EMPTY : value < middle ? ON_DARK : ON_LIGHT;
            if (of == which)
                plot_data(plot, "%zu %zu %.9g\n", x, y, isnan(value) ? 0 : value);
        }
}

static void name_axis(struct plot *plot, char axis, const char *label, const char *const *names,
                      size_t n_names)
{
    plot_script(plot, "set %clabel ", axis);
    plot_quote(plot, span_of_text(label), TITLE_COLUMNS);
    plot_script(plot, "\nset %ctics scale 0 (", axis);
    for (size_t i = 0; i < n_names; i++) {
        plot_script(plot, "%s", i == 0 ? "" : ", ");
        plot_quote_tic(plot, span_of_text(names[i]), NAME_COLUMNS);
        plot_script(plot, " %zu", i);
    }
    plot_script(plot, ")\nset %crange [-0.5:%zu.5]\n", axis, n_names - 1);
}

int chart_heat(struct plot *plot, const struct chart_matrix *matrix, struct stint_error *error)
{
    static const char *const sets[] = {"on dark", "on light", "empty"};
    uint32_t width = BESIDE_PX + CELL_WIDTH_PX * (uint32_t)matrix->n_x;
    double lowest, highest;
    ends_of(matrix, &lowest, &highest);
    plot_init(plot, width > WIDTH_MIN_PX ? width : WIDTH_MIN_PX,
              AROUND_PX + CELL_HEIGHT_PX * (uint32_t)matrix->n_y);
    for (int which = ON_DARK; which <= EMPTY; which++) {
        plot_set(plot, sets[which]);
        plot_data(plot, "-9 -9 0\n"); /* out of sight: a set without rows would be an error */
        add_cells(plot, matrix, (enum cells)which, lowest + 0.55 * (highest - lowest));
    }
    plot_script(plot, "set title ");
    plot_quote(plot, span_of_text(matrix->title), TITLE_COLUMNS);
    plot_script(plot, "\n");
    name_axis(plot, 'x', matrix->x_label, matrix->x_names, matrix->n_x);
    name_axis(plot, 'y', matrix->y_label, matrix->y_names, matrix->n_y);
    plot_script(plot, "set cblabel ");
    plot_quote(plot, span_of_text(matrix->value_label), TITLE_COLUMNS);
    plot_script(plot,
                "\nset cbrange [%.9g:%.9g]\nset border linecolor rgb '" PLOT_INK "'\n"
                "set palette defined (0 '#440154', 0.25 '#3b528b', 0.5 '#21918c', "
                "0.75 '#5ec962', 1 '#fde725')\nset key off\n"
                "number(v) = sprintf('%%.%uf', v)\n",
                lowest, highest, matrix->decimals);
    /* A block of braces is read as one: what its macros stand for is settled before it. */
    plot_script(plot, "cell = 'using 1:2:($1-0.5):($1+0.5):($2-0.5):($2+0.5):3 with boxxyerror "
                      "fillstyle solid noborder fillcolor palette'\n"
                      "words = 'using 1:2:(number($3)) with labels'\n"
                      "if (is_text) {\n"
                      "plot @data index 'on dark' @words, @data index 'on light' @words, "
                      "@data index 'empty' using 1:2:('-') with labels\n} else {\n"
                      "plot @data index 'on dark' @cell, @data index 'on light' @cell, "
                      "@data index 'on dark' @words font ',12' textcolor rgb 'white', "
                      "@data index 'on light' @words font ',12' textcolor rgb 'black', "
                      "@data index 'empty' using 1:2:('–') with labels font ',12'\n}\n");
    return plot_check(plot, error);
}
