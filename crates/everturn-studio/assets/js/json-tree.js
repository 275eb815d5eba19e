/** A JSON value as a collapsible tree that highlights recent changes. */

import { h } from './view.js';
import { segments } from './patch.js';

/** The number of members shown before the rest is folded. */
const MOST = 200;

/**
 * @param {any} value
 * @param {{name?: string, open?: number, changed?: string[]}} [options] `open` is the initially open depth; `changed` has the pointers of
 *   recently changed values
 */
export function jsonTree(value, { name, open = 2, changed = [] } = {}) {
	const paths = changed.map(segments);
	return h('div.json', member(name ?? null, value, open, paths, true));
}

function member(name, value, open, changed, isRoot = false) {
	const isChanged = changed.some((path) => path.length === 0);
	const label = name === null ? null : h('span.key', name);
	const flash = isChanged ? ' changed' : '';
	if (value === null || typeof value !== 'object') {
		return h('div', { class: `leaf${flash}` }, label, h('span', { class: typeof value }, typeof value === 'string' ? value : JSON.stringify(value)));
	}
	const members = Array.isArray(value) ? value.map((each, index) => /** @type {[string, any]} */ ([String(index), each])) : Object.entries(value);
	const count = Array.isArray(value) ? `[${members.length}]` : `{${members.length}}`;
	if (members.length === 0) return h('div', { class: `leaf${flash}` }, label, h('span.quiet', Array.isArray(value) ? '[ ]' : '{ }'));
	const inner = () => members.slice(0, MOST).map(([key, each]) => member(key, each, open - 1, below(changed, key, members.length)))
		.concat(members.length > MOST ? [h('div.leaf.quiet', `${members.length - MOST} more`)] : []);
	if (isRoot && name === null) return h('div', { class: `members${flash}` }, inner());
	const isOpen = open > 0 || changed.length > 0;
	const body = h('div.members');
	let isMade = false;
	// A closed value may be large, so its members are rendered when it is opened.
	const make = () => {
		if (isMade) return;
		isMade = true;
		body.append(...inner());
	};
	if (isOpen) make();
	return h('details', { class: `branch${flash}`, open: isOpen, ontoggle: make }, h('summary', label, h('span.count', count)), body);
}

function below(changed, key, length) {
	return changed.filter(([first]) => first === key || (first === '-' && key === String(length - 1))).map((path) => path.slice(1));
}
