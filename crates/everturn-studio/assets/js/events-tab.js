/** The raw events in order of arrival. */

import { h, fill } from './view.js';
import { clip } from './time.js';
import { copyButton } from './copy.js';
import { jsonTree } from './json-tree.js';

/** The number of events shown. */
const MOST = 300;

/** @param {Studio} studio @returns {Tab} */
export function eventsTab(studio) {
	const list = h('ol.events');
	const empty = h('p.meta.empty', 'Every event of a turn is listed here as it arrives.');
	const count = h('span.meta');
	const bar = h('div.panel-bar', count, h('span.space'),
		copyButton(() => (studio.conversation?.events ?? []).map(({ data }) => JSON.stringify(data)).join('\n'), 'Copy all'));
	/** @type {any} */ let owner = null;
	/** @type {any} */ let last = null;
	const update = () => {
		const events = studio.conversation?.events ?? [];
		if (owner !== studio.conversation) {
			owner = studio.conversation;
			last = null;
			fill(list);
		}
		const known = last ? events.lastIndexOf(last) : -1;
		list.append(...events.slice(Math.max(known + 1, events.length - MOST)).map(line));
		last = events.at(-1) ?? null;
		while (list.childElementCount > MOST) list.firstElementChild?.remove();
		count.textContent = events.length > MOST ? `the last ${MOST} of ${events.length} events` : `${events.length} events`;
		empty.hidden = events.length > 0;
		bar.hidden = events.length === 0;
	};
	return { element: h('div.events-tab', bar, empty, list), update, on: ['event'] };
}

function line({ time, data }) {
	const body = h('div');
	const kind = data.result ? 'result' : data.error ? 'error' : Object.keys(data.message ?? {}).join(', ');
	let isMade = false;
	return h('li', h('details', { ontoggle: () => {
		if (isMade) return;
		isMade = true;
		body.append(jsonTree(data, { open: 4 }));
	} },
		h('summary', h('time.meta', new Date(time).toISOString().slice(11, 23)), h('span', { class: `event-kind ${kind}` }, kind), h('span.event-text', clip(JSON.stringify(data.message?.modelChunk?.content ?? data.message ?? data.result ?? data.error), 90))),
		body));
}
