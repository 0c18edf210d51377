// Elements. Everything that this file sets is text or a listed attribute: no function here, nor anywhere in the page,
// parses HTML.

const plainAttributes = new Set([
  "id", "type", "name", "value", "placeholder", "title", "href", "download", "src", "alt", "for", "role", "tabindex", "autocomplete",
  "sandbox", "list", "colspan", "scope", "rows", "cols", "min", "max", "step", "open", "hidden", "disabled", "checked", "readonly", "required",
  "spellcheck", "autocapitalize", "inputmode", "enterkeyhint", "lang", "datetime", "referrerpolicy", "credentialless", "allow", "multiple",
]);

// el makes an element: el("a.plain", {href, onclick}, "text", child, [children]). A child that is not a node becomes text.
export function el(what, ...rest) {
  const [tag, ...classes] = what.split(".");
  const e = document.createElement(tag);
  if (classes.length) e.className = classes.join(" ");
  if (rest.length && isProps(rest[0])) setProps(e, rest.shift());
  add(e, rest);
  return e;
}

function isProps(v) {
  return v !== null && typeof v === "object" && !Array.isArray(v) && !(v instanceof Node);
}

function setProps(e, props) {
  for (const [k, v] of Object.entries(props)) {
    if (v === undefined || v === null || v === false) continue;
    if (k.startsWith("on") && typeof v === "function") e.addEventListener(k.slice(2), v);
    else if (k === "class") e.classList.add(...v.split(" ").filter(Boolean));
    else if (k === "data") Object.assign(e.dataset, v);
    else if (k === "href" && !safeLink(v)) continue;
    else if (plainAttributes.has(k) || k.startsWith("aria-")) e.setAttribute(k, v === true ? "" : v);
    else throw new Error(`el: attribute ${k} is not listed`);
  }
}

// safeLink allows links inside the page, to this machine's ports, and blobs of the page. Others may be scripts.
function safeLink(v) {
  return /^(#|blob:|http:\/\/(127(\.\d+){3}|localhost|\[::1\]|[a-z0-9-]+\.localhost)(:\d+)?(\/|$)|\/docs$|\/v1\/openapi\.json$)/.test(String(v));
}

export function add(e, children) {
  for (const c of [children].flat(Infinity)) {
    if (c === undefined || c === null || c === false) continue;
    e.append(c instanceof Node ? c : document.createTextNode(String(c)));
  }
  return e;
}

export function replace(e, ...children) {
  e.replaceChildren();
  return add(e, children);
}

const svgName = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const e = document.createElementNS(svgName, tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return add(e, children);
}

const rowsOf = new WeakMap();

// keyed makes the children of parent those of items, and keeps the elements of items that have not changed: the focus, a
// selection and an open menu survive an update. make(item) returns an element, key(item) what the item is.
export function keyed(parent, items, key, make) {
  const old = rowsOf.get(parent) ?? new Map();
  const rows = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let lost = null;
  for (const item of items) {
    const k = String(key(item));
    if (rows.has(k)) continue;
    const shape = JSON.stringify(item);
    let row = old.get(k);
    if (!row || row.shape !== shape) {
      const fresh = make(item);
      if (row && focused && row.element.contains(focused)) lost = [k, focusables(row.element).indexOf(focused)];
      row = { shape, element: fresh };
    }
    rows.set(k, row);
  }
  arrange(parent, [...rows.values()].map((r) => r.element));
  if (lost) focusables(rows.get(lost[0]).element)[lost[1]]?.focus();
  else if (focused && document.activeElement !== focused && parent.contains(focused)) focused.focus();
  rowsOf.set(parent, rows);
}

// arrange makes want the children of parent, and moves few of them.
function arrange(parent, want) {
  const wanted = new Set(want);
  for (const e of [...parent.children]) if (!wanted.has(e)) e.remove();
  let at = parent.firstElementChild;
  for (const e of want) {
    if (at && e !== at && at.nextElementSibling === e) { // it moved down
      at.remove();
      at = e;
    }
    if (e === at) at = e.nextElementSibling;
    else parent.insertBefore(e, at);
  }
}

export function focusables(e) {
  return [...e.querySelectorAll("a[href], button, input, select, textarea")];
}
