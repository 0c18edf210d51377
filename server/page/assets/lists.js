// The lists: sandboxes, runs, jobs, agents. Each is live.
import { el } from "./dom.js";
import { get, described, items, act, poll, path, pages, optional } from "./api.js";
import { ago, until, state, bytes, dollars, duration, button, gate, note, dialog, field, textInput, numberInput } from "./ui.js";
import { list } from "./table.js";

const link = (view, id) => `#/${view}/${encodeURIComponent(id)}`;

const first = (...all) => all.find((v) => v !== undefined && v !== null && v !== "");
const between = (a, b) => (a && b && !b.startsWith("0001") && !a.startsWith("0001") ? (new Date(b) - new Date(a)) / 1000 : undefined);
const span = (x) => first(x.seconds, between(x.started ?? x.started_at, x.ended ?? x.ended_at));

// Where the lists are. Requests for the host are null if the operator has not turned them on.
export const sources = {
  sandboxes: (o) => pages("/v1/sandboxes", o).then(learn),
  runs: (o) => get("/mcp/runs", o).then((a) => a.runs ?? []),
  jobs: (o) => get("/v1/jobs", o).then(items),
  agents: (o) => get("/v1/agents", o).then(items),
  questions: (o) => get("/v1/egress/questions", o).then(items),
  host: async (o) => ((await described()).host ? get("/v1/host/requests?state=pending", o).then(items) : null),
};

// counts returns what the navigation shows: [view, number or null, whether it calls for an answer].
export async function counts(signal) {
  const active = (list) => list && list.filter((x) => x.status === "running" || x.status === "queued").length;
  const [sandboxes, jobs, agents, questions, host] = await Promise.all(
    ["sandboxes", "jobs", "agents", "questions", "host"].map((name) => sources[name]({ signal }).catch(() => null)));
  const open = (questions?.length ?? 0) + (host?.length ?? 0);
  return [["sandboxes", sandboxes?.length ?? null, false], ["jobs", active(jobs?.filter((j) => !j.agent)) || null, false], ["agents", active(agents) || null, false],
    ["approvals", open || null, open > 0]];
}

const ranks = { minimal: 1, degraded: 2, full: 3 };
let own = ""; // the machine's own level: the best one that a sandbox has here

function learn(all) {
  own = all.reduce((best, s) => ((ranks[s.level] ?? 0) > (ranks[best] ?? 0) ? s.level : best), "");
  return all;
}

// below reports whether a level is lower than the machine's own.
export const below = (word) => (ranks[word] ?? 0) < (ranks[own] ?? 0);

// level shows a level. Only one below the machine's own has a colour.
export function level(word) {
  return below(word) ? state(word, word === "minimal" ? "bad" : "wait") : el("span.quiet", String(word));
}

const use = new Map(); // what each running sandbox used last, by id
const usesCells = new Map(); // the cells that show it
const memoryOf = (id) => (use.has(id) ? bytes(use.get(id).memory_bytes) : "");
const cpusOf = (id) => (use.has(id) ? Number(use.get(id).cpus).toFixed(2) : "");

function useCells(id) {
  const cells = [el("span", memoryOf(id)), el("span", cpusOf(id))];
  usesCells.set(id, cells);
  return cells;
}

// measured reads what the sandboxes use, and changes the cells that show it.
async function measured(signal) {
  const all = items(await optional("/v1/usage", { signal }));
  use.clear();
  for (const u of all) if (u.samples?.length) use.set(u.sandbox, u.samples.at(-1));
  for (const [id, cells] of usesCells) {
    if (!cells[0].isConnected) usesCells.delete(id);
    [memoryOf(id), cpusOf(id)].forEach((text, i) => cells[i].textContent !== text && (cells[i].textContent = text));
  }
}

const born = (x) => Date.parse(first(x.created, x.started, x.started_at, x.created_at)) || undefined;
const stateOf = (x) => first(x.state, x.status);

const sandboxColumns = [{ name: "Name", class: "main", sort: (s) => s.name || s.id }, { name: "State", sort: stateOf }, { name: "Image", class: "image", sort: (s) => s.image || "host" }, "Isolation", "Network",
  { name: "Memory", class: "right memory", sort: (s) => use.get(s.id)?.memory_bytes, down: true }, { name: "CPU", class: "right", sort: (s) => use.get(s.id)?.cpus, down: true },
  { name: "Commands", class: "right", sort: (s) => s.execs, down: true }, { name: "Created", sort: born, down: true }, { name: "Expires", sort: (s) => Date.parse(s.expires) }];

export function sandboxes(main, _, signal) {
  return list(main, signal, {
    title: "Sandboxes", columns: sandboxColumns, load: sources.sandboxes, key: (s) => s.id, newest: "Created",
    none: ["No sandboxes.", "Create one here, by ", el("code", "demesne create"), ", or by an SDK."],
    actions: gate(el("button.primary.acts", { type: "button", data: { new: "" }, onclick: create }, "New sandbox")),
    filters: [{ name: "state", label: "Any state", of: stateOf }, { name: "image", label: "Any image", of: (s) => s.image || "host" }, { name: "namespace", label: "Any namespace", of: (s) => s.namespace }],
    bulk: { label: "Remove selected", run: removeAll },
    also: (draw) => poll(signal, async () => {
      await measured(signal);
      if (["Memory", "CPU"].includes(document.querySelector("main th[aria-sort$=ending]")?.textContent)) draw();
    }, () => {}, 5000), // use is measured
    cells: (s) => [
      [el("a", { href: link("sandbox", s.id) }, s.name || s.id), s.name && s.name !== s.id ? el("span.second.mono", s.id) : null],
      state(s.state), el("span.break", s.image || "host"), s.level ? level(s.level) : null, networkOf(s.network), ...useCells(s.id), s.execs || "0", ago(s.created), until(s.expires),
    ],
  });
}

// removeAll removes the selected sandboxes, a few at a time.
function removeAll(picked) {
  const n = picked.length, what = `${n} ${n === 1 ? "sandbox" : "sandboxes"}`;
  dialog(`Remove ${what}?`, [el("p", "Their processes end, and their files are deleted."), el("ul.names", picked.map((s) => el("li.break", s.name || s.id)))], { confirm: "Remove", kind: "danger", send: async () => {
    const failed = [], left = [...picked];
    const worker = async () => {
      for (let s = left.shift(); s; s = left.shift()) {
        await act("DELETE", path("/v1/sandboxes", s.id)).catch((e) => e.status === 404 || failed.push(`${s.name || s.id}: ${e.message}`));
      }
    };
    await Promise.all([worker(), worker(), worker(), worker()]);
    if (failed.length) throw new Error(`${failed.length} of ${n} are still here. ${failed[0]}`);
    note(`Removed ${what}`);
  } });
}

export function networkOf(n) {
  if (!n) return "none";
  const extra = n.allow?.length ?? 0;
  const mode = n.mode || "none";
  if (n.ask && mode === "none") return extra ? `asks, ${extra} ${extra === 1 ? "rule" : "rules"}` : "asks";
  if (extra && mode === "none") return `${extra} ${extra === 1 ? "rule" : "rules"}`;
  return extra ? `${mode} + ${extra}` : mode;
}

function create() {
  const body = el("div.fields",
    field("Name", textInput("name", "chosen for you")),
    field("Image", textInput("image", "the server’s own")),
    field("Network", el("select", { name: "mode" }, [["none", "None"], ["package-managers", "Package registries"], ["open", "Open"]].map(([v, t]) => el("option", { value: v }, t)))),
    field("Also allow", textInput("allow", "example.com, *.example.org")),
    field("Memory, MiB", numberInput("memory", "usual")), field("Processors", numberInput("cpus", "usual")),
    el("label.check.wide", el("input", { type: "checkbox", name: "ask" }), el("span", "Ask here before it reaches any other name")));
  dialog("New sandbox", body, { confirm: "Create", send: async (v) => {
    const s = await act("POST", "/v1/sandboxes", wanted(v));
    reduced(s);
    location.hash = link("sandbox", s.id);
  } });
}

// limitsOf returns the limits of a form, without those that it leaves empty.
export function limitsOf(v) {
  const limits = {};
  if (v.memory) limits.memory = Math.round(Number(v.memory) * 2 ** 20);
  if (v.cpus) limits.cpus = Number(v.cpus);
  if (v.pids) limits.pids = Number(v.pids);
  return limits;
}

// reduced says what the operator's bounds reduced of the limits that were asked for.
export function reduced(answer) {
  answer?.warnings?.forEach((text) => note(text, true));
}

function wanted(v) {
  const allow = v.allow.split(/[\s,]+/).filter(Boolean);
  const q = { limits: limitsOf(v) };
  if (v.name) q.name = v.name.trim();
  if (v.image) q.image = v.image.trim();
  if (v.mode !== "none" || allow.length || v.ask) q.network = { mode: v.mode, allow, ask: Boolean(v.ask) };
  return q;
}

// commandText returns a command as text.
export function commandText(c) {
  return c?.shell ?? (c?.argv ?? []).map(quoted).join(" ");
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`;
}

const byState = [{ name: "state", label: "Any state", of: stateOf }];
const took = { name: "Took", class: "right", sort: span, down: true }, began = { name: "Started", sort: born, down: true };

// runName returns the name that the client gave to a run.
export const runName = (r) => first(r.identifier, r.run_id, "Run");

export function runs(main, _, signal) {
  return list(main, signal, {
    title: "Runs", columns: [{ name: "Run", class: "main command", sort: runName }, { name: "State", sort: stateOf }, { name: "Outputs", class: "right", sort: (r) => r.artifacts?.length ?? 0, down: true }, took, began],
    load: sources.runs, key: (r) => r.run_id, newest: "Started", filters: byState, none: ["No runs yet.", "A run is a list of commands that a client starts by MCP’s tool ", el("code", "run_sandbox"), "."],
    cells: (r) => {
      const all = r.commands ?? [];
      return [[el("a", { href: link("run", r.run_id) }, runName(r)), el("span.second.mono", commandText(all[0]), all.length > 1 ? ` and ${all.length - 1} more` : null), el("span.second.mono", r.run_id)],
        state(r.state), r.artifacts?.length || "", duration(span(r)), ago(first(r.started_at, r.created_at))];
    },
  });
}

export function jobs(main, _, signal) {
  return list(main, signal, {
    title: "Jobs", columns: [{ name: "Command", class: "main command", sort: (j) => first(j.command, j.id) }, { name: "State", sort: stateOf }, { name: "Exit", class: "right", sort: (j) => j.exit_code }, took, began, ""],
    load: async (o) => (await sources.jobs(o)).filter((j) => !j.agent), key: (j) => j.id, newest: "Started", filters: byState,
    none: ["No jobs.", "A job is a command that goes on in the background."],
    cells: (j) => [
      [el("a.mono", { href: link("job", j.id) }, first(j.command, j.id)), el("span.second.mono", j.id, j.message ? ` · ${j.message}` : "")],
      state(j.status), j.exit_code ?? "", duration(span(j)), ago(j.started), cancelButton("jobs", j),
    ],
  });
}

export function cancelButton(kind, j) {
  if (j.status !== "running" && j.status !== "queued") return null;
  const b = button("Cancel", () => act("POST", path("/v1", kind, j.id, "cancel")), "small danger");
  b.setAttribute("aria-label", `Cancel ${j.id}`);
  return b;
}

export const costOf = (a) => a.cost?.total_usd;

export function agents(main, _, signal) {
  return list(main, signal, {
    title: "Agents", columns: [{ name: "Task", class: "main command", sort: (a) => first(a.command, a.id) }, { name: "State", sort: stateOf }, { name: "Cost", class: "right", sort: (a) => Number(costOf(a)), down: true }, took, began, ""],
    load: sources.agents, key: (a) => a.id, newest: "Started", filters: byState, none: ["No agents."],
    summary: (all) => `${all.length} ${all.length === 1 ? "agent" : "agents"}, ${dollars(all.reduce((sum, a) => sum + (Number(costOf(a)) || 0), 0))} in all`,
    cells: (a) => [
      [el("a", { href: link("agent", a.id) }, first(a.command, a.id)), el("span.second.mono", [a.id, ...Object.keys(a.cost?.models ?? {})].join(" · "))],
      state(a.status), costOf(a) === undefined ? "" : dollars(Number(costOf(a))), duration(span(a)), ago(a.started), cancelButton("jobs", a),
    ],
  });
}

export { first, span, link, bytes };
