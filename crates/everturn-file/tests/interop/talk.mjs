// Talks with an agent that keeps its conversations in the npm package's `FileSessionStore`.
// Arguments: the folder that has the package `genkit` in its node_modules, and the folder of the store.
// Reads a JSON list of steps from standard input and prints a JSON list of what came of each:
//   {"resume": {"sessionId"|"snapshotId": id}, "say": text}   a turn
//   {"load": {"sessionId"|"snapshotId": id}}                  the snapshot, or null
//   {"abort": id}                                             the status afterwards
// An id of the form "#n" stands for the snapshot that step n made.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [packages, folder] = process.argv.slice(2);
const { genkit, FileSessionStore } = createRequire(join(packages, 'index.js'))('genkit/beta');

// What the agent does is also written in Rust, in `interop.rs`: the two must agree.
const ai = genkit({});
const store = new FileSessionStore(folder);
const agent = ai.defineCustomAgent({ name: 'scribe', store }, async (session) => {
  await session.run(async (input) => {
    const said = input.message.content.map((part) => part.text).join('');
    const count = session.getMessages().length;
    session.addMessages([{ role: 'model', content: [{ text: `message ${count} was: ${said}` }] }]);
    session.updateCustom((custom) => ({ turns: (custom?.turns ?? 0) + 1 }));
    session.addArtifacts([
      { name: 'last', parts: [{ text: said }] },
      { name: `page ${count}`, parts: [{ text: said }], metadata: { by: 'npm' } },
    ]);
  });
  return { message: session.getMessages().at(-1), artifacts: session.getArtifacts() };
});

const results = [];
const known = (id) => (id.startsWith('#') ? results[Number(id.slice(1))].snapshotId : id);
const point = (lookup) => Object.fromEntries(Object.entries(lookup).map(([kind, id]) => [kind, known(id)]));

for (const step of JSON.parse(readFileSync(0, 'utf8'))) {
  if (step.say !== undefined) {
    const chat = step.resume.snapshotId ? await agent.loadChat(point(step.resume)) : agent.chat(point(step.resume));
    const reply = await chat.send(step.say);
    results.push({ snapshotId: reply.snapshotId, sessionId: reply.sessionId, text: reply.text });
  } else if (step.load !== undefined) {
    results.push((await agent.getSnapshot(point(step.load))) ?? null);
  } else {
    results.push((await agent.abort(known(step.abort))) ?? null);
  }
}
process.stdout.write(JSON.stringify(results));
