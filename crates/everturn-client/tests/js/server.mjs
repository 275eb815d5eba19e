// A Genkit server in JavaScript with a few small agents and flows; its only argument is the folder of npm packages.
// Prints where it listens, and ends when its input does.
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.argv[2], 'packages.js'));
const { genkit, z, InMemorySessionStore, InMemoryStreamManager, UserFacingError } = require('genkit/beta');
const { expressHandler } = require('@genkit-ai/express');
const express = require('express');

const ai = genkit({});
// The failures are part of the tests.
console.error = () => {};
const store = () => new InMemorySessionStore();
const text = (message) => message.content.map((part) => part.text ?? '').join('');

// Repeats the message, word by word; calls a tool on request.
const parrot = ai.defineModel({ name: 'parrot', supports: { tools: true } }, async (request, sendChunk) => {
  const last = request.messages.at(-1);
  const said = last.content.find((part) => part.toolResponse)?.toolResponse.output ?? text(last);
  const wanted = /^use (\w+)$/.exec(said);
  if (wanted) {
    const toolRequest = { name: wanted[1], ref: 'call-1', input: { about: 'leeks' } };
    return { message: { role: 'model', content: [{ toolRequest }] }, finishReason: 'stop' };
  }
  if (said === 'break') throw new UserFacingError('UNAVAILABLE', 'the model is away');
  const words = `you said: ${typeof said === 'string' ? said : JSON.stringify(said)}`.split(/(?<= )/);
  if (sendChunk) for (const word of words) sendChunk({ content: [{ text: word }] });
  return { message: { role: 'model', content: [{ text: words.join('') }] }, finishReason: 'stop' };
});

const ask = ai.defineInterrupt({
  name: 'ask',
  description: 'Asks a person.',
  inputSchema: z.object({ about: z.string() }),
  outputSchema: z.string(),
});

const act = ai.defineTool(
  { name: 'act', description: 'Acts once confirmed.', inputSchema: z.object({ about: z.string() }), outputSchema: z.string() },
  async ({ about }, { interrupt, resumed }) => {
    if (!resumed) interrupt({ confirm: about });
    return `acted on ${about}`;
  }
);

const prompted = ai.defineAgent({ name: 'prompted', model: parrot, system: 'Repeat.', tools: [ask, act], store: store() });

// Counts its turns in the custom state and writes the count down as an artifact.
const counting = async (session, { sendChunk }) => {
  let answer;
  await session.run(async (input) => {
    const said = text(input.message);
    if (said === 'break') throw new Error('intentional failure');
    session.updateCustom((custom) => ({ count: (custom?.count ?? 0) + 1, last: said }));
    const { count } = session.getCustom();
    session.addArtifacts([{ name: 'count.txt', parts: [{ text: String(count) }] }]);
    sendChunk({ modelChunk: { role: 'model', content: [{ text: `turn ${count}` }] } });
    answer = { role: 'model', content: [{ text: `turn ${count}` }] };
    session.addMessages([answer]);
    return { finishReason: 'stop' };
  });
  return { message: answer, artifacts: session.getArtifacts() };
};
const counter = ai.defineCustomAgent({ name: 'counter' }, counting);
const keeper = ai.defineCustomAgent({ name: 'keeper', store: store() }, counting);

// Works until it is stopped, or for a moment on request.
const worker = ai.defineCustomAgent({ name: 'worker', store: store() }, async (session, { abortSignal }) => {
  await session.run(async (input) => {
    await new Promise((resolve, reject) => {
      if (text(input.message) === 'quick') setTimeout(resolve, 20);
      abortSignal.addEventListener('abort', () => reject(new Error('stopped')));
    });
    session.addMessages([{ role: 'model', content: [{ text: 'worked' }] }]);
    return { finishReason: 'stop' };
  });
  return { message: session.getMessages().at(-1) };
});

const count = ai.defineFlow(
  { name: 'count', inputSchema: z.number(), streamSchema: z.number(), outputSchema: z.string() },
  async (to, { sendChunk }) => {
    for (let n = 1; n <= to; n++) {
      sendChunk(n);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return `counted to ${to}`;
  }
);
const refuse = ai.defineFlow({ name: 'refuse', inputSchema: z.string(), streamSchema: z.number() }, async (what, { sendChunk }) => {
  sendChunk(1);
  if (what === 'kindly') throw new UserFacingError('FAILED_PRECONDITION', 'not today', { until: 'monday' });
  throw new Error('a secret');
});

const app = express();
app.use(express.json());
const agent = (path, served, options) => {
  app.post(path, expressHandler(served, options));
  app.post(`${path}/getSnapshot`, expressHandler(served.getSnapshotDataAction, options));
  app.post(`${path}/abort`, expressHandler(served.abortAgentAction, options));
};

// Cuts the connection after the second record, unless the request is for the rest of a stream.
const runs = { count: 0, prompted: 0 };
const cut = (name) => (request, response, next) => {
  if (!request.headers['x-genkit-stream-id']) {
    runs[name] += 1;
    const write = response.write.bind(response);
    let records = 0;
    response.write = (data) => {
      write(data);
      records += 1;
      if (records === 2) setImmediate(() => response.destroy());
      return true;
    };
  }
  next();
};
app.get('/runs', (_, response) => void response.json(runs));

agent('/prompted', prompted);
agent('/counter', counter);
agent('/keeper', keeper);
agent('/worker', worker);
const contextProvider = ({ headers }) => {
  if (headers.authorization !== 'Bearer secret') throw new UserFacingError('PERMISSION_DENIED', 'not you');
  return {};
};
agent('/guarded', keeper, { contextProvider });
app.post('/count', expressHandler(count));
app.post('/refuse', expressHandler(refuse));
const streamManager = new InMemoryStreamManager();
app.post('/durable/count', expressHandler(count, { streamManager }));
app.post('/cut/count', cut('count'), expressHandler(count, { streamManager }));
app.post('/cut/prompted', cut('prompted'), expressHandler(prompted, { streamManager }));

const server = app.listen(0, '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
process.stdin.on('end', () => process.exit(0)).resume();
