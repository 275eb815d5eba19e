// The npm package `openai`, unmodified, against the testbed. Arguments: the folder of node_modules, the server's address.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';

const [folder, address] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(folder), 'package.json'));
const { default: OpenAI, APIError, NotFoundError, BadRequestError } = await import(
  require.resolve('openai').replace(/index\.js$/, 'index.mjs')
);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: 'none', maxRetries: 0 });

async function program(responses, chunks = []) {
  await fetch(`${address}/testbed/program`, { method: 'POST', body: JSON.stringify({ responses, chunks }) });
}
const says = (...content) => ({ message: { role: 'model', content }, finishReason: 'stop' });
const calls = (name, input, ref = 'r1') => says({ toolRequest: { name, input, ref } });

// Models.
const models = [];
for await (const model of client.models.list()) models.push(model.id);
assert(models.includes('echoAgent'));
await assert.rejects(client.models.retrieve('nobody'), NotFoundError);

// A turn, its continuation and a branch.
const model = 'echoAgent';
const first = await client.responses.create({ model, input: 'one', instructions: 'Rhyme.', metadata: { who: 'ann' } });
assert.match(first.output_text, /^system:You are part of a test\..*Rhyme\. \| user:one$/s);
const second = await client.responses.create({ model, input: 'two', previous_response_id: first.id });
assert.match(second.output_text, /user:one \| model:.* \| user:two$/s);
const branch = await client.responses.create({ model, input: 'three', previous_response_id: first.id });
assert(!branch.output_text.includes('user:two'));
const again = await client.responses.retrieve(first.id);
assert.equal(again.output_text, first.output_text);
assert.deepEqual(again.metadata, { who: 'ann' });
const inputs = await client.responses.inputItems.list(first.id);
assert.equal(inputs.data[0].content[0].text, 'one');

// A stream, its helper, and reading it again.
const stream = client.responses.stream({ model, input: 'streamed', conversation: 'js' });
let deltas = '';
stream.on('response.output_text.delta', (event) => (deltas += event.delta));
const streamed = await stream.finalResponse();
assert.equal(streamed.output_text, deltas);
assert.equal(streamed.conversation.id, 'js');

// Items that are sent back.
const items = [{ role: 'user', content: 'one' }, ...first.output, { role: 'user', content: 'four' }];
const sent = await client.responses.create({ model, input: items });
assert.equal(sent.previous_response_id, first.id);

// Functions of the caller.
const tools = [{ type: 'function', name: 'paint', parameters: { type: 'object' }, strict: false }];
const store = 'promptAgentWithStore';
await program([calls('paint', { color: 'red' }), says({ text: 'Painted.' })]);
const asking = await client.responses.create({ model: store, input: 'paint', tools });
assert.equal(asking.output[0].type, 'function_call');
const output = [{ type: 'function_call_output', call_id: asking.output[0].call_id, output: 'done' }];
const painted = await client.responses.create({ model: store, input: output, previous_response_id: asking.id });
assert.equal(painted.output_text, 'Painted.');

// An approval.
await program([calls('restartTool', { action: 'go' }), says({ text: 'Done.' })]);
const question = await client.responses.create({ model: 'promptAgentWithRestartTool', input: 'go' });
assert.equal(question.output[0].type, 'mcp_approval_request');
const approved = await client.responses.create({
  model: 'promptAgentWithRestartTool',
  previous_response_id: question.id,
  input: [{ type: 'mcp_approval_response', approval_request_id: question.output[0].id, approve: true }],
});
assert.deepEqual(approved.output.map((item) => item.type), ['mcp_call', 'message']);

// The background.
await program([says({ text: 'Later.' })]);
let run = await client.responses.create({ model: store, input: 'work', background: true });
while (['queued', 'in_progress'].includes(run.status)) run = await client.responses.retrieve(run.id);
assert.equal(run.output_text, 'Later.');

// Deleting.
await client.responses.delete(second.id);
await assert.rejects(client.responses.retrieve(second.id), NotFoundError);
await assert.rejects(
  client.responses.create({ model, input: 'hi', previous_response_id: second.id }),
  (error) => error instanceof BadRequestError && error.code === 'previous_response_not_found',
);
await assert.rejects(client.responses.create({ model, input: 'hi', tools: [{ type: 'web_search' }] }), APIError);

// Chat Completions.
const chat = await client.chat.completions.create({ model, messages: [{ role: 'user', content: 'hi' }] });
assert.equal(chat.choices[0].message.content, 'system:You are part of a test. | user:hi');
const told = client.chat.completions.stream({ model, messages: [{ role: 'user', content: 'hi' }] });
assert.equal(await told.finalContent(), chat.choices[0].message.content);
console.log('ok');
