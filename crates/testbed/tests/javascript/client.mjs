// Drives a testbed server with the client of the npm package `genkit`, as a browser or a Node program would.
// Arguments: the folder that has the package in its node_modules, the server's address.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';

const [folder, server] = process.argv.slice(2);
const { remoteAgent, runFlow, streamFlow } = createRequire(join(folder, 'index.js'))('genkit/beta/client');

const says = (text) => ({ message: { role: 'model', content: [{ text }] }, finishReason: 'stop' });
const asks = (name, input, ref) => ({
  message: { role: 'model', content: [{ toolRequest: { name, input, ref } }] },
  finishReason: 'stop',
});

/** Sets what the model answers next, and what it streams before each answer. */
async function program(responses, chunks = []) {
  const answer = await fetch(`${server}/testbed/program`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ responses, chunks }),
  });
  assert.ok(answer.ok, await answer.text());
}

const agent = (name) => remoteAgent({ url: `${server}/${name}` });
/** What was answered to tool requests, as the server keeps it. */
async function toolAnswers(name, snapshotId) {
  const { state } = await agent(name).getSnapshot(snapshotId);
  const said = state.messages.filter((message) => message.role === 'tool');
  return said.flatMap((message) => message.content.map((part) => part.toolResponse));
}
const texts = (messages) => messages.map((message) => message.content.map((part) => part.text ?? '').join(''));
async function collect(stream) {
  const all = [];
  for await (const chunk of stream) all.push(chunk);
  return all;
}

test('a chat goes on from turn to turn', async () => {
  const chat = agent('promptAgentWithStore').chat();

  await program([says('one')]);
  const first = await chat.send('first');
  await program([says('two')]);
  const second = await chat.send('second');

  assert.equal(first.text, 'one');
  assert.equal(second.text, 'two');
  assert.equal(second.finishReason, 'stop');
  assert.notEqual(first.snapshotId, second.snapshotId);
  assert.equal(chat.snapshotId, second.snapshotId);
  assert.equal(first.sessionId, second.sessionId);
  assert.deepEqual(texts(chat.messages), ['first', 'one', 'second', 'two']);
});

test('a turn is streamed as it is made', async () => {
  const chat = agent('promptAgentWithStore').chat();
  const piece = (text) => ({ content: [{ text }] });
  await program([says('héllo wörld')], [[piece('héllo '), piece('wörld')]]);

  const turn = chat.sendStream('hi');
  const chunks = await collect(turn.stream);
  const response = await turn.response;

  const spoken = chunks.filter((chunk) => chunk.text);
  assert.deepEqual(spoken.map((chunk) => chunk.text), ['héllo ', 'wörld']);
  assert.equal(spoken.at(-1).accumulatedText, 'héllo wörld');
  assert.deepEqual(chunks.at(-1).raw.turnEnd.finishReason, 'stop');
  assert.equal(response.text, 'héllo wörld');
});

test('a client that keeps the state brings it along', async () => {
  const chat = agent('promptAgent').chat();

  await program([says('one')]);
  const first = await chat.send('first');
  await program([says('two')]);
  await chat.send('second');

  assert.equal(first.snapshotId, undefined);
  assert.ok(first.raw.state.messages.length === 2);
  assert.deepEqual(texts(chat.messages), ['first', 'one', 'second', 'two']);
});

test('custom state is followed while it changes', async () => {
  const chat = agent('customAgentWithMultiCustomState').chat();

  const turn = chat.sendStream('work');
  const seen = (await collect(turn.stream)).map((chunk) => chunk.custom).filter(Boolean);
  await turn.response;

  // Between the first and the last the client may already have applied the turn's output.
  assert.equal(seen.length, 3);
  assert.deepEqual(seen[0], { counter: 1, status: 'working' });
  assert.deepEqual(seen[2], { counter: 2, status: 'done' });
  assert.deepEqual(chat.state, { counter: 2, status: 'done' });
});

test('custom state is kept from turn to turn, by the client and by the server', async () => {
  for (const name of ['customAgentWithCustomState', 'customAgentWithCustomStateStore']) {
    const chat = agent(name).chat();

    await chat.send('count');
    await chat.send('count');

    assert.equal(chat.state.counter, 2, name);
  }
});

test('artifacts are streamed and replaced by name', async () => {
  const chat = agent('customAgentWithArtifacts').chat();

  const turn = chat.sendStream('draft');
  const streamed = (await collect(turn.stream)).map((chunk) => chunk.artifact).filter(Boolean);
  const response = await turn.response;

  assert.deepEqual(streamed.map((artifact) => [artifact.name, artifact.parts[0].text]), [
    ['doc1', 'v1'],
    ['doc1', 'v2'],
    ['doc2', 'other'],
  ]);
  assert.deepEqual(response.artifacts.map((artifact) => [artifact.name, artifact.parts[0].text]), [
    ['doc1', 'v2'],
    ['doc2', 'other'],
  ]);
  assert.deepEqual(chat.artifacts.map((artifact) => artifact.name), ['doc1', 'doc2']);
});

test('tools run on the server', async () => {
  const chat = agent('promptAgentWithTools').chat();
  await program([asks('testTool', {}, 'ref1'), says('done')]);

  const response = await chat.send('use it');

  assert.equal(response.text, 'done');
  const answered = chat.messages.find((message) => message.role === 'tool');
  assert.equal(answered.content[0].toolResponse.output, 'tool called');
});

test('an interrupt is answered with respond', async () => {
  const chat = agent('promptAgentWithInterrupt').chat();
  await program([asks('interruptTool', { query: 'sure?' }, 'i1')]);

  const asked = await chat.send('do it');
  assert.equal(asked.finishReason, 'interrupted');
  assert.equal(asked.interrupts.length, 1);
  const [interrupt] = asked.interrupts;
  assert.deepEqual([interrupt.name, interrupt.input], ['interruptTool', { query: 'sure?' }]);
  await program([says('thank you')]);
  const answered = await chat.resume({ respond: [interrupt.respond({ answer: 'yes' })] });

  assert.equal(answered.text, 'thank you');
  assert.deepEqual(await toolAnswers('promptAgentWithInterrupt', answered.snapshotId), [
    { name: 'interruptTool', ref: 'i1', output: { answer: 'yes' } },
  ]);
});

test('an interrupt is answered with restart', async () => {
  const chat = agent('promptAgentWithRestartTool').chat();
  await program([asks('restartTool', { action: 'delete' }, 'r1')]);

  const asked = await chat.send('do it');
  assert.equal(asked.finishReason, 'interrupted');
  const restart = asked.interrupts[0].restart();
  restart.metadata = { ...restart.metadata, resumed: { approved: true } };
  await program([says('deleted')]);
  const turn = chat.resumeStream({ restart: [restart] });
  await collect(turn.stream);

  const answered = await turn.response;
  assert.equal(answered.text, 'deleted');
  assert.deepEqual(await toolAnswers('promptAgentWithRestartTool', answered.snapshotId), [
    { name: 'restartTool', ref: 'r1', output: { result: 'confirmed: delete' } },
  ]);
});

test('an interrupt is answered with a restart as the client makes it, without data', async () => {
  const chat = agent('promptAgentWithRestartTool').chat();
  await program([asks('restartTool', { action: 'delete' }, 'r1')]);
  const asked = await chat.send('do it');

  await program([says('deleted')]);
  const answered = await chat.resume({ restart: [asked.interrupts[0].restart()] });

  assert.equal(answered.text, 'deleted');
  assert.deepEqual(await toolAnswers('promptAgentWithRestartTool', answered.snapshotId), [
    { name: 'restartTool', ref: 'r1', output: { result: 'confirmed: delete' } },
  ]);
});

test('a tool takes the answer of a restart from the restart, from the metadata of all answers, or from none', async () => {
  const answers = [
    [(restart) => ({ restart: [{ ...restart, metadata: { resumed: { limit: 30 } } }] }), 'paid 30 of 30'],
    [(restart) => ({ restart: [restart], metadata: { limit: 20 } }), 'paid 20 of 20'],
    [(restart) => ({ restart: [restart] }), 'paid 10 of 10'],
  ];
  for (const [resume, output] of answers) {
    const chat = agent('promptAgentWithApproval').chat();
    await program([asks('pay', { sum: 50 }, 'p1')]);
    const asked = await chat.send('pay');
    await program([says('paid')]);
    const answered = await chat.resume(resume(asked.interrupts[0].restart()));

    const [answer] = await toolAnswers('promptAgentWithApproval', answered.snapshotId);
    assert.equal(answer.output, output);
  }
});

/** What only Everturn knows, in any of the objects that it is added to. */
const ADDED = ['status', 'snapshotCreated', 'snapshotIds', 'takenOver', 'output', 'promptInput', 'index', 'event'];
const added = (object) => ADDED.filter((field) => field in (object ?? {}));
const extended = (name, headers) => remoteAgent({ url: `${server}/${name}`, headers });

test('without the header, agents that use every addition look like any other', async () => {
  for (const name of ['extendedAgentWithStore', 'extendedAgent']) {
    const remote = extended(name);
    const chat = remote.chat();

    for (const dishes of [1, 2]) {
      const turn = chat.sendStream('soup');
      const chunks = await collect(turn.stream);
      const response = await turn.response;

      assert.deepEqual(chunks.flatMap((chunk) => added(chunk.raw)), [], name);
      assert.deepEqual(added(response.raw), [], name);
      assert.deepEqual(added(response.raw.state), [], name);
      assert.equal(chat.state.dishes, dishes, name);
      assert.equal(response.text, 'Leek soup.');
    }
  }
  const remote = extended('extendedAgentWithStore');
  const { snapshotId } = await remote.chat().send('soup');
  const snapshot = await remote.getSnapshot(snapshotId);
  assert.deepEqual([...added({ ...snapshot, status: undefined }), ...added(snapshot.state)], ['status']);
});

test('with the header, every addition arrives and the client goes on as before', async () => {
  const remote = extended('extendedAgentWithStore', { 'x-everturn-extensions': '1' });
  const chat = remote.chat();

  const turn = chat.sendStream('soup');
  const chunks = await collect(turn.stream);
  const response = await turn.response;
  const second = await chat.send('more');
  const snapshot = await remote.getSnapshot(second.snapshotId);

  const said = chunks.map((chunk) => chunk.raw.status).filter(Boolean);
  assert.deepEqual(said, [{ step: 'chopping' }, { step: 'cooking' }]);
  assert.equal(response.raw.snapshotIds.length, 2);
  assert.deepEqual(response.raw.output, { cents: 400 });
  assert.deepEqual(second.raw.output, { cents: 800 });
  assert.equal(chunks.filter((chunk) => chunk.raw.snapshotCreated).length, 2);
  assert.deepEqual(snapshot.state.promptInput, { tone: 'kind' });
  assert.equal(snapshot.turnIndex, 1);
  assert.equal(chat.state.dishes, 2);
});

test('a prompt agent with a prompt input and snapshots in its turns works with and without the header', async () => {
  for (const headers of [{}, { 'x-everturn-extensions': '1' }]) {
    const remote = extended('extendedPromptAgent', headers);
    const chat = remote.chat();
    await program([asks('taste', {}, 't1'), says('too salty')]);

    const turn = chat.sendStream('well?');
    const chunks = await collect(turn.stream);
    const response = await turn.response;

    assert.equal(response.text, 'too salty');
    const taken = chunks.filter((chunk) => chunk.raw.snapshotCreated).length;
    assert.equal(taken, Object.keys(headers).length ? 3 : 0);
    assert.equal('promptInput' in (await remote.getSnapshot(response.snapshotId)).state, taken > 0);
  }
});

test('a forged restart is refused', async () => {
  const chat = agent('promptAgentWithRestartTool').chat();
  await program([asks('restartTool', { action: 'safe' }, 'r1')]);
  const asked = await chat.send('do it');
  const forged = structuredClone(asked.interrupts[0].restart());
  forged.toolRequest.input = { action: '/etc/passwd' };

  await assert.rejects(chat.resume({ restart: [forged] }), { status: 'INVALID_ARGUMENT' });
});

test('a detached turn goes on and is waited for', async () => {
  const chat = agent('promptAgentWithStore').chat();
  await program([says('in the background')]);

  const task = await chat.detach('take your time');
  const statuses = [];
  for await (const snapshot of task.poll({ intervalMs: 10 })) statuses.push(snapshot.status);
  const snapshot = await task.wait({ intervalMs: 10 });

  assert.equal(statuses.at(-1), 'completed');
  assert.equal(snapshot.snapshotId, task.snapshotId);
  assert.deepEqual(texts(snapshot.state.messages), ['take your time', 'in the background']);
});

test('a detached turn is aborted', async () => {
  const blocking = agent('customAgentBlocking');
  const task = await blocking.chat().detach('block');

  const status = await task.abort();
  const snapshot = await task.wait({ intervalMs: 10 });

  assert.equal(status, 'aborted');
  assert.equal(snapshot.status, 'aborted');
  assert.equal((await blocking.getSnapshot(task.snapshotId)).status, 'aborted');
});

test('a turn in flight is given up', async () => {
  const turn = agent('customAgentBlocking').chat().sendStream('block');
  // The client fails what it streamed so far, which somebody has to hear.
  const heard = collect(turn.stream).catch(() => {});

  turn.abort();

  assert.equal((await turn.response).finishReason, 'aborted');
  await heard;
});

test('a chat is loaded by snapshot and by session', async () => {
  const remote = agent('promptAgentWithStore');
  const chat = remote.chat();
  await program([says('one')]);
  const first = await chat.send('first');
  await program([says('two')]);
  await chat.send('second');

  const earlier = await remote.loadChat({ snapshotId: first.snapshotId });
  const latest = await remote.loadChat({ sessionId: first.sessionId });
  await program([says('another')]);
  await earlier.send('branch');

  assert.deepEqual(texts(latest.messages), ['first', 'one', 'second', 'two']);
  assert.deepEqual(texts(earlier.messages), ['first', 'one', 'branch', 'another']);
  assert.equal((await remote.getSnapshot({ sessionId: first.sessionId })).snapshotId, earlier.snapshotId);
});

test('a failed turn is an error that says why', async () => {
  const chat = agent('customAgentFailing').chat();

  await assert.rejects(chat.send('go'), (error) => {
    assert.equal(error.name, 'AgentError');
    assert.equal(error.status, 'INTERNAL');
    return true;
  });
});

test('a refused init keeps its status', async () => {
  const chat = agent('promptAgentWithStore').chat({ snapshotId: 'no-such-snapshot' });

  await assert.rejects(chat.send('hi'), { status: 'NOT_FOUND' });
});

test('a snapshot that is not there is an error', async () => {
  await assert.rejects(agent('promptAgentWithStore').getSnapshot('no-such-snapshot'), /404/);
});

test('a flow is run and streamed', async () => {
  const output = await runFlow({ url: `${server}/flows/echo`, input: { text: 'hi' } });
  const streamed = streamFlow({ url: `${server}/flows/streamy`, input: 3 });
  const chunks = await collect(streamed.stream);

  assert.deepEqual(output, { text: 'hi' });
  assert.deepEqual(chunks, [{ count: 0 }, { count: 1 }, { count: 2 }]);
  assert.equal(await streamed.output, 'done 3, streamed: 3 times');
});

test('a failing flow says why', async () => {
  await assert.rejects(runFlow({ url: `${server}/flows/denied`, input: 1 }), /403.*PERMISSION_DENIED.*not for you/s);
});

test('a lost stream is picked up again', async () => {
  const leave = new AbortController();
  const lost = streamFlow({ url: `${server}/flows/slowly`, input: 10, abortSignal: leave.signal });
  lost.output.catch(() => {});
  const streamId = await lost.streamId;
  assert.ok(streamId);
  const leaving = async () => {
    for await (const chunk of lost.stream) if (chunk.count === 3) leave.abort();
  };
  await assert.rejects(leaving, { name: 'AbortError' });

  const resumed = streamFlow({ url: `${server}/flows/slowly`, streamId });
  const chunks = await collect(resumed.stream);

  assert.deepEqual(chunks.map((chunk) => chunk.count), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  assert.equal(await resumed.output, 'done 10, streamed: 10 times');
});

test('a stream nobody knows is not found', async () => {
  const unknown = streamFlow({ url: `${server}/flows/slowly`, streamId: 'no-such-stream' });
  unknown.output.catch(() => {});

  await assert.rejects(collect(unknown.stream), /NOT_FOUND/);
});
