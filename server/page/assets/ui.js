// Parts that several views have.
import { el, add, replace } from "./dom.js";
import { changed, away } from "./api.js";

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(n) {
  if (!Number.isFinite(n)) return "";
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1).replace(/\.0$/, "")} ${units[i]}`;
}

export function dollars(n) {
  if (!Number.isFinite(n)) return "";
  return n > 0 && n < 0.01 ? `$${n.toFixed(4)}` : `$${n.toFixed(2)}`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "";
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

const about = (seconds) => duration(Math.max(1, Math.round(seconds))).replace(".0 s", " s");

const valid = (t) => t && !String(t).startsWith("0001-");

// ago and until are elements whose text is kept up to date.
export function ago(t) {
  return valid(t) ? moment(t, (d) => (d < 1 ? "now" : `${about(d)} ago`)) : null;
}

export function until(t) {
  return valid(t) ? moment(t, (d) => (d > 0 ? "over" : `in ${about(-d)}`)) : null;
}

function moment(t, words) {
  const at = new Date(t);
  const e = el("time", { datetime: at.toISOString(), title: at.toLocaleString() });
  e.refresh = () => {
    const text = words((Date.now() - at) / 1000);
    if (e.textContent !== text) e.textContent = text;
  };
  e.refresh();
  return e;
}

setInterval(() => document.querySelectorAll("time").forEach((e) => e.refresh?.()), 1000);

export function clock(t) {
  if (!valid(t)) return null;
  const at = new Date(t);
  return el("time", { datetime: at.toISOString(), title: at.toLocaleString() }, at.toLocaleTimeString([], { hour12: false }));
}

// The colour of a state, by its word.
const tones = {
  running: "good", completed: "good", succeeded: "good", exited: "good", allowed: "good", held: "good", enforced: "good", full: "good", ok: "good", done: "good", approved: "good",
  queued: "wait", asked: "wait", pending: "wait", paused: "wait", degraded: "wait", starting: "wait", changed: "wait",
  failed: "bad", timed_out: "bad", canceled: "", cancelled: "", denied: "bad", missing: "bad", minimal: "bad", "timed-out": "bad", oom: "bad", disk: "bad", pids: "bad", budget: "bad", lost: "bad", signaled: "bad", unreadable: "bad", error: "bad", refused: "bad",
};

export function state(word, tone = tones[word]) {
  return el("span.state", { class: tone ?? "" }, el("i.dot", { "aria-hidden": "true" }), String(word ?? ""));
}

export function note(text, bad = false) {
  const e = el("div.note", { class: bad ? "bad" : "" }, text);
  document.getElementById("notes").append(e);
  setTimeout(() => e.remove(), bad ? 8000 : 4000);
}

// gate disables a button that acts, while its reason off holds, while it acts, and while the server is away.
export function gate(b, off = b.off) {
  b.off = off;
  b.disabled = Boolean(off || b.busy || away);
  return b;
}

changed.addEventListener("reach", () => document.querySelectorAll("button.acts").forEach((b) => gate(b)));

// button runs f when it is pressed. off: it keeps its place, and cannot be pressed.
export function button(label, f, kind = "", off = false) {
  const b = el("button.acts", { type: "button", class: kind }, label);
  b.addEventListener("click", async () => {
    b.busy = true;
    gate(b);
    try {
      await f();
    } catch (e) {
      if (e.name !== "AbortError") note(e.message, true); // the view was left meanwhile
    }
    b.busy = false;
    gate(b);
  });
  return gate(b, off);
}

// dialog asks for values, and calls send with them. It stays open, with the reason, while send fails. Without send it only
// tells something.
export function dialog(title, body, { confirm = "Close", kind = "primary", send } = {}) {
  const why = el("div.fault", { role: "alert" });
  const ok = el("button", { type: "submit", class: send ? `acts ${kind}` : kind }, confirm);
  if (send) gate(ok);
  const cancel = send ? el("button", { type: "button", onclick: () => d.close() }, "Cancel") : null;
  const form = el("form", el("h2", title), body, why, el("div.actions", cancel, ok));
  const d = el("dialog", { "aria-label": title }, form);
  const over = () => d.close();
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    ok.busy = true;
    gate(ok);
    try {
      await send?.(Object.fromEntries(new FormData(form)));
      d.close();
    } catch (err) {
      replace(why, err.message);
    }
    ok.busy = false;
    if (send) gate(ok);
  });
  changed.addEventListener("logout", over);
  addEventListener("hashchange", over);
  d.addEventListener("close", () => {
    changed.removeEventListener("logout", over);
    removeEventListener("hashchange", over);
    d.remove();
  });
  document.body.append(d);
  d.showModal();
}

// textInput is a field for names and rules, numberInput one for a number above 0, which may stay empty.
export function textInput(name, placeholder, more = {}) {
  return el("input", { name, placeholder, autocomplete: "off", spellcheck: "false", autocapitalize: "off", ...more });
}

export function numberInput(name, placeholder, more = {}) {
  return el("input", { name, placeholder, type: "number", min: "0", step: "any", autocomplete: "off", ...more });
}

export function field(label, input, hint) {
  return el("label.field", el("span", label), input, hint ? el("small", hint) : null);
}

export function empty(title, ...rest) {
  return el("div.empty", el("p", title), rest.length ? el("p.quiet", rest) : null);
}

// table makes a table whose rows are set by its keyed body. On a phone each row becomes a block, with the column's name
// before each cell.
export function table(name, columns) {
  const body = el("tbody");
  const e = el("div.scroll", el("table", { "aria-label": name },
    el("thead", el("tr", columns.map((c) => el("th", { scope: "col", class: c.class ?? "" }, c.head ?? c.name ?? c)))), body));
  return { element: e, body };
}

export function row(columns, cells) {
  return el("tr", cells.map((c, i) => el("td", { class: columns[i].class ?? "", data: { label: columns[i].name ?? columns[i] } }, c)));
}

// section is a titled part of a view.
export function section(title, ...rest) {
  return el("section", el("header.bar", el("h2", title)), rest);
}

export function code(text, kind = "") {
  return el("code", { class: kind }, text);
}

export function copyable(text) {
  return el("button.copy", {
    type: "button", title: "Copy", onclick: async () => {
      await navigator.clipboard?.writeText(text);
      note("Copied");
    },
  }, text);
}

// shown limits a text from a sandbox to what a browser lays out quickly.
export function shown(text, most = 200000) {
  const s = String(text ?? "");
  return s.length > most ? s.slice(0, most) + `\n… ${s.length - most} more characters` : s;
}

export function title(text) {
  document.title = text ? `${text} · demesne` : "demesne";
}

export function fault(e) {
  return replace(el("div.fault", { role: "alert" }), e.message ?? String(e));
}

export function refresh() {
  changed.dispatchEvent(new Event("change"));
}
