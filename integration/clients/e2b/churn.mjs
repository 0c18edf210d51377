// Makes, uses and ends sandboxes and secrets until the server is gone, and notes in a file what it answered. With "check" it
// compares that with what the next server has.
import assert from 'node:assert/strict'
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { Sandbox, Secret } from 'e2b'

const note = (...words) => appendFileSync('facts', words.join(' ') + '\n')
const pages = async (p) => { const all = []; while (p.hasNext) all.push(...await p.nextItems()); return all }

async function churn(worker) {
  for (let n = 0; ; n++) {
    const name = `s${worker}-${process.pid}-${n}`
    await Secret.create(name, 'value-of-' + name)
    note('secret', name)
    const s = await Sandbox.create({ timeoutMs: 600e3, metadata: { name } })
    note('made', s.sandboxId, name)
    await s.files.write('f', name)
    note('wrote', s.sandboxId, name)
    if (n % 2) {
      note('killing', s.sandboxId)
      await s.kill()
    } else if (n % 4) {
      await s.pause()
    }
    if (n % 3 === 0) {
      note('destroying', name)
      await Secret.destroy(name)
    }
  }
}

async function check() {
  const facts = existsSync('facts') ? readFileSync('facts', 'utf8').trim().split('\n').map((l) => l.split(' ')) : []
  const has = (word, id) => facts.some((f) => f[0] === word && f[1] === id)
  const there = await pages(Sandbox.list())
  for (const [word, id, name] of facts) {
    if (word === 'made' && !has('killing', id)) {
      assert.equal(there.find((s) => s.sandboxId === id)?.metadata.name, name, `sandbox ${id}`)
      if (has('wrote', id)) assert.equal(await (await Sandbox.connect(id)).files.read('f'), name)
    }
    if (word === 'secret' && !has('destroying', id)) assert.ok(await Secret.exists(id), `secret ${id}`)
  }
  console.log(there.map((s) => s.sandboxId).sort().join(' '))
  console.log((await pages(Secret.list())).map((s) => s.secretId).sort().join(' '))
}

async function clear() {
  await Promise.all((await pages(Sandbox.list())).map((s) => Sandbox.kill(s.sandboxId)))
  for (const s of await pages(Secret.list())) await Secret.destroy(s.secretId)
}

if (process.argv[2] === 'check') await check()
else if (process.argv[2] === 'clear') await clear()
else await Promise.allSettled([0, 1, 2].map(churn))
process.exit(0)
