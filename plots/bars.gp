# SPDX-License-Identifier: MIT
# Keys, and how much is left of each. Variables: title, n, name, and in beside what stands beside a
# bar. Data: a row for each key with the columns
#   1 left  2 most  3 whether it is cooling down

eval begin_rows(1, 34, 2, 26)
free = bar('0', '($3 > 0 ? 0 : percent($1,$2))')
cooling = bar('0', '($3 > 0 ? percent($1,$2) : 0)')

set title title
do for [i = 1:n] { set label i beside[i] at graph 1, first i - 1 offset character 1.5, 0 }
eval begin_panel(0)
set xrange [0:100]
set xlabel (is_text ? '% left; # benched' : 'left, % of what may be used')
plot data @free linetype 1 linecolor rgb USED title 'left', \
    data @cooling linetype 2 linecolor rgb REFUSED title 'left, but cooling down'
