/* SPDX-License-Identifier: MIT */
/* What changes with time: reloads, and a sample of the totals each second. */
#include "service/metrics/metrics_parts.h"

#include <stdio.h>

void metrics_reloaded(struct metrics *metrics, bool worked, const char *message, uint64_t now_ns)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->reloads[worked]++;
    metrics->reloaded_at_ns = now_ns;
    snprintf(metrics->reload_fault, sizeof(metrics->reload_fault), "%s", worked ? "" : message);
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_tick(struct metrics *metrics, uint64_t now_ns)
{
    pthread_mutex_lock(&metrics->lock);
    if (metrics->n_samples == 0)
        metrics->started_ns = now_ns;
    metrics->samples[metrics->n_samples++ % METRICS_HISTORY] =
        (struct metrics_sample){now_ns, metrics_sum_total(metrics)};
    pthread_mutex_unlock(&metrics->lock);
}
