// What a sandbox may reach, what it asks for, and what was decided. Names and requests come from the sandbox.
import { el, replace, add, keyed } from "./dom.js";
import { act, get, poll, follow } from "./api.js";
import { button, section, state, table, row, clock, bytes, empty, code, field, textInput, dialog, note } from "./ui.js";
import { sources } from "./lists.js";
import { question } from "./approvals.js";

const columns = ["Time", "Verdict", { name: "Destination", class: "main break" }, { name: "Request", class: "break" }, { name: "Why", class: "break" }, { name: "In / out", class: "right nowrap" }, ""];
const kept = 500; // decisions in the table

export async function network(body, { id, at, info, questions: badge }, signal) {
  const asks = el("ul"), rules = el("div"), place = el("div"), fault = el("div.fault", { role: "alert" });
  const waiting = section("Waiting for your answer", asks);
  const { element, body: rows } = table("Decisions", columns);
  const log = [];
  const head = section("Rules", rules);
  add(body, [fault, waiting, head, section("Decisions", place)]);
  head.firstChild.append(button("Add a rule", () => addRule(at), "small"));
  let number = 0, due = false;
  const draw = () => {
    due = false;
    if (!log.length) {
      replace(place, empty("No connection yet.", "Each attempt to reach a name appears here, with its verdict."));
      return;
    }
    keyed(rows, log, (d) => d.number, (d) => decision(d, at));
    if (element.parentNode !== place) replace(place, element);
  };
  draw();
  follow(`${at}/egress/log`, (type, d) => {
    if (typeof d !== "object" || d === null || !d.verdict) return;
    log.unshift({ ...d, number: ++number });
    log.length = Math.min(log.length, kept);
    if (!due) {
      due = true;
      setTimeout(draw, 120);
    }
  }, signal);
  let shape = "";
  await poll(signal, async () => {
    const [s, all] = await Promise.all([get(at, { signal }), sources.questions({ signal })]);
    const mine = (all ?? []).filter((q) => q.sandbox === s.id || q.sandbox === s.name || q.sandbox === id);
    keyed(asks, mine, (q) => q.id, (q) => question(q, false));
    waiting.hidden = mine.length === 0;
    replace(badge, mine.length ? String(mine.length) : "");
    const n = s.network ?? {};
    if (shape !== (shape = JSON.stringify(n))) replace(rules, ruleList(n, info));
  }, (text) => replace(fault, text));
}

function ruleList(n) {
  const none = (n.mode ?? "none") === "none" && !n.allow?.length && !n.ask;
  if (none) return el("p.quiet", "None: the sandbox has only its own loopback.");
  const list = (all) => (all?.length ? all.map((r, i) => [i ? ", " : "", code(r, "break")]) : el("span.quiet", "none"));
  return el("dl.facts", el("dt", "Mode"), el("dd", n.mode || "none"), el("dt", "Allowed"), el("dd", list(n.allow)), el("dt", "Denied"), el("dd", list(n.deny)),
    el("dt", "Other names"), el("dd", n.ask ? "asks here" : "denied"));
}

function decision(d, at) {
  const verdict = String(d.verdict);
  const rule = d.port && d.port !== 443 && d.port !== 80 ? `${d.host}:${d.port}` : String(d.host);
  const allow = verdict === "denied" ? button("Allow", () => change(at, "allow", rule, `Allowed ${rule}`), "small") : null;
  return row(columns, [clock(d.time), state(verdict), [code(d.port ? `${d.host}:${d.port}` : d.host), d.times > 1 ? el("span.quiet", ` × ${d.times}`) : null],
    d.request ? code(d.request) : "", [d.rule ? code(d.rule) : d.reason, d.error ? el("span.second", d.error) : null],
    d.in || d.out ? `${bytes(d.in)} / ${bytes(d.out)}` : "", allow]);
}

async function change(at, kind, rule, done) {
  await act("POST", `${at}/egress/${kind}`, { rules: [rule] });
  note(done);
}

function addRule(at) {
  dialog("Add a rule", [
    field("Name", textInput("rule", "example.com or *.example.com:443", { required: true })),
    field("The sandbox", el("select", { name: "kind" }, el("option", { value: "allow" }, "may reach it"), el("option", { value: "deny" }, "may not reach it")), "A rule that denies takes precedence.")], { confirm: "Add",
    send: (v) => change(at, v.kind, v.rule.trim(), "Rule added") });
}

