/** The conversation log: messages, the streamed message, and open questions. */

import { h, fill, perFrame } from './view.js';
import { approvals } from './approval.js';
import { entries, textOf } from './messages.js';
import { entryView } from './entry-view.js';
import { LiveEntry } from './live-entry.js';
import { lasted } from './time.js';
import { used } from './usage.js';
import { welcome } from './welcome.js';

/** The number of entries rendered at once; earlier ones follow when the page is idle. */
const FIRST = 30;
const SLICE = 10;

/** @param {Studio} studio */
export function conversationLog(studio) {
	const list = h('div.entries');
	const after = h('div.after');
	const below = h('button.below', { hidden: true, onclick: () => toEnd() }, 'New below');
	const log = h('div.log', { role: 'log', 'aria-label': 'Conversation', tabindex: '0' }, list, after);
	const element = h('div.log-box', log, below);
	/** @type {Entry[]} */ let shown = [];
	/** The index of the first rendered entry. */ let from = 0;
	/** @type {LiveEntry | null} */ let live = null;
	/** @type {Map<string, {element: HTMLElement, print: string}>} */ const made = new Map();
	/** @type {{print: string, elements: HTMLElement[]}} */ let asked = { print: '', elements: [] };
	let isAtEnd = true;
	/** @type {AbortController | null} */ let listening = null;

	const toEnd = () => {
		log.scrollTop = log.scrollHeight;
		isAtEnd = true;
		below.hidden = true;
	};
	log.addEventListener('scroll', () => {
		isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
		if (isAtEnd) below.hidden = true;
		if (log.scrollTop < 1500) makeEarlier();
	}, { passive: true });
	const follow = () => {
		if (isAtEnd) toEnd();
		else below.hidden = false;
	};

	const view = (entry) => {
		const { conversation } = studio;
		const print = JSON.stringify(entry.parts) + entry.answers.size;
		const known = made.get(entry.key);
		if (known?.print === print) return known.element;
		const actions = conversation ? { sayInstead: (index, parts) => void studio.sayInstead(index, parts) } : null;
		const newer = entryView(entry, /** @type {any} */ (conversation), actions);
		made.set(entry.key, { element: newer, print });
		return newer;
	};

	/** Renders a few earlier entries without moving the visible ones. */
	const makeEarlier = () => {
		if (from === 0) return;
		const first = Math.max(0, from - SLICE);
		const height = log.scrollHeight;
		const top = log.scrollTop;
		list.prepend(...shown.slice(first, from).map(view));
		from = first;
		if (isAtEnd) toEnd();
		else if (log.scrollTop === top) log.scrollTop = top + log.scrollHeight - height;
	};

	const render = () => {
		const { conversation } = studio;
		if (!conversation) return fill(list);
		shown = entries(conversation.messages);
		from = Math.min(from, shown.length);
		if (shown.length - from > FIRST * 4) from = shown.length - FIRST;
		const wanted = shown.slice(from).map(view);
		const keys = new Set(shown.map((entry) => entry.key));
		for (const key of made.keys()) if (!keys.has(key)) made.delete(key);
		place(list, wanted);
		renderAfter();
		follow();
	};

	const renderAfter = () => {
		const { conversation } = studio;
		if (!conversation) return fill(after);
		const { turn, failure, snapshot, messages, unsent, isLoaded } = conversation;
		if (turn && !live) live = new LiveEntry(conversation);
		if (!turn) live = null;
		live?.update();
		// An open question keeps its partly written answer.
		const waiting = JSON.stringify(conversation.interrupts);
		if (waiting !== asked.print) asked = { print: waiting, elements: approvals(conversation) };
		const isEmpty = isLoaded && messages.length === 0 && !turn && !failure;
		const wanted = [
			live?.element,
			failure ? failed(failure, unsent ? textOf(unsent.content) : '') : null,
			asked.elements,
			!turn && !failure && snapshot && messages.length > 0 ? saved(conversation) : null,
			isEmpty ? welcome(studio) : null,
			isLoaded ? null : h('p.meta.center', 'Loading…'),
		].flat().filter((each) => each instanceof HTMLElement);
		place(after, wanted);
	};

	const schedule = perFrame(() => {
		if (!live && studio.conversation?.turn) renderAfter();
		live?.update();
		follow();
	});

	const open = () => {
		listening?.abort();
		listening = new AbortController();
		const { signal } = listening;
		made.clear();
		fill(list);
		[shown, from, live, isAtEnd, asked] = [[], Number.MAX_SAFE_INTEGER, null, true, { print: '', elements: [] }];
		const { conversation } = studio;
		if (!conversation) return fill(after);
		conversation.on('reset', () => {
			if (from === Number.MAX_SAFE_INTEGER) from = Math.max(0, entries(conversation.messages).length - FIRST);
			if (conversation.live.length === 0) live = null;
			render();
			const idle = (run) => requestIdleCallback(run);
			const more = (deadline) => {
				if (signal.aborted || from === 0) return;
				if (deadline.timeRemaining() > 6) makeEarlier();
				idle(more);
			};
			idle(more);
		}, signal);
		conversation.on('live', schedule, signal);
		conversation.on('tree', renderAfter, signal);
		conversation.on('turn', () => {
			renderAfter();
			follow();
		}, signal);
		render();
	};
	studio.on('conversation', open);
	return { element, toEnd };
}

/**
 * Shows these elements. Existing elements are not replaced, so that a selection and the focus stay.
 * @param {HTMLElement} parent @param {HTMLElement[]} wanted
 */
function place(parent, wanted) {
	const keep = new Set(wanted);
	for (const child of [...parent.children]) if (!keep.has(/** @type {HTMLElement} */ (child))) child.remove();
	let next = parent.firstElementChild;
	for (const element of wanted) {
		if (element === next) next = next.nextElementSibling;
		else parent.insertBefore(element, next);
	}
}

/** @param {{text: string, retry: (() => void) | null, usage?: Usage}} failure @param {string} unsent */
function failed({ text, retry, usage }, unsent) {
	return h('div.failure', { role: 'alert' },
		unsent ? h('p.unsent', h('span.meta', 'Not sent: '), unsent) : null,
		h('p', text), usage ? h('p.meta', used('It used', usage)) : null, retry ? h('button', { onclick: retry }, 'Try again') : null);
}

function saved({ snapshot, lasted: time, tree, isReading }) {
	if (!snapshot) return null;
	const place = tree.findIndex((each) => each.snapshotId === snapshot.snapshotId) + 1;
	const marks = { failed: 'failed', aborted: 'aborted', pending: 'running', expired: 'lapsed' }[snapshot.status];
	return h('p.saved.meta', {},
		h('span', { title: snapshot.snapshotId }, `${isReading ? 'as of' : 'saved as'} ${place > 0 ? `snapshot ${place}` : snapshot.snapshotId.slice(-8)}`),
		marks ? h('span', { class: `mark ${snapshot.status}` }, marks) : null,
		(snapshot.labels ?? []).map((label) => h('span.label', label)),
		time !== null ? h('span', lasted(time)) : null);
}
