# SPDX-License-Identifier: MIT
# One key under one quota. Above: units in the order of use, as they are used and as they come back.
# Below: what is free, exactly and as the limiter believes. What the limiter holds back for longer
# than it must is shaded in both. Variables:
#   spec, key                       for the title
#   units                           used in all
#   no_room, slack, elsewhere       requests denied: no room; by the slack; by another quota
#   zero_ns, from_ns, until_ns      the time that the axis calls 0, and the part that is shown
#   origin                          what 0 is, or ''
#   is_part                         whether there is more than what is shown
#   group                           'bucket', 'bunch' or '': what is drawn as rectangles
#   used, below                     units used at the end, and where the upper panel begins
#   most, least                     units free, at the most and at the least
#   holds_long, gives_early         whether less, or more, is believed to be free than is
# Data: the sets
#   0                               1 time  2 used  3 returned  4 returned, as believed  5 free
#                                   6 free, as believed
#   1 and 2, groups open, cooling   1 from  2 until  3 lowest unit  4 highest unit
#   3, 4 and 5, denials as above    1 time

eval terminal(800, 680)

# ---- The axis of time ----

unit_names = 'd h min s ms us ns'
array unit_ns[7] = [86400000000000, 3600000000000, 60000000000, 1000000000, 1000000, 1000, 1]
u = 1
while (u < 7 && until_ns - from_ns < 3 * unit_ns[u]) { u = u + 1 }
unit = unit_ns[u] / 1e9
zero = zero_ns / 1e9
set xrange [1.0 * (from_ns - zero_ns) / unit_ns[u]:1.0 * (until_ns - zero_ns) / unit_ns[u]]

# ---- What both panels have ----

set border 3 linecolor rgb INK
set tics nomirror
set grid back linetype 1 linecolor rgb '#e4e4e4' linewidth 0.5
if (is_text) { unset grid }
set lmargin at screen (is_text ? 0.12 : 0.115)
set rmargin at screen 0.975
set key horizontal Left reverse center top samplen 2 width 1
if (is_text) { set key off }
time = 'index 0 using (($1-zero)/unit)'
box = 'using (($1-zero)/unit):3:(($1-zero)/unit):(($2-zero)/unit):3:4 notitle ' \
    .'with boxxyerror linewidth 0.6 '
filled = box.'fillstyle solid noborder fillcolor rgb'
framed = box.'linecolor rgb "#5f8fb2" fillstyle empty border'
area = 'fillstyle solid noborder fillcolor rgb'
shade = 'notitle with filledcurves '.area
above = 'notitle with filledcurves above '.area
below_line = 'notitle with filledcurves below '.area
line = 'notitle with lines linewidth 2 linecolor rgb'
broad = 'notitle with lines linewidth 3.5 linecolor rgb'
thin = 'notitle with lines linewidth 1.5 linecolor rgb'
key_line = 'keyentry with lines linewidth 2 linecolor rgb'
key_area = 'keyentry with boxes '.area

denied = no_room + slack
set label 1 spec at screen 0.5, screen (is_text ? 0.98 : 0.967) center font ',17'
set label 2 sprintf('%d units used by key ', units).key \
    .sprintf('; %d request%s denied', denied, denied == 1 ? '' : 's') \
    .(slack > 0 ? sprintf(', %d although units were free', slack) : '') \
    at screen 0.5, screen (is_text ? 0.94 : 0.929) center
set multiplot

# ---- Units in the order of use ----

has_groups = group ne ''
set tmargin at screen (is_text ? 0.82 : 0.825)
set bmargin at screen (is_text ? 0.54 : 0.48)
if (!is_text) { set key at screen 0.54, screen 0.905 }
set format x ''
if (!is_text) { set ylabel 'units, in the order of use' }
set yrange [below:used + 0.04 * (used > below ? used - below : 25)]
# What is drawn with groups, and without.
groups = has_groups ? \
    "@key_area OPEN title group.' in use', @key_area COOLING title group.' cooling', " \
    ."@key_area WITHHELD title 'held too long', " \
    .'data index 2 @filled COOLING, data index 1 @filled OPEN, ' \
    .'data @time:3:4 @shade WITHHELD, data index 2 @framed, data index 1 @framed' : \
    "@key_area COOLING title 'not back yet', data @time:3:2 @shade COOLING"
# In letters, what the lines are is written into the panel: a legend takes too much.
if (is_text) {
    set title 'units: * used, # returned'
    plot data @time:2 with lines linetype 1, data @time:3 with lines linetype 2
} else {
    plot @key_line USED title 'used', @key_line TRUTH title 'returned', @groups, \
        data @time:3 @line TRUTH, data @time:2 @line USED
}
unset label

# ---- Units free ----

range = 1.0 * (most - least)
height = 0.12 * range # of a row of strokes, one for each denial, below what is free
lowest_tic = -step(range) * floor(-least / step(range))
set tmargin at screen (is_text ? 0.44 : 0.345)
set bmargin at screen (is_text ? 0.14 : 0.1)
if (!is_text) { set key at screen 0.54, screen 0.455 }
set format x '%g'
if (!is_text) { set ylabel 'units free' }
set ytics lowest_tic, step(range)
set yrange [least - 0.3 * range:most + 0.06 * range]
set xlabel 'time'.(origin ne '' ? ' since '.origin : '').', '.word(unit_names, u) \
    .(is_part ? ' (the busiest part)' : '')
# What is there only if there is something of it; each kind of denial has a row of strokes.
strokes(set, kinds_above, colour) = sprintf(', data index %d using (($1-zero)/unit):(%.9g):(0)' \
    .':(%.9g) notitle with vectors nohead linewidth 1.6 linecolor rgb ', \
    set, least - height * (kinds_above + 1), 0.7 * height).colour
late = holds_long ? \
    ", @key_area WITHHELD title 'held too long', data @time:5:6 @above WITHHELD" : ''
early = gives_early ? \
    ", @key_area TOO_MUCH title 'given too early', data @time:5:6 @below_line TOO_MUCH" : ''
denials = (no_room == 0 ? '' : \
        ", @key_area REFUSED title 'denied: no units were free'".strokes(3, 0, 'REFUSED')) \
    .(slack == 0 ? '' : ", @key_area BELIEF title 'denied although units were free'" \
        .strokes(4, no_room > 0, 'BELIEF')) \
    .(elsewhere == 0 ? '' : ", @key_area COOLING title 'denied by another quota'" \
        .strokes(5, (no_room > 0) + (slack > 0), 'COOLING'))
if (is_text) {
    set title 'units free: % as the limiter believes, $ exactly'
    plot data @time:5 with lines linetype 3, data @time:6 with lines linetype 4
} else {
    plot @key_line TRUTH title 'free exactly', \
        @key_line BELIEF title 'free, as the limiter believes' @late @early, \
        data @time:5 @broad TRUTH, data @time:6 @thin BELIEF @denials
}
unset multiplot
