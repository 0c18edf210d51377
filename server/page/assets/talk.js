// Conversations: an agent's runs that resume one session. What an agent said and did is hostile: it becomes text only.
import { el, replace, add, keyed } from "./dom.js";
import { get, act, changed, described, items, optional, path, poll, request } from "./api.js";
import { ago, state, section, title, empty, duration, dollars, shown, button, bytes, field, textInput, numberInput, note, gate } from "./ui.js";
import { sources, first, span, costOf, link } from "./lists.js";
import { list } from "./table.js";
import { artifact, isDraft, outputAt } from "./run.js";
import { accept, chooser } from "./upload.js";
import { question } from "./approvals.js";

const filesMost = 8 << 20, outputsMost = 60;
const records = new Set(["transcript.jsonl", "stderr.log", "usage.json", "usage.jsonl", "attribution.jsonl", "results.json"]); // of the host, in /out

const over = (turn) => !["running", "queued"].includes(turn.status);
const total = (turns) => turns.reduce((sum, t) => sum + (Number(costOf(t)) || 0), 0);

// grouped returns conversations of agents: {id, turns}, the oldest turn first.
function grouped(agents) {
  const all = new Map();
  for (const a of [...agents].reverse()) {
    const id = first(a.conversation, a.id);
    if (!all.has(id)) all.set(id, { id, turns: [] });
    all.get(id).turns.push(a);
  }
  return [...all.values()].reverse();
}

// called returns the name of a conversation: the first line of its first message.
const called = (c) => shown(first(c.turns[0].command, c.id).split("\n")[0], 120);

export function conversations(main, _, signal) {
  const last = (c) => c.turns.at(-1);
  return list(main, signal, {
    title: "Conversations", newest: "Last", load: async (o) => grouped(await sources.agents(o)), key: (c) => c.id,
    columns: [{ name: "Conversation", class: "main command", sort: called }, { name: "State", sort: (c) => last(c).status }, { name: "Messages", class: "right", sort: (c) => c.turns.length, down: true },
      { name: "Cost", class: "right", sort: (c) => total(c.turns), down: true }, { name: "Last", sort: (c) => Date.parse(last(c).started), down: true }],
    none: ["No conversations.", "Start one here. Agents that ", el("code", "demesne agent run --background"), " or a client of the API started can be continued too."],
    filters: [{ name: "state", label: "Any state", of: (c) => last(c).status }],
    actions: gate(el("button.primary.acts", { type: "button", data: { new: "" }, onclick: () => (location.hash = "#/conversation") }, "New conversation")),
    cells: (c) => [
      [el("a", { href: link("conversation", c.id) }, called(c)), el("span.second.mono", [c.id, ...Object.keys(last(c).cost?.models ?? {})].join(" · "))],
      state(last(c).status), c.turns.length, dollars(total(c.turns)), ago(last(c).started),
    ],
  });
}

// prose shows text with its fenced blocks of code.
function prose(text) {
  return String(text).split(/^[ \t]*```.*$/m).map((part, i) => (i % 2 ? el("pre.text.wrap", shown(part.replace(/^\n|\n$/g, ""))) : part.trim() ? el("p", shown(part.trim())) : null));
}

// steps returns what a turn shows of its events: {kind, …}. A tool's result belongs to its call.
function steps(turn) {
  const all = [], calls = new Map();
  for (const e of turn.events) {
    if (e.event === "text") all.push({ kind: "say", text: e.text, who: e.agent });
    else if (e.event === "tool_call") {
      const call = { kind: "tool", tool: e.tool, text: e.text, who: e.agent };
      calls.set(e.id, call);
      all.push(call);
    } else if (e.event === "tool_result") {
      const call = calls.get(e.id) ?? { kind: "tool", tool: "result" };
      if (!calls.has(e.id)) all.push(call);
      Object.assign(call, { output: e.text ?? "", failed: e.failed });
    } else if (e.event === "error" || e.event === "rate_limit") all.push({ kind: "fault", text: first(e.text, "The model’s server limits requests.") });
  }
  const answer = over(turn) ? turn.stdout?.text ?? "" : "";
  const last = all.findLast((s) => s.kind === "say" && !s.who);
  if (answer.trim()) {
    if (last && answer.trim().startsWith(last.text.replace(/…$/, "").trim().slice(0, 2000))) last.text = answer;
    else all.push({ kind: "say", text: answer });
  }
  return all;
}

const makers = {
  you: (s) => el("li.you", prose(s.text)),
  say: (s) => el("li.say", s.who ? el("small.quiet", s.who) : null, prose(s.text)),
  tool: (s) => el("li.tool", el("details", el("summary", { class: s.failed ? "bad" : "" }, el("b", s.who ? `${s.who}: ${s.tool}` : s.tool), " ", el("span.mono", s.text ?? ""), s.output === undefined ? el("span.quiet", " …") : s.failed ? el("span.bad", " failed") : null),
    s.text ? el("pre.text.wrap", shown(s.text)) : null, el("pre.text.wrap", s.output ? shown(s.output) : s.output === undefined ? "It has not ended." : "No output."))),
  fault: (s) => el("li", el("div.fault", s.text)),
  end: (s) => el("li.end", state(s.status), s.facts.map((f) => el("span", f)), el("a", { href: link("agent", s.id) }, "steps and tokens")),
  works: () => el("li.works", { role: "status" }, el("i.dot", { "aria-hidden": "true" }), "works"),
};

// thread returns the rows of all turns.
function thread(turns) {
  return turns.flatMap((t) => {
    const rows = [{ kind: "you", text: first(t.command, "") }, ...steps(t)];
    if (!over(t)) rows.push({ kind: "works" });
    else {
      if (t.message) rows.push({ kind: "fault", text: t.message });
      rows.push({ kind: "end", id: t.id, status: t.status, facts: [Number.isFinite(costOf(t)) ? dollars(costOf(t)) : null, t.reason, span(t) === undefined ? null : duration(span(t))].filter(Boolean) });
    }
    return rows.map((r, n) => ({ ...r, key: `${t.id}/${n}` }));
  });
}

async function base64(file) {
  const url = await new Promise((done, fail) => {
    const r = new FileReader();
    r.onload = () => done(r.result);
    r.onerror = () => fail(new Error(`${file.name} cannot be read.`));
    r.readAsDataURL(file);
  });
  return url.slice(url.indexOf(",") + 1);
}

// composer is where a message is written, with files that are dropped, pasted or chosen. send gets {prompt, files}.
function composer(send, label, asks) {
  const text = el("textarea", { name: "prompt", rows: 2, required: true, "aria-label": "Message", placeholder: asks });
  const chips = el("ul.chips", { "aria-label": "Files" });
  let files = [];
  const draw = () => keyed(chips, files, (f) => f.name, (f) => el("li", f.file.type.startsWith("image/") ? preview(f.file) : null, el("span.mono.break", f.name), el("small.quiet", bytes(f.file.size)),
    el("button.small.plain", { type: "button", "aria-label": `Remove ${f.name}`, onclick: () => {
      files = files.filter((one) => one !== f);
      draw();
    } }, "×")));
  const take = async (more) => {
    const named = more.map((f) => ({ name: f.path.split("/").pop(), file: f.file }));
    const next = [...files.filter((f) => !named.some((n) => n.name === f.name)), ...named];
    if (next.reduce((n, f) => n + f.file.size, 0) > filesMost || next.length > 32) throw new Error(`One message takes at most 32 files with ${bytes(filesMost)} together.`);
    files = next;
    draw();
  };
  const go = button(label, async () => {
    if (!text.value.trim()) return;
    const names = files.map((f) => `/in/${f.name}`);
    const sent = { prompt: text.value + (names.length ? `\n\nFiles: ${names.join(", ")}` : "") };
    if (names.length) sent.files = await Promise.all(files.map(async (f) => ({ name: f.name, content: f.file.size ? await base64(f.file) : undefined })));
    await send(sent);
    text.value = "";
    files = [];
    draw();
  }, "primary");
  text.addEventListener("keydown", (e) => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing || matchMedia("(pointer: coarse)").matches) return;
    e.preventDefault();
    go.click();
  });
  text.addEventListener("paste", (e) => {
    const pasted = [...e.clipboardData.files].map((file) => ({ path: file.name, file }));
    if (!pasted.length) return;
    e.preventDefault();
    take(pasted).catch((fault) => note(fault.message, true));
  });
  const place = el("div.composer", text, chips, el("div.bar", el("div.actions", chooser(take, "Attach files")), el("div.actions", el("small.quiet", "or drop them here"), go)));
  accept(place, take);
  return { place, text };
}

function preview(file) {
  const url = URL.createObjectURL(file);
  const e = el("img", { src: url, alt: "" });
  e.addEventListener("load", () => URL.revokeObjectURL(url));
  e.addEventListener("error", () => e.remove());
  return e;
}

// settings returns the fields of a new conversation, and what they ask for.
function settings() {
  const models = el("datalist", { id: "models" });
  described().then((about) => add(models, (about.models ?? []).map((m) => el("option", { value: m }))), () => {});
  const of = { model: textInput("model", "the server’s own", { list: "models" }), image: textInput("image", "with the agent’s program"),
    mode: el("select", { name: "mode" }, [["", "Only the model"], ["package-managers", "Package registries"], ["research", "Everything, without files"]].map(([v, t]) => el("option", { value: v }, t))),
    allow: textInput("allow", "example.com, *.example.org"), cost: numberInput("cost", "no bound"), memory: numberInput("memory", "usual"), minutes: numberInput("minutes", "no bound") };
  const place = el("div.fields", models, field("Agent, by its model", of.model), field("Image", of.image), field("Network", of.mode), field("Also allow", of.allow),
    field("Budget, dollars", of.cost), field("Time, minutes", of.minutes), field("Memory, MiB", of.memory));
  return { place, wanted: () => {
    const v = Object.fromEntries(Object.entries(of).map(([k, e]) => [k, e.value.trim()])), allow = v.allow.split(/[\s,]+/).filter(Boolean), q = {};
    if (v.model) q.model = v.model;
    if (v.image) q.image = v.image;
    if (v.mode === "research") q.research = true;
    else if (v.mode || allow.length) q.network = { mode: v.mode || "none", allow };
    if (v.cost) q.max_cost_usd = Number(v.cost);
    if (v.minutes) q.timeout_ms = Math.round(Number(v.minutes) * 60000);
    if (v.memory) q.limits = { memory: Math.round(Number(v.memory) * 2 ** 20) };
    return q;
  } };
}

function begin(main) {
  title("New conversation");
  const form = settings();
  const { place, text } = composer(async (sent) => {
    const job = await act("POST", "/v1/agents", { ...form.wanted(), ...sent });
    location.hash = link("conversation", job.conversation);
  }, "Start", "What should the agent do?");
  add(main, [el("div.head", el("div", el("h1", "New conversation"), el("p.quiet", "An agent works in a sandbox of its own. It sees the files that you attach, and nothing else of this machine."))), place, section("Settings", form.place)]);
  text.focus();
}

const told = () => changed.dispatchEvent(new Event("change"));
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// listen tells that something changed whenever an agent prints what it does, until it ends.
async function listen(id, signal) {
  try {
    const reader = (await request("GET", path("/v1/jobs", id, "stderr"), { signal })).body.getReader();
    while (!(await reader.read()).done) {
      told();
      await pause(100); // the rest of a burst is one change
    }
  } catch { /* the next look tries again */ }
  told();
  await pause(2000);
}

export async function conversation(main, [id], signal) {
  if (!id) {
    begin(main);
    return;
  }
  const head = el("div.head"), fault = el("div.fault", { role: "alert" }), lines = el("ol.thread", { "aria-live": "polite" }), asks = el("ul"), cards = el("div.outputs"), none = empty("No outputs.", "What the agent leaves in /out appears here.");
  const ended = new Map(); // turns that have ended do not change
  let turns = [], shape = "", heard = "";
  const { place } = composer(async (sent) => {
    await act("POST", "/v1/agents", { continue: turns.at(-1).id, ...sent });
  }, "Send", "Say more");
  const whole = async (t) => {
    if (ended.has(t.id)) return ended.get(t.id);
    const [job, trace] = await Promise.all([get(path("/v1/agents", t.id), { signal }), optional(path("/v1/agents", t.id, "trace"), { signal })]);
    const one = { ...job, events: trace?.events ?? [] };
    if (over(one)) ended.set(t.id, one);
    return one;
  };
  add(main, [head, fault, el("div.talk", el("div", lines, asks, place), section("Outputs", none, cards))]);
  await poll(signal, async () => {
    const found = grouped(await sources.agents({ signal })).find((c) => c.id === id);
    if (!found) throw new Error("There is no such conversation.");
    turns = await Promise.all(found.turns.map(whole));
    const last = turns.at(-1), works = !over(last);
    if (works && heard !== last.id) listen(heard = last.id, signal).then(() => {
      if (heard === last.id) heard = "";
      told();
    });
    const [questions, left] = await Promise.all([works ? sources.questions({ signal }).catch(() => []) : [], optional(path("/v1/outputs", id), { signal })]);
    keyed(asks, questions ?? [], (q) => q.id, (q) => question(q));
    const outputs = items(left).filter((f) => !isDraft(f) && !records.has(f.path)).slice(0, outputsMost);
    none.hidden = outputs.length > 0;
    keyed(cards, outputs.map((f) => ({ ...f, turn: turns.length, works })), (f) => f.path, (f) => artifact(outputAt(id, f.path), f, signal));
    if (shape === (shape = JSON.stringify(turns))) return;
    const follows = innerHeight + scrollY > document.documentElement.scrollHeight - 160;
    const name = called({ id, turns });
    title(name);
    replace(head, el("div", el("h1.break", name), el("div.sub", state(last.status), Object.keys(last.cost?.models ?? {}).map((m) => el("span", m)), el("span", `${dollars(total(turns))} in all`), ago(last.started))),
      el("div.actions", works ? button("Stop", () => act("POST", path("/v1/jobs", last.id, "cancel")), "danger") : null, button("New conversation", () => (location.hash = "#/conversation"))));
    gate(place.querySelector("button.primary"), works);
    keyed(lines, thread(turns), (r) => r.key, (r) => makers[r.kind](r));
    if (follows && turns.length) scrollTo(0, document.documentElement.scrollHeight);
  }, (why) => replace(fault, why));
}
