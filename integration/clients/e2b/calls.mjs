// Calls every method of E2B's SDKs, as programs use them, and prints one line for each: ok, FAIL with the reason, or skip.
// The numbers are those of the table in docs/guide/server/serve.md. Arguments select calls by number; without any, all are made.
// E2E_IMAGE names an image for templates, and E2E_CLI the command line of @e2b/cli.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { request } from 'node:http'
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { tmpdir } from 'node:os'
import * as e2b from 'e2b'
import { Sandbox as Interpreter } from '@e2b/code-interpreter'

const { Sandbox, Template, Secret, Volume, CommandExitError } = e2b
const wanted = new Set(process.argv.slice(2).map(Number))
const results = []
const sleep = (ms) => new Promise((r) => setTimeout(r, ms))
async function until(what, f, ms = 20000) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(50)) if (await f()) return
  throw new Error('not within ' + ms + ' ms: ' + what)
}
async function call(n, name, f) {
  if (wanted.size && !wanted.has(n)) return
  const from = performance.now()
  let late
  try {
    await Promise.race([f(), new Promise((_, no) => { late = setTimeout(() => no(new Error('no end within 120 s')), 120000) })])
    results.push([n, true])
    console.log(`ok ${n} ${name} (${Math.round(performance.now() - from)} ms)`)
  } catch (e) {
    results.push([n, false])
    console.log(`FAIL ${n} ${name}: ${String(e?.stack ?? e).split('\n').slice(0, 4).join(' | ')}`)
  }
  clearTimeout(late)
}
async function fails(f, kind, text) {
  try { await f() } catch (e) {
    assert.ok(!kind || e instanceof kind, `error is ${e.constructor.name}: ${e.message}, want ${kind?.name}`)
    assert.ok(!text || e.message.includes(text), `error ${e.message} lacks ${text}`)
    return e
  }
  throw new Error('no error')
}
const pages = async (p) => { const all = []; while (p.hasNext) all.push(...await p.nextItems()); return all }
const bytes = (n) => Uint8Array.from({ length: n }, (_, i) => (i * 7 + 3) % 256)
const made = []
async function create(...a) { const s = await Sandbox.create(...a); made.push(s); return s }

// A: the life of sandboxes
const main = await create({ timeoutMs: 3600e3, metadata: { run: 'main', 'odd key': '1 &b=ü' }, envs: { FROM_SANDBOX: 'yes' } })
const id = main.sandboxId
await call(1, 'Sandbox.create', async () => {
  const s = await create()
  assert.match(s.sandboxId, /^[a-z0-9]+$/)
  assert.equal((await s.commands.run('echo up')).stdout, 'up\n')
  await s.kill()
})
await call(2, 'create with template, metadata, envs, timeoutMs', async () => {
  const s = await create('base', { metadata: { a: 'b' }, envs: { X: '1' }, timeoutMs: 60e3 })
  const i = await s.getInfo()
  assert.deepEqual(i.metadata, { a: 'b' })
  assert.ok(Math.abs(i.endAt - i.startedAt - 60e3) < 2000)
  assert.equal((await s.commands.run('echo $X')).stdout, '1\n')
  await s.kill()
})
await call(3, 'create with network', async () => {
  const s = await create({ network: { allowOut: ['example.com'], denyOut: ({ allTraffic }) => [allTraffic] } })
  const i = await s.getInfo()
  assert.deepEqual(i.network.allowOut, ['example.com'])
  await s.kill()
  const none = await create({ allowInternetAccess: false })
  assert.equal((await none.getInfo()).allowInternetAccess, false)
  await none.kill()
})
await call(4, 'create with lifecycle pause', async () => {
  const s = await create({ timeoutMs: 2000, lifecycle: { onTimeout: 'pause' } })
  await until('paused', async () => (await s.getInfo()).state === 'paused')
  await s.kill()
})
await call(5, 'getInfo', async () => {
  const i = await main.getInfo()
  assert.equal(i.sandboxId, id)
  assert.equal(i.state, 'running')
  assert.equal(i.metadata['odd key'], '1 &b=ü')
  assert.ok(i.startedAt instanceof Date && i.endAt > i.startedAt)
})
await call(6, 'isRunning true', async () => assert.equal(await main.isRunning(), true))
await call(7, 'setTimeout longer', async () => {
  await main.setTimeout(7200e3)
  assert.ok((await main.getInfo()).endAt - Date.now() > 7000e3)
})
await call(8, 'setTimeout shorter, expiry', async () => {
  const s = await create({ timeoutMs: 600e3 })
  await s.setTimeout(1000)
  await until('the end', async () => !(await s.isRunning()))
  await fails(() => s.getInfo(), e2b.SandboxNotFoundError)
})
await call(9, 'list', async () => assert.ok((await pages(Sandbox.list())).some((s) => s.sandboxId === id)))
await call(10, 'list by metadata', async () => {
  assert.deepEqual((await pages(Sandbox.list({ query: { metadata: { 'odd key': '1 &b=ü' } } }))).map((s) => s.sandboxId), [id])
  assert.equal((await pages(Sandbox.list({ query: { metadata: { run: 'other' } } }))).length, 0)
})
await call(11, 'list by state', async () => {
  const s = await create()
  await s.pause()
  assert.deepEqual((await pages(Sandbox.list({ query: { state: ['paused'] } }))).map((x) => x.sandboxId), [s.sandboxId])
  assert.ok((await pages(Sandbox.list({ query: { state: ['running'] } }))).every((x) => x.sandboxId !== s.sandboxId))
  await s.kill()
})
await call(12, 'list limit 1, pages', async () => {
  const s = await create()
  const p = Sandbox.list({ limit: 1 })
  const first = await p.nextItems()
  assert.equal(first.length, 1)
  assert.equal(p.hasNext, true)
  const second = await p.nextItems()
  assert.equal(second.length, 1)
  assert.notEqual(first[0].sandboxId, second[0].sandboxId)
  await s.kill()
})
await call(13, 'connect running', async () => {
  const s = await Sandbox.connect(id)
  assert.equal((await s.commands.run('echo $FROM_SANDBOX')).stdout, 'yes\n')
})
await call(14, 'connect unknown', () => fails(() => Sandbox.connect('inosuchsandbox'), e2b.SandboxNotFoundError))
let resting, sleeper
await call(15, 'pause true', async () => {
  resting = await create({ timeoutMs: 600e3 })
  await resting.files.write('kept.txt', 'kept')
  sleeper = await resting.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  assert.equal(await resting.pause(), true)
})
await call(16, 'pause again false', async () => assert.equal(await resting.pause(), false))
await call(17, 'isRunning false while paused', async () => assert.equal(await resting.isRunning(), false))
await call(18, 'connect resumes, file and process kept', async () => {
  const s = await Sandbox.connect(resting.sandboxId)
  assert.equal(await s.files.read('kept.txt'), 'kept')
  assert.ok((await s.commands.list()).some((p) => p.pid === sleeper.pid))
  assert.equal((await s.commands.run(`kill -0 ${sleeper.pid} && echo alive`)).stdout, 'alive\n')
  await s.kill()
})
await call(19, 'getMetrics', async () => {
  await main.commands.run('head -c 30000000 /dev/zero | sha256sum')
  const m = await main.getMetrics()
  assert.ok(m.length > 0 && m[0].cpuCount > 0 && m[0].memUsed > 0 && m[0].memTotal > 0 && m[0].diskTotal > 0, JSON.stringify(m))
})
await call(20, 'updateNetwork', async () => {
  await main.updateNetwork({ allowOut: ['example.com'], denyOut: ({ allTraffic }) => [allTraffic] })
  assert.deepEqual((await main.getInfo()).network.allowOut, ['example.com'])
  await main.updateNetwork({})
})
await call(21, 'fork count 2', async () => {
  const from = await create({ timeoutMs: 600e3 })
  await from.files.write('forked.txt', 'before')
  const forks = await from.fork({ count: 2, timeoutMs: 120e3 })
  assert.equal(forks.length, 2)
  for (const f of forks) {
    if (f instanceof Error) throw f
    assert.notEqual(f.sandboxId, from.sandboxId)
    assert.equal(await f.files.read('forked.txt'), 'before')
    await f.files.write('forked.txt', f.sandboxId)
  }
  assert.equal(await from.files.read('forked.txt'), 'before')
  for (const f of [from, ...forks]) await f.kill()
})
let snap
await call(22, 'createSnapshot', async () => {
  await main.files.write('snap.txt', 'frozen')
  snap = await main.createSnapshot()
  assert.ok(snap.snapshotId)
})
await call(23, 'create from a snapshot', async () => {
  const s = await create(snap.snapshotId, { envs: { LATER: 'set' } })
  assert.equal(await s.files.read('snap.txt'), 'frozen')
  assert.equal((await s.commands.run('echo $LATER')).stdout, 'set\n')
  await s.kill()
})
await call(24, 'listSnapshots', async () => {
  assert.ok((await pages(main.listSnapshots())).some((s) => s.snapshotId === snap.snapshotId))
  assert.ok((await pages(Sandbox.listSnapshots())).some((s) => s.snapshotId === snap.snapshotId))
})
await call(25, 'deleteSnapshot', async () => {
  assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snap.snapshotId), false)
})
const dead = await create()
await call(26, 'kill true', async () => {
  const running = await dead.commands.run('sleep 1000', { background: true })
  assert.equal(await dead.kill(), true)
  const e = await fails(() => running.wait(), e2b.TimeoutError)
  assert.match(e.message, /sandbox was killed or reached its end of life/)
})
await call(27, 'kill false', async () => assert.equal(await Sandbox.kill(dead.sandboxId), false))
await call(28, 'getInfo of a dead one', () => fails(() => dead.getInfo(), e2b.SandboxNotFoundError))
await call(29, 'wrong key', () => fails(() => Sandbox.create({ apiKey: 'e2b_wrong' }), e2b.AuthenticationError))

// B: commands
await call(30, 'run echo', async () => {
  const r = await main.commands.run('echo hello')
  assert.equal(r.stdout, 'hello\n')
  assert.equal(r.exitCode, 0)
})
await call(31, 'stdout and stderr apart', async () => {
  const r = await main.commands.run('echo out; echo err >&2')
  assert.deepEqual([r.stdout, r.stderr], ['out\n', 'err\n'])
})
await call(32, 'exit 3', async () => {
  const e = await fails(() => main.commands.run('echo out; echo err >&2; exit 3'), CommandExitError)
  assert.deepEqual([e.exitCode, e.stdout, e.stderr, e.message], [3, 'out\n', 'err\n', 'exit status 3'])
})
await call(33, 'envs and sandbox envs', async () => {
  const r = await main.commands.run('echo $FROM_SANDBOX $OWN', { envs: { OWN: 'too' } })
  assert.equal(r.stdout, 'yes too\n')
  assert.equal((await main.commands.run('echo $FROM_SANDBOX', { envs: { FROM_SANDBOX: 'over' } })).stdout, 'over\n')
})
await call(34, 'cwd', async () => {
  assert.equal((await main.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  assert.equal((await main.commands.run('pwd')).stdout, '/home/user\n')
})
await call(35, 'bad cwd', () => fails(() => main.commands.run('pwd', { cwd: '/no/such' }), e2b.InvalidArgumentError))
await call(36, 'user root', async () => {
  assert.equal((await main.commands.run('id -u', { user: 'root' })).stdout, '0\n')
  await fails(() => main.commands.run('id', { user: 'nosuchuser' }), e2b.AuthenticationError)
})
await call(37, 'onStdout order', async () => {
  let text = ''
  await main.commands.run('for i in $(seq 1 200); do echo $i; done', { onStdout: (d) => { text += d } })
  assert.equal(text, Array.from({ length: 200 }, (_, i) => `${i + 1}\n`).join(''))
})
await call(38, 'timeoutMs expires, process gone', async () => {
  await fails(() => main.commands.run('sleep 4321', { timeoutMs: 1500 }), e2b.TimeoutError)
  await until('the process is gone', async () => (await main.commands.run('pgrep -f "sleep 432[1]" || true')).stdout === '')
})
await call(39, 'background wait', async () => {
  const h = await main.commands.run('sleep 0.3; echo done', { background: true })
  assert.ok(h.pid > 0)
  assert.equal((await h.wait()).stdout, 'done\n')
})
let held
await call(40, 'list holds it', async () => {
  held = await main.commands.run('sleep 1000', { background: true, envs: { A: 'b' } })
  const p = (await main.commands.list()).find((p) => p.pid === held.pid)
  assert.equal(p.cmd, '/bin/bash')
  assert.deepEqual(p.args, ['-l', '-c', 'sleep 1000'])
})
await call(41, 'kill handle', async () => {
  assert.equal(await held.kill(), true)
  const e = await fails(() => held.wait(), CommandExitError)
  assert.equal(e.exitCode, -1)
  assert.equal(e.message, 'signal: killed')
})
await call(42, 'kill unknown false', async () => assert.equal(await main.commands.kill(999999), false))
await call(43, 'sendStdin and closeStdin', async () => {
  const h = await main.commands.run('cat; echo end', { background: true, stdin: true })
  await main.commands.sendStdin(h.pid, 'one\n')
  await main.commands.sendStdin(h.pid, 'x'.repeat(3e6) + '\n')
  await main.commands.closeStdin(h.pid)
  const r = await h.wait()
  assert.equal(r.stdout.length, 4 + 3e6 + 1 + 4)
})
let apart
await call(44, 'disconnect, process survives', async () => {
  apart = await main.commands.run('echo first; sleep 2; echo second', { background: true })
  await apart.disconnect()
  await sleep(200)
  assert.ok((await main.commands.list()).some((p) => p.pid === apart.pid))
})
await call(45, 'connect, rest of output', async () => {
  const r = await (await main.commands.connect(apart.pid)).wait()
  assert.equal(r.stdout, 'second\n')
})
await call(46, 'connect unknown', () => fails(() => main.commands.connect(999999), e2b.NotFoundError))
await call(47, 'split UTF-8', async () => {
  const r = await main.commands.run(`printf '\\xe2\\x82'; sleep 0.3; printf '\\xac'; printf '\\xff'`)
  assert.equal(r.stdout, '€\ufffd')
})
await call(48, '1 MB output', async () => {
  const r = await main.commands.run('head -c 1000000 /dev/zero | tr "\\0" a')
  assert.equal(r.stdout.length, 1e6)
})
await call(49, '20 in parallel', async () => {
  const all = await Promise.all(Array.from({ length: 20 }, (_, i) => main.commands.run(`echo ${i}`)))
  all.forEach((r, i) => assert.equal(r.stdout, `${i}\n`))
})
await call(50, 'abort signal', async () => {
  const c = new AbortController()
  setTimeout(() => c.abort(), 500)
  await fails(async () => { const h = await main.commands.run('sleep 30', { background: true, signal: c.signal, requestTimeoutMs: 5000 }); c.signal.throwIfAborted(); await sleep(700); c.signal.throwIfAborted(); await h.wait() })
})

// C: terminals
let pty, screen = ''
await call(51, 'pty.create', async () => {
  pty = await main.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (d) => { screen += new TextDecoder().decode(d) } })
  assert.ok(pty.pid > 0)
})
const type = (text) => main.pty.sendInput(pty.pid, new TextEncoder().encode(text))
await call(52, 'sendInput and echo', async () => {
  // Bash sets the size again before it shows its prompt: the next call waits for that.
  await type("PS1='pro''mpt>'; echo $((40+2))\"x\"\n")
  await until('42x in ' + screen, () => /42x[^]*prompt>/.test(screen))
})
await call(53, 'resize', async () => {
  await main.pty.resize(pty.pid, { cols: 101, rows: 33 })
  await type('stty size\n')
  await until('33 101', () => screen.includes('33 101'))
})
await call(54, 'pty.connect', async () => {
  let other = ''
  const h = await main.pty.connect(pty.pid, { onData: (d) => { other += new TextDecoder().decode(d) } })
  await type('echo seen"by"both\n')
  await until('both', () => other.includes('seenbyboth') && screen.includes('seenbyboth'))
  await h.disconnect()
})
await call(55, 'pty.kill', async () => {
  assert.equal(await main.pty.kill(pty.pid), true)
  await until('gone', async () => !(await main.commands.list()).some((p) => p.pid === pty.pid))
  assert.equal(await main.pty.kill(pty.pid), false)
})

// D: files
const f = main.files
await call(56, 'write and read text', async () => {
  const i = await f.write('text.txt', 'grüße\n')
  assert.equal(i.path, '/home/user/text.txt')
  assert.equal(await f.read('/home/user/text.txt'), 'grüße\n')
})
await call(57, 'bytes', async () => {
  await f.write('b.bin', bytes(70000).buffer)
  assert.deepEqual(await f.read('b.bin', { format: 'bytes' }), bytes(70000))
})
await call(58, 'blob', async () => {
  await f.write('c.bin', new Blob([bytes(500)]))
  assert.equal((await f.read('c.bin', { format: 'blob' })).size, 500)
})
await call(59, 'stream', async () => {
  let n = 0
  for await (const c of await f.read('b.bin', { format: 'stream' })) n += c.length
  assert.equal(n, 70000)
})
await call(60, 'empty file', async () => {
  await f.write('empty', '')
  assert.equal(await f.read('empty'), '')
})
await call(61, 'writeFiles', async () => {
  const all = await f.writeFiles([{ path: 'm/1', data: 'one' }, { path: '/tmp/m/deep/2', data: 'two' }, { path: 'm 3.txt', data: 'three' }])
  assert.deepEqual(all.map((i) => i.path), ['/home/user/m/1', '/tmp/m/deep/2', '/home/user/m 3.txt'])
  assert.equal(await f.read('/tmp/m/deep/2'), 'two')
})
await call(62, 'stream upload', async () => {
  await f.write('s.bin', new Blob([bytes(300000)]).stream())
  assert.deepEqual(await f.read('s.bin', { format: 'bytes' }), bytes(300000))
})
await call(63, 'gzip upload and read', async () => {
  await f.write('z.txt', 'z'.repeat(100000), { gzip: true })
  assert.equal(await f.read('z.txt', { gzip: true }), 'z'.repeat(100000))
})
await call(64, 'octet-stream with metadata', async () => {
  await f.write('meta.txt', 'x', { useOctetStream: true, metadata: { Author: 'me', k2: 'v 2' } })
  assert.deepEqual((await f.getInfo('meta.txt')).metadata, { author: 'me', k2: 'v 2' })
})
await call(65, 'read missing', () => fails(() => f.read('/no/such'), e2b.FileNotFoundError))
await call(66, 'read directory', () => fails(() => f.read('/tmp'), e2b.InvalidArgumentError))
await call(67, 'list', async () => {
  const all = await f.list('m')
  assert.deepEqual(all.map((e) => [e.name, e.type, e.path]), [['1', 'file', '/home/user/m/1']])
  assert.ok(all[0].modifiedTime instanceof Date && all[0].owner && all[0].permissions === '-rw-r--r--' && all[0].size === 3)
})
await call(68, 'list depth 2', async () => {
  assert.ok((await f.list('/tmp/m', { depth: 2 })).some((e) => e.path === '/tmp/m/deep/2'))
  assert.equal((await f.list('/tmp/m')).length, 1)
})
await call(69, 'getInfo of a link', async () => {
  await main.commands.run('ln -s text.txt link; ln -s /tmp dir-link; ln -s nothing dangling')
  const i = await f.getInfo('link')
  assert.deepEqual([i.type, i.symlinkTarget], ['file', '/home/user/text.txt'])
  assert.equal((await f.getInfo('dir-link')).type, 'dir')
  assert.equal((await f.getInfo('dangling')).symlinkTarget, '/home/user/dangling')
})
await call(70, 'exists', async () => assert.deepEqual([await f.exists('text.txt'), await f.exists('nothing')], [true, false]))
await call(71, 'makeDir', async () => assert.deepEqual([await f.makeDir('d/e/f'), await f.makeDir('d/e/f')], [true, false]))
await call(72, 'rename', async () => {
  assert.equal((await f.rename('m/1', 'n/one')).path, '/home/user/n/one')
  assert.equal(await f.exists('m/1'), false)
})
await call(73, 'remove', async () => {
  await f.remove('d')
  assert.equal(await f.exists('d'), false)
  await f.remove('d')
})
let watch
await call(74, 'watchDir', async () => {
  const seen = []
  await f.makeDir('watched')
  watch = await f.watchDir('watched', (ev) => { seen.push(ev) }, { recursive: true, includeEntry: true, timeoutMs: 0 })
  await f.write('watched/x.txt', 'data')
  await f.makeDir('watched/sub')
  await sleep(300)
  await f.write('watched/sub/y', 'deep')
  await f.remove('watched/x.txt')
  await until('events ' + JSON.stringify(seen), () => ['create', 'chmod', 'write', 'remove'].every((t) => seen.some((ev) => ev.type === t && ev.name === 'x.txt')) && seen.some((ev) => ev.name === 'sub/y'))
  const made = seen.find((ev) => ev.type === 'write' && ev.name === 'sub/y')
  assert.equal(made?.entry?.path, '/home/user/watched/sub/y')
})
await call(75, 'watch stop', async () => { await watch.stop() })
await call(76, 'downloadUrl', async () => {
  const r = await fetch(await main.downloadUrl('text.txt', { useSignatureExpiration: 60 }))
  assert.equal(await r.text(), 'grüße\n')
})
await call(77, 'uploadUrl', async () => {
  const form = new FormData()
  form.append('file', new Blob(['posted']), 'posted.txt')
  const r = await fetch(await main.uploadUrl('up/posted.txt'), { method: 'POST', body: form })
  assert.equal(r.status, 200)
  assert.equal(await f.read('up/posted.txt'), 'posted')
})
await call(78, 'expired or false signature', async () => {
  const url = await main.downloadUrl('text.txt', { useSignatureExpiration: 1 })
  await sleep(2200)
  const late = await fetch(url)
  assert.deepEqual([late.status, (await late.json()).message], [401, 'signature is already expired'])
  assert.equal((await fetch((await main.downloadUrl('text.txt')).replace('text.txt', 'b.bin'))).status, 401)
})

// E: the code interpreter
let code
if (!wanted.size || [...wanted].some((n) => n >= 79 && n <= 86)) { code = await Interpreter.create({ timeoutMs: 600e3 }); made.push(code) }
await call(79, 'runCode, main text', async () => {
  const r = await code.runCode('x = 20\nx + 22')
  assert.equal(r.text, '42')
  assert.equal(r.error, undefined)
})
await call(80, 'stdout, stderr callbacks', async () => {
  const out = [], errs = []
  const r = await code.runCode('import sys\nprint("oût €")\nprint("err", file=sys.stderr)', { onStdout: (m) => { out.push(m.line) }, onStderr: (m) => { errs.push(m.line) } })
  assert.equal(out.join(''), 'oût €\n')
  assert.equal(errs.join(''), 'err\n')
  assert.equal(r.logs.stdout.join(''), 'oût €\n')
})
await call(81, 'error', async () => {
  const r = await code.runCode('def f():\n  return 1/0\nf()')
  assert.equal(r.error.name, 'ZeroDivisionError')
  assert.equal(r.error.value, 'division by zero')
  assert.ok(r.error.traceback.includes('ZeroDivisionError'))
})
await call(82, 'state, envs for one run', async () => {
  assert.equal((await code.runCode('x')).text, '20')
  assert.equal((await code.runCode('import os; os.environ.get("ONCE")', { envs: { ONCE: 'here' } })).text, 'here')
  assert.equal((await code.runCode('print(os.environ.get("ONCE"))')).logs.stdout.join(''), 'None\n')
})
await call(83, 'contexts', async () => {
  const c = await code.createCodeContext({ cwd: '/tmp' })
  assert.equal((await code.runCode('import os; y = 1; os.getcwd()', { context: c })).text, '/tmp')
  assert.ok((await code.runCode('y')).error)
  const listed = await code.listCodeContexts()
  assert.ok(listed.some((o) => o.id === c.id) && listed.some((o) => o.language === 'javascript'))
  await code.restartCodeContext(c)
  assert.equal((await code.runCode('y', { context: c })).error.name, 'NameError')
  await code.removeCodeContext(c)
  assert.ok(!(await code.listCodeContexts()).some((o) => o.id === c.id))
})
await call(84, 'languages javascript and bash', async () => {
  const r = await code.runCode('const a = 6; console.log("js"); a * 7', { language: 'javascript' })
  assert.equal(r.text, '42')
  assert.equal(r.logs.stdout.join(''), 'js\n')
  await code.runCode('cd /tmp; f() { echo "$1 $ONCE in $PWD"; }', { language: 'bash' })
  const b = await code.runCode('f hello; (exit 3)', { language: 'bash', envs: { ONCE: "it's" } })
  assert.equal(b.logs.stdout.join(''), "hello it's in /tmp\n")
  assert.equal(b.error.value, '3')
})
await call(85, 'png and chart', async () => {
  const r = await code.runCode(`
class Figure:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": "Figure", "image/png": "iVBORw0KGgo=", "e2b/chart": {"type": "bar", "title": "t", "elements": [{"label": "a", "value": 1, "group": "g"}], "x_label": None, "y_label": None, "x_unit": None, "y_unit": None}}
Figure()`)
  assert.equal(r.results[0].png, 'iVBORw0KGgo=')
  assert.equal(r.results[0].chart.elements[0].label, 'a')
})
await call(86, 'timeoutMs, and a kill meanwhile', async () => {
  await fails(() => code.runCode('import time\ntime.sleep(100)', { timeoutMs: 1500 }), e2b.TimeoutError)
  assert.equal((await code.runCode('x')).text, '20')
  const other = await Interpreter.create()
  const run = fails(() => other.runCode('import time\ntime.sleep(100)', { timeoutMs: 50_000 }))
  await sleep(1500)
  assert.ok(await other.kill())
  await run
})

// F: the rest
await call(87, 'Secret', async () => {
  const name = 's' + Date.now()
  const s = await Secret.create(name, 'hidden', { metadata: { a: 'b' } })
  assert.equal(s.name, name)
  assert.equal((await Secret.getInfo(name)).secretId, s.secretId)
  assert.ok((await pages(Secret.list())).some((o) => o.name === name))
  const next = await Secret.update(name, 'other')
  assert.equal(next.version ?? next.currentVersion, 2)
  assert.ok(!JSON.stringify(next).includes('other'))
  assert.equal(await Secret.exists(name), true)
  assert.equal(await Secret.destroy(name), true)
  assert.equal(await Secret.destroy(name), false)
})
let vol
await call(88, 'Volume', async () => {
  vol = await Volume.create('v' + Date.now())
  assert.ok((await Volume.list()).some((v) => v.volumeId === vol.volumeId))
  assert.equal((await Volume.getInfo(vol.volumeId)).name, vol.name)
})
await call(89, 'volume files, and a sandbox that mounts it', async () => {
  await vol.writeFile('/a/b.txt', 'in a volume')
  assert.equal(await vol.readFile('/a/b.txt'), 'in a volume')
  await fails(() => vol.writeFile('/a/b.txt', 'again'), e2b.VolumeError, '409')
  assert.equal((await vol.writeFile('/a/b.txt', 'in a volume', { force: true, mode: 0o600 })).mode, 0o600)
  assert.deepEqual((await vol.list('/a')).map((e) => e.name), ['b.txt'])
  const s = await create({ volumeMounts: { '/data': vol } })
  assert.equal(await s.files.read('/data/a/b.txt'), 'in a volume')
  await s.files.write('/data/c.txt', 'from inside')
  await s.kill()
  assert.equal(await vol.readFile('/c.txt'), 'from inside')
  await vol.remove('/a')
  await fails(() => vol.readFile('/a/b.txt'))
  assert.equal(await Volume.destroy(vol.volumeId), true)
})
let built
await call(90, 'Template.build with COPY', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'e2b-'))
  writeFileSync(join(dir, 'hello.txt'), 'copied')
  mkdirSync(join(dir, 'sub'))
  writeFileSync(join(dir, 'sub', 'in.txt'), 'by a pattern')
  const image = process.env.E2E_IMAGE ?? 'local/e2b-base'
  const t = Template({ fileContextPath: dir }).fromImage(image).copy('sub/*.txt', '/srv/sub')
    .copy('hello.txt', '/srv/hello.txt').setEnvs({ BUILT: "it's $HOME" }).runCmd('echo ran > /srv/ran').setWorkdir('/srv')
  built = 'tpl' + Date.now()
  const said = []
  await Template.build(t, built, { cpuCount: 1, memoryMB: 512, onBuildLogs: (l) => said.push(String(l)) }).catch((e) => { throw new Error(e.message + ' ' + said.slice(-5).join(' ')) })
  const s = await create(built)
  assert.equal(await s.files.read('/srv/hello.txt'), 'copied')
  assert.equal((await s.files.read('/srv/ran')).trim(), 'ran')
  assert.equal(await s.files.read('/srv/sub/in.txt'), 'by a pattern')
  assert.equal((await s.commands.run('pwd; echo $BUILT')).stdout, "/home/user\nit's $HOME\n") // its shell is sh
  await s.kill()
  await fails(() => Template.build(Template().fromImage(image).runCmd('exit 3'), 'bad' + built), e2b.BuildError, 'exit code 3')
  await fails(() => Template.assignTags(built, 'no:tag'), e2b.TemplateError, '400')
  await Template.assignTags(built, ['v1', 'v2'])
  assert.deepEqual((await Template.getTags(built)).map((o) => o.tag).sort(), ['default', 'v1', 'v2'])
})
await call(91, 'Template.exists', async () => assert.deepEqual([await Template.exists(built), await Template.exists('no-such-' + built)], [true, false]))
const cli = (...a) => new Promise((yes, no) => execFile(process.env.E2E_CLI, a, { timeout: 60000, env: process.env }, (e, out, err) => e ? no(new Error(e.message + err + out)) : yes(out)).stdin.end())
if (process.env.E2E_CLI) {
  await call(92, 'CLI sandbox list', async () => assert.ok((await cli('sandbox', 'list')).includes(id)))
  await call(93, 'CLI sandbox exec', async () => assert.ok((await cli('sandbox', 'exec', id, 'echo', 'by', 'cli')).includes('by cli')))
}
// A port of a program, by its name. Node does not resolve such names, so the name is the Host alone.
await call(94, 'getHost', async () => {
  await main.commands.run('cd /home/user && exec python3 -m http.server 8123 --bind 127.0.0.1', { background: true, timeoutMs: 0 })
  const at = new URL(process.env.E2B_SANDBOX_URL)
  const get = (Host = main.getHost(8123), path = '/text.txt') => new Promise((yes, no) => {
    request({ host: at.hostname, port: at.port, path, headers: { Host } }, (r) => {
      let text = ''
      r.setEncoding('utf8').on('data', (d) => { text += d }).on('end', () => yes(text))
    }).on('error', no).end()
  })
  await until('the file', async () => (await get()) === 'grüße\n')
  const masked = await create({ network: { maskRequestHost: 'app.test:${PORT}' } })
  await masked.commands.run(`python3 -c '
from http.server import *
class Echo(BaseHTTPRequestHandler):
  def do_GET(self):
    self.send_response(200)
    self.end_headers()
    self.wfile.write(self.headers["Host"].encode())
HTTPServer(("127.0.0.1", 8124), Echo).serve_forever()'`, { background: true, timeoutMs: 0 })
  await until('the masked host', async () => (await get(masked.getHost(8124), '/')) === 'app.test:8124')
})
await call(95, 'files of several users and sandboxes', async () => {
  const other = await create()
  await main.files.write('/root/private', 'of root', { user: 'root' })
  await main.commands.run('chmod 700 /root && chmod 600 /root/private', { user: 'root' })
  await other.files.write('/root/private', 'of another', { user: 'root' })
  for (let i = 0; i < 3; i++) { // by processes that are kept
    assert.equal(await main.files.read('/root/private', { user: 'root' }), 'of root')
    assert.equal(await other.files.read('/root/private', { user: 'root' }), 'of another')
    await fails(() => main.files.read('/root/private', { user: 'nobody' }))
  }
  // What the sandbox does to such a process ends one operation at most.
  await main.commands.run('kill -9 -1', { user: 'root' }).catch(() => {})
  await until('the next operation', () => main.files.exists('/root/private', { user: 'root' }).catch(() => false))
  await Promise.all(Array.from({ length: 8 }, async (_, i) => {
    const text = String(i).repeat(300_000 + i)
    await main.files.write(`/tmp/many${i}`, text)
    assert.equal(await main.files.read(`/tmp/many${i}`), text)
  }))
  await other.kill()
})
for (const s of made) await s.kill().catch(() => {})
const bad = results.filter(([, ok]) => !ok).map(([n]) => n)
console.log(`${results.length - bad.length} of ${results.length} calls pass${bad.length ? '; these fail: ' + bad.join(' ') : ''}`)
process.exit(bad.length ? 1 : 0)
