// Builds templates from an image that needs a login. The arguments: registry or gcp, the image, and the password.
import assert from 'node:assert/strict'
import { BuildError, Sandbox, Template } from 'e2b'

const [how, image, password] = process.argv.slice(2)
const from = (secret) => how === 'gcp'
  ? Template().fromGCPRegistry(image, { serviceAccountJSON: { private_key: secret } })
  : Template().fromImage(image, { username: 'me', password: secret })
const said = []
const build = (t, name) => Template.build(t, name, { onBuildLogs: (l) => said.push(String(l)) }).catch((e) => { e.stack = e.message + ' ' + said.slice(-5).join(' '); throw e })
await build(from(password).runCmd('env > /environment; echo made > /made'), 'private')
const s = await Sandbox.create('private')
assert.equal(await s.files.read('/made'), 'made\n')
assert.ok(!(await s.files.read('/environment')).includes(password))
assert.ok(!(await s.commands.run('env; cat /proc/*/cmdline', { user: 'root' })).stdout.includes(password))
await s.kill()
await build(Template().fromTemplate('private').runCmd('cat /made'), 'over')
for (const [t, words] of [
  [from('wrong-' + password), /give the user name and password of an account that may pull this image/],
  [Template().fromImage(image), /not an image/], // without the login the image is not here
  [Template().fromImage('private:1', { username: 'me', password }), /write its host before the name/],
  [Template().fromAWSRegistry(image, { accessKeyId: 'a', secretAccessKey: password, region: 'r' }), /give fromImage the user name AWS/],
]) {
  await assert.rejects(() => build(t.runCmd('true'), 'bad'), (e) => {
    said.push(e.message)
    assert.match(e.message, words)
    return e instanceof BuildError
  })
}
assert.ok(!said.join().includes(password))
