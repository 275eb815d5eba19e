/** A tool call: its input, its output and its duration. */

import { h } from './view.js';
import { clip, lasted } from './time.js';
import { jsonTree } from './json-tree.js';
import { copyButton } from './copy.js';

const FORMS = { restart: 'Answered', respond: 'Output given', decline: 'Declined' };

/**
 * @param {ToolRequest} request
 * @param {ToolResponse | undefined} response
 * @param {{time?: number, waits?: boolean, approval?: Approval}} [more] `waits` if it needs a person's answer
 */
export function toolCard(request, response, { time, waits = false, approval } = {}) {
	const state = response ? 'done' : waits ? 'waits' : 'running';
	const output = response?.output;
	const outcome = response ? clip(typeof output === 'string' ? output : JSON.stringify(output) ?? '', 80) : waits ? 'waits for you' : 'running';
	return h('details', { class: `tool ${state}` },
		h('summary', {},
			h('span.tool-name', request.name),
			h('span.tool-input', clip(short(request.input), 60)),
			h('span.tool-output', outcome),
			time !== undefined && time >= 0 ? h('span.meta', lasted(time)) : null),
		h('div.tool-body', {},
			section('Input', request.input),
			approval?.answers?.map(({ form, by }) => h('p.meta', `${FORMS[form]} by ${by ?? 'an unknown person'}`)),
			response ? section('Output', output) : null));
}

function section(title, value) {
	const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2) ?? '';
	return h('div.tool-part', {},
		h('div.part-bar', h('span', title), copyButton(() => text, `Copy ${title.toLowerCase()}`)),
		typeof value === 'object' && value !== null ? jsonTree(value) : h('pre', { tabindex: '0' }, text));
}

function short(input) {
	if (input === null || typeof input !== 'object' || Array.isArray(input)) return JSON.stringify(input) ?? '';
	return Object.entries(input).map(([key, value]) => `${key}: ${typeof value === 'string' ? value : JSON.stringify(value)}`).join(', ');
}
