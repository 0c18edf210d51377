// One sandbox.
import { el, replace, add, keyed } from "./dom.js";
import { get, act, poll, path, items } from "./api.js";
import { ago, until, state, button, dialog, field, textInput, note, title, empty, table, row, bytes, duration, code, copyable } from "./ui.js";
import { level, networkOf, link } from "./lists.js";

const tabs = [["overview", "Overview"], ["terminal", "Terminal"], ["files", "Files"], ["network", "Network"], ["processes", "Processes"], ["outputs", "Outputs"], ["screen", "Screen"]];

const views = {
  overview: () => import("./overview.js").then((m) => m.overview),
  processes: async () => processes,
  terminal: () => import("./terminal.js").then((m) => m.terminal),
  files: () => import("./files.js").then((m) => m.files),
  network: () => import("./network.js").then((m) => m.network),
  outputs: () => import("./outputs.js").then((m) => m.sandboxOutputs),
  screen: () => import("./screen.js").then((m) => m.screen),
};

export async function sandbox(main, [id, tab = "overview", ...rest], signal) {
  const at = path("/v1/sandboxes", id);
  const name = tab in views ? tab : "overview";
  title(id);
  const head = el("div.head"), fault = el("div.fault", { role: "alert" }), body = el("div.stack");
  const questions = el("span.count");
  const nav = el("nav.tabs", { "aria-label": "Parts of the sandbox" }, tabs.map(([t, label]) => el("a", {
    href: t === "overview" ? link("sandbox", id) : `${link("sandbox", id)}/${t}`, "aria-current": t === name ? "page" : null,
  }, label, t === "network" ? questions : null)));
  add(main, [head, nav, fault, body]);
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  const shared = { id, at, rest, info: null, ready: null, questions };
  let shape = "";
  shared.ready = poll(signal, async () => {
    let s;
    try {
      s = await get(at, { signal });
    } catch (e) {
      if (e.status !== 404) throw e;
      replace(head, el("h1", id));
      replace(main, empty("There is no such sandbox.", el("a", { href: "#/sandboxes" }, "All sandboxes")));
      return;
    }
    shared.info = s;
    if (shape !== (shape = JSON.stringify(s))) replace(head, summary(s), actions(s, at));
  }, (text) => replace(fault, text));
  const show = await views[name]();
  await shared.ready;
  if (!signal.aborted && shared.info) {
    title(shared.info.name || id);
    nav.hidden = shared.info.state === "snapshot";
    if (nav.hidden) replace(body, empty("A snapshot has files and no processes.", "Start a sandbox from it to look at them."));
    else await show(body, shared, signal);
  }
}

function summary(s) {
  return el("div", el("h1.break", s.name || s.id), el("div.sub", state(s.state), s.name && s.name !== s.id ? copyable(s.id) : null, el("span.break", s.image || "host"),
    s.level ? level(s.level) : null, el("span", "network ", networkOf(s.network)), s.created ? el("span", "created ", ago(s.created)) : null,
    until(s.expires) ? el("span", "expires ", until(s.expires)) : null));
}

function actions(s, at) {
  const go = (verb, done, off) => button(verb[0].toUpperCase() + verb.slice(1), async () => {
    await act("POST", `${at}/${verb}`);
    note(done);
  }, "", off);
  const running = s.state === "running", paused = s.state === "paused", snapshot = s.state === "snapshot";
  const whole = s.state !== "unreadable"; // its record can be read
  // Each button keeps its place in every state, and Remove is apart.
  const all = snapshot ? [button("Start from it", () => copy(at, copies.start))] : [
    paused ? go("resume", "Resumed") : go("pause", "Paused", !running),
    running || paused ? go("stop", "Stopped; its files stay") : go("start", "Started", !whole),
    button("Fork", () => copy(at, copies.fork), "", !whole), button("Snapshot", () => copy(at, copies.snapshot), "", !whole)];
  return el("div.actions.fixed", all, button("Remove", () => remove(s, at), "danger apart"));
}

function remove(s, at) {
  dialog(`Remove ${s.name || s.id}?`, el("p", s.state === "snapshot" ? "Its files are deleted. Sandboxes that started from it keep theirs." : "Its processes end, and its files are deleted."),
    { confirm: "Remove", kind: "danger", send: async () => {
      await act("DELETE", at);
      location.hash = "#/sandboxes";
    } });
}

const copies = {
  fork: { verb: "fork", title: "Fork the sandbox", what: "A new sandbox with the same files and none of the processes.", confirm: "Fork" },
  start: { verb: "fork", title: "Start from the snapshot", what: "A new sandbox with the files of the snapshot.", confirm: "Start" },
  snapshot: { verb: "snapshot", title: "Take a snapshot", what: "It keeps the files as they are now. Other sandboxes can start from it.", confirm: "Take it" },
};

// copy makes a sandbox or a snapshot, and shows it.
function copy(at, { verb, title, what, confirm }) {
  dialog(title, [el("p.quiet", what), field("Name", textInput("name", "chosen for you"))], { confirm, send: async (v) => {
    const made = await act("POST", `${at}/${verb}`, v.name ? { name: v.name.trim() } : {});
    location.hash = link("sandbox", made.id);
  } });
}

const processColumns = [{ name: "Command", class: "main command" }, { name: "PID", class: "right" }, { name: "Parent", class: "right" }, "State",
  { name: "Memory", class: "right" }, { name: "CPU time", class: "right" }, ""];

async function processes(body, shared, signal) {
  const at = shared.at;
  const { element, body: rows } = table("Processes", processColumns);
  const place = el("div"), fault = el("div.fault", { role: "alert" });
  add(body, [fault, place]);
  await poll(signal, async () => {
    const list = items(await get(`${at}/processes`, { signal }));
    if (!list.length) {
      replace(place, empty("No processes.", `The sandbox is ${shared.info.state}.`));
      return;
    }
    keyed(rows, list, (p) => p.pid, (p) => row(processColumns, [
      code(p.command || p.name, "break"), String(p.pid), String(p.parent ?? ""), processState(p.state), bytes(p.memory_bytes), duration(p.cpu_seconds),
      p.pid === 1 ? null : endButton(at, p)]));
    if (element.parentNode !== place) replace(place, element);
  }, (text) => replace(fault, text), 2000); // no event tells of processes
}

const processStates = { R: "running", S: "sleeping", D: "waiting", T: "stopped", t: "traced", Z: "ended", I: "idle" };

function processState(s) {
  return state(processStates[s] ?? s ?? "", s === "R" ? "good" : "");
}

function endButton(at, p) {
  const b = button("End", () => act("POST", `${at}/exec`, { argv: ["/bin/sh", "-c", "kill -TERM \"$1\"", "sh", String(Number(p.pid))] }), "small danger");
  b.setAttribute("aria-label", `End process ${p.pid}`);
  return b;
}
