/** The custom state as it changes, the patches that changed it, and a way to continue with another one. */

import { h, fill } from './view.js';
import * as api from './api.js';
import { askTexts } from './dialogs.js';
import { clip, ago } from './time.js';
import { copyButton } from './copy.js';
import { describe } from './patch.js';
import { jsonTree } from './json-tree.js';

/** How many turns the history has; older ones follow on demand. */
const TURNS = 20;

/** @param {Studio} studio @returns {Tab} */
export function stateTab(studio) {
	const tree = h('div.state-tree');
	const history = h('div.history');
	const bar = h('div.panel-bar');
	let [shown, patched, path] = [/** @type {any} */ (undefined), 0, ''];
	/** @type {any} */ let owner = null;

	const update = () => {
		const { conversation } = studio;
		if (!conversation) return fill(tree, h('p.meta', 'No session is open.'));
		if (owner !== conversation) [owner, shown, patched, path] = [conversation, undefined, conversation.patches.length, ''];
		const { custom, patches, turn } = conversation;
		if (custom !== shown) {
			const changed = patches.slice(patched).flatMap((patch) => patch.operations.map((operation) => operation.path));
			fill(tree, custom === null ? h('p.meta', 'No state yet.') : jsonTree(custom, { changed, open: 3 }));
			shown = custom;
		}
		patched = patches.length;
		fill(bar, h('span.space'), copyButton(() => JSON.stringify(custom, null, 2) ?? '', 'Copy as JSON'),
			h('button', { disabled: turn !== null || custom === null || (conversation.isServerManaged && (!conversation.can('fork') || !conversation.snapshot)), onclick: () => void edit(studio) }, 'Edit…'));
		const now = JSON.stringify([conversation.path.map((each) => each.snapshotId), turn ? patches.length : 0]);
		if (now !== path) {
			path = now;
			fill(history, ...turns(conversation));
		}
	};
	return { element: h('div', bar, tree, h('h3', 'Patches by turn'), history), update, on: ['state', 'tree', 'turn', 'reset'] };
}

/** The running turn first, then earlier ones. */
function turns(conversation) {
	const { path, patches, turn } = conversation;
	const live = turn ? patches.filter((patch) => patch.time >= turn.startedAt) : [];
	const now = live.length > 0 ? [h('div.patch-turn', h('div.patch-head', 'now'), live.flatMap((patch) => patch.operations.map(line)))] : [];
	const done = path.filter(({ status }) => status === 'completed').slice(-TURNS).reverse().map((snapshot) => {
		const body = h('div');
		const before = path[path.indexOf(snapshot) - 1] ?? null;
		let isRead = false;
		const read = async () => {
			if (isRead) return;
			isRead = true;
			try {
				fill(body, ...(await between(conversation, before?.snapshotId ?? null, snapshot.snapshotId)).map(line));
				if (body.childElementCount === 0) fill(body, h('p.meta', 'The state did not change.'));
			} catch (error) {
				isRead = false;
				fill(body, h('p.meta', error.message));
			}
		};
		const number = (snapshot.turnIndex ?? path.indexOf(snapshot)) + 1;
		const isNewest = snapshot === path.at(-1);
		if (isNewest && snapshot.status === 'completed') void read();
		return h('details.patch-turn', { open: isNewest, ontoggle: () => void read() },
			h('summary.patch-head', `turn ${number}`, h('span.meta', ago(snapshot.createdAt))), body);
	});
	return [...now, ...done, ...(done.length === 0 && now.length === 0 ? [h('p.meta', 'The changes of each turn are listed here.')] : [])];
}

async function between(conversation, left, right) {
	if (left) return (await api.ask(conversation.agent, 'diff', { left, right })).custom ?? [];
	const first = await api.ask(conversation.agent, 'getSnapshot', { snapshotId: right });
	return Object.entries(first.state?.custom ?? {}).map(([key, value]) => ({ op: 'add', path: `/${key}`, value }));
}

/** @param {Operation} operation */
export function line(operation) {
	const { sign, path, value } = describe(operation);
	const kind = { '+': 'added', '−': 'removed', '~': 'replaced' }[sign];
	return h('div', { class: `patch ${kind}` }, h('span.sign', { title: kind }, sign), h('code', path), value === undefined ? null : h('span.value', clip(JSON.stringify(value), 80)));
}

/** Continues with another state in a new snapshot, because a snapshot never changes. */
async function edit(studio) {
	const { conversation, agent } = studio;
	const answer = await askTexts('Edit the state', [{ name: 'State as JSON', value: JSON.stringify(conversation.custom, null, 2), rows: 14 }], 'Continue with this state',
		conversation.isServerManaged ? 'The session continues with this state; the earlier snapshot stays.' : '');
	if (!answer) return;
	try {
		const custom = JSON.parse(answer[0]);
		if (!conversation.isServerManaged) {
			studio.local.put(agent.name, conversation.id, { messages: conversation.messages, artifacts: conversation.artifacts, custom });
			await conversation.load();
			return;
		}
		const snapshotId = conversation.path.findLast((each) => each.status === 'completed')?.snapshotId;
		const edited = await api.ask(agent, 'fork', { snapshotId, sessionId: conversation.id, custom });
		if (conversation.can('label')) await api.ask(agent, 'label', { snapshotId: edited.snapshotId, note: 'The state was edited here.' });
		studio.rename({ at: null, compare: null });
		await conversation.load();
		await studio.readSessions(agent);
		studio.emit('notice', 'The session continues with the edited state.');
	} catch (error) {
		studio.emit('notice', `The state was not changed: ${error.message}`);
	}
}
