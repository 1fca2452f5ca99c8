# SPDX-License-Identifier: MIT
# What every drawing begins with. The program writes these assignments before it:
#   format          'svg', 'png' or 'text'
#   output          a file, or '' for standard output
#   columns, rows   of the screen, for 'text'
#   data            a file or a data block: the rows of the drawing
# and the variables that the drawing itself names. Strings in them are quoted by the program.

set encoding utf8
is_text = format eq 'text' # the terminal draws with letters: no colours, no filled shapes

# Evaluated by a drawing once it knows its size in pixels.
terminal(width, height) = \
    (is_text ? sprintf('set terminal dumb noenhanced size %d,%d', columns, rows) : \
    format eq 'svg' ? \
        sprintf("set terminal svg noenhanced size %d,%d background rgb 'white' " \
            ."font 'sans-serif,14'", width, height) : \
    strstrt(GPVAL_TERMINALS, 'pngcairo') ? \
        sprintf("set terminal pngcairo noenhanced size %d,%d background rgb 'white' " \
            ."font 'sans,11'", width, height) : \
    sprintf("set terminal png noenhanced size %d,%d font 'sans,11'", width, height)) \
    .'; if (output ne "") { set output output }'

# Colours that colour-blind readers tell apart too.
USED = '#0072b2'     # taken, admitted
TRUTH = '#009e73'    # as counted exactly
BELIEF = '#d55e00'   # as the limiter has it
WITHHELD = '#f0a830' # free, but not given
TOO_MUCH = '#cc79a7' # given, but not free
OPEN = '#d6e8f5'     # a group that takes units
COOLING = '#9cc7e4'  # a group that waits for its return
REFUSED = '#8a8a8a'  # denied for want of capacity
INK = '#333333'      # frames and letters

# The step between the tics of an axis: 1, 2 or 5 times a power of ten, 4 to 10 steps in all.
power(length, p) = 10 * p <= length / 4.0 ? power(length, 10 * p) : p
multiple(length, p) = p * (length >= 20 * p ? 5 : length >= 8 * p ? 2 : 1)
step(length) = multiple(length, power(length, 1.0))

min(a, b) = a < b ? a : b
max(a, b) = a > b ? a : b
percent(part, whole) = whole == 0 ? 0 : 100.0 * part / whole
cut(text, letters) = strlen(text) > letters ? text[1:letters-1].'…' : text
# A name beside an axis is a format to gnuplot: a percent sign is doubled.
tic(text) = strlen(text) == 0 ? '' : (text[1:1] eq '%' ? '%%' : text[1:1]).tic(text[2:*])

# ---- Rows of bars, named at the left: n rows with the names name[1] to name[n] ----

LETTER_PX = 9  # of a name or label, at most
TITLE_PX = 74  # above the panels
AXIS_PX = 80   # below them
KEY_ROW_PX = 22
names_px = 0
names_columns = 0
longest = 4

# Each panel has a label of so many letters beside it; a screen of letters has 100 columns.
panel_columns(panels, letters) = max(10, (100 - names_columns) / panels - letters)
from_columns(panel, panels, letters) = \
    names_columns + panel * (panel_columns(panels, letters) + letters)
from_px(panel, panels, letters) = names_px + panel * (680 / panels + letters * LETTER_PX)
left(panel, panels, letters) = is_text ? \
    1.0 * from_columns(panel, panels, letters) / from_columns(panels, panels, letters) : \
    1.0 * from_px(panel, panels, letters) / from_px(panels, panels, letters)
right(panel, panels, letters) = left(panel, panels, letters) + (is_text ? \
    1.0 * panel_columns(panels, letters) / from_columns(panels, panels, letters) : \
    680.0 / panels / from_px(panels, panels, letters))
height_px(key_rows, row_px) = TITLE_PX + AXIS_PX + KEY_ROW_PX * key_rows + row_px * n

# A bar between two columns or expressions: a rectangle, or a line of one letter. One without a
# length is put out of sight, where it draws nothing and is no error.
half = is_text ? 0 : 0.32
bar(from, to) = sprintf('using (%s):(0):(%s):(%s):((%s > %s ? $0 : -9)-half):' \
    .'((%s > %s ? $0 : -9)+half) with boxxyerror fillstyle ', from, from, to, to, from, to, from) \
    .(is_text ? 'empty' : 'solid noborder')

# Evaluated once n and name are there, with the rows of the legend and the height of a row.
begin_rows(panels, letters, key_rows, row_px) = sprintf( \
    'do for [i = 1:n] { longest = max(longest, strlen(name[i])) };' \
    .'names_px = longest * LETTER_PX + 24; names_columns = min(longest, 28) + 3;' \
    .'panels = %d; letters = %d; key_rows = %d; row_px = %d;' \
    .'total_px = height_px(key_rows, row_px);' \
    .'eval terminal(from_px(panels, panels, letters), total_px);' \
    .'set border 3 linecolor rgb INK; set tics nomirror;' \
    .'set key vertical bottom center samplen 2 width 1;' \
    .'if (is_text) { set key off };' \
    .'set tmargin at screen (is_text ? 0.86 : 1 - 1.0 * TITLE_PX / total_px);' \
    .'set bmargin at screen (is_text ? 0.2 : 1.0 * (AXIS_PX + KEY_ROW_PX * key_rows) / total_px);' \
    .'set yrange [n - 0.5:-0.5]; set ytics scale 0 ("" -9);' \
    .'do for [i = 1:n] { set ytics add (tic(cut(name[i], is_text ? 28 : 46)) i - 1) }', \
    panels, letters, key_rows, row_px)

# The margins of a panel, counted from 0, and its legend below it.
begin_panel(panel) = sprintf( \
    'set lmargin at screen left(%d, panels, letters);' \
    .'set rmargin at screen right(%d, panels, letters);' \
    .'if (!is_text) { set key at screen (from_px(%d, panels, letters) + 340.0 / panels) ' \
    .'/ from_px(panels, panels, letters), screen 10.0 / total_px }', panel, panel, panel)
