// Uploads into a directory of a sandbox: files that are dropped or chosen.
import { el, replace } from "./dom.js";
import { upload } from "./api.js";
import { button, bytes, dialog, note, state } from "./ui.js";

const most = 2000; // files of one drop
const together = 3;

const panels = new Map(); // what is uploaded goes on while other views are shown

// panel returns the place that shows the uploads into a sandbox.
export function panel(at) {
  if (!panels.has(at)) panels.set(at, { element: el("ul.lines.uploads", { "aria-label": "Uploads" }), all: [] });
  return panels.get(at).element;
}

// accept makes place take files that are dropped on it.
export function accept(place, take) {
  let depth = 0; // of elements of place that the pointer is in
  const over = (n) => {
    depth = Math.max(0, n);
    place.classList.toggle("drop", depth > 0);
  };
  const has = (e) => e.dataTransfer?.types.includes("Files");
  place.addEventListener("dragenter", (e) => has(e) && over(depth + 1));
  place.addEventListener("dragleave", (e) => has(e) && over(depth - 1));
  place.addEventListener("dragover", (e) => has(e) && e.preventDefault());
  place.addEventListener("drop", async (e) => {
    if (!has(e)) return;
    e.preventDefault();
    over(0);
    try {
      await take(await dropped(e.dataTransfer));
    } catch (fault) {
      note(fault.message, true);
    }
  });
}

// dropped returns [{path, file}], also of what is in directories.
async function dropped(transfer) {
  const entries = [...transfer.items].map((i) => i.webkitGetAsEntry?.()).filter(Boolean); // before the first await: the list ends with the event
  const files = [...transfer.files];
  if (!entries.length) return files.map((file) => ({ path: file.name, file }));
  const all = [];
  for (const e of entries) await descend(e, "", all);
  return all;
}

async function descend(entry, above, to) {
  const path = above + entry.name;
  if (to.length > most) throw new Error(`More than ${most} files are too many for one upload.`);
  if (entry.isFile) {
    to.push({ path, file: await new Promise((done, fail) => entry.file(done, fail)) });
    return;
  }
  const reader = entry.createReader();
  for (;;) { // it gives a part at a time
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return;
    for (const e of some) await descend(e, `${path}/`, to);
  }
}

// chooser returns a button that opens the browser's dialog for files.
export function chooser(take, label = "Upload") {
  const input = el("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to upload" });
  input.addEventListener("change", async () => {
    const files = [...input.files].map((file) => ({ path: file.name, file }));
    input.value = "";
    if (files.length) await take(files);
  });
  return [button(label, () => input.click(), "small"), input];
}

// send uploads files. names are those that are there, room is the sandbox's disk limit, which ends the sandbox where it is
// passed, and address returns where a path is uploaded to.
export async function send(at, files, { names, room, address, done }) {
  const roots = [...new Set(files.map((f) => f.path.split("/")[0]))].filter((n) => names.has(n));
  if (!files.length) throw new Error("There is no file to upload.");
  const size = files.reduce((n, f) => n + f.file.size, 0);
  if (room > 0 && size > room) throw new Error(`${bytes(size)} are more than the sandbox’s disk limit of ${bytes(room)}.`);
  if (!roots.length) {
    start(at, files, address, done);
    return;
  }
  dialog(`Replace ${roots.length === 1 ? `“${roots[0]}”` : `${roots.length} names`}?`, [el("p", "Files with these names are replaced. Other files of a directory stay."), el("ul.names", roots.map((n) => el("li.break", n)))],
    { confirm: "Replace", kind: "danger", send: async () => start(at, files, address, done) });
}

function start(at, files, address, done) {
  const place = panel(at), all = panels.get(at).all;
  const mine = files.map((f) => ({ ...f, over: false, fault: "", end: new AbortController(), row: el("li"), bar: el("progress", { max: "1", value: "0", "aria-label": f.path }) }));
  all.push(...mine);
  const left = [...mine];
  const worker = async () => {
    for (let u = left.shift(); u; u = left.shift()) {
      try {
        await upload(address(u.path), u.file, { progress: (part) => u.bar.setAttribute("value", String(part)), signal: u.end.signal });
        u.sent = true;
      } catch (e) {
        u.fault = u.end.signal.aborted ? "" : e.message;
      }
      u.over = true;
      draw(place, all);
    }
  };
  draw(place, all);
  Promise.all(Array.from({ length: together }, worker)).then(() => {
    const sent = mine.filter((u) => u.sent).length;
    if (sent < mine.length) note(mine.length === 1 ? `${mine[0].path} was not uploaded.` : `${mine.length - sent} of ${mine.length} files were not uploaded.`, true);
    else note(`Uploaded ${sent === 1 ? mine[0].path : `${sent} files`}`);
    done();
  });
}

const rowsMost = 8;

// draw shows uploads that failed, and some of those that go on.
function draw(place, all) {
  all.splice(0, all.length, ...all.filter((u) => u.fault || !u.over));
  const rows = [...all].sort((a, b) => Boolean(b.fault) - Boolean(a.fault)).slice(0, rowsMost);
  for (const u of rows) {
    const what = u.fault ? "Dismiss" : "Cancel";
    if (u.what === what) continue;
    u.what = what;
    const end = el("button.small.plain", { type: "button", "aria-label": `${what} ${u.path}`, onclick: () => {
      u.end.abort();
      u.fault = "";
      draw(place, all);
    } }, what);
    replace(u.row, el("span.mono.break", u.path), u.fault ? state("failed") : [u.bar, el("span.quiet", bytes(u.file.size))], end, u.fault ? el("p.why", u.fault) : null);
  }
  replace(place, rows.map((u) => u.row), all.length > rows.length ? el("li.quiet", `${all.length - rows.length} more`) : null);
}
