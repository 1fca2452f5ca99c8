/* SPDX-License-Identifier: MIT */
/* The results of `stint plan` as one JSON object. */
#define _GNU_SOURCE
#include "cmd/lib/json_text.h"
#include "cmd/plan/plan.h"

static json_t *point_json(const struct plan_proposal *point)
{
    struct plan_spec spec;
    bool has_burst = point->quota.algorithm == STINT_GCRA;
    return json_pack(
        "{s:s, s:s, s:I, s:I, s:o, s:I, s:I}", "quota", plan_spec(&spec, &point->quota),
        "algorithm", stint_algorithm_name(point->quota.algorithm), "limit",
        (json_int_t)point->quota.limit, "period_ns", (json_int_t)point->quota.period_ns, "burst",
        has_burst ? json_integer(point->quota.burst) : json_null(), "keys_touched",
        (json_int_t)point->touch.keys, "requests_denied", (json_int_t)point->touch.requests);
}

static json_t *named_json(const struct plan_report *report, const struct plan_curve *curve)
{
    json_t *list = json_array();
    for (size_t i = 0; i < curve->n_named; i++)
        json_array_append_new(
            list, json_pack("{s:o, s:I}", "key",
                            json_text_key(key_set_name(&report->log->names, curve->named[i].key)),
                            "requests_denied", (json_int_t)curve->named[i].denied));
    return list;
}

/* Without a result there is no quota, and a message gives the reason. */
static json_t *proposal_json(const struct plan_report *report, const struct plan_curve *curve)
{
    if (curve->proposal.found != PLAN_FOUND)
        return json_pack("{s:n, s:s, s:I, s:s}", "quota", "algorithm",
                         stint_algorithm_name((int)curve->algorithm), "period_ns",
                         (json_int_t)curve->period_ns, "why",
                         curve->proposal.found == PLAN_REFUSED ? curve->proposal.why
                                                               : "no limit keeps to the target");
    json_t *object = point_json(&curve->proposal);
    json_object_set_new(object, "keys", named_json(report, curve));
    json_object_set_new(object, "chosen", json_boolean(curve == plan_chosen(report->result)));
    return object;
}

int plan_print_json(const struct plan_report *report)
{
    const struct plan_log *log = report->log;
    const struct plan_target *target = &report->options->target;
    uint64_t all = target->of_keys ? log->traffic.n_keys : log->traffic.n_requests;
    json_t *proposals = json_array(), *frontier = json_array();
    for (size_t i = 0; i < report->result->n_curves; i++) {
        const struct plan_curve *curve = &report->result->curves[i];
        json_array_append_new(proposals, proposal_json(report, curve));
        for (size_t k = 0; k < curve->n_points; k++)
            json_array_append_new(frontier, point_json(&curve->points[k]));
    }
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:{s:s, s:s, s:I}, s:o, s:o, s:b}",
                  "requests", (json_int_t)log->traffic.n_requests, "keys",
                  (json_int_t)log->traffic.n_keys, "first_ns", (json_int_t)log->first_ns, "last_ns",
                  (json_int_t)log->last_ns, "lines", (json_int_t)log->lines, "malformed",
                  (json_int_t)log->malformed, "late", (json_int_t)log->late, "target", "text",
                  report->options->target_text, "of", target->of_keys ? "keys" : "requests", "most",
                  (json_int_t)plan_target_most(target, all), "proposals", proposals, "frontier",
                  frontier, "interrupted", (int)report->result->interrupted);
    return json_text_print(object, true);
}
