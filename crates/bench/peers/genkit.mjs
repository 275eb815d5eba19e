// Genkit's JavaScript agents as a worker of the comparison; its only argument is the folder of npm packages.
//
// Reads one piece of work a line, as JSON, and answers each with a line. Ends when its input does.
import { mkdirSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const require = createRequire(join(process.argv[2], 'packages.js'));
const { genkit, z, FileSessionStore, InMemorySessionStore } = require('genkit/beta');

const ai = genkit({});
const SYSTEM = 'You are part of a comparison.';
const QUESTION = 'q'.repeat(500);
const ANSWER = 'a'.repeat(1500);
const PROMPT = `---
model: silent
---
{{role "system"}}
You advise the customers of {{shop}}. Be brief.
{{role "user"}}
{{#each items}}
- {{name}}{{#if sold}} (sold){{/if}}: {{price}}
{{/each}}
What of this is on offer?
`;
let agents = 0;

/** The number of pieces in which the model answers. */
let pieces = 1;
/** Whether the model sends one piece and then never answers. */
let waits = false;
const model = ai.defineModel({ name: 'silent' }, async (_, sendChunk) => {
  if (waits) {
    sendChunk?.({ content: [{ text: ANSWER }] });
    await new Promise(() => {});
  }
  if (sendChunk && pieces > 1) {
    const text = ANSWER.slice(0, Math.ceil(ANSWER.length / pieces));
    for (let piece = 0; piece < pieces; piece++) sendChunk({ content: [{ text }] });
  }
  return { message: { role: 'model', content: [{ text: ANSWER }] }, finishReason: 'stop' };
});
const look = ai.defineTool(
  { name: 'look', description: 'Looks.', inputSchema: z.object({ at: z.number() }), outputSchema: z.string() },
  async () => 'seen',
);
const busy = ai.defineModel({ name: 'busy' }, async (request) => {
  const calls = request.tools.length ? (request.messages.at(-1).role === 'tool' ? 0 : toolCalls) : 0;
  const content = Array.from({ length: calls }, (_, at) => ({ toolRequest: { name: 'look', ref: `${at}`, input: { at } } }));
  return { message: { role: 'model', content: calls ? content : [{ text: ANSWER }] }, finishReason: 'stop' };
});
let toolCalls = 0;

function storeOf(work) {
  if (work.store === 'memory') return new InMemorySessionStore();
  if (work.store === 'file') {
    mkdirSync(work.folder, { recursive: true });
    return new FileSessionStore(work.folder);
  }
  return undefined;
}

function define(store, more = {}) {
  return ai.defineAgent({ name: `agent${agents++}`, model, system: SYSTEM, store, ...more });
}

async function turn(agent, sessionId) {
  await agent.chat({ sessionId }).send(QUESTION);
}

const micros = (began) => Number(process.hrtime.bigint() - began) / 1000;

async function timed(task) {
  const began = process.hrtime.bigint();
  await task();
  return micros(began);
}

function median(times) {
  times.sort((one, other) => one - other);
  return times[Math.floor(times.length / 2)];
}

function bytesIn(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath ?? entry.path, entry.name)).size, 0);
}

const works = {
  async conversation(work) {
    const agent = define(storeOf(work));
    for (let done = 0; done < work.turns - work.samples; done++) await turn(agent, 's');
    const times = [];
    for (let sample = 0; sample < work.samples; sample++) times.push(await timed(() => turn(agent, 's')));
    return { micros: median(times), bytes: work.store === 'file' ? bytesIn(work.folder) : undefined };
  },

  async sessions(work) {
    const agent = define(storeOf(work));
    const times = [];
    const began = process.hrtime.bigint();
    await Promise.all(
      Array.from({ length: work.sessions }, async (_, session) => {
        for (let done = 0; done < work.turns; done++) times.push(await timed(() => turn(agent, `s${session}`)));
      }),
    );
    const seconds = micros(began) / 1e6;
    times.sort((one, other) => one - other);
    return { perSecond: times.length / seconds, p50: median(times), p99: times[Math.floor(times.length * 0.99)] };
  },

  async stream(work) {
    const agent = define(new InMemorySessionStore());
    pieces = work.chunks;
    const time = await timed(async () => {
      const { stream, response } = agent.chat({ sessionId: 's' }).sendStream(QUESTION);
      for await (const _ of stream);
      await response;
    });
    pieces = 1;
    return { perSecond: work.chunks / (time / 1e6) };
  },

  async resume(work) {
    return { micros: await timed(() => turn(define(storeOf(work)), 's')) };
  },

  async fork(work) {
    const agent = define(storeOf(work));
    let middle;
    for (let done = 0; done < work.turns; done++) {
      const { snapshotId } = await agent.chat({ sessionId: 's' }).send(QUESTION);
      if (done === work.turns / 2) middle = snapshotId;
    }
    return { micros: await timed(() => agent.chat({ snapshotId: middle }).send(QUESTION)) };
  },

  async state(work) {
    const store = storeOf(work);
    const agent = ai.defineCustomAgent({ name: `agent${agents++}`, store }, async (runner) => {
      await runner.run(async () => {
        runner.session.updateCustom((custom) => custom
          ? { ...custom, count: custom.count + 1 }
          : { count: 0, items: Array.from({ length: work.bytes / 100 }, (_, at) => `${at}`.padStart(97, '.')) });
        runner.session.addMessages([{ role: 'model', content: [{ text: 'Done.' }] }]);
        return { finishReason: 'stop' };
      });
      return {};
    });
    await turn(agent, 's');
    const times = [];
    for (let sample = 0; sample < work.turns; sample++) times.push(await timed(() => turn(agent, 's')));
    return { micros: median(times) };
  },

  async tools(work) {
    toolCalls = work.tools;
    const agent = define(storeOf(work), { model: busy, tools: [look] });
    const times = [];
    for (let done = 0; done < work.turns; done++) times.push(await timed(() => turn(agent, `s${done}`)));
    return { micros: median(times) };
  },

  async hold(work) {
    const agent = define(new InMemorySessionStore());
    for (let session = 0; session < work.sessions; session++) {
      for (let done = 0; done < work.turns; done++) await turn(agent, `s${session}`);
    }
    globalThis.held = agent;
    return {};
  },

  async detach(work) {
    waits = true;
    const agent = define(new InMemorySessionStore());
    for (let session = 0; session < work.sessions; session++) await agent.chat({ sessionId: `s${session}` }).detach(QUESTION);
    globalThis.held = agent;
    return {};
  },

  async render(work) {
    const items = Array.from({ length: 50 }, (_, at) => ({ name: `item ${at}`, sold: at % 3 === 0, price: at }));
    const { Dotprompt } = require('dotprompt');
    const prompt = await new Dotprompt().compile(PROMPT);
    const data = { input: { shop: 'the corner shop', items } };
    const time = await timed(async () => {
      for (let done = 0; done < work.times; done++) await prompt(data);
    });
    return { micros: time / work.times };
  },

  async serve(work) {
    pieces = work.pieces;
    waits = work.waits === true;
    const { expressHandler } = require('@genkit-ai/express');
    const express = require('express');
    const app = express();
    app.use(express.json());
    app.post('/agent', expressHandler(define(new InMemorySessionStore())));
    return new Promise((resolve) => {
      const server = app.listen(0, '127.0.0.1', () => resolve({ address: `127.0.0.1:${server.address().port}`, path: '/agent' }));
    });
  },

  async version() {
    return { version: `Genkit JavaScript ${JSON.parse(readFileSync(join(process.argv[2], 'node_modules/genkit/package.json'))).version}, Node.js ${process.versions.node}` };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const work = JSON.parse(line);
  let answer;
  try {
    answer = works[work.work] ? await works[work.work](work) : { unsupported: true };
  } catch (error) {
    answer = { error: String(error?.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
