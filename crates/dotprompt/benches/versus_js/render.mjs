// Renders the scenario with the npm package and prints, as JSON, how long it takes and what comes out.
// Arguments: the folder of the scenario and the folder that has the package in its node_modules.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [scenarioFolder, packageFolder] = process.argv.slice(2);
const { Dotprompt } = createRequire(join(packageFolder, 'index.js'))('dotprompt');
const scenario = JSON.parse(readFileSync(join(scenarioFolder, 'scenario.json'), 'utf8'));
const source = readFileSync(join(scenarioFolder, 'support.prompt'), 'utf8');

const messages = Array.from({ length: scenario.history }, (_, index) => ({
  role: index % 2 ? 'model' : 'user',
  content: [{ text: `Message ${index} says a sentence or two about an order, its state and what to do next.` }],
}));
const data = { input: scenario.input, context: scenario.context, messages };
const dotprompt = new Dotprompt({ partials: scenario.partials });

async function microseconds(run, rounds) {
  for (let i = 0; i < rounds; i++) await run();
  const results = [];
  for (let sample = 0; sample < 9; sample++) {
    const start = process.hrtime.bigint();
    for (let i = 0; i < rounds; i++) await run();
    results.push(Number(process.hrtime.bigint() - start) / rounds / 1000);
  }
  return Math.min(...results);
}

const compiled = await dotprompt.compile(source);
console.log(
  JSON.stringify({
    messages: (await compiled(data)).messages,
    compiled: await microseconds(() => compiled(data), 2000),
    source: await microseconds(() => dotprompt.render(source, data), 300),
  })
);
