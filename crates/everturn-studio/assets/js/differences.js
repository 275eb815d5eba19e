/** Two snapshots side by side: messages, state, artifacts. */

import { h, fill, iconButton } from './view.js';
import * as api from './api.js';
import { entries, textOf } from './messages.js';
import { entryView } from './entry-view.js';
import { line } from './state-tab.js';
import { lineDiff } from './line-diff.js';
import { at } from './patch.js';

/** @param {Studio} studio */
export function differences(studio) {
	const body = h('div.differences-body', { tabindex: '0' });
	const head = h('div.differences-head');
	const element = h('section.differences', { role: 'region', 'aria-label': 'Differences', hidden: true }, head, body);
	let shown = '';
	let step = -1;

	const next = () => {
		const found = [...body.querySelectorAll('.difference')];
		if (found.length === 0) return;
		step = (step + 1) % found.length;
		found[step].scrollIntoView({ block: 'start', behavior: 'auto' });
		found.forEach((each, index) => each.classList.toggle('current', index === step));
	};

	const update = async () => {
		const { at: left, compare: right } = studio.place;
		const { agent } = studio;
		element.hidden = !left || !right || !agent;
		if (!left || !right || !agent) {
			shown = '';
			return;
		}
		const key = JSON.stringify([agent.name, left, right]);
		if (key === shown) return;
		shown = key;
		step = -1;
		fill(body, h('p.meta', 'Comparing…'));
		try {
			const [diff, first, second] = await Promise.all([
				api.ask(agent, 'diff', { left, right }), api.ask(agent, 'getSnapshot', { snapshotId: left }), api.ask(agent, 'getSnapshot', { snapshotId: right }),
			]);
			if (shown !== key) return;
			fillHead(first, second);
			fill(body, ...view(diff, first, second));
		} catch (error) {
			shown = '';
			fill(body, h('p.complaint', error.message));
		}
	};

	const fillHead = (first, second) => {
		fill(head, h('h2', 'Differences'), h('span.meta', `${nameOf(first)} and ${nameOf(second)}`), h('span.space'),
			h('button.plain', { onclick: () => studio.go({ at: studio.place.compare, compare: studio.place.at }) }, 'Swap'),
			h('button.plain', { onclick: next }, 'Next'),
			iconButton('close', 'Close the comparison', () => studio.go({ compare: null })));
	};

	const nameOf = (snapshot) => {
		const { conversation } = studio;
		const number = (conversation?.tree.findIndex((each) => each.snapshotId === snapshot.snapshotId) ?? -1) + 1;
		const place = snapshot.sessionId !== conversation?.id ? snapshot.sessionId : `snapshot ${number}`;
		return snapshot.labels?.length ? `${place} (${snapshot.labels[0]})` : String(place);
	};

	/** @param {any} diff @param {Snapshot} first @param {Snapshot} second @returns {HTMLElement[]} */
	const view = (diff, first, second) => {
		const { conversation } = studio;
		const list = (messages) => (messages.length === 0 ? [h('p.meta', 'Nothing more.')]
			: entries(messages).map((entry) => entryView(entry, /** @type {any} */ (conversation), null)));
		const [left, right] = [/** @type {Message[]} */ (diff.onlyLeft ?? []), /** @type {Message[]} */ (diff.onlyRight ?? [])];
		const isSame = left.length === 0 && right.length === 0 && (diff.custom ?? []).length === 0;
		const custom = (diff.custom ?? []).map((operation) => h('tr', {},
			h('th', { scope: 'row' }, h('code', operation.path || '/')), h('td', shownValue(at(first.state?.custom, operation.path))), h('td', shownValue(at(second.state?.custom, operation.path)))));
		return [
			h('p.common.meta', `${diff.common ?? 0} messages in common`),
			...(left.length + right.length > 0 ? [h('div.difference', h('h3', 'Messages'),
				h('div.sides', h('div.side', { 'aria-label': nameOf(first), role: 'group' }, h('div.side-name', nameOf(first)), list(left)),
					h('div.side', { 'aria-label': nameOf(second), role: 'group' }, h('div.side-name', nameOf(second)), list(right))))] : []),
			...(custom.length > 0 ? [h('div.difference', h('h3', 'State'),
				h('table.state-diff', h('thead', h('tr', h('td'), h('th', { scope: 'col' }, nameOf(first)), h('th', { scope: 'col' }, nameOf(second)))), h('tbody', custom)),
				h('details', h('summary.meta', 'As a patch'), (diff.custom ?? []).map(line)))] : []),
			...artifacts(first, second),
			...(isSame ? [h('p', 'Messages and state are the same.')] : []),
		];
	};

	studio.on('place', () => void update());
	studio.on('conversation', () => void update());
	return element;
}

function shownValue(value) {
	return value === undefined ? h('span.meta', 'absent') : h('code', JSON.stringify(value, null, 1));
}

function artifacts(first, second) {
	const texts = (snapshot) => new Map((snapshot.state?.artifacts ?? []).map((artifact, index) => [artifact.name ?? `artifact ${index + 1}`, textOf(artifact.parts)]));
	const [left, right] = [texts(first), texts(second)];
	const names = [...new Set([...left.keys(), ...right.keys()])].filter((name) => left.get(name) !== right.get(name));
	return names.map((name) => h('div.difference', h('h3', name),
		h('pre.line-diff', { tabindex: '0' }, lineDiff(left.get(name) ?? '', right.get(name) ?? '').map(({ sign, text }) => h('span', { class: sign === '+' ? 'came' : sign === '-' ? 'gone' : '' }, `${sign} ${text}\n`)))));
}
