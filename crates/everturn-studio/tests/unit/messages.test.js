import assert from 'node:assert/strict';
import test from 'node:test';
import { entries, grow, interruptsIn, respond, restart, withArtifact } from '../../assets/js/messages.js';

test('a tool call is shown with its answer, in one entry of the agent', () => {
  const call = { toolRequest: { name: 'stock', ref: '1', input: {} } };
  const found = entries([
    { role: 'system', content: [{ text: 'be kind' }] },
    { role: 'user', content: [{ text: 'hi' }] },
    { role: 'model', content: [call] },
    { role: 'tool', content: [{ toolResponse: { name: 'stock', ref: '1', output: 'done' } }] },
    { role: 'model', content: [{ text: 'Done.' }] },
    { role: 'user', content: [{ text: 'thanks' }] },
  ]);

  assert.deepEqual(found.map((entry) => [entry.role, entry.index, entry.parts.length]), [['user', 1, 1], ['model', 2, 2], ['user', 5, 1]]);
  assert.equal(found[1].answers.get(call).output, 'done');
});

test('a summary is shown with the message that contains it', () => {
  const summary = { upTo: 84, text: 'Ann ordered two lamps.' };
  const found = entries([
    { role: 'user', content: [{ text: 'And when?' }] },
    { role: 'model', content: [{ text: 'On Monday.' }], metadata: { summary } },
  ]);

  assert.deepEqual(found[1].parts, [{ text: 'On Monday.' }, { summary }]);
});

test('chunks of text become one part, until another part arrives', () => {
  const live = [];
  const chunk = (content, more = {}) => grow(live, { modelChunk: { content, ...more } });

  chunk([{ text: 'a' }]);
  chunk([{ text: 'b' }]);
  chunk([{ toolRequest: { name: 't' } }]);
  chunk([{ toolResponse: { name: 't' } }], { role: 'tool' });
  chunk([{ text: 'c' }]);

  assert.deepEqual(live.map((message) => message.role), ['model', 'tool', 'model']);
  assert.equal(live[0].content[0].text, 'ab');
  assert.equal(live[0].content.length, 2);
});

test('only the open questions of the last message wait', () => {
  const open = { toolRequest: { name: 't' }, metadata: { interrupt: true } };

  assert.deepEqual(interruptsIn([{ role: 'model', content: [open, { text: 'x' }] }]), [open]);
  assert.deepEqual(interruptsIn([{ role: 'model', content: [open] }, { role: 'tool', content: [] }]), []);
});

test('an answer runs the tool again, or replaces its output', () => {
  const part = { toolRequest: { name: 't', ref: '1', input: { a: 1 } }, metadata: { interrupt: { q: 1 }, kept: true } };

  assert.deepEqual(restart(part, { approved: true }), { toolRequest: part.toolRequest, metadata: { kept: true, resumed: { approved: true } } });
  assert.deepEqual(respond(part, 'no'), { toolResponse: { name: 't', ref: '1', output: 'no' }, metadata: { interruptResponse: true } });
});

test('an artifact replaces the one of the same name', () => {
  const list = [{ name: 'a', parts: [] }, { parts: [] }];

  assert.equal(withArtifact(list, { name: 'a', parts: [{ text: 'x' }] }).length, 2);
  assert.equal(withArtifact(list, { name: 'b', parts: [] }).length, 3);
});
