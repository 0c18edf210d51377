// A sandbox at a glance: use, what runs in it and what it printed, the receipt, decisions, ports.
import { el, replace, add, keyed } from "./dom.js";
import { get, act, poll, path, items, optional, follow } from "./api.js";
import { ago, bytes, button, clock, code, dialog, duration, field, note, numberInput, row, section, shown, state, table } from "./ui.js";
import { limitsOf, reduced, link, runName, sources } from "./lists.js";
import { Graph } from "./graph.js";
import { receipt } from "./receipt.js";

const lines = 6; // of a part

export async function overview(body, shared, signal) {
  const at = shared.at;
  const memory = new Graph("Memory", bytes, true), cpu = new Graph("Processors", (n) => n.toFixed(2)), count = new Graph("Processes", (n) => String(Math.round(n)));
  const idle = el("p.quiet");
  const use = section("Use and limits", el("div.graphs", memory.element, cpu.element, count.element), idle);
  use.firstChild.append(button("Change limits", () => limits(at, shared.info.limits), "small"));
  const ports = el("div");
  const published = section("Published ports", ports);
  published.firstChild.append(button("Publish", () => publish(at), "small"));
  const answer = el("div.stack");
  add(body, [use, el("div.columns", el("div.stack", commands(shared, signal), published), el("div.stack", section("Receipt", answer), decisions(shared, signal)))]);
  const past = items(await optional(`/v1/usage?sandbox=${encodeURIComponent(shared.info.id)}`, { signal }).catch(() => null))[0]?.samples ?? [];
  const second = (s) => new Date(s.time).getTime() / 1000;
  memory.before(past.map((s) => [second(s), s.memory_bytes]));
  cpu.before(past.slice(1).map((s) => [second(s), s.cpus]));
  count.before(past.map((s) => [second(s), s.processes]));
  let before = null;
  let receiptOf = "", portsOf = ""; // what is shown
  await poll(signal, async () => {
    const s = await get(at, { signal });
    const receiptNow = JSON.stringify([s.state, s.level, s.limits]);
    if (receiptOf !== receiptNow) {
      replace(answer, receipt(s.level ? await get(`${at}/receipt`, { signal }) : null));
      receiptOf = receiptNow;
    }
    if (portsOf !== (portsOf = JSON.stringify(s.ports ?? []))) replace(ports, portList(at, s.ports ?? []));
    if (s.state !== "running") {
      replace(idle, s.state === "paused" ? "Paused: the processes are stopped and stay in memory." : `The sandbox is ${s.state}: it has no processes.`);
      return;
    }
    idle.replaceChildren();
    const u = await get(`${at}/usage`, { signal });
    const now = Date.now() / 1000;
    const max = s.limits ?? {};
    memory.add(u.memory_bytes, max.memory > 0 ? max.memory : 0, now);
    count.add(u.processes, max.pids > 0 ? max.pids : 0, now);
    if (before && u.cpu_seconds >= before.cpu) cpu.add((u.cpu_seconds - before.cpu) / (now - before.at), max.cpus > 0 ? max.cpus : 0, now);
    else if (cpu.samples.length) cpu.draw(cpu.samples.at(-1)[1], max.cpus > 0 ? max.cpus : 0, now); // as the server measured it
    before = { at: now, cpu: u.cpu_seconds };
  }, (text) => replace(idle, text), 2000); // use is measured
}

// commands shows what runs, what ran last, and what the newest run in the sandbox printed. All of it is the sandbox's text.
function commands({ id, at, info }, signal) {
  const running = el("ul.lines"), ran = el("ul.lines"), none = el("p.quiet"), printed = el("div");
  let newest = "";
  poll(signal, async () => {
    const [processes, entries] = await Promise.all([optional(`${at}/processes`, { signal }).then(items), optional(`/v1/audit?type=execution&limit=60&sandbox=${encodeURIComponent(info.id)}`, { signal }).catch(() => null)]);
    const top = processes.filter((p) => p.pid !== 1 && (p.parent === 1 || p.parent === 0)).slice(0, lines);
    keyed(running, top, (p) => p.pid, (p) => el("li", state("running"), code(shown(p.command || p.name, 300), "break"), el("span.quiet", `${bytes(p.memory_bytes)} · ${duration(p.cpu_seconds)}`)));
    const all = ended(entries?.entries ?? []).slice(0, lines);
    keyed(ran, all, (c) => c.run, (c) => el("li", state(c.failed ? c.word : "done", c.failed ? "bad" : ""), code(shown(c.command, 300), "break"), el("span.quiet", ago(c.time))));
    replace(none, top.length || all.length ? null : "Nothing runs, and nothing has run lately.");
    if (newest !== (newest = all[0]?.run ?? "none")) replace(printed, await last(id, info, signal));
  }, (text) => replace(none, text), 4000); // no event tells of processes
  return section("Commands", none, running, ran, printed);
}

// ended returns the commands that ended, the newest first, by the entries of the audit log.
function ended(entries) {
  const began = new Map(), all = [];
  for (const e of entries) {
    const d = e.detail ?? {};
    if (e.type === "execution.started") began.set(e.run, d.command);
    else if (began.has(e.run)) {
      const failed = e.type !== "execution.completed" || d.exit_code !== "0";
      all.unshift({ run: e.run, time: e.time, command: String(began.get(e.run) ?? ""), failed, word: d.reason && d.reason !== "exited" ? String(d.reason) : `exit ${d.exit_code ?? ""}` });
    }
  }
  return all;
}

// last shows the end of what the newest run of the sandbox printed.
async function last(id, info, signal) {
  const mine = (await sources.runs({ signal }).catch(() => [])).filter((r) => [id, info.id].includes(r.sandbox_container_id));
  const newest = mine.sort((a, b) => Date.parse(b.created_at) - Date.parse(a.created_at))[0];
  const text = newest?.commands?.filter((c) => c.stdout || c.stderr).at(-1);
  if (!text) return null;
  const end = String((text.stdout?.text ?? text.stdout) || (text.stderr?.text ?? text.stderr)).trimEnd().split("\n").slice(-8).join("\n");
  return [el("p.quiet", "Last output, of ", el("a", { href: link("run", newest.run_id) }, runName(newest))), el("pre.text.wrap", shown(end, 4000))];
}

// decisions shows the newest decisions about connections.
function decisions({ id, at, info }, signal) {
  const n = info.network ?? {};
  if ((n.mode ?? "none") === "none" && !n.allow?.length && !n.ask) return null;
  const rows = el("ul.lines"), none = el("p.quiet", "No connection yet.");
  const log = [];
  let number = 0, due = 0;
  follow(`${at}/egress/log`, (type, d) => {
    if (typeof d !== "object" || d === null || !d.verdict) return;
    log.unshift({ ...d, number: ++number });
    log.length = Math.min(log.length, lines);
    due ||= setTimeout(() => {
      due = 0;
      none.replaceChildren();
      keyed(rows, log, (one) => one.number, (one) => el("li", state(String(one.verdict), one.verdict === "allowed" ? "" : undefined), code(one.port ? `${one.host}:${one.port}` : String(one.host), "break"), el("span.quiet", clock(one.time))));
    }, 120);
  }, signal);
  const part = section("Recent decisions", none, rows);
  part.firstChild.append(el("a.quiet", { href: `${link("sandbox", id)}/network` }, "All"));
  return part;
}

function portList(at, list) {
  if (!list.length) return el("p.quiet", "None: no program on this machine reaches a server in the sandbox.");
  const columns = ["On this machine", "In the sandbox", { name: "", class: "right" }];
  const { element, body } = table("Published ports", columns);
  for (const p of list) {
    const listen = String(p.listen);
    const local = /^(127(\.\d+){3}|localhost|\[::1\]):\d+$/.test(listen);
    add(body, row(columns, [local ? el("a.mono", { href: `http://${listen}/`, onclick: (e) => open(e, listen) }, listen) : code(listen), code(String(p.to)),
      local && listen.startsWith("127.0.0.2:") ? button("Close", () => act("DELETE", path(`${at}/ports`, p.to)), "small") : null]));
  }
  return element;
}

function publish(at) {
  dialog("Publish a port", field("Port in the sandbox", numberInput("to", "8000", { min: "1", max: "65535", step: "1", required: true }),
    "A server on the sandbox’s loopback gets an address on the server’s machine."), { confirm: "Publish", send: async (v) => {
    const p = await act("POST", `${at}/ports`, { to: Number(v.to) });
    note(`Published at ${p.listen}`);
  } });
}

// open opens a port in a tab of its own, without a reference to this page.
function open(e, listen) {
  e.preventDefault();
  window.open(`http://${listen}/`, "_blank", "noopener,noreferrer");
}

function limits(at, now = {}) {
  const number = (name, value, more) => numberInput(name, "unchanged", { value: value > 0 ? String(value) : "", ...more });
  dialog("Change limits", el("div.fields", field("Memory, MiB", number("memory", now.memory / 2 ** 20)), field("Processors", number("cpus", now.cpus)),
    field("Processes", number("pids", now.pids, { step: "1" }))), { confirm: "Apply", send: async (v) => {
    reduced(await act("PATCH", `${at}/limits`, limitsOf(v)));
    note("Limits changed");
  } });
}
