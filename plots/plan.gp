# SPDX-License-Identifier: MIT
# How many keys each limit denies at least once, and below it how many requests. Both panels have
# one axis of limits, and all axes are of powers, as few stand beside many. The proposals are
# marked, and the target in the panel of what it counts. Variables: title, n and name, and
#   target, target_panel   the most that the target allows: 0 keys, 1 requests
#   target_text            the same in words
#   n_proposals            rows of the last set
# Data: a set for each curve, and one for all proposals, with the columns
#   1 limit  2 keys denied  3 requests denied

eval terminal(1060, 760)
colour(i) = word(USED.' '.BELIEF.' '.TRUTH.' '.COOLING.' '.TOO_MUCH.' '.WITHHELD, (i - 1) % 6 + 1)
raised(number) = number > 0 ? number : 0.5 # 0 has no place on an axis of powers
curve = 'with linespoints pointtype 7 pointsize 0.6 linewidth 2'
mark = 'with points pointtype '.(is_text ? 15 : 6).' pointsize 2.2 linewidth 2 linecolor rgb INK'

least = 1e18
most = 0.0
do for [i = 0:(n_proposals > 0 ? n : n - 1)] {
    stats data index i using (least = min(least, $1), most = max(most, $1), $1) nooutput
}
set logscale xy
set xrange [0.8 * least:1.25 * max(most, least)]
set yrange [0.4:*]
set border 3 linecolor rgb INK
set tics nomirror
set grid linecolor rgb '#dddddd'
set xtics (1)
do for [power = 0:9] {
    do for [digit in '1 2 5'] { set xtics add (digit * 10 ** power) }
}
set lmargin at screen 0.1
set rmargin at screen (is_text ? 0.62 : 0.69)
set key noautotitle Left reverse samplen 2 at screen (is_text ? 0.64 : 0.705), \
    screen (is_text ? 0.93 : 0.9) left top

set multiplot title title
do for [panel = 0:1] {
    set tmargin at screen (panel == 0 ? 0.92 : 0.5)
    set bmargin at screen (panel == 0 ? 0.56 : 0.12)
    set format x (panel == 0 ? '' : '%g')
    set ylabel (panel == 0 ? 'keys denied at least once' : 'requests denied')
    set ytics ('0' 0.5, 1, 10, 100, 1000, 10000, 1e5, 1e6, 1e7, 1e8)
    if (panel == 1) { set xlabel 'limit: units per period'; unset key }
    unset arrow
    if (panel == target_panel) {
        set arrow from graph 0, first raised(target) to graph 1, first raised(target) \
            nohead dashtype 2 linewidth 2 linecolor rgb REFUSED
    }
    plot for [i = 1:n] data index (i - 1) using 1:(raised(column(2 + panel))) @curve \
            linecolor rgb colour(i) title name[i], \
        for [k = 1:n_proposals > 0] data index n using 1:(raised(column(2 + panel))) @mark \
            title 'the proposed limit', \
        for [k = 1:n_proposals > 0] data index n \
            using 1:(raised(column(2 + panel))):(sprintf('%.0f', $1)) \
            with labels offset character 0, 1 textcolor rgb INK, \
        NaN with lines dashtype 2 linewidth 2 linecolor rgb REFUSED title target_text
}
unset multiplot
