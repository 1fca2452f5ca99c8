# SPDX-License-Identifier: MIT
# A figure of each peer, shortest bar first. Variables: title, unit, n, name, and in beside what
# stands beside a bar. Data: a row for each peer with the columns
#   1 figure  2 whether it is stint's

eval begin_rows(1, 12, 2, 26)
own = bar('0', '($2 > 0 ? $1 : 0)')
other = bar('0', '($2 > 0 ? 0 : $1)')

set title title
do for [i = 1:n] { set label i beside[i] at graph 1, first i - 1 offset character 1.5, 0 }
eval begin_panel(0)
set xrange [0:*]
set xlabel unit
plot data @own linetype 1 linecolor rgb USED title 'stint', \
    data @other linetype 2 linecolor rgb REFUSED title 'peers'
