// A live table: sorted, filtered, with rows to select. A change of one thing makes one row.
import { el, keyed, replace, add } from "./dom.js";
import { poll } from "./api.js";
import { row, table, empty, title, button, gate } from "./ui.js";

const views = new Map(); // by title: the order and the filters, for the next time that a list is shown
const collator = new Intl.Collator(undefined, { numeric: true });

// sorted returns a copy in the order of a value. What has no value comes last.
function sorted(all, value, down) {
  const none = (v) => v === undefined || v === null || v === "" || Number.isNaN(v);
  return all.map((x) => [value(x), x]).sort(([a], [b]) => {
    if (none(a) || none(b)) return none(a) - none(b);
    const order = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a), String(b));
    return down ? -order : order;
  }).map(([, x]) => x);
}

// list shows a live table. A column with sort can be sorted by; filters are [{name, label, of}]; bulk is {label, run}, for
// selected rows; also starts what updates cells by itself, and gets a function that draws the table again.
export async function list(main, signal, o) {
  title(o.title);
  const view = views.get(o.title) ?? { by: o.newest, down: true, words: "", picks: {} };
  views.set(o.title, view);
  const fault = el("div.fault", { role: "alert" }), summary = el("p.quiet"), place = el("div");
  const chosen = new Set(), texts = new WeakMap();
  let all = null, shown = [];
  const heads = new Map();
  const head = (c) => {
    if (!c.sort) return c;
    const b = el("button.sort", { type: "button", onclick: () => {
      view.down = view.by === c.name ? !view.down : Boolean(c.down);
      view.by = c.name;
      draw();
    } }, c.name);
    heads.set(c.name, b);
    return { ...c, head: b };
  };
  const every = el("input", { type: "checkbox", "aria-label": "Select all that are shown", onchange: () => {
    shown.forEach((x) => (every.checked ? chosen.add(o.key(x)) : chosen.delete(o.key(x))));
    mark();
  } });
  const columns = [...(o.bulk ? [{ name: "", class: "pick", head: every }] : []), ...o.columns.map(head)];
  const { element, body } = table(o.title, columns);
  const pick = (x) => el("input", { type: "checkbox", "aria-label": "Select", data: { pick: o.key(x) }, onchange: (e) => {
    if (e.target.checked) chosen.add(o.key(x));
    else chosen.delete(o.key(x));
    mark();
  } });
  const count = el("span.quiet", { role: "status" });
  const act = o.bulk ? button(o.bulk.label, () => o.bulk.run(shown.filter((x) => chosen.has(o.key(x)))), "small danger", true) : null;
  const bulk = o.bulk ? el("div.bulk", count, act) : null;
  const mark = () => { // what is selected
    if (!o.bulk) return;
    for (const box of body.querySelectorAll("input[data-pick]")) {
      box.checked = chosen.has(box.dataset.pick);
      box.closest("tr").classList.toggle("chosen", box.checked);
    }
    every.checked = chosen.size > 0 && chosen.size === shown.length;
    every.indeterminate = chosen.size > 0 && !every.checked;
    replace(count, chosen.size ? `${chosen.size} selected` : null);
    gate(act, !chosen.size);
  };
  const textOf = (x) => {
    if (!texts.has(x)) texts.set(x, JSON.stringify(x).toLowerCase());
    return texts.get(x);
  };
  const draw = () => {
    if (all === null) return;
    const words = view.words.toLowerCase().split(/\s+/).filter(Boolean);
    shown = all.filter((x) => filters.every((f) => !view.picks[f.name] || String(f.of(x)) === view.picks[f.name]) && words.every((w) => textOf(x).includes(w)));
    const by = o.columns.find((c) => c.sort && c.name === view.by);
    if (by) shown = sorted(shown, by.sort, view.down);
    for (const [name, b] of heads) b.parentNode?.setAttribute("aria-sort", name !== view.by ? "none" : view.down ? "descending" : "ascending");
    const keys = new Set(shown.map(o.key));
    chosen.forEach((k) => keys.has(k) || chosen.delete(k)); // what is not shown is not selected
    if (shown.length) {
      keyed(body, shown, o.key, (x) => row(columns, [...(o.bulk ? [pick(x)] : []), ...o.cells(x)]));
      if (element.parentNode !== place) replace(place, element);
    } else {
      replace(place, empty(...(all.length ? ["Nothing matches the filter."] : o.none)));
    }
    if (o.summary) replace(summary, all.length ? o.summary(all) : null);
    filters.forEach(options);
    mark();
  };
  const filters = (o.filters ?? []).map((f) => ({ ...f, select: el("select", { name: f.name, "aria-label": f.label, onchange: (e) => {
    view.picks[f.name] = e.target.value;
    draw();
  } }) }));
  const options = (f) => { // the values that there are. One value is not a choice.
    const values = [...new Set([...all.map((x) => String(f.of(x) ?? "")), view.picks[f.name] ?? ""])].filter(Boolean).sort(collator.compare);
    if (f.values === (f.values = values.join("\n"))) return;
    replace(f.select, el("option", { value: "" }, f.label), values.map((v) => el("option", { value: v }, v)));
    f.select.value = view.picks[f.name] ?? "";
    f.select.hidden = values.length < 2 && !f.select.value;
  };
  const filter = el("input.filter", { type: "search", placeholder: "Filter", value: view.words, "aria-label": `Filter ${o.title.toLowerCase()}`, autocomplete: "off" });
  filter.addEventListener("input", () => {
    view.words = filter.value;
    draw();
  });
  filter.addEventListener("keydown", (e) => {
    if (e.key !== "Escape") return;
    filter.value = view.words = "";
    draw();
    filter.blur();
  });
  add(main, [el("div.head", el("div", el("h1", o.title), summary), el("div.actions", o.actions)),
    el("div.choice", filter, filters.map((f) => f.select), bulk), fault, place]);
  o.also?.(draw);
  await poll(signal, async () => {
    all = await o.load({ signal });
    draw();
  }, (text) => replace(fault, text));
}
