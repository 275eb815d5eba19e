// The npm package `openai`, unmodified, against the testbed. Arguments: the folder of node_modules, the server's address.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';

const [folder, address] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(folder), 'package.json'));
const { default: OpenAI, APIError, NotFoundError, BadRequestError, ConflictError, InternalServerError } = await import(
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

// Every event is numbered, and a stream is read again from any of them.
const events = [];
for await (const event of await client.responses.create({ model, input: 'x', stream: true })) events.push(event);
assert.deepEqual(events.map((event) => event.sequence_number), [...events.keys()]);
const rest = [];
const reading = await client.responses.retrieve(events[0].response.id, { stream: true, starting_after: 3 });
for await (const event of reading) rest.push(event);
assert.deepEqual(rest, events.slice(4));

// Usage, reasoning, and ends before the end.
const usage = { inputTokens: 5, outputTokens: 7, thoughtsTokens: 2, cachedContentTokens: 3 };
await program([{ ...says({ reasoning: 'hm' }, { text: 'Yes.' }), usage }]);
const counted = await client.responses.create({ model: store, input: 'x' });
assert.deepEqual(counted.output.map((item) => item.type), ['reasoning', 'message']);
assert.equal(counted.usage.total_tokens, 12);
assert.deepEqual((await client.responses.retrieve(counted.id)).usage, counted.usage);
for (const [finishReason, reason, end] of [['length', 'max_output_tokens', 'length'], ['blocked', 'content_filter', 'content_filter']]) {
  await program([{ ...says({ text: 'half' }), finishReason }]);
  const short = await client.responses.stream({ model: store, input: 'x' }).finalResponse();
  assert.deepEqual([short.status, short.incomplete_details.reason], ['incomplete', reason]);
  const messages = [{ role: 'user', content: 'x' }];
  assert.equal((await client.chat.completions.create({ model: store, messages })).choices[0].finish_reason, end);
}

// Structured output, where the agent leaves it to its callers.
const formed = 'promptAgentWithState';
const schema = { type: 'object', properties: { dish: { type: 'string' } }, required: ['dish'], additionalProperties: false };
const format = { type: 'json_schema', name: 'dish', strict: true, schema };
const response_format = { type: 'json_schema', json_schema: { name: 'dish', strict: true, schema } };
const fenced = says({ text: 'Sure:\n```json\n{"dish":"soup"}\n```' });
await program([fenced, fenced, fenced, fenced]);
const parsed = await client.responses.parse({ model: formed, input: 'what?', text: { format } });
assert.deepEqual(parsed.output_parsed, { dish: 'soup' });
const forming = client.responses.stream({ model: formed, input: 'what?', text: { format } });
assert.deepEqual((await forming.finalResponse()).output_parsed, { dish: 'soup' });
const what = [{ role: 'user', content: 'what?' }];
const completion = await client.chat.completions.parse({ model: formed, messages: what, response_format });
assert.deepEqual(completion.choices[0].message.parsed, { dish: 'soup' });
const completing = client.chat.completions.stream({ model: formed, messages: what, response_format });
assert.deepEqual((await completing.finalChatCompletion()).choices[0].message.parsed, { dish: 'soup' });

// Work that is cancelled, and a conversation that is busy.
const blocking = 'customAgentBlocking';
const blocked = await client.responses.create({ model: blocking, input: 'x', background: true, metadata: { a: 'b' } });
assert.deepEqual((await client.responses.retrieve(blocked.id)).metadata, { a: 'b' });
await assert.rejects(client.responses.delete(blocked.id), BadRequestError);
assert.equal((await client.responses.cancel(blocked.id)).status, 'cancelled');
const conversation = `busy-${crypto.randomUUID()}`;
const busy = await client.responses.create({ model: blocking, input: 'x', conversation, stream: true });
await busy[Symbol.asyncIterator]().next();
await assert.rejects(client.responses.create({ model: blocking, input: 'y', conversation }), ConflictError);
busy.controller.abort();

// Turns that fail are told so that nothing runs them again.
const failed = await client.responses.create({ model: 'customAgentFailing', input: 'x' });
assert.deepEqual([failed.status, failed.error.code], ['failed', 'invalid_turn']);
const hi = [{ role: 'user', content: 'hi' }];
await assert.rejects(client.chat.completions.create({ model: 'customAgentFailing', messages: hi }), InternalServerError);

// Refusals name what is wrong.
for (const [refused, code, param] of [
  [() => client.responses.create({ model, input: 'x', text: { format: { type: 'json_object' } } }), 'unsupported_parameter', 'text.format'],
  [() => client.responses.create({ model, input: 'x', prompt: { id: 'p' } }), 'unsupported_parameter', 'prompt'],
  [() => client.responses.create({ model, input: [{ type: 'item_reference', id: 'msg_1' }] }), 'item_not_found', 'input'],
  [() => client.chat.completions.create({ model, messages: hi, n: 2 }), 'unsupported_parameter', 'n'],
  [() => client.chat.completions.create({ model, messages: hi, response_format: { type: 'json_object' } }), 'unsupported_parameter', 'response_format'],
]) {
  await assert.rejects(refused(), (error) => {
    assert.deepEqual([error.constructor, error.code, error.param], [BadRequestError, code, param]);
    return Boolean(error.requestID);
  });
}

// Chat Completions in a session, which is also a conversation.
const headers = { 'X-Conversation-Id': crypto.randomUUID() };
const one = await client.chat.completions.create({ model, messages: hi }, { headers });
const history = [...hi, one.choices[0].message, { role: 'user', content: 'two' }];
await client.chat.completions.create({ model, messages: history }, { headers });
const third = await client.responses.create({ model, input: 'three', conversation: headers['X-Conversation-Id'] });
assert.match(third.output_text, /user:two.*user:three$/s);
const listed = [];
for await (const item of client.conversations.items.list(headers['X-Conversation-Id'], { limit: 2 })) listed.push(item);
assert.equal(listed.length, 6);
await client.conversations.delete(headers['X-Conversation-Id']);
await assert.rejects(client.conversations.retrieve(headers['X-Conversation-Id']), NotFoundError);

// A conversation through two adapters: Genkit's client asks, this one answers, and Genkit's goes on.
const { remoteAgent } = require('genkit/beta/client');
const asker = remoteAgent({ url: `${address}/promptAgentWithInterrupt` });
await program([calls('interruptTool', { query: 'sure?' }), says({ text: 'Fine.' }), says({ text: 'Bye.' })]);
const chatting = asker.chat();
const { sessionId } = await chatting.send('ask');
const [, open] = (await client.conversations.items.list(sessionId, { order: 'asc' })).data;
const answer = [{ type: 'function_call_output', call_id: open.call_id, output: JSON.stringify({ answer: 'so' }) }];
const fine = await client.responses.create({ model: 'promptAgentWithInterrupt', input: answer, conversation: sessionId });
assert.equal(fine.output_text, 'Fine.');
const joined = await asker.loadChat({ sessionId });
const bye = await joined.send('bye');
assert.equal(bye.text, 'Bye.');
assert.equal(bye.sessionId, sessionId);
const counter = remoteAgent({ url: `${address}/customAgentWithCustomStateStore` });
const counting = await counter.chat().send('1');
await client.responses.create({ model: 'customAgentWithCustomStateStore', input: '2', conversation: counting.sessionId });
const last = await (await counter.loadChat({ sessionId: counting.sessionId })).send('3');
const snapshot = await counter.getSnapshot(last.snapshotId);
assert.equal(snapshot.state.custom.counter, 3);
console.log('ok');
