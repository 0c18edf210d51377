// The lists: sandboxes, runs, jobs, agents. Each is live.
import { el, keyed, replace, add } from "./dom.js";
import { get, described, items, act, poll, path, pages } from "./api.js";
import { ago, until, state, table, row, empty, bytes, dollars, duration, button, dialog, field, textInput, numberInput, title } from "./ui.js";

const link = (view, id) => `#/${view}/${encodeURIComponent(id)}`;

// Where the lists are. Requests for the host are null if the operator has not turned them on.
export const sources = {
  sandboxes: (o) => pages("/v1/sandboxes", o),
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

// list shows a live table.
async function list(main, signal, o) {
  title(o.title);
  const fault = el("div.fault", { role: "alert" });
  const filter = el("input.filter", { type: "search", placeholder: "Filter", "aria-label": `Filter ${o.title.toLowerCase()}`, autocomplete: "off" });
  const place = el("div");
  const { element, body } = table(o.title, o.columns);
  let all = null;
  const draw = () => {
    if (all === null) return;
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = all.filter((x) => words.every((w) => JSON.stringify(x).toLowerCase().includes(w)));
    if (found.length) {
      keyed(body, found, o.key, (x) => row(o.columns, o.cells(x)));
      if (element.parentNode !== place) replace(place, element);
    } else {
      replace(place, empty(...(all.length ? ["Nothing matches the filter."] : o.none)));
    }
    if (o.summary) replace(summary, all?.length ? o.summary(all) : null);
  };
  const summary = el("p.quiet");
  filter.addEventListener("input", draw);
  filter.addEventListener("keydown", (e) => {
    if (e.key === "Escape") {
      filter.value = "";
      draw();
      filter.blur();
    }
  });
  add(main, [el("div.head", el("div", el("h1", o.title), summary), el("div.actions", filter, o.actions)), fault, place]);
  await poll(signal, async () => {
    all = await o.load({ signal });
    draw();
  }, (text) => replace(fault, text));
}

const sandboxColumns = [{ name: "Name", class: "main" }, "State", "Image", "Isolation", "Network", { name: "Commands", class: "right" }, "Created", "Expires"];

export function sandboxes(main, _, signal) {
  return list(main, signal, {
    title: "Sandboxes", columns: sandboxColumns, load: sources.sandboxes, key: (s) => s.id,
    none: ["No sandboxes.", "Create one here, by ", el("code", "demesne create"), ", or by an SDK."],
    actions: el("button.primary", { type: "button", data: { new: "" }, onclick: create }, "New sandbox"),
    cells: (s) => [
      [el("a", { href: link("sandbox", s.id) }, s.name || s.id), s.name && s.name !== s.id ? el("span.second.mono", s.id) : null],
      state(s.state), el("span.break", s.image || "host"), s.level ? level(s.level) : null, networkOf(s.network), s.execs || "0", ago(s.created), until(s.expires),
    ],
  });
}

export function level(word) {
  return state(word, { full: "good", degraded: "wait", minimal: "bad" }[word] ?? "");
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

function wanted(v) {
  const allow = v.allow.split(/[\s,]+/).filter(Boolean);
  const q = { limits: limitsOf(v) };
  if (v.name) q.name = v.name.trim();
  if (v.image) q.image = v.image.trim();
  if (v.mode !== "none" || allow.length || v.ask) q.network = { mode: v.mode, allow, ask: Boolean(v.ask) };
  return q;
}

const first = (...all) => all.find((v) => v !== undefined && v !== null && v !== "");
const between = (a, b) => (a && b && !b.startsWith("0001") && !a.startsWith("0001") ? (new Date(b) - new Date(a)) / 1000 : undefined);
const span = (x) => first(x.seconds, between(x.started ?? x.started_at, x.ended ?? x.ended_at));

// commandText returns a command as text.
export function commandText(c) {
  return c?.shell ?? (c?.argv ?? []).map(quoted).join(" ");
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`;
}

export function runs(main, _, signal) {
  return list(main, signal, {
    title: "Runs", columns: [{ name: "Commands", class: "main command" }, "State", { name: "Sandbox", class: "break" }, { name: "Outputs", class: "right" }, { name: "Took", class: "right" }, "Started"],
    load: sources.runs, key: (r) => r.run_id, none: ["No runs yet.", "A run is a list of commands that a client starts by MCP’s tool ", el("code", "run_sandbox"), "."],
    cells: (r) => {
      const all = r.commands ?? [];
      return [[el("a.mono", { href: link("run", r.run_id) }, commandText(all[0]) || r.run_id), all.length > 1 ? el("span.quiet", ` and ${all.length - 1} more`) : null, el("span.second.mono", r.run_id)],
        state(r.state), r.identifier, r.artifacts?.length || "", duration(span(r)), ago(first(r.started_at, r.created_at))];
    },
  });
}

export function jobs(main, _, signal) {
  return list(main, signal, {
    title: "Jobs", columns: [{ name: "Command", class: "main command" }, "State", { name: "Exit", class: "right" }, { name: "Took", class: "right" }, "Started", ""],
    load: async (o) => (await sources.jobs(o)).filter((j) => !j.agent), key: (j) => j.id,
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
    title: "Agents", columns: [{ name: "Task", class: "main command" }, "State", { name: "Cost", class: "right" }, { name: "Took", class: "right" }, "Started", ""],
    load: sources.agents, key: (a) => a.id, none: ["No agents."],
    summary: (all) => `${all.length} ${all.length === 1 ? "agent" : "agents"}, ${dollars(all.reduce((sum, a) => sum + (Number(costOf(a)) || 0), 0))} in all`,
    cells: (a) => [
      [el("a", { href: link("agent", a.id) }, first(a.command, a.id)), el("span.second.mono", [a.id, ...Object.keys(a.cost?.models ?? {})].join(" · "))],
      state(a.status), costOf(a) === undefined ? "" : dollars(Number(costOf(a))), duration(span(a)), ago(a.started), cancelButton("jobs", a),
    ],
  });
}

export { first, span, link, bytes };
