// Writes random templates and renders them with the npm package `dotprompt`.
// Arguments: the folder that has the package in its node_modules, the number of templates, a seed.
// Prints JSON: the partials, the data, and pairs of a template and the messages it renders into.
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [folder, count, firstSeed] = process.argv.slice(2);
const { Dotprompt } = createRequire(join(folder, 'index.js'))('dotprompt');

let seed = Number(firstSeed) | 0;
function random(bound) {
  seed = (seed + 0x6d2b79f5) | 0;
  let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296) * bound);
}
const pick = (list) => list[random(list.length)];
const maybe = (make) => (random(2) ? make() : '');

const partials = {
  lines: 'P1\nP2\n',
  word: 'Q',
  nested: '\n  {{> word}}\nx\n',
  empty: '',
  block: 'B{{> @partial-block}}E\n',
  show: '[{{x}},{{../x}},{{@index}},{{name}},{{k}},{{this.length}}]',
  loop: '({{> @partial-block}} {{#each arr}}{{.}},{{../x}};{{/each}})',
  dump: '<{{json this}}>',
  layout: 'L{{> nav}}L{{#> @partial-block}}fallback{{/@partial-block}}',
  inner: 'registered{{x}},{{k}}',
  nav: 'registered',
};
// Numbers print only with text beside them: the package adds two that stand side by side.
const input = {
  x: 'X', name: 'N', s: 'two\nlines', arr: ['1', '2'], list: [{ x: 'a', arr: ['i'], obj: { x: 'lo' } }, { x: 'b', name: 'bn' }],
  ea: [], t: true, f: false, nil: { n: null }, z: 0, one: 1, e: '', eo: {}, obj: { x: 'ox', arr: ['o1'], obj: { x: 'oox' } },
  'a b': 'sp', which: 'show', deep: [['n1', 'n2'], ['n3']],
};
const context = { state: { a: { b: '7' }, l: ['s1', 's2'] }, auth: { email: 'e@x' } };

const open = () => pick(['{{', '{{', '{{', '{{~']);
const close = () => pick(['}}', '}}', '}}', '~}}']);
const tag = (inside) => open() + inside + close();

// Text, blanks and line breaks around tags of every kind.
function spaced(depth) {
  const statements = [
    () => pick(['a', '\n', ' ', '  ', '\r\n', 'b\n', '\n\n', ' c ', '\t', '\n  ', 'd']),
    () => pick(['a', '\n', ' ', '  ', '\r\n', 'b\n', '\n\n', ' c ', '\t', '\n  ', 'd']),
    () => tag(pick(['x', 'name', 's', 'missing', '.', 'obj.x', 'this.x'])),
    () => pick(['{{! c }}', '{{!-- c --}}', '{{!-- }} --}}', '{{~! c ~}}', '{{!-- c --~}}', '{{~!-- c --}}']),
    () => tag(`> ${pick(['lines', 'word', 'nested', 'empty'])}`),
    () => pick(['\\{{x}}', '\\\\{{x}}', '{{{x}}}', '{{&x}}', '{{~{x}~}}']),
  ];
  const blocks = [
    () => tag(`#if ${pick(['t', 'f', 'x'])}`) + spaced(depth - 1) + maybe(() => tag(pick(['else', '^'])) + spaced(depth - 1)) + tag('/if'),
    () =>
      tag(`#if ${pick(['t', 'f'])}`) + spaced(depth - 1) + tag(`else if ${pick(['t', 'f'])}`) + spaced(depth - 1) +
      maybe(() => tag('else') + spaced(depth - 1)) + tag('/if'),
    () => tag(`#each ${pick(['arr', 'ea', 'obj'])}`) + spaced(depth - 1) + maybe(() => tag('else') + spaced(depth - 1)) + tag('/each'),
    () => tag(`${pick(['#', '^'])}arr`) + spaced(depth - 1) + tag('/arr'),
    () => tag('#> block') + spaced(depth - 1) + tag('/block'),
    () => tag(`${pick(['#', '^'])}obj.x`) + spaced(depth - 1) + tag('/obj.x'),
  ];
  return Array.from({ length: 1 + random(5) }, () => pick(depth > 0 ? [...statements, ...blocks] : statements)()).join('');
}

const path = () =>
  pick([
    'x', 'name', 'arr', 'list', 'ea', 't', 'f', 'nil.n', 'z', 'one', 'e', 'eo', 'obj', 'obj.x', 'obj.obj', 'obj.obj.x', 'missing',
    'missing.y', '.', 'this', '../x', '..', '../obj', '../../x', './x', 'this.x', '@index', '@key', '@first', '@last', '@root.x',
    '@root.obj', '@state.a.b', '@state.l', '@state', '@auth.email', '@../index', 'list.[0].x', 'arr.length', '[a b]', 'obj.[x]',
    'item', 'item.x', 'i', 'deep', '@missing.x',
  ]);
const literal = () =>
  pick(['"s"', "'t'", '"X"', '"a\\"b"', "'it\\'s'", '"back\\\\slash"', '"new\\n"', '1', '0', '-1.5', 'true', 'false', 'null', '"a b"', '""']);
const lookup = () => pick([`(lookup obj ${pick(["'x'", 'name', 'x'])})`, '(lookup list 0)', "(lookup (lookup list 1) 'x')"]);
const value = () => pick([path, path, path, literal, lookup])();
const named = () => pick(['', ` k=${value()}`, ` name=${value()}`, ` x=${value()} k=${value()}`]);
// A context that exists: with none, the package makes one up, and counts it among the parents.
const existing = () => pick(['@root.x', '@root.arr', '@root.list', '@root.obj.obj', '@state.a', '"s"']);
const given = () => pick([named, () => ` ${existing()}`, () => ` ${pick(['@root.obj', '@root.list.[1]'])}${named()}`])();

// Expressions, scopes and partials of every kind.
function computed(depth) {
  const statements = [
    () => pick(['a ', 'b\n', 'c']),
    () => `{{${path()}}},`,
    () => `{{json ${value()}${pick(['', ' indent=2', ' indent=0'])}}},`,
    () => `{{lookup ${pick(['list', 'obj', '@root', 'deep', 'arr', 'z', 'nil.n', 'e'])} ${value()}}},`,
    () => `{{> ${pick(['show', 'dump', 'inner', '(lookup @root "which")'])}${given()}}},`,
  ];
  const otherwise = () => maybe(() => `{{else}}${computed(depth - 1)}`);
  const block = (name, args, mark = '#') => `{{${mark}${name}${args}}}${computed(depth - 1)}${otherwise()}{{/${name}}}`;
  const blocks = [
    () => block('if', ` ${value()}${pick(['', ' includeZero=true'])}`),
    () => block('unless', ` ${value()}`),
    () => block('each', ` ${value()}${pick(['', ' as |item|', ' as |item i|'])}`),
    () => block('with', ` ${value()}${pick(['', ' as |item|'])}`),
    () => block(pick(['ifEquals', 'unlessEquals']), ` ${value()} ${value()}`),
    () => block(pick(['x', 'arr', 'list', 'obj', 't', 'f', 'nil.n', 'z', 'e', 'ea', 'obj.obj', '../obj', 'this', 'missing', '@state.l', 'item']), '', pick(['#', '^'])),
    () => {
      const name = pick(['loop', 'layout', 'show', 'nobody']);
      const inline = maybe(() => '{{#*inline "nav"}}inline{{x}},{{/inline}}');
      return `{{#> ${name}${given()}}}${computed(depth - 1)}${inline}{{/${name}}}`;
    },
    () => `{{#*inline "inner"}}inline{{x}},{{@index}},{{k}},{{/inline}}${computed(depth - 1)}`,
  ];
  return Array.from({ length: 1 + random(4) }, () => pick(depth > 0 ? [...statements, ...blocks] : statements)()).join('');
}

const dotprompt = new Dotprompt({ partials });
const cases = [];
for (let index = 0; index < Number(count); index++) {
  const template = (index % 2 ? spaced : computed)(index % 5);
  const { messages } = await dotprompt.render(template, { input, context });
  cases.push([template, messages]);
}
console.log(JSON.stringify({ partials, input, context, cases }));
