# SPDX-License-Identifier: MIT
# How many keys each limit touches, and below it how many requests it denies. Both axes are of
# powers, as few stand beside many. Variables: title, n and name. Data: a set for each curve, its
# rows with the columns
#   1 limit  2 keys touched  3 requests denied

eval terminal(1000, 760)
colour(i) = word(USED.' '.BELIEF.' '.TRUTH.' '.COOLING.' '.TOO_MUCH.' '.WITHHELD, (i - 1) % 6 + 1)
raised(number) = number > 0 ? number : 0.5 # 0 has no place on an axis of powers
curve = 'with linespoints pointtype 7 pointsize 0.6 linewidth 2'

set title title
set logscale xy
set yrange [0.4:*]
set border 3
set tics nomirror
set grid linecolor rgb '#dddddd'
set key outside right
set multiplot layout 2,1
set ylabel 'keys touched'
set ytics ('0' 0.5, 1, 10, 100, 1000, 10000, 1e5, 1e6)
plot for [i = 1:n] data index (i - 1) using 1:(raised($2)) @curve \
    linecolor rgb colour(i) title name[i]
unset title
set xlabel 'limit, units per period'
set ylabel 'requests denied'
plot for [i = 1:n] data index (i - 1) using 1:(raised($3)) @curve \
    linecolor rgb colour(i) title name[i]
unset multiplot
