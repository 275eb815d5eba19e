/** The sessions of the open agent: newest first, searched by name and label, read page by page. */

import { h, fill, keyed, iconButton } from './view.js';
import * as api from './api.js';
import { ago, exact } from './time.js';

/** @typedef {{id: string, time: string | number, status: string, labels: string[], count: number | null}} Line */

const MARKS = /** @type {Record<string, string>} */ ({ pending: 'running', expired: 'lapsed', failed: 'failed', aborted: 'aborted' });

/** @param {Studio} studio */
export function sessionsList(studio) {
	const list = h('ul', { 'aria-label': 'Sessions' });
	const empty = h('p.meta.empty');
	const more = h('button.plain', { hidden: true, onclick: () => void loadMore() }, 'Load more');
	const search = h('input', { type: 'search', 'aria-label': 'Find a session', placeholder: 'Find a session', oninput: () => void find() });
	const picker = h('input', { type: 'file', accept: '.jsonl,.ndjson', hidden: true, onchange: () => void bring() });
	const bringButton = iconButton('upload', 'Import', () => picker.click());

	/** @returns {Line[]} */
	const lines = () => {
		const { agent } = studio;
		if (!agent) return [];
		const stored = (studio.sessions.get(agent.name)?.items ?? []).map(({ sessionId, latest }) => ({
			id: sessionId, time: latest.updatedAt ?? latest.createdAt, status: latest.status, labels: latest.labels ?? [], count: latest.index === undefined ? null : latest.index + 1,
		}));
		const local = agent.actions.includes('listSessions') ? [] : studio.local.list(agent.name).map(({ id, time }) => ({ id, time, status: 'completed', labels: [], count: null }));
		return [...stored, ...local];
	};

	const update = () => {
		const { agent } = studio;
		const wanted = search.value.trim().toLowerCase();
		const all = lines();
		const shown = wanted ? all.filter((line) => [line.id, ...line.labels].some((text) => text.toLowerCase().includes(wanted))) : all;
		keyed(list, shown, (line) => line.id, (line) => {
			const item = h('li');
			show(item, line);
			return item;
		}, show);
		const next = agent ? studio.sessions.get(agent.name)?.next : null;
		more.hidden = !next;
		empty.textContent = !agent || shown.length > 0 ? '' : wanted ? 'No session has this text in its name or label.' : `No sessions yet. Send a message to ${agent.name}.`;
		empty.hidden = empty.textContent === '';
		bringButton.hidden = !agent?.actions.includes('import');
	};

	const show = (item, line) => {
		const isCurrent = studio.place.session === line.id;
		const mark = MARKS[line.status];
		const print = JSON.stringify([line, isCurrent, ago(line.time)]);
		if (item.dataset.print === print) return;
		item.dataset.print = print;
		fill(item, h('a', { href: studio.link(studio.place.agent, line.id), 'aria-current': isCurrent ? 'page' : null, title: line.id },
			h('span.name', line.id),
			h('span.facts', {},
				mark ? h('span', { class: `mark ${line.status}` }, mark) : null,
				line.labels.map((label) => h('span.label', label)),
				line.count !== null ? h('span.count', { title: `${line.count} snapshots` }, `${line.count}`) : null,
				h('time', { title: exact(line.time) }, ago(line.time)))));
	};

	const loadMore = async () => {
		if (studio.agent) await studio.readSessions(studio.agent, true);
	};
	/** Reads on until something is found, or everything is read. */
	const find = async () => {
		update();
		const wanted = search.value;
		for (let pages = 0; pages < 40 && studio.agent && search.value === wanted && wanted && list.childElementCount === 0 && studio.sessions.get(studio.agent.name)?.next; pages += 1) await loadMore();
	};
	const bring = async () => {
		const { agent } = studio;
		const file = picker.files?.[0];
		picker.value = '';
		if (!agent || !file) return;
		try {
			const head = JSON.parse((await file.slice(0, 4096).text()).split('\n')[0]);
			const name = head.sessionId ?? file.name;
			const isTaken = lines().some((line) => line.id === name);
			const sessionId = isTaken ? `${name}-${Date.now().toString(36).slice(-4)}` : name;
			const imported = await api.importLines(agent, file, { sessionId });
			await studio.readSessions(agent);
			studio.go({ session: imported.sessionId, at: null, compare: null });
			studio.emit('notice', `${imported.snapshots} snapshots were imported as ${imported.sessionId}.`);
		} catch (error) {
			studio.emit('notice', `The file was not imported: ${error.message}`);
		}
	};

	studio.on('sessions', update);
	studio.on('place', update);
	setInterval(update, 20_000);
	const element = h('section.sessions', {},
		h('div.bar', h('h2', 'Sessions'), bringButton, picker,
			iconButton('plus', 'New session', () => {
				studio.go({ session: null, at: null, compare: null });
				studio.emit('compose');
			})),
		search, list, empty, more);
	return { element, find: () => search.focus() };
}
