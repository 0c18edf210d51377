// One run, job or agent: its timeline, what it printed, and its outputs.
import { el, svg, replace, add, keyed } from "./dom.js";
import { get, act, optional, request, items, poll, path, follow } from "./api.js";
import { ago, clock, state, section, title, empty, duration, dollars, shown, copyable, button, table, row } from "./ui.js";
import { first, span, costOf, cancelButton, link, commandText, runName } from "./lists.js";
import { card, save } from "./show.js";

// waterfall shows bars on a common scale: {name, from, to, tone} in seconds.
export function waterfall(bars) {
  const from = Math.min(...bars.map((b) => b.from)), total = Math.max(...bars.map((b) => b.to)) - from || 1;
  return el("ol.waterfall", bars.map((b) => {
    const x = ((b.from - from) / total) * 100, w = Math.max(0.4, ((b.to - b.from) / total) * 100);
    return el("li", el("span.name", b.name), svg("svg", { "aria-hidden": "true" }, svg("rect", { x: `${Math.min(x, 99.6)}%`, width: `${Math.min(w, 100 - x)}%`, height: 12, rx: 2, class: b.tone ?? "" })),
      el("span.took", duration(b.to - b.from)));
  }));
}

const tones = [[/fail|denied|timeout|exceeded|killed|error/i, "bad"], [/pending|requested|backpressure|rate_limit|queued/i, "wait"], [/completed|finished|approved|created|result|extracted|installed/i, "good"]];
const dropped = new Set(["run_id", "index", "started_at", "ended_at", "text", "chunk", "event", "status", "stdout_bytes", "stderr_bytes"]);

// isDraft tells whether the host is writing a file: it then gets another name.
export const isDraft = (f) => /^\..+\.[A-Z2-7]{26}$/.test(f.path);

// outputAt returns where a file is that a run left.
export const outputAt = (run, name) => `${path("/v1/outputs", run, "raw")}?path=${encodeURIComponent(name)}`;

// eventLine is one line of a timeline: an event of a run, or a step of an agent.
export function eventLine(e) {
  const kind = String(first(e.kind, e.event, "event"));
  const data = e.data ?? {};
  const bad = e.failed || data.error || (data.exit_code ?? 0) !== 0 || data.status === "failed";
  const tone = bad ? "bad" : tones.find(([r]) => r.test(kind))?.[1] ?? "";
  const text = first(e.text, data.text, data.chunk);
  const rest = Object.entries(data).filter(([k, v]) => !dropped.has(k) && v !== null && v !== "" && v !== false).map(([k, v]) => `${k}: ${typeof v === "object" ? JSON.stringify(v) : v}`).join("\n");
  return el("li", { class: tone }, el("p", el("b", [e.agent ? `${e.agent}: ` : "", e.tool || kind.replaceAll("_", " ")]), el("span.when", clock(first(e.time, data.started_at, data.ended_at)), e.cost_usd ? ` ${dollars(e.cost_usd)}` : "")),
    text ? el(data.chunk ? "pre" : "p", shown(text, 4000)) : null, rest ? el("pre", shown(rest, 4000)) : null);
}

// page is the frame of a view of one thing. load returns it, and draw updates the parts.
async function page(main, signal, o) {
  const head = el("div.head"), fault = el("div.fault", { role: "alert" }), body = el("div.stack");
  add(main, [head, fault, body]);
  title(o.id);
  let shape = "";
  await poll(signal, async () => {
    const x = await o.load();
    if (shape === (shape = JSON.stringify(x))) return;
    replace(head, el("div", el("h1.break", shown(o.name(x), 300)), el("div.sub", state(first(x.status, x.state)), copyable(o.id), o.facts(x).map((f) => f && el("span", f)))), el("div.actions", o.actions?.(x)));
    await o.draw(body, x);
  }, (text) => replace(fault, text), 2000); // what it prints
}

const facts = (x) => [x.exit_code !== undefined && x.exit_code !== null ? `exit code ${x.exit_code}` : null, x.reason && x.reason !== "exited" ? String(x.reason) : null,
  span(x) !== undefined ? `took ${duration(span(x))}` : null, ago(first(x.started, x.started_at, x.created_at))];

const streamText = (s) => (typeof s === "string" ? s : s?.text ?? "");

function printed(x, name = "Output") {
  const out = streamText(x.stdout), errs = streamText(x.stderr);
  if (!out && !errs) return null;
  return section(name, out ? el("pre.text.wrap", shown(out)) : null, errs ? el("pre.text.wrap.stderr", { "aria-label": "Standard error" }, shown(errs)) : null);
}

const seconds = (t) => new Date(t).getTime() / 1000;

export async function run(main, [id], signal) {
  const events = [], lines = el("ol.timeline"), outputs = el("div.outputs");
  const shownOutputs = section("Outputs", outputs), log = section("Events", lines), bars = el("div");
  let due = 0;
  follow(`/mcp/events?run_id=${encodeURIComponent(id)}`, (kind, data, number) => {
    if (events.some((e) => e.number === number)) return; // a replay
    events.push({ kind, data, number });
    clearTimeout(due);
    due = setTimeout(() => keyed(lines, events.slice(-500), (one) => one.number, eventLine), 100);
  }, signal);
  const over = (r) => !["queued", "running"].includes(r.state);
  await page(main, signal, {
    id, load: () => get(path("/mcp/runs", id), { signal }), name: runName,
    facts: (r) => [r.sandbox_container_id ? el("a", { href: link("sandbox", r.sandbox_container_id) }, `sandbox ${r.sandbox_name || r.sandbox_container_id}`) : null, ...facts(r)],
    actions: (r) => (over(r) ? null : button("Cancel", () => act("DELETE", path("/mcp/runs", id)), "danger")),
    draw: (body, r) => {
      const all = r.commands ?? [];
      const done = all.filter((c) => c.started_at && !c.started_at.startsWith("0001"));
      replace(bars, done.length ? waterfall(done.map((c) => ({ name: commandText(c), from: seconds(c.started_at), to: c.ended_at && !c.ended_at.startsWith("0001") ? seconds(c.ended_at) : Date.now() / 1000, tone: c.status === "failed" || c.status === "timed_out" ? "bad" : "" }))) : null);
      shownOutputs.hidden = !r.artifacts?.length;
      keyed(outputs, r.artifacts ?? [], (a) => a.path, (a) => artifact(path("/artifacts", r.identifier, id, ...a.path.split("/")), a, signal));
      replace(body, r.error ? el("div.fault", r.error) : null, done.length ? section("Timeline", bars) : null,
        all.map((c) => printed(c, commandText(c))), shownOutputs, log);
    },
  });
}

export function artifact(at, a, signal) {
  const load = async () => {
    const r = await request("GET", at, { signal });
    return { data: new Uint8Array(await r.arrayBuffer()), mime: a.mime_type ?? "" };
  };
  return card({ name: a.path, size: a.size, signal, load, download: async () => save(a.path, (await load()).data) });
}

// left shows what a job left in its output directory.
async function left(run, place, signal) {
  const all = run ? items(await optional(path("/v1/outputs", run), { signal })).filter((f) => !isDraft(f)) : [];
  place.hidden = !all.length;
  keyed(place.lastChild, all, (a) => a.path, (a) => artifact(outputAt(run, a.path), a, signal));
}

export async function job(main, [id], signal) {
  const outputs = section("Outputs", el("div.outputs"));
  await page(main, signal, {
    id, name: (j) => first(j.command, "Job"), facts, actions: (j) => cancelButton("jobs", j),
    load: async () => {
      const [j, all] = await Promise.all([get(path("/v1/jobs", id), { signal }), optional("/v1/jobs", { signal })]);
      return { ...j, command: first(j.command, items(all).find((one) => one.id === id)?.command) };
    },
    draw: async (body, j) => {
      replace(body, j.message ? el("p", j.message) : null, printed(j) ?? empty("No output yet."), outputs);
      await left(j.run, outputs, signal);
    },
  });
}

const modelColumns = [{ name: "Model", class: "main" }, { name: "Input", class: "right" }, { name: "From cache", class: "right" }, { name: "Output", class: "right" }];

function models(cost) {
  const all = Object.entries(cost?.models ?? {});
  if (!all.length) return null;
  const { element, body } = table("Cost", modelColumns);
  const n = (v) => Number(v ?? 0).toLocaleString();
  add(body, all.map(([name, t]) => row(modelColumns, [name, n(t.input + t.cache_creation), n(t.cache_read), n(t.output)])));
  return section("Tokens", element);
}

export async function agent(main, [id], signal) {
  const lines = el("ol.timeline"), outputs = section("Outputs", el("div.outputs"));
  await page(main, signal, {
    id, name: (a) => first(a.command, "Agent"), actions: (a) => cancelButton("jobs", a),
    facts: (a) => [...facts(a), costOf(a) !== undefined ? dollars(costOf(a)) : null],
    load: async () => {
      const [a, trace, all] = await Promise.all([get(path("/v1/agents", id), { signal }), optional(path("/v1/agents", id, "trace"), { signal }), optional("/v1/agents", { signal })]);
      return { ...a, events: trace?.events ?? [], command: first(a.command, items(all).find((one) => one.id === id)?.command) };
    },
    draw: async (body, a) => {
      keyed(lines, a.events.map((e, number) => ({ ...e, number })), (e) => e.number, eventLine);
      replace(body, a.message ? el("p", a.message) : null, section("Timeline", a.events.length ? lines : el("p.quiet", "Nothing yet.")), models(a.cost), printed(a, "Answer"), outputs);
      await left(a.run, outputs, signal);
    },
  });
}
