# SPDX-License-Identifier: MIT
# Quotas side by side: what became of the units, and the most in a window beside limit and bound.
# Variables: title, n and name. Data: a row for each quota with the columns
#   1 admitted  2 denied  3 denied falsely  4 most in a window  5 limit  6 bound

array beside[n] # what stands beside a bar
array most_beside[n]
units = 1.0
highest = 110.0
stats data using (units = max(units, $1 + $2), \
    highest = max(highest, 1.08 * max(percent($6, $5), percent($4, $5))), \
    beside[int($0) + 1] = sprintf('%.1f %% / %.2f %%', percent($1, $1 + $2), \
        percent($3, $1 + $2)), \
    most_beside[int($0) + 1] = sprintf('%.0f of %.0f', $4, $5), 0) nooutput
eval begin_rows(2, 22, 3, 44)
admitted = bar('0', '$1')
denied = bar('$1', '($1+$2-$3)')
denied_falsely = bar('($1+$2-$3)', '($1+$2)')
within = bar('0', 'percent(min($4,$5),$5)')
beyond = bar('100', 'percent($4,$5)')

set multiplot title title
eval begin_panel(0)
do for [i = 1:n] { set label i beside[i] at graph 1, first i - 1 offset character 1.5, 0 }
set label n + 1 'admitted / denied falsely' at graph 1, graph 1 offset character 1.5, 0.9
set xrange [0:units]
set xtics 0, step(2 * units)
set format x (is_text ? '%.0s%c' : '%.0f')
set xlabel (is_text ? 'units: * admitted, # denied, $ denied although free' : 'units asked for')
plot data @admitted linetype 1 linecolor rgb USED title 'admitted', \
    data @denied linetype 2 linecolor rgb REFUSED title 'denied: no units were free', \
    data @denied_falsely linetype 3 linecolor rgb WITHHELD title 'denied although units were free'

unset ytics
unset label
eval begin_panel(1)
do for [i = 1:n] { set label i most_beside[i] at graph 1, first i - 1 offset character 1.5, 0 }
set label n + 1 'most, of the limit' at graph 1, graph 1 offset character 1.5, 0.9
set xrange [0:highest]
set xtics autofreq
set format x '%g'
set xlabel (is_text ? 'most in a window, % of limit; O possible' : \
    'most in any window, % of the limit')
set arrow from 100, graph 0 to 100, graph 1 nohead linecolor rgb INK linewidth 1.5
plot data @within linetype 1 linecolor rgb USED title 'within the limit', \
    data @beyond linetype 4 linecolor rgb TOO_MUCH title 'above the limit', \
    data using (percent($6, $5)):0 with points pointtype (is_text ? 15 : 13) \
        pointsize 1 linecolor rgb BELIEF title 'the most that the algorithm can admit'
unset multiplot
