// A Node.js kernel for sandboxes without a kernel of Jupyter's. It speaks Jupyter's messages, one JSON object a line:
// requests on descriptor 3, answers on 4. The client reads stdout and stderr as they are; marks in them say where a
// message belongs. Code runs in the REPL mode of V8, through the inspector: that awaits at the top level, and lets code
// declare const, let and class again. No debugger's port is open.
"use strict";
(() => {
  const { randomUUID } = require("crypto"), fs = require("fs"), util = require("util"), vm = require("vm");
  const { Console } = require("console"), { Session } = require("inspector"), { Socket } = require("net");
  const { Writable } = require("stream"), { Worker } = require("worker_threads");
  const [language, key] = process.argv.splice(1);
  const strip = language === "typescript" ? require("module").stripTypeScriptTypes : undefined;
  if (language === "typescript" && !strip) {
    fs.writeSync(2, `Node.js ${process.versions.node} does not run TypeScript: 22.13 and later do\n`);
    process.exit(1);
  }
  const textMost = 1 << 20; // characters of a value's or an error's text
  const formMost = 16 << 20; // characters of another form of a value
  const drainMS = 150; // for what the code has started and not awaited
  const realExit = process.exit;

  // ---- messages and outputs

  const SESSION = randomUUID();
  let parent = {}, marked = 0;

  function writeAll(fd, data) {
    for (let b = Buffer.from(data); b.length > 0; ) {
      try {
        b = b.subarray(fs.writeSync(fd, b));
      } catch (e) {
        if (e.code !== "EAGAIN") throw e;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1); // the pipe is full, and does not block
      }
    }
  }

  function send(kind, content, metadata = {}) {
    const header = {
      msg_id: randomUUID(), session: SESSION, username: "kernel", date: new Date().toISOString(), msg_type: kind, version: "5.4",
    };
    try {
      writeAll(4, JSON.stringify({ header, parent_header: parent, metadata, content }) + "\n");
    } catch (e) {
      if (e.code === "EPIPE" || e.code === "EBADF") realExit(0); // the client has left
      throw e;
    }
  }

  // Output is stdout or stderr. The first writes of each execution reach the client at once, in order with those of child
  // processes. Code that writes much is faster with a buffer.
  class Output extends Writable {
    constructor(fd) {
      super({ decodeStrings: false });
      Object.assign(this, { fd, isTTY: false, kept: "", size: 0, writes: 0, last: 0 });
    }
    _write(chunk, encoding, done) {
      try {
        this.take(typeof chunk === "string" && encoding !== "utf8" && encoding !== "utf-8" ? Buffer.from(chunk, encoding) : chunk);
        done();
      } catch (e) {
        done(e.code === "EBADF" || e.code === "EPIPE" ? null : e);
      }
    }
    take(chunk) {
      if (typeof chunk !== "string") {
        this.flush();
        writeAll(this.fd, chunk);
      } else if (++this.writes < 1000) {
        writeAll(this.fd, chunk);
      } else {
        this.kept += chunk;
        if (this.kept.length > 1 << 15 || Date.now() - this.last > 20) this.flush();
      }
    }
    flush() {
      const kept = this.kept;
      this.kept = "";
      this.last = Date.now();
      if (kept) writeAll(this.fd, kept);
    }
    _destroy(error, done) { done(); } // code may not close it
    end() { return this; }
  }
  const outputs = [new Output(1), new Output(2)];
  outputs.forEach((o, i) => {
    Object.defineProperty(process, ["stdout", "stderr"][i], { value: o, configurable: true, enumerable: true, writable: true });
  });
  globalThis.console = new Console({ stdout: outputs[0], stderr: outputs[1] });

  // place marks the outputs, and returns the metadata of the message that belongs there.
  function place() {
    marked++;
    let streams = 0;
    outputs.forEach((o, i) => {
      try {
        o.flush();
        writeAll(o.fd, `\0\x01${key}\x02${marked.toString(16).padStart(8, "0")}`);
        streams |= 1 << i;
      } catch {} // the code has closed it
    });
    return { mark: marked, streams };
  }

  // ---- values

  const cut = (s) => (s.length <= textMost ? s : `${s.slice(0, textMost)}... (${s.length} characters)`);

  function plain(value) {
    try {
      return cut(util.inspect(value));
    } catch (e) { // the value's own method failed
      return `<${typeof value}: inspect failed>`;
    }
  }

  const forms = {
    toHtml: "text/html", toMarkdown: "text/markdown", toSvg: "image/svg+xml", toPng: "image/png", toJpeg: "image/jpeg",
    toLatex: "text/latex",
  };

  // bundle returns the value in all forms that it offers.
  async function bundle(value) {
    const data = {};
    const offer = async (f) => {
      try {
        await f();
      } catch {} // the value's own method failed
    };
    if ((typeof value === "object" && value !== null) || typeof value === "function") {
      await offer(async () => {
        const own = value[Symbol.for("Jupyter.display")];
        if (typeof own === "function") Object.assign(data, await own.call(value));
      });
      await offer(async () => typeof value._toMime === "function" && Object.assign(data, await value._toMime()));
      for (const [name, mime] of Object.entries(forms)) {
        await offer(async () => {
          const form = typeof value["_" + name] === "function" ? value["_" + name] : value[name];
          if (typeof form !== "function" || data[mime] !== undefined) return;
          const made = await form.call(value);
          if (typeof made === "string" || made instanceof Uint8Array) data[mime] = made;
        });
      }
    }
    return sendable(data, value);
  }

  function sendable(data, value) {
    const sent = {};
    for (let [mime, made] of Object.entries(data)) {
      if (made instanceof Uint8Array) made = Buffer.from(made).toString("base64");
      try {
        const text = JSON.stringify(made);
        if (text !== undefined && text.length <= formMost) sent[mime] = made;
      } catch {} // not JSON
    }
    if (typeof sent["text/plain"] !== "string") sent["text/plain"] = plain(value);
    return sent;
  }

  // failure describes what the code threw.
  function failure(e, where) {
    let name = "Error", message = "", stack = "";
    try {
      if (util.types.isNativeError(e) || e instanceof Error) {
        name = String(e.name || "Error");
        message = String(e.message);
        stack = String(e.stack || `${name}: ${message}`);
      } else {
        message = plain(e);
        stack = `Uncaught ${message}`;
      }
    } catch {} // its own properties fail
    const lines = stack.split("\n");
    const own = lines.findIndex((l) => /^\s+at .*(node:inspector|\[eval\]|node:internal\/process\/task_queues)/.test(l));
    if (own >= 0) lines.length = own;
    if (where) lines.splice(0, 0, where);
    return { ename: cut(name), evalue: cut(message), traceback: lines.slice(0, 200).map(cut) };
  }

  // ---- execution

  const session = new Session();
  session.connect();
  process.on("exit", () => session.disconnect());

  // take gets a value of the inspector's as it is.
  let taken, takeId;
  const TAKE = Symbol("take");
  function fetch(remote) {
    if (remote.unserializableValue !== undefined) {
      const s = remote.unserializableValue;
      return remote.type === "bigint" ? BigInt(s.slice(0, -1)) : Number(s);
    }
    if (remote.objectId === undefined) return remote.value;
    const params = { objectId: takeId, functionDeclaration: "function (v) { this(v) }", arguments: [{ objectId: remote.objectId }] };
    session.post("Runtime.callFunctionOn", params);
    const value = taken;
    taken = undefined;
    return value;
  }
  globalThis[Symbol.for("demesne.take")] = (v) => { taken = v; };
  session.post("Runtime.evaluate", { expression: 'globalThis[Symbol.for("demesne.take")]' }, (e, r) => { takeId = r.result.objectId; });
  delete globalThis[Symbol.for("demesne.take")];
  Object.defineProperty(globalThis, Symbol.for("demesne.import"), { value: (name, options) => import(name, options) });

  class Failed { // the outcome of code that threw error
    constructor(error, where) { Object.assign(this, { error, where }); }
  }

  function evaluate(code, name) {
    return new Promise((done) => {
      const params = { expression: `${code}\n//# sourceURL=${name}`, replMode: true, awaitPromise: true, objectGroup: "cell" };
      session.post("Runtime.evaluate", params, (e, r) => {
        if (e) return; // the worker has ended it
        const d = r.exceptionDetails;
        if (!d) return done({ value: fetch(r.result) });
        const error = d.exception ? fetch(d.exception) : new Error(d.text);
        done(new Failed(error, d.exception && d.exception.className === "SyntaxError" && d.scriptId ? excerpt(code, name, d) : ""));
      });
    });
  }

  // excerpt shows the place of a syntax error.
  function excerpt(code, name, d) {
    const line = code.split("\n")[d.lineNumber] ?? "";
    return `${name}:${d.lineNumber + 1}\n${line.slice(0, 500)}\n${" ".repeat(Math.min(d.columnNumber, 500))}^`;
  }

  // Parts of code that are not code: comments, strings, templates (their ${} is left out, too) and regular expressions.
  const skip = /\/\/.*|\/\*[^]*?\*\/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\[^]|[^`\\])*`|(?<=(?:^|[(,=:[!&|?{};+\-*%<>~^]|\breturn|\btypeof)\s*)\/(?![*\/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^\/\\\n[])+\/|(?<![.\w$#])import\s*\(/gm;
  const statement = /^([ \t]*)import\s+(?:(?:([\w$]+)\s*,?\s*)?(?:\{([^}]*)\}|\*\s*as\s+([\w$]+))?\s*from\s*)?(["'])([^"'\n]+)\5(?:\s*(?:with|assert)\s*(\{[^}]*\}))?[ \t]*;?/gm;
  const IMPORT = 'globalThis[Symbol.for("demesne.import")](';

  // prepare makes code of the REPL out of what a module may have: import() and, if statements is set, import statements.
  function prepare(code, statements) {
    if (statements) {
      code = code.replace(statement, (all, indent, one, some, whole, q, from, options) => {
        const module = `await import(${q}${from}${q}${options ? `, { with: ${options} }` : ""})`;
        const names = (some ?? "").split(",").map((n) => n.trim()).filter((n) => n && !n.startsWith("type ")).map((n) => n.replace(/\s+as\s+/, ": "));
        if (one) names.unshift(`default: ${one}`);
        if (whole) return `${indent}const ${whole} = ${module}${one ? `, { default: ${one} } = ${whole}` : ""};`;
        return `${indent}${names.length ? `const { ${names.join(", ")} } = ` : ""}${module};`;
      });
    }
    return /\bimport\s*\(/.test(code) ? code.replace(skip, (part) => (part.startsWith("import") ? IMPORT : part)) : code;
  }

  class ProcessExit extends Error {
    constructor(code) {
      super(String(code));
      this.name = "ProcessExit";
    }
  }
  process.exit = (code = process.exitCode ?? 0) => { throw new ProcessExit(code); };

  // current is shared with the worker: the id of the request that executes code; zeros between executions.
  const current = Buffer.from(new SharedArrayBuffer(64));
  // asked is written by the worker: the id of the last request that is to be interrupted. Its message may arrive after the
  // code that it ended has a result.
  const asked = Buffer.from(new SharedArrayBuffer(64));
  let replyPlace = {}; // of the current request
  let count = 0, stop = null, uncaught = null;
  const history = [];

  process.on("SIGINT", () => {}); // for child processes; the code itself is interrupted by the worker
  const interrupted = () => {
    const e = new Error("the execution was interrupted");
    e.name = "Interrupted";
    e.stack = "Interrupted: the execution was interrupted";
    return new Failed(e);
  };
  const lost = (e) => {
    if (stop && !uncaught) uncaught = new Failed(e);
    else if (!stop) outputs[1].write(`Uncaught, after the execution: ${failure(e).traceback.join("\n")}\n`);
  };
  process.on("uncaughtException", lost);
  process.on("unhandledRejection", lost);

  // The worker gets the ids of executions that are to be interrupted. It tells this thread, and ends JavaScript that does
  // not return to the event loop, until this thread has answered for a while: the code may have started more that does not.
  // Such an end loses all microtasks, so none of this file's may be waiting then.
  function watch() {
    const worker = new Worker(`
      const { parentPort, workerData: { current, asked } } = require("worker_threads");
      const session = new (require("inspector").Session)();
      session.connectToMainThread();
      let answered = false;
      const tell = (id) => { answered = false; parentPort.postMessage(id); };
      parentPort.on("message", () => { answered = true; });
      const input = require("readline").createInterface({ input: new (require("net").Socket)({ fd: 5 }).on("error", () => {}) });
      input.on("line", (id) => {
        if (!id) return;
        Buffer.from(asked.buffer).fill(0).write(id, "latin1");
        tell(id);
        let calm = 0;
        const timer = setInterval(() => {
          const runs = Buffer.from(current).toString("latin1").split("\\0", 1)[0];
          if (runs !== "" && runs !== id) return clearInterval(timer);
          calm = answered ? calm + 1 : 0;
          if (calm > 3 && runs === "") return clearInterval(timer);
          if (!answered) session.post("Runtime.terminateExecution");
          tell(id);
        }, 100);
      });`, { eval: true, workerData: { current, asked }, execArgv: [], env: {} });
    worker.on("message", (id) => {
      worker.postMessage(0);
      if (stop && id === parent.msg_id) stop(interrupted());
    }).on("error", () => {}).unref();
  }

  const resources = () => {
    const n = {};
    for (const r of process.getActiveResourcesInfo?.() ?? []) n[r] = (n[r] ?? 0) + 1;
    return n;
  };
  // turn gives the event loop a turn. An interrupt may lose what waits in Node's own queue (setImmediate).
  const { port1, port2 } = new MessageChannel();
  const turns = [];
  port1.on("message", () => turns.shift()?.()).unref();
  const turn = () => new Promise((done) => {
    turns.push(done);
    port2.postMessage(0);
  });
  const pause = (ms) => new Promise((done) => setTimeout(done, ms).unref());

  // drain waits a little for what the code has started: outputs of timers and of child processes.
  async function drain(before) {
    await turn();
    const more = () => Object.entries(resources()).some(([r, n]) => n > (before[r] ?? 0));
    for (const end = Date.now() + drainMS; more() && Date.now() < end && !uncaught; ) await pause(3);
  }

  async function work(code, name, before) {
    let r = await evaluate(prepare(code), name);
    if (r.error instanceof SyntaxError && /import statement|import call|import\.meta/.test(r.error.message)) {
      r = await evaluate(prepare(code, true), name);
    }
    if (r instanceof Failed) return r;
    try {
      const value = util.types.isPromise(r.value) ? await r.value : r.value;
      const data = value === undefined ? undefined : await bundle(value);
      await drain(before);
      return uncaught ?? { value, data };
    } catch (e) {
      return new Failed(e);
    }
  }

  function strippedTypes(code) {
    const { emitWarning } = process;
    process.emitWarning = () => {};
    try {
      return strip(code);
    } finally {
      process.emitWarning = emitWarning;
    }
  }

  async function execute(content) {
    let code = content.code;
    const name = `cell-${count + 1}`;
    if (content.store_history !== false) {
      count++;
      history.push([0, count, code]);
      if (history.length > 1000) history.shift();
    }
    send("execute_input", { code, execution_count: count });
    outputs.forEach((o) => { o.writes = 0; });
    uncaught = null;
    current.write(`${parent.msg_id.slice(0, 60)}\0`, "latin1");
    const stopped = new Promise((done) => { stop = done; });
    // The interrupt of endless code ends all of its stack, which must not be this function's.
    const started = turn().then(() => {
      if (strip) code = strippedTypes(code);
      return work(code, name, resources());
    }).catch((e) => new Failed(e));
    let r = await Promise.race([started, stopped]);
    if (!(r instanceof Failed) && !asked.compare(current)) r = interrupted();
    current.fill(0);
    stop = null;
    session.post("Runtime.releaseObjectGroup", { objectGroup: "cell" });
    const at = place();
    if (r instanceof Failed) {
      const error = failure(r.error, r.where);
      send("error", error, at);
      return { ...error, status: "error", execution_count: count };
    }
    if (r.data) {
      globalThis._ = r.value;
      send("execute_result", { data: r.data, metadata: {}, execution_count: count }, at);
      return { status: "ok", execution_count: count, payload: [], user_expressions: {} };
    }
    replyPlace = at;
    return { status: "ok", execution_count: count, payload: [], user_expressions: {} };
  }

  async function show(kind, value, { raw = false, id } = {}) {
    const data = raw ? sendable(value, value) : await bundle(value);
    send(kind, { data, metadata: {}, transient: id ? { display_id: id } : {} }, place());
  }

  // The code's own functions.
  const globals = {
    async display(value, { raw = false, displayId } = {}) {
      const id = displayId === true ? randomUUID() : displayId;
      await show("display_data", value, { raw, id });
      return { displayId: id, update: (v, o = {}) => show("update_display_data", v, { ...o, id }) };
    },
    clearOutput(wait = false) {
      send("clear_output", { wait: Boolean(wait) }, place());
    },
    prompt() {
      throw new Error("prompt() is not available here: no one is there to answer. Put the value into the code.");
    },
  };
  for (const [name, value] of Object.entries(globals)) {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: false });
  }

  // ---- other requests

  const at = (code, characters) => Array.from(code).slice(0, characters).join("");
  const word = /(?:[\p{L}_$][\p{L}\p{N}_$]*\s*\??\.\s*)*[\p{L}_$]?[\p{L}\p{N}_$]*$/u;

  // peek evaluates code that has no side effect.
  function peek(code) {
    let value, ok = false;
    const params = { expression: `(${code})`, throwOnSideEffect: true, objectGroup: "cell", timeout: 500 };
    session.post("Runtime.evaluate", params, (e, r) => {
      if (e || r.exceptionDetails) return;
      value = fetch(r.result);
      ok = true;
    });
    session.post("Runtime.releaseObjectGroup", { objectGroup: "cell" });
    return { value, ok };
  }

  function namesOf(value) {
    const names = new Set();
    for (let o = Object(value), depth = 0; o && depth < 10; o = Object.getPrototypeOf(o), depth++) {
      for (const n of Object.getOwnPropertyNames(o)) if (/^[\p{L}_$][\p{L}\p{N}_$]*$/u.test(n)) names.add(n);
    }
    return names;
  }

  const keywords = `async await break case catch class const continue debugger default delete do else export extends false finally for
    function if import in instanceof let new null return static super switch this throw true try typeof undefined var void while yield`.split(/\s+/);

  function complete({ code, cursor_pos: cursor }) {
    const text = word.exec(at(code, cursor))[0];
    const dot = Math.max(text.lastIndexOf("."), -1), prefix = text.slice(dot + 1).trimStart();
    let names;
    if (dot >= 0) {
      const { value, ok } = peek(text.slice(0, dot).replace(/\?$/, ""));
      names = ok && value !== undefined && value !== null ? namesOf(value) : [];
    } else {
      names = namesOf(globalThis);
      for (const k of keywords) names.add(k);
      session.post("Runtime.globalLexicalScopeNames", {}, (e, r) => r && r.names.forEach((n) => names.add(n)));
    }
    const matches = [...names].filter((n) => n.startsWith(prefix)).sort().slice(0, 200);
    return { status: "ok", matches, cursor_start: cursor - Array.from(prefix).length, cursor_end: cursor, metadata: {} };
  }

  function inspect({ code, cursor_pos: cursor, detail_level: detail }) {
    const rest = /^[\p{L}\p{N}_$]*/u.exec(Array.from(code).slice(cursor).join(""))[0];
    const name = word.exec(at(code, cursor))[0] + rest;
    const { value, ok } = name ? peek(name) : {};
    if (!ok) return { status: "ok", found: false, data: {}, metadata: {} };
    let text = plain(value);
    if (typeof value === "function") {
      const source = Function.prototype.toString.call(value);
      text += "\n\n" + cut(detail ? source : source.split("\n", 1)[0]);
    }
    return { status: "ok", found: true, data: { "text/plain": text }, metadata: {} };
  }

  function isComplete({ code }) {
    const plainCode = prepare(code, true).replace(/\bfor\s+await\b/g, "for").replace(/\bawait\b/g, "void ");
    try {
      new vm.Script(plainCode, { filename: "code" });
      return { status: "complete" };
    } catch (e) {
      if (strip) {
        try {
          strippedTypes(code);
          return { status: "complete" };
        } catch {}
      }
      const unfinished = /Unexpected end of input|Unterminated template literal|missing \) after argument list/.test(e.message);
      if (!unfinished || (/missing \)/.test(e.message) && !atEnd(e, plainCode))) return { status: "invalid" };
      return { status: "incomplete", indent: /[{([]\s*$/.test(code) ? "  " : "" };
    }
  }

  // atEnd reports whether a syntax error is in the last line of code.
  const atEnd = (e, code) => Number(/^code:(\d+)/.exec(e.stack)?.[1]) >= code.trimEnd().split("\n").length;

  const answers = {
    execute_request: execute,
    kernel_info_request: () => ({
      status: "ok", protocol_version: "5.4", implementation: "demesne", implementation_version: "1",
      banner: `Node.js ${process.versions.node}`, help_links: [],
      language_info: {
        name: strip ? "typescript" : "javascript", version: process.versions.node, mimetype: strip ? "text/typescript" : "text/javascript",
        file_extension: strip ? ".ts" : ".js",
      },
    }),
    complete_request: complete,
    inspect_request: inspect,
    is_complete_request: isComplete,
    history_request: (c) => ({ status: "ok", history: history.slice(c.hist_access_type === "tail" && c.n ? -c.n : 0) }),
    comm_info_request: () => ({ status: "ok", comms: {} }),
  };

  async function answer(request) {
    parent = request.header;
    const kind = parent.msg_type;
    send("status", { execution_state: "busy" }, kind === "execute_request" ? place() : {});
    if (kind === "shutdown_request") {
      send("shutdown_reply", { status: "ok", restart: false });
      realExit(0);
    }
    replyPlace = {};
    const content = answers[kind] && await answers[kind](request.content);
    if (content) send(kind.replace("_request", "_reply"), content, replyPlace);
    send("status", { execution_state: "idle" });
  }

  let requests = Promise.resolve(), pieces = [], watched = false;
  const input = new Socket({ fd: 3, readable: true, writable: false });
  input.on("data", (piece) => {
    for (let end; (end = piece.indexOf(10)) >= 0; piece = piece.subarray(end + 1)) {
      const line = Buffer.concat([...pieces, piece.subarray(0, end)]).toString();
      pieces = [];
      requests = requests.then(() => answer(JSON.parse(line)));
    }
    pieces.push(piece);
    if (!watched) {
      watched = true;
      setImmediate(watch);
    }
  });
  input.on("end", () => realExit(0)).on("error", () => realExit(0));
})();
