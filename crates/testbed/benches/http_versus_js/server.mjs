// The agent of the comparison on Genkit's JavaScript server; its only argument is the folder of npm packages.
// Prints where it listens, and ends when its input does.
import { createRequire } from 'node:module';
import { join } from 'node:path';

const require = createRequire(join(process.argv[2], 'packages.js'));
const { genkit, InMemorySessionStore } = require('genkit/beta');
const { expressHandler } = require('@genkit-ai/express');
const express = require('express');

const ai = genkit({});
const words = ['Leek ', 'and ', 'potato ', 'soup ', 'tonight.'];
const model = ai.defineModel({ name: 'cook' }, async (_, sendChunk) => {
  if (sendChunk) for (const text of words) sendChunk({ content: [{ text }] });
  return { message: { role: 'model', content: [{ text: words.join('') }] }, finishReason: 'stop' };
});
const chef = ai.defineAgent({ name: 'chef', model, system: 'You are a cook.', store: new InMemorySessionStore() });

const app = express();
app.use(express.json());
app.post('/agents/chef', expressHandler(chef));
const server = app.listen(0, '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
process.stdin.on('end', () => process.exit(0)).resume();
