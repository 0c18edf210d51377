// Makes sandboxes, and finds them again after the server was killed.
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { Sandbox, SandboxNotFoundError } from 'e2b'

if (process.argv[2] === 'before') {
  const s = await Sandbox.create({ timeoutMs: 600e3, metadata: { kept: 'yes' }, envs: { A: 'b' } })
  await s.files.write('kept.txt', 'kept')
  const short = await Sandbox.create({ timeoutMs: 600e3 })
  const paused = await Sandbox.create({ timeoutMs: 600e3 })
  await paused.files.write('p.txt', 'paused')
  await paused.pause()
  await short.setTimeout(1000)
  writeFileSync('ids', [s, short, paused].map((x) => x.sandboxId).join(' '))
  process.exit(0) // before short ends: the server is killed now
}
const [id, short, paused] = readFileSync('ids', 'utf8').split(' ')
const s = await Sandbox.connect(id)
assert.deepEqual((await s.getInfo()).metadata, { kept: 'yes' })
assert.equal(await s.files.read('kept.txt'), 'kept')
assert.equal((await s.commands.run('echo $A')).stdout, 'b\n')
const p = await Sandbox.connect(paused)
assert.equal(await p.files.read('p.txt'), 'paused')
const known = () => Sandbox.getInfo(short).then(() => true, (e) => { assert.ok(e instanceof SandboxNotFoundError, e); return false })
for (const end = Date.now() + 120e3; await known();) {
  assert.ok(Date.now() < end, 'a sandbox whose time is over stays')
  await new Promise((r) => setTimeout(r, 50))
}
for (const x of [s, p]) assert.equal(await x.kill(), true)
