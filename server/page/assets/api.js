// Requests. A login has two halves: a cookie that no script reads, and the half here, in the storage of this origin.

const halfKey = "demesne-half";

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const changed = new EventTarget(); // "change": something was done, so lists are stale; "logout": the login is over; "reach": see away

export let away = false; // the last request had no answer

function reached(answered) {
  if (away === !answered) return;
  away = !answered;
  changed.dispatchEvent(new Event("reach"));
}

function half() {
  return localStorage.getItem(halfKey) ?? "";
}

// request sends a request and returns the response, if it is a success.
export async function request(method, path, { body, signal, accept, raw, after } = {}) {
  const headers = { "Demesne-Login": half() };
  if (after) headers["Last-Event-ID"] = after;
  if (body !== undefined && !raw) headers["Content-Type"] = "application/json";
  if (accept) headers.Accept = accept;
  let r;
  try {
    r = await fetch(path, { method, headers, signal, body: raw ? body : body === undefined ? undefined : JSON.stringify(body), cache: "no-store" });
  } catch (e) {
    if (signal?.aborted) throw e;
    reached(false);
    throw new Failure(0, "The server does not answer.");
  }
  reached(true);
  if (r.ok) return r;
  throw failure(path, r, await r.text().catch(() => ""));
}

// failure returns the reason of an answer that is not a success.
function failure(path, { status, statusText }, text) {
  let message = `${status} ${statusText}`;
  try {
    const answer = JSON.parse(text);
    message = answer.message ?? answer.detail ?? answer.error?.message ?? (typeof answer.error === "string" ? answer.error : message);
    const first = answer.data?.[0] ?? answer.errors?.[0];
    if (first?.message) message += `: ${first.location ?? ""} ${first.message}`;
  } catch { /* no JSON: the status says it */ }
  if (status === 401 && !path.startsWith("/page/")) changed.dispatchEvent(new Event("logout"));
  return new Failure(status, String(message));
}

// upload sends the bytes of a file, and calls progress with the part that is sent. fetch tells no progress.
export function upload(path, file, { progress = () => {}, signal } = {}) {
  return new Promise((done, fail) => {
    const x = new XMLHttpRequest();
    x.open("PUT", path);
    x.setRequestHeader("Demesne-Login", half());
    x.setRequestHeader("Content-Type", "application/octet-stream");
    x.upload.onprogress = (e) => progress(e.loaded / (e.total || 1));
    x.onload = () => (x.status < 300 ? done() : fail(failure(path, x, x.responseText)));
    x.onerror = () => fail(new Failure(0, "The upload broke off."));
    x.onabort = () => fail(new Failure(0, "Canceled."));
    if (signal?.aborted) x.onabort();
    else x.send(file);
    signal?.addEventListener("abort", () => x.abort());
  });
}

async function answerOf(r) {
  if (r.status === 204) return null;
  const text = await r.text();
  return text === "" ? null : JSON.parse(text);
}

export async function get(path, options) {
  return answerOf(await request("GET", path, options));
}

let acting = 0; // requests that change something and go on: meanwhile nothing is polled, as it may go away

// act sends a request that changes something. Its caller may leave the view before the view is stale.
export async function act(method, path, body) {
  acting++;
  try {
    const done = await answerOf(await request(method, path, { body }));
    setTimeout(() => changed.dispatchEvent(new Event("change")));
    return done;
  } finally {
    acting--;
  }
}

let description = null; // of the server, asked once a login
let over = new AbortController(); // of the login: a late answer to the description's request must not end the next one

// described returns what the server says of itself.
export function described() {
  return description ??= get("/v1/server", { signal: over.signal }).catch((e) => {
    description = null;
    throw e;
  });
}

// optional is get for what this server may not have.
export async function optional(path, options) {
  try {
    return await get(path, options);
  } catch (e) {
    if (e.status === 404 || e.status === 403 || e.status === 501) return null;
    throw e;
  }
}

// items returns the list in an answer.
export function items(answer) {
  if (Array.isArray(answer)) return answer;
  return answer?.items ?? [];
}

const pagesMost = 20;

// pages returns the whole of a list that has pages.
export async function pages(path, options) {
  const all = [];
  for (let n = 0, next = ""; n === 0 || next && n < pagesMost; n++) {
    const answer = await get(`${path}?limit=1000${next && `&cursor=${encodeURIComponent(next)}`}`, options);
    all.push(...items(answer));
    next = answer?.next ?? "";
  }
  return all;
}

// stream calls on(type, data, id) with each event of a Server-Sent Events stream, until it or signal ends. It returns false
// if no more events follow.
export async function stream(path, on, signal, after, up) {
  const r = await request("GET", path, { signal, accept: "text/event-stream", after });
  if (r.status === 204) return false;
  up?.(true);
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", type = "", data = [], id = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return true;
    rest += value;
    const lines = rest.split(/\r\n|\n|\r/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length) on(type || "message", parsed(data.join("\n")), id);
        type = "";
        data = [];
        continue;
      }
      const at = line.indexOf(":");
      const name = at < 0 ? line : line.slice(0, at);
      const text = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
      if (name === "event") type = text;
      else if (name === "data") data.push(text);
      else if (name === "id") id = text;
    }
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// follow is stream that connects again, with pauses that grow, until signal ends. A server without the stream ends it. up is
// called with whether the stream is open.
export async function follow(path, on, signal, up = () => {}) {
  let last = "";
  const noted = (type, data, id) => {
    last = id || last;
    on(type, data, id);
  };
  for (let pause = 1000; !signal.aborted; pause = Math.min(pause * 2, 15000)) {
    const began = Date.now();
    try {
      if (!await stream(path, noted, signal, last, up)) return;
    } catch (e) {
      if (signal.aborted || e.status === 404 || e.status === 401 || e.status === 403 || e.status === 501) return;
    }
    up(false);
    if (Date.now() - began > 10000) pause = 1000;
    await new Promise((done) => setTimeout(done, pause));
  }
}

// socket opens a WebSocket. Its address has the half of the login, because it can have no header.
export function socket(path, query = {}) {
  const u = new URL(path, location.href);
  u.protocol = u.protocol === "https:" ? "wss:" : "ws:";
  for (const [k, v] of Object.entries(query)) u.searchParams.set(k, v);
  u.searchParams.set("login", half());
  const s = new WebSocket(u);
  s.binaryType = "arraybuffer";
  return s;
}

export async function login(token) {
  const r = await request("POST", "/page/login", { body: { token } });
  const who = await r.json();
  over.abort();
  over = new AbortController();
  description = null;
  localStorage.setItem(halfKey, who.half);
  return who;
}

export async function logout() {
  over.abort();
  localStorage.removeItem(halfKey);
  await request("POST", "/page/logout", {}).catch(() => {});
}

export async function session() {
  if (!half()) return null;
  try {
    return await get("/page/session");
  } catch (e) {
    if (e.status === 401) return null;
    throw e;
  }
}

export const path = (...parts) => parts.map((p, i) => (i === 0 ? p : encodeURIComponent(p))).join("/");

let told = false; // the stream of events is open: it says when a list is stale

// events says whether the stream of events is open.
export function events(open) {
  told = open;
  changed.dispatchEvent(new Event("change")); // what happened before was missed
}

const unsettled = 2000; // a record is written a moment after its event

// poll calls f now, and after each change, and once more a moment later. It reports a failure once. While the stream of events is
// closed, or if every is given, for what no event tells, it also calls f every few milliseconds while the page is visible.
export function poll(signal, f, report, every = 0) {
  let timer = 0, running = false, again = false, settling = false, failed = "";
  const run = async () => {
    clearTimeout(timer);
    if (signal.aborted) return;
    if (running) {
      again = true;
      return;
    }
    if (acting) {
      timer = setTimeout(run, every || unsettled);
      return;
    }
    running = true;
    try {
      await f();
      if (failed) report("");
      failed = "";
    } catch (e) {
      if (!signal.aborted && e.message !== failed) report(failed = e.message, e);
    }
    running = false;
    if (signal.aborted) return;
    if (again) {
      again = false;
      run();
      return;
    }
    if (document.visibilityState === "visible" && (every || settling || failed || !told)) timer = setTimeout(run, every || unsettled);
    settling = false;
  };
  changed.addEventListener("change", () => {
    settling = true;
    run();
  }, { signal });
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && run(), { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  return run();
}
