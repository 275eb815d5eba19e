/** The session's snapshots as a drawn tree: read one, resume it, fork, compare, label and delete it. */

import { h, fill, perFrame, svg } from './view.js';
import * as api from './api.js';
import { askTexts, confirm } from './dialogs.js';
import { ago, exact, sessionName } from './time.js';
import { layout } from './timeline-layout.js';

const ROW = 48;
const LANE = 18;
const HUES = 3;
/** The number of rows rendered beyond the visible ones. */
const MARGIN = 20;

/** @param {Studio} studio @returns {Tab} */
export function timelineTab(studio) {
	const lines = /** @type {SVGElement} */ (svg('svg', { class: 'lines', 'aria-hidden': 'true' }));
	const items = h('div.items', { role: 'tree', 'aria-label': 'Timeline' });
	const canvas = h('div.canvas', lines, items);
	const scroll = h('div.timeline-scroll', canvas);
	const empty = h('p.meta.empty');
	const actions = h('div.snapshot-actions', { role: 'region', 'aria-label': 'Snapshot' });
	/** @type {Row[]} */ let rows = [];
	let lanes = 1;
	/** @type {Set<string>} */ const opened = new Set();
	/** @type {Set<number>} */ let asked = new Set();
	/** @type {any} */ let owner = null;
	/** What was drawn last: the same is not drawn again, so that no click is lost. @type {any[]} */ let drawn = [];

	const selected = () => studio.place.at ?? studio.conversation?.snapshot?.snapshotId ?? null;
	const tree = () => studio.conversation?.tree ?? [];
	const chosen = () => tree().find(({ snapshotId }) => snapshotId === selected());

	const update = () => {
		const { conversation } = studio;
		if (owner !== conversation) {
			owner = conversation;
			opened.clear();
			asked = new Set();
			scroll.scrollTop = 0;
		}
		const now = [tree(), conversation?.excerpts.size, conversation?.snapshot, studio.place.at, studio.place.compare, conversation?.latest, opened.size];
		if (now.every((each, index) => each === drawn[index])) return;
		drawn = now;
		const isEmpty = tree().length === 0;
		empty.textContent = !conversation ? 'No session is open.' : !conversation.isServerManaged ? 'This agent keeps no snapshots: the conversation stays in this browser.' : 'The first turn makes the first snapshot.';
		empty.hidden = !isEmpty;
		canvas.hidden = isEmpty;
		if (isEmpty) return fill(actions);
		({ rows, lanes } = layout(tree(), conversation?.snapshot?.snapshotId ?? null, opened));
		canvas.style.setProperty('height', `${rows.length * ROW}px`);
		canvas.style.setProperty('--gutter', `${Math.min(lanes, 8) * LANE + 10}px`);
		draw();
		fillActions();
	};

	const focus = (id) => /** @type {HTMLElement | null} */ (items.querySelector(`[data-id="${CSS.escape(id)}"]`))?.focus({ preventScroll: true });

	/** Renders the visible rows. */
	const draw = () => {
		const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - MARGIN);
		const last = Math.min(rows.length, Math.ceil((scroll.scrollTop + (scroll.clientHeight || 800)) / ROW) + MARGIN);
		const visible = rows.slice(first, last);
		const focused = items.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset.id : null;
		fill(items, visible.map((row, index) => item(row, first + index)));
		if (focused) focus(focused);
		// Lines are drawn below dots.
		const made = visible.flatMap((row, index) => shapes(row, first + index));
		fill(lines, made.filter(({ tagName }) => tagName === 'path'), made.filter(({ tagName }) => tagName !== 'path'));
		lines.setAttribute('height', String(rows.length * ROW));
		for (const row of visible) readWords(row);
	};
	scroll.addEventListener('scroll', perFrame(draw), { passive: true });

	const readWords = ({ snapshot, number }) => {
		const page = Math.floor((number - 1) / 50);
		const { conversation } = studio;
		if (!conversation || conversation.excerpts.has(snapshot.snapshotId) || asked.has(page)) return;
		asked.add(page);
		void conversation.loadExcerpts(number - 1).then(() => asked.delete(page)).catch(() => {});
	};

	const words = (snapshot) => studio.conversation?.excerpts.get(snapshot.snapshotId)
		|| (snapshot.status === 'pending' || snapshot.status === 'expired' ? 'in the background' : snapshot.forkedFrom ? 'forked' : '…');

	const item = (row, place) => {
		const { snapshot, number, depth, folded, onPath } = row;
		const isSelected = snapshot.snapshotId === selected();
		const isCompared = snapshot.snapshotId === studio.place.compare;
		const mark = { failed: 'failed', aborted: 'aborted', pending: 'running', expired: 'lapsed' }[snapshot.status];
		return h('div', {
			role: 'presentation', class: `item${onPath ? ' on-path' : ''}${isSelected ? ' selected' : ''}${snapshot.orphaned ? ' orphaned' : ''}${isCompared ? ' compared' : ''}`,
			style: { top: `${place * ROW}px` }, onclick: () => select(snapshot.snapshotId),
		},
			h('div', {
				role: 'treeitem', class: 'name', 'data-id': snapshot.snapshotId, tabindex: isSelected ? '0' : '-1', 'aria-label': `${number} ${words(snapshot)}`,
				'aria-level': depth, 'aria-selected': String(isSelected), 'aria-setsize': rows.length, 'aria-posinset': place + 1,
				'aria-description': [mark, ...(snapshot.labels ?? []), snapshot.orphaned ? 'orphaned' : '', folded > 0 ? `${folded} more above, right arrow opens them` : ''].filter(Boolean).join(', ') || null,
			}, h('span.number', number), ' ', h('span.words', words(snapshot))),
			h('div.facts', { 'aria-hidden': 'true' },
				h('time.meta', { title: exact(snapshot.createdAt) }, ago(snapshot.createdAt)),
				mark ? h('span', { class: `mark ${snapshot.status}` }, mark) : null,
				snapshot.orphaned ? h('span.mark', 'orphaned') : null,
				(snapshot.labels ?? []).map((label) => h('span.label', label)),
				snapshot.note ? h('span.meta', { title: snapshot.note }, '✎') : null,
				snapshot.snapshotId === studio.conversation?.latest ? h('span.mark.latest', 'latest') : null,
				folded > 0 ? h('span.fold', { onclick: (event) => {
					event.stopPropagation();
					unfold(row);
				} }, `${folded} more above`) : null));
	};

	/** Unfolds the run of snapshots above a row. */
	const unfold = (row) => {
		const above = rows[row.parentRow];
		if (above) opened.add(above.snapshot.snapshotId);
		update();
	};

	/** The line from the parent, and the dot. */
	const shapes = (row, place) => {
		const x = (lane) => Math.min(lane, 7) * LANE + 14;
		const y = (at) => at * ROW + 15;
		const { snapshot } = row;
		const parent = rows[row.parentRow];
		const hue = `hue-${row.lane % HUES}`;
		const strong = row.onPath ? ' strong' : '';
		const found = [];
		if (parent) {
			const [x0, y0, x1, y1] = [x(parent.lane), y(row.parentRow), x(row.lane), y(place)];
			const path = x0 === x1 ? `M${x0} ${y0}V${y1}` : `M${x0} ${y0}C${x0} ${y0 + ROW * 0.8} ${x1} ${y0 + ROW * 0.2} ${x1} ${y0 + ROW}V${y1}`;
			found.push(svg('path', { d: path, class: `line ${hue}${strong}${snapshot.orphaned ? ' orphaned' : ''}${row.folded > 0 ? ' folded' : ''}` }));
		}
		found.push(svg('circle', { cx: x(row.lane), cy: y(place), r: row.onPath ? 6 : 5, class: `dot ${hue}${strong} ${snapshot.status}${snapshot.orphaned ? ' orphaned' : ''}` }));
		return found;
	};

	const select = (id) => {
		if (studio.place.compare) studio.go({ compare: id === studio.place.at ? studio.place.compare : id });
		else studio.go({ at: id });
	};

	items.addEventListener('keydown', (event) => {
		const at = rows.findIndex((row) => row.snapshot.snapshotId === /** @type {HTMLElement} */ (document.activeElement)?.dataset?.id);
		const row = rows[at];
		if (!row) return;
		const children = rows.filter((each) => rows[each.parentRow] === row);
		if (event.key === 'ArrowRight' && row.folded > 0) {
			event.preventDefault();
			return unfold(row);
		}
		const next = { ArrowDown: at + 1, ArrowUp: at - 1, ArrowLeft: row.parentRow, ArrowRight: rows.indexOf(children.at(-1) ?? row), Home: 0, End: rows.length - 1 }[event.key];
		if (event.key === 'Enter' || event.key === ' ') {
			event.preventDefault();
			return select(row.snapshot.snapshotId);
		}
		if (next === undefined || !rows[next]) return;
		event.preventDefault();
		const top = next * ROW;
		if (top < scroll.scrollTop) scroll.scrollTop = top;
		if (top + ROW > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + ROW - scroll.clientHeight;
		draw();
		focus(rows[next].snapshot.snapshotId);
	});

	const fillActions = () => {
		const { conversation, agent } = studio;
		const snapshot = chosen();
		if (!conversation || !agent || !snapshot) return fill(actions);
		const number = tree().indexOf(snapshot) + 1;
		const run = (work) => () => void work().catch((error) => studio.emit('notice', error.message));
		fill(actions,
			h('div.snapshot-head', h('strong', `Snapshot ${number}`), h('span.meta', `of ${tree().length}`), h('code.meta', { title: snapshot.snapshotId }, snapshot.snapshotId)),
			snapshot.note ? h('p.note', snapshot.note) : null,
			h('div.row',
				h('button.primary', { disabled: snapshot.status !== 'completed', onclick: () => resume(studio, snapshot) }, 'Resume from here'),
				conversation.can('fork') ? h('button', { disabled: snapshot.status !== 'completed', onclick: run(() => fork(studio, snapshot)) }, 'Fork') : null,
				h('button', { 'aria-pressed': String(studio.place.compare !== null), onclick: run(() => compare(studio, snapshot)) }, 'Compare'),
				conversation.can('label') ? h('button', { onclick: run(() => label(studio, snapshot)) }, 'Label') : null,
				conversation.can('delete') ? h('button.danger', { onclick: run(() => remove(studio, snapshot)) }, 'Delete') : null));
	};
	studio.on('compare', () => {
		const snapshot = chosen();
		if (snapshot) void compare(studio, snapshot);
	});
	return { element: h('div.timeline', scroll, empty, actions), update, on: ['tree', 'reset', 'turn'] };
}

/** The next message continues this snapshot. @param {Studio} studio @param {Snapshot} snapshot */
export function resume(studio, snapshot) {
	const { conversation } = studio;
	if (!conversation) return;
	studio.go({ at: snapshot.snapshotId, compare: null });
	const isTip = !conversation.tree.some((each) => each.parentId === snapshot.snapshotId && !each.orphaned);
	studio.emit('notice', isTip ? 'The next message continues from here.' : 'The next message continues from here, as a branch.');
	studio.emit('compose');
}

async function fork(studio, { snapshotId }) {
	const { conversation, agent } = studio;
	const sessionId = sessionName(`${conversation.id} fork`);
	await api.ask(agent, 'fork', { snapshotId, sessionId });
	await studio.readSessions(agent);
	studio.go({ session: sessionId, at: null, compare: null });
	studio.emit('notice', `Forked into the session ${sessionId}.`);
}

/**
 * Compares with the latest snapshot, or with one on another branch; the next selected snapshot replaces it.
 * @param {Studio} studio @param {Snapshot} snapshot
 */
async function compare(studio, snapshot) {
	const { conversation, agent } = studio;
	if (!conversation || !agent) return;
	if (studio.place.compare) return studio.go({ compare: null });
	const { tree, latest } = conversation;
	const parents = new Set(tree.map((each) => each.parentId));
	const tips = tree.filter((each) => !parents.has(each.snapshotId) && each.snapshotId !== snapshot.snapshotId && each.status === 'completed');
	let other = latest !== snapshot.snapshotId ? latest : tips.at(-1)?.snapshotId ?? snapshot.parentId ?? null;
	if (!other || other === snapshot.snapshotId) {
		const root = await api.ask(agent, 'getSnapshot', { snapshotId: tree[0].snapshotId });
		const origin = root.forkedFrom;
		if (origin?.sessionId) other = (await api.ask(agent, 'getSession', { sessionId: origin.sessionId })).latest.snapshotId;
		else other = origin?.snapshotId ?? null;
	}
	if (!other) return studio.emit('notice', 'There is no other snapshot to compare with.');
	studio.go({ at: snapshot.snapshotId, compare: other });
}

async function label(studio, snapshot) {
	const { conversation, agent } = studio;
	const before = snapshot.labels?.[0] ?? '';
	const answer = await askTexts('Label this snapshot', [{ name: 'Label', value: before }, { name: 'Note', value: snapshot.note ?? '' }], 'Save', 'Labelled snapshots are found by their label, and kept when old ones are tidied away.');
	if (!answer) return;
	const [next, note] = answer.map((text) => text.trim());
	const data = {
		snapshotId: snapshot.snapshotId, ...(before && before !== next ? { unlabel: before } : {}), ...(next && next !== before ? { label: next } : {}), ...(note !== (snapshot.note ?? '') ? { note } : {}),
	};
	if (Object.keys(data).length === 1) return;
	await api.ask(agent, 'label', data);
	await Promise.all([conversation.loadTree(), studio.readSessions(agent)]);
}

async function remove(studio, snapshot) {
	const { conversation, agent } = studio;
	const gone = new Set([snapshot.snapshotId]);
	for (const each of conversation.tree) if (each.parentId && gone.has(each.parentId)) gone.add(each.snapshotId);
	const number = conversation.tree.indexOf(snapshot) + 1;
	const about = gone.size === 1 ? `Snapshot ${number} will be deleted permanently.` : `Snapshot ${number} and its ${gone.size - 1} descendant${gone.size === 2 ? '' : 's'} will be deleted permanently.`;
	if (!(await confirm(`Delete snapshot ${number}?`, about, gone.size === 1 ? 'Delete it' : `Delete all ${gone.size}`))) return;
	await api.ask(agent, 'delete', { snapshotId: snapshot.snapshotId, ...(gone.size > 1 ? { branch: true } : {}) });
	studio.rename({ at: null, compare: null });
	await conversation.load().catch(() => {});
	await studio.readSessions(agent);
}
