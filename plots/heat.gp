# SPDX-License-Identifier: MIT
# A matrix as cells that are coloured by value, which is printed in each. The colours are those of
# viridis: they grow lighter evenly, for every eye. Variables: title, x_label, y_label, value_label,
# n_x, x_name (from the left), n_y and y_name (from below). Data: a row for each cell with the
# columns
#   1 x  2 y  3 value, or NaN

lowest = 1e300
highest = -1e300
stats data using (lowest = $3 < lowest ? $3 : lowest, highest = $3 > highest ? $3 : highest, 0) \
    nooutput
if (lowest > highest) { lowest = 0; highest = 0 }
if (lowest == highest) { highest = lowest + 1 } # the scale needs a length
middle = lowest + 0.55 * (highest - lowest)
eval terminal(max(640, 250 + 62 * n_x), 160 + 38 * n_y)

set title title
set xlabel x_label
set xtics scale 0 ("" -9)
do for [i = 1:n_x] { set xtics add (tic(x_name[i]) i - 1) }
set xrange [-0.5:n_x - 0.5]
set ylabel y_label
set ytics scale 0 ("" -9)
do for [i = 1:n_y] { set ytics add (tic(y_name[i]) i - 1) }
set yrange [-0.5:n_y - 0.5]
set cblabel value_label
set cbrange [lowest:highest]
set border linecolor rgb INK
set palette defined (0 '#440154', 0.25 '#3b528b', 0.5 '#21918c', 0.75 '#5ec962', 1 '#fde725')
set key off
# Cells of another kind are put out of sight.
dark(v, y) = v < middle ? y : -9
light(v, y) = v >= middle ? y : -9
cells(kind) = sprintf('using 1:(0):($1-0.5):($1+0.5):(%s($3,$2)-0.5):(%s($3,$2)+0.5):3 ' \
    .'with boxxyerror fillstyle solid noborder fillcolor palette', kind, kind)
dark_cells = cells('dark')
light_cells = cells('light')
words = '(sprintf("%.1f", $3)) with labels'
empty = '(valid(3) ? -9 : $2)'
if (is_text) {
    plot data using 1:(dark($3,$2)):@words, data using 1:(light($3,$2)):@words, \
        data using 1:@empty:('-') with labels
} else {
    plot data @dark_cells notitle, data @light_cells notitle, \
        data using 1:(dark($3,$2)):@words font ',12' textcolor rgb 'white' notitle, \
        data using 1:(light($3,$2)):@words font ',12' textcolor rgb 'black' notitle, \
        data using 1:@empty:('–') with labels font ',12' notitle
}
