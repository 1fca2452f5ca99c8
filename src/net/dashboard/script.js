// SPDX-License-Identifier: MIT
// Requests /v1/stats and /v1/top each second and shows the results. All text goes into the page as
// text nodes: keys come from untrusted clients.
"use strict";

const PERIOD_MS = 1000;
const KEYS_SHOWN = 10;
const RULES_DRAWN = 8;
const LABELS_SHARE = 0.4;  // of the width of a chart
const CHARACTER_WIDTH = 7; // pixels, of labels in it
const byId = (id) => document.getElementById(id);

const view = { paused: false, token: sessionStorage.getItem("token") || "", before: null, charts: {} };

// ---- Formatting numbers -------------------------------------------------------------------------

function count(n) {
    return n < 1e4 ? String(Math.round(n)) : n.toLocaleString("en", { notation: "compact",
        maximumFractionDigits: 1 });
}

function rate(n) {
    return n < 10 ? n.toFixed(1) : count(n);
}

function duration(ns) {
    if (ns === null) return "–";
    if (ns < 1e3) return ns + " ns";
    if (ns < 1e6) return (ns / 1e3).toPrecision(3) + " µs";
    return (ns / 1e6).toPrecision(3) + " ms";
}

function ago(seconds) {
    if (seconds < 90) return Math.round(seconds) + " s";
    if (seconds < 5400) return Math.round(seconds / 60) + " min";
    if (seconds < 129600) return Math.round(seconds / 3600) + " h";
    return Math.round(seconds / 86400) + " d";
}

// The end of the bucket that has this share of the decisions; the last bucket has none.
function percentile(durations, name) {
    const last = durations.first_bucket_ns * 2 ** (durations.buckets.length - 2);
    return durations[name] === null && durations.timed > 0 ? "> " + duration(last)
        : duration(durations[name]);
}

// Names of one kind begin alike and differ at their ends: the middle is left out.
function shortened(text, length) {
    const characters = [...text], tail = Math.floor(length / 2);
    if (characters.length <= length) return text;
    return characters.slice(0, length - 1 - tail).join("") + "…" + characters.slice(-tail).join("");
}

function percent(part, whole) {
    return whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "";
}

// Control characters and invalid text are shown by number; `\` too, to avoid ambiguity.
function printable(text) {
    return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\\]/g,
        (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

// ---- Light and dark -----------------------------------------------------------------------------

function setTheme(name) {
    document.documentElement.dataset.theme = name;
    byId("theme").textContent = name === "dark" ? "Light" : "Dark";
    Object.values(view.charts).forEach((chart) => { paint(chart); chart.update("none"); });
}

function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function paint(chart) {
    const options = chart.options;
    options.color = colour("text");
    for (const scale of Object.values(options.scales)) {
        scale.ticks.color = colour("soft");
        scale.grid.color = colour("line");
        if (scale.title) scale.title.color = colour("soft");
    }
}

// ---- Charts -------------------------------------------------------------------------------------

// Colours are read at each drawing, since the theme may have changed.
function dataset(label, tone, filled) {
    return { label, data: [], borderWidth: filled ? 1.5 : 0, pointRadius: 0, fill: filled || false,
        borderColor: () => colour(tone), backgroundColor: () => colour(tone) + (filled ? "66" : "") };
}

function makeChart(id, type, datasets, scales, extra) {
    const chart = new Chart(byId(id), {
        type,
        data: { labels: [], datasets },
        options: { animation: false, responsive: true, maintainAspectRatio: false, scales,
            interaction: { mode: "index", intersect: false },
            plugins: { legend: { display: datasets.length > 1, align: "end" },
                tooltip: { callbacks: {} } }, ...extra },
    });
    paint(chart);
    chart.update("none");
    return chart;
}

function axis(title, more) {
    return { ticks: {}, grid: {}, title: { display: title !== "", text: title }, ...more };
}

function makeCharts() {
    view.charts.past = makeChart("past", "line",
        [dataset("allowed", "allowed", "origin"), dataset("denied", "denied", "-1")],
        { x: axis("seconds ago", { type: "linear", reverse: false, max: 0, min: -120,
            ticks: { callback: (value) => -value } }),
          y: axis("", { stacked: true, beginAtZero: true, suggestedMax: 10 }) });
    view.charts.durations = makeChart("durations", "bar", [dataset("decisions timed", "allowed")],
        { x: axis("at most"), y: axis("", { beginAtZero: true, ticks: { precision: 0 } }) });
    view.charts.perRule = makeChart("per-rule", "bar",
        [dataset("allowed", "allowed"), dataset("denied", "denied")],
        { x: axis("", { stacked: true, beginAtZero: true, suggestedMax: 10 }),
          y: axis("", { stacked: true, ticks: { autoSkip: false } }) },
        { indexAxis: "y" });
}

function drawPast(history) {
    const [allowed, denied] = view.charts.past.data.datasets;
    allowed.data = history.map((one) => ({ x: -one.age_s, y: one.allowed }));
    denied.data = history.map((one) => ({ x: -one.age_s, y: one.denied }));
    view.charts.past.update("none");
}

function drawDurations(durations) {
    const chart = view.charts.durations;
    const last = durations.buckets.reduce((seen, n, i) => (n > 0 ? i : seen), 0);
    const first = durations.buckets.findIndex((n) => n > 0);
    const from = Math.max(0, first - 1);
    chart.data.labels = [];
    for (let i = from; i <= last + 1 && i < durations.buckets.length; i++) {
        const isLast = i === durations.buckets.length - 1;
        chart.data.labels.push(isLast ? "more" : duration(durations.first_bucket_ns * 2 ** i));
    }
    chart.data.datasets[0].data = durations.buckets.slice(from, last + 2);
    chart.update("none");
}

function drawRules(rules) {
    const chart = view.charts.perRule;
    const shown = rules.slice(0, RULES_DRAWN);
    const length = Math.max(14, Math.floor(chart.width * LABELS_SHARE / CHARACTER_WIDTH));
    chart.data.labels = shown.map((rule) => shortened(rule.label, length));
    chart.options.plugins.tooltip.callbacks.title = ([item]) => shown[item.dataIndex].label;
    chart.data.datasets[0].data = shown.map((rule) => rule.allowedRate);
    chart.data.datasets[1].data = shown.map((rule) => rule.deniedRate);
    chart.update("none");
}

// ---- Tables -------------------------------------------------------------------------------------

// A long name goes on in the next line after a whole word, if it has some.
function breakable(cell, text) {
    text.split(/(?<=[_/-])/).forEach((word, i) =>
        cell.append(...(i > 0 ? [document.createElement("wbr"), word] : [word])));
}

// Each row is a list of texts, the first of them names. Where there is no space for a head, each cell
// has its heading.
function fillRows(body, rows, nameColumns) {
    const headings = [...body.parentElement.tHead.rows[0].cells].map((cell) => cell.textContent);
    body.replaceChildren(...rows.map((row) => {
        const line = document.createElement("tr");
        row.forEach((text, i) => {
            const cell = document.createElement(i === 0 ? "th" : "td");
            if (i === 0) cell.scope = "row";
            breakable(cell, text);
            cell.dataset.heading = headings[i];
            if (i < nameColumns) cell.className = i === 0 ? "key" : "name";
            line.append(cell);
        });
        return line;
    }));
}

// Counts since the last request, per second, for rules as the server counts them.
function withRates(stats) {
    const before = view.before;
    const seconds = before ? stats.now_s - before.now_s : 0;
    return stats.rules.map((rule) => {
        const old = before && before.rules.get(rule.domain + "\n" + rule.rule);
        const allowed = rule.allow + rule.shadow, denied = rule.deny + rule.never + rule.banned;
        const since = (now, then) => (old && seconds > 0 ? Math.max(0, now - then) / seconds : 0);
        const label = rule.rule === "" ? "(quotas of callers)" : rule.domain + ": " + printable(rule.rule);
        return { ...rule, label, allowed, denied, allowedRate: since(allowed, old && old.allowed),
            deniedRate: since(denied, old && old.denied) };
    }).sort((a, b) => b.allowedRate + b.deniedRate - a.allowedRate - a.deniedRate);
}

function showRules(stats) {
    const rules = withRates(stats);
    view.before = { now_s: stats.now_s,
        rules: new Map(rules.map((rule) => [rule.domain + "\n" + rule.rule, rule])) };
    drawRules(rules);
    fillRows(byId("rule-rows"), rules.map((rule) => [rule.label, rate(rule.allowedRate),
        rate(rule.deniedRate), count(rule.allowed), count(rule.denied), count(rule.shadow),
        count(rule.candidate_over)]), 1);
}

function showKeys(id, keys, order) {
    const other = order === "asked" ? "denied" : "asked";
    fillRows(byId(id), keys.map((key) => [printable(key.key) + (key.is_cut ? "…" : ""),
        key.rule === "" ? "" : key.domain + ": " + printable(key.rule), rate(key[order + "_per_s"]),
        rate(key[other + "_per_s"])]), 2);
}

// ---- Other parts --------------------------------------------------------------------------------

// A large table is sampled: one key of the sample represents keys_step.
function keysText(table) {
    if (table.keys_step > 1 && table.keys === 0)
        return "fewer than " + count(3 * table.keys_step);
    return (table.keys_step > 1 ? "about " : "") + count(table.keys);
}

function showNow(stats) {
    const rates = stats.rates || { allowed: 0, denied: 0 };
    const all = rates.allowed + rates.denied;
    const frontends = Object.values(stats.frontends);
    const sum = (name) => frontends.reduce((total, frontend) => total + frontend[name], 0);
    byId("rate").textContent = rate(all);
    byId("denied").textContent = rate(rates.denied);
    byId("share").textContent = percent(rates.denied, all);
    byId("p50").textContent = percentile(stats.durations, "p50_ns");
    byId("p99").textContent = percentile(stats.durations, "p99_ns");
    byId("open").textContent = count(sum("open"));
    byId("refused").textContent = sum("refused") > 0 ? count(sum("refused")) + " refused" : "";
    if (stats.table) {
        byId("keys").textContent = keysText(stats.table);
        byId("fill").textContent = "of " + count(stats.table.places) + " places";
        byId("meter").value = stats.table.keys / Math.max(1, stats.table.places);
    }
}

function showReloads(stats) {
    const reloads = stats.reloads;
    byId("rules").textContent = count(reloads.rules);
    byId("reload").textContent = reloads.age_s === null ? "" : "loaded " + ago(reloads.age_s) + " ago";
    byId("fault").hidden = reloads.fault === "";
    byId("fault").textContent = reloads.fault === "" ? ""
        : "The last reload failed; the rules before it stay in force. " + reloads.fault;
    byId("about").textContent = "version " + stats.version + ", up " + ago(stats.up_s)
        + ", generation " + reloads.generation;
}

function setState(is, text) {
    if (byId("state").textContent === text) return;
    byId("state").dataset.is = is;
    byId("state").textContent = text;
}

async function ask(path) {
    const headers = view.token === "" ? {} : { Authorization: "Bearer " + view.token };
    const answer = await fetch(path, { headers, cache: "no-store" });
    if (answer.status === 401 || answer.status === 403) throw new Error("token");
    if (!answer.ok) throw new Error("status " + answer.status);
    return answer.json();
}

async function look() {
    try {
        const [stats, denied, asked] = await Promise.all([ask("v1/stats"),
            ask("v1/top?order=denied&n=" + KEYS_SHOWN), ask("v1/top?order=asked&n=" + KEYS_SHOWN)]);
        showNow(stats);
        showReloads(stats);
        showRules(stats);
        drawPast(stats.history);
        drawDurations(stats.durations);
        showKeys("denied-rows", denied.keys, "denied");
        showKeys("asked-rows", asked.keys, "asked");
        byId("login").hidden = true;
        setState("live", "live");
    } catch (error) {
        byId("login").hidden = error.message !== "token";
        setState("lost", error.message === "token" ? "a token is needed" : "no answer from the server");
    }
}

async function run() {
    if (!view.paused && !document.hidden) await look();
    setTimeout(run, PERIOD_MS);
}

// ---- Controls -----------------------------------------------------------------------------------

function pause() {
    view.paused = !view.paused;
    byId("pause").setAttribute("aria-pressed", String(view.paused));
    byId("pause").textContent = view.paused ? "Go on" : "Pause";
    if (view.paused) setState("paused", "paused");
}

function changeTheme() {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", next);
    setTheme(next);
}

function start() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    makeCharts();
    setTheme(localStorage.getItem("theme") || (dark.matches ? "dark" : "light"));
    dark.addEventListener("change", () => {
        if (!localStorage.getItem("theme")) setTheme(dark.matches ? "dark" : "light");
    });
    byId("pause").addEventListener("click", pause);
    byId("theme").addEventListener("click", changeTheme);
    byId("login").addEventListener("submit", (event) => {
        event.preventDefault();
        view.token = byId("token").value;
        sessionStorage.setItem("token", view.token);
        byId("token").value = "";
        look();
    });
    document.addEventListener("keydown", (event) => {
        if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey)
            return;
        if (event.key === "p") pause();
        if (event.key === "t") changeTheme();
    });
    run();
}

start();
