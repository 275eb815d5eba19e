// The npm packages `ai` and `@ai-sdk/openai`, unmodified, against the testbed. Arguments: the folder of node_modules, the server's
// address.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, address] = process.argv.slice(2);
const { resolve } = createRequire(path.join(path.resolve(folder), 'package.json'));
const { generateText, isStepCount, stepCountIs, streamText, jsonSchema, tool, Output } = await import(pathToFileURL(resolve('ai')));
const { createOpenAI } = await import(pathToFileURL(resolve('@ai-sdk/openai')));
const openai = createOpenAI({ baseURL: `${address}/v1`, apiKey: 'none' });

async function program(responses, chunks = []) {
  await fetch(`${address}/testbed/program`, { method: 'POST', body: JSON.stringify({ responses, chunks }) });
}
const says = (...content) => ({ message: { role: 'model', content }, finishReason: 'stop' });
const calls = (name, input, ref = 'r1') => says({ toolRequest: { name, input, ref } });
const shape = (name) =>
  jsonSchema({ type: 'object', properties: { [name]: { type: 'string' } }, required: [name], additionalProperties: false });

for (const kind of ['responses', 'chat']) {
  for (const ask of [generateText, streamText]) {
    const answer = async (agent, settings, field = 'text') =>
      (await ask({ model: openai[kind](agent), maxRetries: 0, ...settings }))[field];

    assert.match(await answer('echoAgent', { prompt: 'hi' }), /user:hi$/);

    // A conversation that the client sends again.
    const { messages: said } = await answer('echoAgent', { prompt: 'one' }, 'response');
    const messages = [{ role: 'user', content: 'one' }, ...said, { role: 'user', content: 'two' }];
    assert.match(await answer('echoAgent', { messages }), /user:one \| model:.*user:two$/s);

    // A tool of the client, which the package runs, and one of the agent.
    await program([calls('paint', { color: 'red' }), says({ text: 'Painted.' })]);
    const paint = tool({ description: 'Paints.', inputSchema: shape('color'), execute: ({ color }) => `painted ${color}` });
    const stopWhen = (isStepCount ?? stepCountIs)(3);
    assert.equal(await answer('promptAgentWithStore', { prompt: 'paint', tools: { paint }, stopWhen }), 'Painted.');
    await program([calls('testTool', {}), says({ text: 'Done.' })]);
    assert.equal(await answer('promptAgentWithTools', { prompt: 'go' }), 'Done.');

    // Structured output.
    await program([says({ text: 'Sure:\n```json\n{"dish":"soup"}\n```' })]);
    const output = Output.object({ schema: shape('dish') });
    assert.deepEqual(await answer('promptAgentWithState', { prompt: 'what?', output }, 'output'), { dish: 'soup' });
  }
}

// A tool that asks before it acts, and a turn that fails, which is not repeated.
await program([calls('restartTool', { action: 'go' })]);
const asking = await generateText({ model: openai.responses('promptAgentWithRestartTool'), prompt: 'go' });
assert(asking.content.some((part) => part.type === 'tool-approval-request'));
let requests = 0;
const counted = createOpenAI({
  baseURL: `${address}/v1`,
  apiKey: 'none',
  fetch: (...request) => (requests++, fetch(...request)),
});
await assert.rejects(generateText({ model: counted.responses('customAgentFailing'), prompt: 'x' }));
assert.equal(requests, 1);
console.log('ok');
