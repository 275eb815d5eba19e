import assert from 'node:assert/strict';
import test from 'node:test';
import { apply, at, describe } from '../../assets/js/patch.js';

test('values are added, replaced, removed, moved and copied', () => {
  const before = { pantry: ['leeks'], mood: 'calm' };
  const after = apply(before, [
    { op: 'add', path: '/pantry/-', value: 'beans' },
    { op: 'add', path: '/pantry/0', value: 'salt' },
    { op: 'replace', path: '/mood', value: 'proud' },
    { op: 'copy', from: '/mood', path: '/was' },
    { op: 'move', from: '/was', path: '/is' },
    { op: 'remove', path: '/pantry/1' },
  ]);

  assert.deepEqual(after, { pantry: ['salt', 'beans'], mood: 'proud', is: 'proud' });
  assert.deepEqual(before, { pantry: ['leeks'], mood: 'calm' });
});

test('the whole document can be replaced, and names are unescaped', () => {
  assert.deepEqual(apply(null, [{ op: 'add', path: '', value: { 'a/b': { 'c~d': 1 } } }]), { 'a/b': { 'c~d': 1 } });
  assert.deepEqual(apply({ 'a/b': { 'c~d': 1 } }, [{ op: 'replace', path: '/a~1b/c~0d', value: 2 }]), { 'a/b': { 'c~d': 2 } });
});

test('unchanged values are shared', () => {
  const before = { big: { list: [1] }, count: 1 };
  assert.equal(apply(before, [{ op: 'replace', path: '/count', value: 2 }]).big, before.big);
});

test('a pointer finds its value, or nothing', () => {
  assert.equal(at({ a: [{ b: 1 }] }, '/a/0/b'), 1);
  assert.equal(at({ a: [] }, '/a/0/b'), undefined);
});

test('an operation is described with a sign', () => {
  assert.deepEqual(describe({ op: 'remove', path: '/a' }), { sign: '−', path: '/a', value: undefined });
  assert.equal(describe({ op: 'replace', path: '', value: 1 }).path, '/');
});
