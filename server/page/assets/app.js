// The frame: login, navigation, theme, keyboard. Views are modules that are loaded when they are first opened.
import { el, svg, replace } from "./dom.js";
import { changed, events, login, logout, session, poll, follow } from "./api.js";
import { note, dialog, title, empty } from "./ui.js";
import { counts } from "./lists.js";

const views = {
  sandboxes: () => import("./lists.js").then((m) => m.sandboxes),
  runs: () => import("./lists.js").then((m) => m.runs),
  jobs: () => import("./lists.js").then((m) => m.jobs),
  agents: () => import("./lists.js").then((m) => m.agents),
  conversations: () => import("./talk.js").then((m) => m.conversations),
  conversation: () => import("./talk.js").then((m) => m.conversation),
  approvals: () => import("./approvals.js").then((m) => m.approvals),
  sandbox: () => import("./sandbox.js").then((m) => m.sandbox),
  run: () => import("./run.js").then((m) => m.run),
  job: () => import("./run.js").then((m) => m.job),
  agent: () => import("./run.js").then((m) => m.agent),
};

const main = document.getElementById("main");
const top = document.getElementById("top");
let leave = new AbortController(); // ends what the view that is shown does
let live = null; // AbortController of the login; null: not logged in

const mark = () => svg("svg", { viewBox: "0 0 32 32", "aria-hidden": "true" },
  svg("rect", { x: 3, y: 3, width: 26, height: 26, rx: 6, fill: "none", stroke: "currentColor", "stroke-width": 3 }),
  svg("rect", { x: 11.5, y: 11.5, width: 9, height: 9, rx: 2, fill: "currentColor" }));

// Theme: the system's, or what the user chose.
const themes = ["", "light", "dark"];

function theme(next) {
  const at = next ?? localStorage.getItem("demesne-theme") ?? "";
  if (at) document.documentElement.dataset.theme = at;
  else delete document.documentElement.dataset.theme;
  localStorage.setItem("demesne-theme", at);
  document.dispatchEvent(new Event("theme"));
  return at;
}

const tabs = [["sandboxes", "Sandboxes"], ["runs", "Runs"], ["jobs", "Jobs"], ["agents", "Agents"], ["conversations", "Chat"], ["approvals", "Approvals"]];

function header(who) {
  const label = () => `Theme: ${document.documentElement.dataset.theme ?? "system"}`;
  const switcher = el("button.plain", {
    type: "button", title: label(), "aria-label": label(), onclick: () => {
      theme(themes[(themes.indexOf(document.documentElement.dataset.theme ?? "") + 1) % 3]);
      switcher.title = label();
      switcher.setAttribute("aria-label", label());
      note(label());
    },
  }, svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" },
    svg("circle", { cx: 8, cy: 8, r: 6, fill: "none", stroke: "currentColor", "stroke-width": 1.5 }),
    svg("path", { d: "M8 2a6 6 0 0 1 0 12z", fill: "currentColor" })));
  const nav = el("nav", { "aria-label": "Views" }, tabs.map(([id, name]) => el("a", { href: `#/${id}`, data: { view: id } }, name, el("span.count"))));
  replace(top, el("div.inner", el("a.mark", { href: "#/sandboxes", "aria-label": "demesne, start" }, mark(), "demesne"), nav,
    el("div.tools", switcher, el("button.plain", { type: "button", title: `Logged in as ${who.name}`, onclick: end }, "Log out"))));
}

function count(all) {
  for (const [id, n, call] of all) {
    const e = top.querySelector(`[data-view="${id}"] .count`);
    if (!e) continue;
    const text = n === null ? "" : String(n);
    if (e.textContent !== text) e.textContent = text;
    e.classList.toggle("call", Boolean(call));
  }
}

// route shows the view of the address: #/VIEW, #/VIEW/ID or #/VIEW/ID/TAB.
async function route() {
  if (!live) return;
  const [view, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const name = view in views ? view : "sandboxes";
  const parent = { sandbox: "sandboxes", run: "runs", job: "jobs", agent: "agents", conversation: "conversations" }[name] ?? name;
  for (const a of top.querySelectorAll("nav a")) {
    if (a.dataset.view === parent) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  leave.abort();
  leave = new AbortController();
  const signal = leave.signal;
  const moved = main.dataset.view !== `${name}/${rest[0] ?? ""}`;
  main.dataset.view = `${name}/${rest[0] ?? ""}`;
  try {
    const show = await views[name]();
    if (signal.aborted) return;
    main.replaceChildren();
    await show(main, rest, signal);
  } catch (e) {
    if (signal.aborted) return;
    replace(main, empty("This view cannot be shown.", e.message));
  }
  if (!signal.aborted && moved) {
    scrollTo(0, 0);
    if (!document.activeElement?.closest("main, #terminals")) main.focus({ preventScroll: true });
  }
}

function decoded(s) {
  try {
    return decodeURIComponent(s);
  } catch {
    return s;
  }
}

function start(who) {
  live?.abort();
  live = new AbortController();
  header(who);
  poll(live.signal, async () => count(await counts(live.signal)), () => {});
  let due = 0, last = 0;
  follow("/v1/events", () => { // something happened: lists are stale. Many events are one change.
    if (due) return;
    due = setTimeout(() => {
      due = 0;
      last = Date.now();
      changed.dispatchEvent(new Event("change"));
    }, Math.max(250, last + 2000 - Date.now()));
  }, live.signal, events);
  route();
}

async function end() {
  leave.abort();
  live?.abort();
  live = null; // the form is shown once, and not again while somebody types
  changed.dispatchEvent(new Event("logout"));
  await logout();
  form("");
}

function form(why = "") {
  leave.abort();
  live?.abort();
  live = null;
  title("Log in");
  top.replaceChildren();
  const token = el("input", { type: "password", name: "token", autocomplete: "current-password", required: true, "aria-label": "Token", placeholder: "Token" });
  const fault = el("div.fault", { role: "alert" }, why);
  const send = async (e) => {
    e.preventDefault();
    try {
      start(await login(token.value));
    } catch (err) {
      replace(fault, err.message);
      token.select();
    }
  };
  delete main.dataset.view;
  replace(main, el("div.login", el("h1.mark", mark(), "demesne"),
    el("form", { onsubmit: send }, el("label.field", el("span", "The server’s token"), token), el("button.primary", { type: "submit" }, "Log in")), fault,
    el("p.quiet", el("small", "The token is in ", el("code", "~/.demesne/server/token"), ". ", el("code", "demesne serve --page"), " prints an address that logs in."))));
  token.focus();
}

// Keyboard: g and a letter opens a view, / the filter, j and k move through rows.
let prefix = 0;

function keys(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest?.("input, textarea, select, dialog") || !live) return;
  if (prefix && Date.now() - prefix < 1500) {
    prefix = 0;
    const to = tabs.find(([id]) => id[0] === e.key);
    if (e.key === "p") location.hash = "#/approvals";
    else if (to) location.hash = `#/${to[0]}`;
    return;
  }
  if (e.key === "g") prefix = Date.now();
  else if (e.key === "?") help();
  else if (e.key === "/") {
    const filter = main.querySelector("input.filter");
    if (filter) {
      e.preventDefault();
      filter.focus();
    }
  } else if (e.key === "n") {
    e.preventDefault(); // the form's first field has the focus by then
    main.querySelector("[data-new]")?.click();
  } else if (e.key === "j" || e.key === "k") {
    const all = [...main.querySelectorAll("td.main a, .listing a")];
    const at = all.indexOf(document.activeElement);
    all[Math.max(0, Math.min(all.length - 1, at + (e.key === "j" ? 1 : -1)))]?.focus();
  } else if (/^[1-9]$/.test(e.key)) main.querySelectorAll(".tabs a")[Number(e.key) - 1]?.click();
}

function help() {
  const rows = [["g s", "Sandboxes"], ["g r", "Runs"], ["g j", "Jobs"], ["g a", "Agents"], ["g c", "Chat"], ["g p", "Approvals"], ["/", "Filter"], ["j k", "Next and previous row"],
    ["n", "New sandbox, or conversation"], ["1 … 6", "Tab of a sandbox"], ["Ctrl Shift E", "Leave the terminal"], ["?", "This help"]];
  dialog("Keyboard", el("dl", rows.map(([k, what]) => [el("dt", k.split(" ").map((one) => [el("kbd", one), " "])), el("dd", what)])));
}

theme();
document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault(); // the address names the view
  main.focus();
});
addEventListener("hashchange", () => (location.hash.startsWith("#token=") ? enter() : route()));
addEventListener("keydown", keys);
changed.addEventListener("logout", () => live && form("The login is over. Log in again."));

// enter logs in by the address's fragment, which no server sees, and removes it from the address and the history.
async function enter() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  history.replaceState(null, "", location.pathname);
  try {
    start(await login(token ?? ""));
  } catch (e) {
    form(e.message);
  }
}

if (location.hash.startsWith("#token=")) enter();
else {
  session().then((who) => (who ? start(who) : form()), (e) => form(e.message));
}
