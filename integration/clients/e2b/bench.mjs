// Times E2B's SDK with a server, and prints the figures as one line of JSON: milliseconds by name. The argument is the
// number of sandboxes. FLOOR_URL is a server that answers at once: the same calls to it, in turn with the others, say what
// the SDK itself takes.
import { Sandbox } from 'e2b'

const content = 'x'.repeat(1024)
const sleep = (ms) => new Promise((r) => setTimeout(r, ms))
const times = {}
const timed = async (name, f) => {
  const began = performance.now()
  const done = await f()
  times[name] = [...(times[name] ?? []), performance.now() - began]
  return done
}

const url = process.env.FLOOR_URL
const floor = { apiUrl: url, sandboxUrl: url }
const rounds = Number(process.argv[2])
await fresh(rounds)
await used(rounds)
await fifty()
console.log(JSON.stringify(times))
process.exit(0)

// fresh uses each sandbox a few times.
async function fresh(rounds) {
  for (let i = 0; i < 3; i++) { // fills the pool, and warms the SDK
    const s = await Sandbox.create()
    await s.commands.run('true')
    await s.kill()
    await sleep(500)
  }
  for (let i = 0; i < rounds; i++) {
    let s
    await timed('first', async () => {
      s = await timed('create', () => Sandbox.create())
      let output
      const written = new Promise((r) => { output = r })
      s.commands.run('echo hello', { onStdout: output })
      await written
    })
    await sleep(50)
    await timed('command', () => s.commands.run('true'))
    await five(s, '')
    await s.kill()
    await sleep(300) // the pool prepares the next one
    const f = await timed('sdk create', () => Sandbox.create(floor))
    await sleep(50)
    await five(f, 'sdk ')
  }
}

// used uses one sandbox often.
async function used(rounds) {
  const s = await Sandbox.create()
  const f = await Sandbox.create(floor)
  for (let i = 0; i < rounds; i++) {
    await five(s, 'used ')
    await five(f, 'sdk used ')
  }
  await s.kill()
}

async function fifty() {
  await timed('fifty', () => Promise.all(Array.from({ length: 50 }, async (_, i) => {
    const s = await Sandbox.create({ timeoutMs: 600e3 })
    const r = await s.commands.run('echo ' + i)
    if (r.stdout !== i + '\n') throw new Error(`sandbox ${i}: ${r.stdout}`)
    await s.kill()
  })))
}

async function five(s, prefix) {
  for (let i = 0; i < 5; i++) await files(s, prefix)
}

async function files(s, prefix) {
  await timed(prefix + 'files', async () => {
    await s.files.write('/home/user/f', content)
    if (await s.files.read('/home/user/f') !== content) throw new Error('the content is not what was written')
  })
}
