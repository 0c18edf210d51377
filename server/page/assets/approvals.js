// What waits for a person: names that sandboxes want to reach, and commands that want to run on the host.
import { el, keyed, replace, add } from "./dom.js";
import { act, poll, path } from "./api.js";
import { ago, until, button, empty, section, title, code, note } from "./ui.js";
import { sources, link } from "./lists.js";

// question shows one pending question of a sandbox. The name in it comes from the sandbox.
export function question(q, where = true) {
  const name = q.port ? `${q.name ?? q.host}:${q.port}` : String(q.name ?? q.host);
  const answer = (verb) => async () => {
    await act("POST", path("/v1/egress/questions", q.id, verb));
    note(verb === "allow" ? `Allowed ${name}` : `Denied ${name}`);
  };
  return el("li.ask", el("div.what", el("p", "Reach ", code(name, "break"), "?"),
    el("p.quiet", where ? ["sandbox ", el("a", { href: link("sandbox", q.sandbox) }, q.sandbox)] : null, q.asked ? [where ? ", " : "asked ", ago(q.asked)] : null)),
  el("div.actions", labelled(button("Deny", answer("deny"), "danger"), `Deny ${name}`), labelled(button("Allow", answer("allow"), "primary"), `Allow ${name}`)));
}

function labelled(b, text) {
  b.setAttribute("aria-label", text);
  return b;
}

// times returns the approvals of a request: [label, seconds]. One of a pattern, or of the same command again, holds for a time,
// which the policy bounds.
function times(h) {
  const most = Number(h.grant_seconds) || 0, pattern = h.kind === "access";
  if (!most) return [["Approve", 0]];
  const all = [...(most > 3600 ? [most] : []), Math.min(most, 3600)].map((s) => [`Allow this ${pattern ? "pattern" : "command"} for ${spell(s)}`, pattern && s === most ? 0 : s]);
  return pattern ? all : [all.at(-1), ["Approve once", 0]];
}

function spell(seconds) {
  if (seconds === 3600) return "an hour";
  return seconds % 3600 === 0 ? `${seconds / 3600} hours` : `${Math.round(seconds / 60)} minutes`;
}

// command shows one request for this machine. An approval is for what is shown here: it has the digest of that. The detail
// names the caller, and has the caller's own words.
function command(h) {
  const answer = (verb, body) => async () => {
    await act("POST", path("/v1/host/requests", h.id, verb), body);
    note(verb === "approve" ? "Approved" : "Refused");
  };
  const all = times(h);
  const approve = all.map(([label, seconds], i) => labelled(button(label, answer("approve", { digest: h.digest ?? "", ...(seconds ? { for_seconds: seconds } : {}) }),
    i === all.length - 1 ? "primary" : "", Boolean(h.problem)), `${label}: ${h.text}`));
  return el("li.ask", el("div.what", el("p", el("b", h.text)), h.detail ? el("pre", h.detail) : null, h.problem ? el("div.fault", h.problem) : null,
    el("p.quiet", "asked ", ago(h.asked), h.expires ? [", expires ", until(h.expires)] : null)),
  el("div.actions", labelled(button("Refuse", answer("refuse"), "danger"), `Refuse ${h.text}`), approve));
}

export async function approvals(main, _, signal) {
  title("Approvals");
  const fault = el("div.fault", { role: "alert" });
  const names = el("ul"), commands = el("ul"), none = el("div");
  const egress = section("Names that sandboxes want to reach", names);
  const host = section("Commands for this machine", commands);
  add(main, [el("div.head", el("div", el("h1", "Approvals"), el("p.quiet", "What waits for your answer. Only a person answers here, never a model."))), fault, none, egress, host]);
  await poll(signal, async () => {
    const [questions, requests] = await Promise.all([sources.questions({ signal }), sources.host({ signal })]);
    keyed(names, questions ?? [], (q) => q.id, (q) => question(q));
    keyed(commands, requests ?? [], (h) => h.id, command);
    egress.hidden = !questions?.length;
    host.hidden = !requests?.length;
    if (questions?.length || requests?.length) none.replaceChildren();
    else if (!none.firstChild) {
      replace(none, empty("Nothing waits.", requests === null ? "Sandboxes with the setting “ask” put their questions here. Commands on the host are off: the operator turns them on."
        : "Sandboxes with the setting “ask”, and guarded host commands, put their questions here."));
    }
  }, (text) => replace(fault, text));
}

