// The files of a sandbox, and what has changed since its start.
import { el, replace, add } from "./dom.js";
import { get, request, items } from "./api.js";
import { bytes, button, empty, section, shown } from "./ui.js";
import { link } from "./lists.js";
import { content, kindOf, decoded, save } from "./show.js";
import { difference } from "./lines.js";
import { source } from "./source.js";
import { added, drafted, edit, text as editable } from "./edit.js";
import { accept, chooser, panel, send } from "./upload.js";

const most = 1 << 20; // bytes of a file that are shown
const listMost = 2000;

// The calls. Paths are absolute in the sandbox.
export async function listDirectory(at, dir, signal) {
  const r = await request("POST", `${at}/files/list`, { body: { path: dir }, signal });
  return (await r.json()).data ?? [];
}

// describeFile returns a file's type and size, or undefined if there is none.
async function describeFile(at, name, signal) {
  const r = await request("POST", `${at}/files/exists`, { body: { path: name }, signal });
  return (await r.json()).data?.file;
}

const rawAddress = (at, name) => `${at}/files/raw?path=${encodeURIComponent(name)}`;

export async function readFile(at, name, signal, limit = most) {
  const r = await request("GET", rawAddress(at, name), { signal, accept: "application/octet-stream" });
  const size = Number(r.headers.get("Content-Length") ?? NaN);
  const reader = r.body.getReader();
  const parts = [];
  let n = 0, truncated = false;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    parts.push(value);
    if ((n += value.length) >= limit) {
      truncated = size > limit || !(size <= limit);
      reader.cancel();
      break;
    }
  }
  const data = new Uint8Array(Math.min(n, limit));
  let to = 0;
  for (const p of parts) {
    const part = p.subarray(0, data.length - to);
    data.set(part, to);
    to += part.length;
  }
  return { data, truncated };
}

export function join(dir, name) {
  return `${dir === "/" ? "" : dir}/${name}`;
}

function parent(p) {
  return p.replace(/\/[^/]*\/?$/, "") || "/";
}

// files shows a directory, what a search found, or the changes on the left, and a file on the right. The address has the path.
export async function files(body, { id, at, rest, info }, signal) {
  const kind = ["changes", "grep"].includes(rest[0]) ? rest[0] : "at";
  const base = `${link("sandbox", id)}/files`;
  const to = (p, ...more) => `${base}/${[kind === "changes" ? kind : "at", p, ...more].map(encodeURIComponent).join("/")}`;
  const wanted = rest[1] ?? (kind === "changes" ? "" : "/");
  const crumbs = el("nav.crumbs", { "aria-label": "Path" }), list = el("ul.listing", { "aria-label": kind === "changes" ? "Changes" : "Files" }), viewer = el("div"), fault = el("div.fault", { role: "alert" });
  const tools = el("div.stack.tools");
  const kinds = el("div.actions.tabs", el("a", { href: `${base}/at/%2F`, "aria-current": kind === "changes" ? null : "page" }, "All files"), el("a", { href: `${base}/changes`, "aria-current": kind === "changes" ? "page" : null }, "Changes since start"));
  add(body, [fault, el("div.files", el("div.stack", kinds, tools, crumbs, list), viewer)]);
  const view = { at, base, info, to, wanted, crumbs, list, viewer, tools, line: Number(rest[2]) || 0, signal };
  try {
    if (kind === "changes") await changeList(at, list, viewer, wanted, to, signal, info);
    else if (kind === "grep") await found(view, rest[2] ?? "", rest[3] === "case");
    else await directory(view);
  } catch (e) {
    if (!signal.aborted) replace(fault, e.message);
  }
}

async function directory(view) {
  const { at, wanted, viewer, to, signal } = view;
  const there = await describeFile(at, wanted, signal);
  if (!there) {
    replace(viewer, empty("There is no such file.", el("a", { href: to("/") }, "All files")));
    return;
  }
  let dir = wanted, file = "", entries = null;
  if (isDir(there)) entries = await listDirectory(at, dir, signal);
  else if (there.type === "link") entries = await listDirectory(at, dir, signal).catch(() => null); // it may lead to a file
  if (entries === null) {
    file = wanted;
    dir = parent(wanted);
    entries = await listDirectory(at, dir, signal);
  }
  path(view, dir);
  const names = new Set();
  const show = (all) => {
    names.clear();
    all.forEach((e) => names.add(baseName(e)));
    listing(view, dir, file, all);
    if (!file) replace(viewer, empty(all.length ? "Choose a file." : "This directory is empty.", "Files that are dropped here are uploaded."));
  };
  const reload = async () => {
    const all = await listDirectory(at, dir, signal).catch(() => null); // the view may be left by then
    if (all) show(all);
  };
  show(entries);
  operate(view, dir, names, reload);
  if (!file) return;
  await open(view, file);
  if (matchMedia("(max-width: 62rem)").matches) viewer.scrollIntoView({ block: "start" }); // it is below the list
}

function path({ crumbs, to }, dir) {
  const parts = dir.split("/").filter(Boolean);
  replace(crumbs, el("a", { href: to("/") }, "/"), parts.map((p, i) => [el("a", { href: to(`/${parts.slice(0, i + 1).join("/")}`) }, p), i < parts.length - 1 ? "/" : ""]));
}

function listing({ list, to }, dir, file, entries) {
  entries.sort((a, b) => Number(isDir(b)) - Number(isDir(a)) || String(a.name).localeCompare(String(b.name)));
  const up = dir === "/" ? null : entryLine(to(parent(dir)), "↑", "..", "", false);
  replace(list, up, entries.slice(0, listMost).map((e) => {
    const p = join(dir, baseName(e));
    return entryLine(to(p), isDir(e) ? "▸" : "", isDir(e) ? `${baseName(e)}/` : baseName(e), isDir(e) ? "" : bytes(e.size), p === file);
  }), entries.length > listMost ? el("li.quiet", `${entries.length - listMost} more`) : null, !entries.length && !up ? el("li.quiet", "Empty") : null);
}

// operate adds what changes a directory: uploads, new files and directories; and the search.
function operate(view, dir, names, reload) {
  const { at, tools, to } = view;
  const take = (all) => send(at, all, { names, room: Number(view.info.limits?.disk), address: (p) => rawAddress(at, join(dir, p)), done: reload });
  const made = (p) => {
    location.hash = to(p);
  };
  replace(tools, el("div.actions", chooser(take), button("New file", () => added(at, dir, join, false, made), "small"), button("New directory", () => added(at, dir, join, true, made), "small")),
    searchForm(view, dir), panel(at));
  accept(view.list.closest(".files"), take);
}

function searchForm({ base }, dir, words = "", exact = false) {
  const field = el("input", { type: "search", name: "pattern", value: words, placeholder: "Search in files", "aria-label": `Search in the files of ${dir}, by a regular expression`, autocomplete: "off", spellcheck: "false", autocapitalize: "off", required: true });
  const match = el("input", { type: "checkbox", name: "case", checked: exact });
  return el("form.search", { role: "search", onsubmit: (e) => {
    e.preventDefault();
    location.hash = `${base}/grep/${[dir, field.value, ...(match.checked ? ["case"] : [])].map(encodeURIComponent).join("/")}`;
  } }, field, el("label.check", match, el("span", "Match case")));
}

const matchesMost = 500, matchLine = 300;

// found shows the lines that a search finds.
async function found(view, pattern, exact) {
  const { at, wanted: dir, list, viewer, to, signal } = view;
  path(view, dir);
  replace(view.tools, searchForm(view, dir, pattern, exact));
  list.hidden = true;
  replace(viewer, el("p.quiet", "Searching …"));
  const r = await request("POST", `${at}/grep`, { body: { path: dir, pattern, case_insensitive: !exact, limit: matchesMost, max_line_length: matchLine }, signal }).catch((e) => {
    replace(viewer);
    throw e;
  });
  const m = (await r.json()).data ?? {}, lines = m.lines ?? [];
  if (!lines.length) {
    replace(viewer, empty("No line matches.", el("span.mono.break", pattern)));
    return;
  }
  const byFile = Map.groupBy(lines, (l) => String(l.path));
  replace(viewer, el("div.stack.found", el("p.quiet", `${m.matches} ${m.matches === 1 ? "line" : "lines"} in ${byFile.size} ${byFile.size === 1 ? "file" : "files"}`, m.cut || m.matches > lines.length ? `; the first ${lines.length}` : ""),
    [...byFile].map(([file, all]) => section(el("a.mono.break", { href: to(file) }, file), el("ul.listing", all.map((l) => el("li", el("a", { href: to(file, String(l.line)) }, el("span.number", String(l.line)), el("span.name", shown(l.text, matchLine))))))))));
}

export const isDir = (e) => Boolean(e.is_dir);
const baseName = (e) => String(e.name ?? e.path).split("/").filter(Boolean).pop() ?? "";

function entryLine(href, letter, name, size, current) {
  return el("li", el("a", { href, "aria-current": current ? "true" : null }, el("span.letter", { "aria-hidden": "true", class: letter }, letter), el("span.name", name), el("span.size", size)));
}

// open shows a file: as a picture, a table or a document where it is one, and as text with line numbers. A text can be edited.
async function open(view, file, editing = drafted(view.at + file)) {
  const { at, viewer, line, signal } = view;
  replace(viewer, el("p.quiet", "Loading …"));
  const { data, truncated } = await readFile(at, file, signal);
  const all = truncated ? null : editable(data), shownText = decoded(data);
  if (editing && (all !== null || drafted(at + file))) {
    const now = () => readFile(at, file, undefined).then((r) => (r.truncated ? null : r.data), (e) => {
      if (e.status !== 404) throw e;
      return null;
    });
    replace(viewer, edit(view.at + file, at, file, data, { read: now, done: () => open(view, file, false) }));
    return;
  }
  const kind = kindOf(file), place = el("div");
  const preview = kind !== "text" && (kind === "image" || shownText !== null), asText = shownText !== null && (line > 0 || !preview);
  const show = (text) => {
    replace(place, text ? source(file, shownText, line) : el("div.output", el("div.body", content(file, data, { signal, truncated }))));
    toggle.textContent = text ? "Preview" : "Source";
    toggle.text = text;
  };
  const toggle = el("button.small", { type: "button", onclick: () => show(!toggle.text), hidden: !preview || shownText === null });
  const download = button("Download", async () => save(file, (await readFile(at, file, signal, Infinity)).data), "small");
  show(asText);
  replace(viewer, el("div.stack", el("div.bar", el("h2.mono.break", file), el("div.actions", el("small.quiet", truncated ? `the first ${bytes(data.length)}` : bytes(data.length)),
    toggle, all === null ? null : button("Edit", () => open(view, file, true), "small"), download)), place));
}

const kindNames = { A: "added", M: "changed", D: "deleted" };

async function changeList(at, list, viewer, wanted, to, signal, info) {
  const d = await get(`${at}/changes`, { signal });
  const all = items(d);
  replace(list, all.slice(0, listMost).map((c) => entryLine(to(c.path), c.kind, c.path, kindNames[c.kind] ?? "", c.path === wanted)),
    d.truncated || all.length > listMost ? el("li.quiet", "There are more.") : null);
  if (!all.length) {
    list.hidden = true;
    replace(viewer, empty("Nothing has changed.", "Files that the sandbox adds, changes or deletes appear here."));
    return;
  }
  const c = all.find((one) => one.path === wanted);
  if (!c) {
    replace(viewer, empty("Choose a change."));
    return;
  }
  await change(at, c, viewer, signal, info);
}

// change shows how a file differs from the image's.
async function change(at, c, viewer, signal, info) {
  replace(viewer, el("p.quiet", "Loading …"));
  const nothing = { data: new Uint8Array(), truncated: false };
  const [now, before] = await Promise.all([
    c.kind === "D" ? nothing : readFile(at, c.path, signal).catch((e) => ({ ...nothing, fault: e.message })),
    c.kind === "A" ? nothing : original(c.path, signal, info).catch((e) => ({ ...nothing, fault: e.message }))]);
  const texts = [decoded(before.data), decoded(now.data)];
  let body;
  if (now.fault || before.fault) body = el("p.quiet", now.fault ?? before.fault);
  else if (kindOf(c.path) === "image" || texts.includes(null)) body = el("div.output", el("div.body", content(c.path, c.kind === "D" ? before.data : now.data, { signal })));
  else body = el("div.diff", { role: "region", "aria-label": "Difference", tabindex: "0" }, difference(...texts.map((t) => shown(t))).map(([kind, text]) => el("div", { class: { same: "", add: "add", del: "del", gap: "gap" }[kind] },
    `${{ same: " ", add: "+", del: "-", gap: "⋯" }[kind]} ${text}`)));
  replace(viewer, el("div.stack", el("div.bar", el("h2.mono.break", c.path), el("small.quiet", kindNames[c.kind] ?? c.kind)),
    c.executes ? el("div.fault", `Copied to this machine, ${c.executes} would execute it.`) : null, body));
}

// original reads a file as the image has it, in a sandbox of its own.
async function original(name, signal, info) {
  const r = await request("POST", "/v1/run", { signal, body: { argv: ["cat", "--", name], ...(info.image ? { image: info.image } : {}) } });
  const a = await r.json();
  if (a.exit_code !== 0) throw new Error(a.stderr?.text || "The image has no such file.");
  return { data: new TextEncoder().encode(a.stdout?.text ?? ""), truncated: Boolean(a.stdout?.truncated) };
}

