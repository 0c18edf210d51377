// Shows the OpenAPI document of this server, and sends requests. Every text goes into the page as text, never as markup.
'use strict';

const $ = (id) => document.getElementById(id);

// el makes an element with attributes and children.
function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) k.startsWith('on') ? e.addEventListener(k.slice(2), v) : e.setAttribute(k, v);
  e.append(...children.filter((c) => c !== null && c !== undefined && c !== ''));
  return e;
}

let spec;

// resolve follows a reference within the document.
function resolve(schema) {
  for (let n = 0; schema && schema.$ref && n < 20; n++) schema = spec.components.schemas[schema.$ref.split('/').pop()];
  return schema || {};
}

// type describes a schema in one word or two.
function type(schema) {
  if (schema.$ref) return schema.$ref.split('/').pop();
  if (schema.enum) return schema.enum.map((v) => JSON.stringify(v)).join(' | ');
  const t = Array.isArray(schema.type) ? schema.type.filter((x) => x !== 'null').join(' | ') : schema.type;
  if (t === 'array') return 'array of ' + type(schema.items || {});
  if (t === 'object' && schema.additionalProperties && schema.additionalProperties.type) return 'map of ' + type(schema.additionalProperties);
  return t || 'any';
}

// example returns a request body to begin with: the required fields, and those that have an example.
function example(schema, depth = 0) {
  schema = resolve(schema);
  if (schema.examples && schema.examples.length) return schema.examples[0];
  if (schema.default !== undefined) return schema.default;
  if (schema.enum) return schema.enum[0];
  const t = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (t === 'object' && depth < 4) {
    const o = {};
    for (const [k, v] of Object.entries(schema.properties || {})) {
      if ((schema.required || []).includes(k) || (resolve(v).examples || []).length) o[k] = example(v, depth + 1);
    }
    return o;
  }
  return { string: '', integer: schema.minimum || 0, number: 0, boolean: false, array: [] }[t] ?? null;
}

// fields lists the properties of a schema as a table.
function fields(schema) {
  schema = resolve(schema);
  if (schema.type === 'array') schema = resolve(schema.items);
  const rows = Object.entries(schema.properties || {}).map(([k, v]) => el('tr', {},
    el('td', {}, el('code', {}, k), (schema.required || []).includes(k) ? ' *' : ''), el('td', {}, type(v)),
    el('td', {}, v.description || resolve(v).description || '')));
  return rows.length ? el('table', {}, el('tbody', {}, ...rows)) : null;
}

function parameters(op) {
  return (op.parameters || []).map((p) => {
    const input = el('input', { 'data-in': p.in, 'data-name': p.name, 'aria-label': p.name });
    return el('tr', {}, el('td', {}, el('code', {}, p.name), p.required ? ' *' : ''), el('td', {}, input), el('td', {}, p.description || ''));
  });
}

// credentials returns the headers of a request: the token, or the half of a login that the page of the server keeps.
function credentials() {
  if ($('token').value) return { Authorization: 'Bearer ' + $('token').value };
  const half = localStorage.getItem('demesne-half');
  return half ? { 'Demesne-Login': half } : {};
}

// send sends the request of a form, and shows the answer while it arrives.
async function send(path, method, box, text, out) {
  const query = new URLSearchParams();
  for (const i of box.querySelectorAll('input[data-in]')) {
    if (i.dataset.in === 'path') path = path.replace('{' + i.dataset.name + '}', encodeURIComponent(i.value));
    else if (i.value !== '') query.set(i.dataset.name, i.value);
  }
  const headers = credentials();
  if (text) headers['Content-Type'] = 'application/json';
  out.textContent = '…';
  try {
    const r = await fetch(path + (query.size ? '?' + query : ''), { method, headers, body: text ? text.value : undefined });
    out.textContent = r.status + ' ' + r.statusText + '\n';
    const reader = r.body ? r.body.pipeThrough(new TextDecoderStream()).getReader() : null;
    for (let all = ''; reader;) {
      const { done, value } = await reader.read();
      if (done) {
        try { out.textContent = r.status + ' ' + r.statusText + '\n' + JSON.stringify(JSON.parse(all), null, 2); } catch { /* no JSON */ }
        break;
      }
      all += value;
      out.append(value);
    }
  } catch (e) {
    out.textContent = String(e);
  }
}

function operation(path, method, op) {
  const content = op.requestBody && op.requestBody.content && op.requestBody.content['application/json'];
  const text = content ? el('textarea', { 'aria-label': 'request body', spellcheck: 'false' }) : null;
  if (text) text.value = JSON.stringify(example(content.schema), null, 2);
  const out = el('pre', { 'aria-live': 'polite' });
  const box = el('div', { class: 'body' });
  const rows = parameters(op);
  const upgrade = Boolean((op.responses || {})['101']);
  const done = Object.entries(op.responses || {}).filter(([code]) => code < '300' || code === 'default');
  box.append(...[
    op.description ? el('p', {}, op.description) : null,
    rows.length ? el('table', {}, el('tbody', {}, ...rows)) : null,
    content ? el('h4', {}, 'Request: ' + type(content.schema)) : null, content ? fields(content.schema) : null, text,
    upgrade ? null : el('p', {}, el('button', { onclick: () => send(path, method.toUpperCase(), box, text, out) }, 'Send')), upgrade ? null : out,
    ...done.flatMap(([code, r]) => {
      const [kind, media] = Object.entries(r.content || {})[0] || [];
      const each = media && media.schema && media.schema.oneOf;
      return [el('h4', {}, code + ': ' + (kind ? kind + ' ' + (each ? '' : type(media.schema || {})) : r.description)),
        media && !each ? fields(media.schema) : null,
        ...(each || []).map((s) => el('p', {}, el('code', {}, s.title), ' ' + type(s.properties.data)))];
    }),
  ].filter(Boolean));
  return el('details', { id: op.operationId, 'data-text': (path + ' ' + op.summary + ' ' + method).toLowerCase() },
    el('summary', {}, el('span', { class: 'method ' + method }, method), el('code', {}, path), el('span', { class: 'what' }, op.summary || '')), box);
}

function show() {
  const groups = new Map();
  for (const [path, item] of Object.entries(spec.paths)) {
    for (const [method, op] of Object.entries(item)) {
      const tag = (op.tags || ['Other'])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operation(path, method, op));
    }
  }
  $('version').textContent = spec.info.version;
  $('operations').replaceChildren(...[...groups].map(([tag, all]) => el('section', {}, el('h2', {}, tag), ...all)));
}

async function load() {
  const r = await fetch('/v1/openapi.json');
  if (!r.ok) {
    $('operations').replaceChildren(el('p', { id: 'state' }, r.status + ' ' + r.statusText));
    return;
  }
  spec = await r.json();
  show();
}

$('find').addEventListener('input', () => {
  const word = $('find').value.toLowerCase();
  for (const d of document.querySelectorAll('details')) d.hidden = !d.dataset.text.includes(word);
  for (const s of document.querySelectorAll('section')) s.hidden = !s.querySelector('details:not([hidden])');
});
load();
