// A model with one thing on its mind: it calls sandbox_script, and then says what came of
// it. It speaks Anthropic's Messages API, streaming, as far as Claude Code needs, and
// OpenAI's Responses API, as far as Codex does. Each request goes to the log as a line.
//
//	node model.mjs COMMAND LOG    prints the port
import http from 'node:http'
import fs from 'node:fs'

const [command, log] = process.argv.slice(2)
const text = (v) => typeof v === 'string' ? v : JSON.stringify(v)

function send(res, events) {
  res.writeHead(200, { 'content-type': 'text/event-stream' })
  for (const e of events) res.write(`event: ${e.type}\ndata: ${JSON.stringify(e)}\n\n`)
  res.end()
}

function messages(body) {
  const last = body.messages.at(-1)
  const results = Array.isArray(last.content) ? last.content.filter((c) => c.type === 'tool_result') : []
  const tool = (body.tools ?? []).find((t) => t.name.endsWith('sandbox_script'))
  const block = results.length ? { type: 'text', text: 'RESULT ' + text(results[0].content) }
    : tool ? { type: 'tool_use', id: 'toolu_1', name: tool.name, input: { command, egress: 'none' } }
      : { type: 'text', text: 'no tool' }
  const delta = block.type === 'text' ? { type: 'text_delta', text: block.text }
    : { type: 'input_json_delta', partial_json: JSON.stringify(block.input) }
  const usage = { input_tokens: 1, output_tokens: 1 }
  return [
    { type: 'message_start', message: { id: 'msg_1', type: 'message', role: 'assistant', model: body.model, content: [], stop_reason: null, stop_sequence: null, usage } },
    { type: 'content_block_start', index: 0, content_block: block.type === 'text' ? { type: 'text', text: '' } : { ...block, input: {} } },
    { type: 'content_block_delta', index: 0, delta },
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: { stop_reason: block.type === 'text' ? 'end_turn' : 'tool_use', stop_sequence: null }, usage },
    { type: 'message_stop' },
  ]
}

function responses(body) {
  const result = body.input.find((i) => i.type === 'function_call_output')
  const names = (body.tools ?? []).flatMap((t) => t.tools ? t.tools.map((u) => ({ namespace: t.name, name: u.name })) : [{ name: t.name }])
  const tool = names.find((t) => t.name?.endsWith('sandbox_script'))
  const item = result
    ? { type: 'message', id: 'msg_1', role: 'assistant', content: [{ type: 'output_text', text: 'RESULT ' + text(result.output) }] }
    : tool ? { type: 'function_call', id: 'fc_1', call_id: 'call_1', ...tool, arguments: JSON.stringify({ command, egress: 'none' }) }
      : { type: 'message', id: 'msg_1', role: 'assistant', content: [{ type: 'output_text', text: 'no tool' }] }
  const response = { id: 'resp_1', usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 } }
  return [
    { type: 'response.created', response },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response },
  ]
}

http.createServer((req, res) => {
  let raw = ''
  req.on('data', (d) => { raw += d })
  req.on('end', () => {
    fs.appendFileSync(log, JSON.stringify({ url: req.url, body: raw.slice(0, 100000) }) + '\n')
    const url = req.url.split('?')[0]
    if (req.method === 'POST' && url.endsWith('/v1/messages')) return send(res, messages(JSON.parse(raw)))
    if (req.method === 'POST' && url.endsWith('/v1/responses')) return send(res, responses(JSON.parse(raw)))
    if (url.endsWith('/count_tokens')) return res.end('{"input_tokens":1}')
    res.writeHead(404)
    res.end('{}')
  })
}).listen(0, '127.0.0.1', function () { console.log(this.address().port) })
