// Uses a stored secret by a network rule: the sandbox's programs send no credential. The argument is the secret's value.
import assert from 'node:assert/strict'
import { Sandbox, Secret } from 'e2b'

const value = process.argv[2]
await Secret.create('api-key', value)
const network = { allowOut: ['vault.test', 'other.test'], denyOut: ['0.0.0.0/0'], rules: { 'vault.test': [{ transform: { headers: { Authorization: `Bearer ${Secret.fill('api-key')}` } } }] } }
const s = await Sandbox.create({ timeoutMs: 600e3, network })
const get = async (url, flags = '') => (await s.commands.run(`curl -sS ${flags} ${url}`)).stdout
assert.equal(await get('https://vault.test/set'), `thanks for Bearer ${'*'.repeat(value.length)}\n`)
assert.equal(await get('https://vault.test/own', '-H "Authorization: mine"'), `thanks for Bearer ${'*'.repeat(value.length)}\n`)
assert.equal(await get('https://other.test/other'), 'thanks for \n')
assert.equal(await get('http://vault.test/clear'), 'thanks for \n')
assert.ok(!(await s.commands.run('env; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n"', { user: 'root' })).stdout.includes(value))
// A sandbox without its processes gets the secret again, with the value of then.
await Secret.update('api-key', value + 'x')
await s.pause({ keepMemory: false })
const again = await Sandbox.connect(s.sandboxId)
assert.equal((await again.commands.run('curl -sS https://vault.test/again')).stdout, `thanks for Bearer ${'*'.repeat(value.length + 1)}\n`)
await assert.rejects(() => s.updateNetwork({ allowOut: ['vault.test'] }), /set|rules/)
const snapshot = await s.createSnapshot()
const copy = await Sandbox.create(snapshot.snapshotId, { network })
assert.equal((await copy.commands.run('curl -sS https://vault.test/copy')).stdout, `thanks for Bearer ${'*'.repeat(value.length + 1)}\n`)
assert.ok(await copy.kill() && await again.kill())
assert.ok(await Sandbox.deleteSnapshot(snapshot.snapshotId))
