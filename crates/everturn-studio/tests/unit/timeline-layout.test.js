import assert from 'node:assert/strict';
import test from 'node:test';
import { layout, pathTo } from '../../assets/js/timeline-layout.js';

const snapshot = (id, parentId, more = {}) => ({ snapshotId: id, parentId, createdAt: '2026-01-01T00:00:00Z', status: 'completed', ...more });
const shown = ({ rows }) => rows.map((row) => `${row.snapshot.snapshotId}@${row.lane}`);

test('a line stays in its lane, and a branch has its own', () => {
  const tree = [snapshot('a'), snapshot('b', 'a'), snapshot('c', 'b'), snapshot('x', 'a'), snapshot('y', 'x')];

  const { rows, lanes } = layout(tree, 'y');

  assert.deepEqual(shown({ rows }), ['a@0', 'b@0', 'c@0', 'x@1', 'y@1']);
  assert.equal(lanes, 2);
  assert.deepEqual(rows.map((row) => row.onPath), [true, false, false, true, true]);
  assert.equal(rows[3].parentRow, 0);
  assert.deepEqual(rows.map((row) => row.number), [1, 2, 3, 4, 5]);
});

test('a snapshot whose parent is missing is a root', () => {
  assert.deepEqual(shown(layout([snapshot('a'), snapshot('b', 'gone')], null)), ['a@0', 'b@1']);
});

test('many turns without a branch fold into one line, which opens', () => {
  const tree = Array.from({ length: 100 }, (_, index) => snapshot(`s${index}`, index === 0 ? undefined : `s${index - 1}`));

  const folded = layout(tree, 's99');
  const opened = layout(tree, 's99', new Set(['s0']));

  assert.ok(folded.rows.length < 10, `${folded.rows.length}`);
  assert.equal(folded.rows.reduce((sum, row) => sum + row.folded, folded.rows.length), 100);
  assert.equal(opened.rows.length, 100);
});

test('labelled, failed and current snapshots are never folded', () => {
  const tree = Array.from({ length: 100 }, (_, index) => snapshot(`s${index}`, index === 0 ? undefined : `s${index - 1}`));
  tree[30].labels = ['good'];
  tree[60].status = 'failed';

  const ids = layout(tree, 's45').rows.map((row) => row.snapshot.snapshotId);

  for (const id of ['s30', 's60', 's45', 's99']) assert.ok(ids.includes(id), id);
});

test('ten thousand snapshots are laid out quickly', () => {
  const tree = Array.from({ length: 10_000 }, (_, index) => snapshot(`s${index}`, index === 0 ? undefined : `s${index - (index % 7 === 0 ? Math.min(index, 5) : 1)}`));
  const before = process.cpuUsage();

  const { rows } = layout(tree, 's9999');

  const milliseconds = process.cpuUsage(before).user / 1000;
  assert.ok(rows.length > 0);
  assert.ok(milliseconds < 150, `${milliseconds} ms`);
});

test('a damaged tree with a circle ends', () => {
  const tree = [snapshot('a', 'b'), snapshot('b', 'a')];

  assert.equal(layout(tree, 'b').rows.length, 2);
  assert.equal(pathTo(tree, 'b').length, 2);
});

test('a path leads from the root to a snapshot', () => {
  const tree = [snapshot('a'), snapshot('b', 'a'), snapshot('x', 'a')];

  assert.deepEqual(pathTo(tree, 'x').map((each) => each.snapshotId), ['a', 'x']);
  assert.deepEqual(pathTo(tree, null), []);
});
