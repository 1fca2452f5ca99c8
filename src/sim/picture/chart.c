/* SPDX-License-Identifier: MIT */
/* Columns for plots/compare.gp and plots/bars.gp. */
#include "sim/picture/chart.h"

#include "algorithm/spec.h"
#include "base/buf.h"
#include "base/ns.h"

#include <assert.h>
#include <inttypes.h>

#define TITLE_COLUMNS 110
#define NOTE_MAX 96 /* "120 of 500, cooling down, back in 3m21s" */

int chart_compare(struct plot *plot, const char *title, const struct chart_quota *quotas,
                  size_t n_quotas, struct stint_error *error)
{
    struct span names[CHART_QUOTAS_MAX];
    assert(n_quotas > 0 && n_quotas <= CHART_QUOTAS_MAX);
    plot_init(plot, plot_compare);
    plot_set(plot, "admitted denied denied-falsely most limit bound");
    for (size_t i = 0; i < n_quotas; i++) {
        const struct chart_quota *quota = &quotas[i];
        names[i] = span_of_text(quota->name);
        plot_data(plot, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                  quota->admitted, quota->denied, quota->denied_falsely, quota->most, quota->limit,
                  quota->bound);
    }
    plot_text(plot, "title", span_of_text(title), TITLE_COLUMNS);
    plot_names(plot, "name", names, n_quotas);
    return plot_check(plot, error);
}

/* "120 of 500, back in 3m20s": in whole seconds, rounded up, where it is some. */
static struct span note_left(const struct chart_bar *bar, char note[NOTE_MAX])
{
    struct buf buf = buf_of(note, NOTE_MAX);
    uint64_t ns = bar->returns_in_ns;
    buf_add(&buf, "%" PRIu64 " of %" PRIu64 "%s%s", bar->left, bar->most,
            bar->cooling_down ? ", cooling down" : "", ns == 0 ? "" : ", back in ");
    if (ns >= 10 * NS_PER_S)
        ns = (ns + NS_PER_S - 1) / NS_PER_S * NS_PER_S;
    if (ns > 0)
        spec_format_duration(&buf, ns);
    return span_of_text(note);
}

int chart_bars(struct plot *plot, const char *title, const struct chart_bar *bars, size_t n_bars,
               struct stint_error *error)
{
    struct span names[CHART_BARS_MAX], notes[CHART_BARS_MAX];
    char texts[CHART_BARS_MAX][NOTE_MAX];
    assert(n_bars > 0);
    n_bars = n_bars < CHART_BARS_MAX ? n_bars : CHART_BARS_MAX;
    plot_init(plot, plot_bars);
    plot_set(plot, "left most cooling down");
    for (size_t i = 0; i < n_bars; i++) {
        const struct chart_bar *bar = &bars[i];
        names[i] = bar->name;
        notes[i] = note_left(bar, texts[i]);
        plot_data(plot, "%" PRIu64 " %" PRIu64 " %d\n", bar->left, bar->most,
                  (int)bar->cooling_down);
    }
    plot_text(plot, "title", span_of_text(title), TITLE_COLUMNS);
    plot_names(plot, "name", names, n_bars);
    plot_names(plot, "beside", notes, n_bars);
    return plot_check(plot, error);
}
