/** The open session: its name, where one stands, and what can be done with all of it. */

import { h, fill, iconButton } from './view.js';
import * as api from './api.js';
import { confirm } from './dialogs.js';
import { copy, download } from './copy.js';
import { shared } from './share.js';
import { write } from './router.js';

/** @param {Studio} studio @param {() => void} openSidebar */
export function sessionHeader(studio, openSidebar) {
	const title = h('h1');
	const menu = h('div', { id: 'session-menu', popover: 'auto', class: 'menu' });
	const menuButton = iconButton('more', 'Session menu', () => {
		fillMenu();
		const box = menuButton.getBoundingClientRect();
		menu.style.setProperty('top', `${box.bottom + 4}px`);
		menu.style.setProperty('right', `${innerWidth - box.right}px`);
		menu.togglePopover();
	});
	const place = h('div.place', { hidden: true });
	const bar = h('div.session-bar', iconButton('menu', 'Agents and sessions', openSidebar, { class: 'icon sidebar-button' }), title, menuButton);

	const update = () => {
		const { agent, conversation } = studio;
		fill(title, agent ? h('span.quiet', agent.name) : 'No agent',
			agent ? h('span.dot-divider', ' · ') : null, agent ? conversation?.id || 'new session' : null);
		document.title = agent ? `${conversation?.id || agent.name} · Everturn` : 'Everturn';
		menuButton.hidden = !conversation?.id;
		const shown = conversation?.tree.findIndex((each) => each.snapshotId === conversation.snapshot?.snapshotId) ?? -1;
		const isElsewhere = Boolean(studio.place.at && conversation?.isReading && shown >= 0);
		place.hidden = !isElsewhere;
		if (isElsewhere && conversation) {
			fill(place, h('span', `Reading snapshot ${shown + 1} of ${conversation.tree.length}.`),
				h('button.plain', { onclick: () => studio.go({ at: null }) }, 'Back to the latest'));
		}
	};

	const fillMenu = () => {
		const { conversation, agent } = studio;
		if (!conversation || !agent) return;
		const item = (name, run) => h('button', { onclick: async () => {
			menu.hidePopover();
			try {
				await run();
			} catch (error) {
				studio.emit('notice', error.message);
			}
		} }, name);
		fill(menu,
			item('Copy link', () => copy(location.href)),
			conversation.can('export') ? item('Export as JSON lines', async () => download(`${conversation.id}.jsonl`, await api.exportLines(agent, conversation.id))) : null,
			item('Save as one HTML file', () => download(`${conversation.id}.html`, shared(conversation))),
			conversation.can('delete') || !conversation.isServerManaged ? item('Delete session…', () => remove(studio)) : null);
	};

	studio.on('place', update);
	studio.on('conversation', () => {
		update();
		studio.conversation?.on('tree', update);
		studio.conversation?.on('reset', update);
	});
	return h('header.session-header', bar, place, menu);
}

async function remove(studio) {
	const { conversation, agent } = studio;
	const count = conversation.tree.length;
	const labels = conversation.tree.flatMap((snapshot) => snapshot.labels ?? []);
	const about = conversation.isServerManaged
		? `${count} snapshots${labels.length > 0 ? `, also those labelled ${labels.join(', ')},` : ''} will be deleted permanently. Sessions forked from it stay.`
		: 'It is kept in this browser only, and will be deleted permanently.';
	if (!(await confirm(`Delete ${conversation.id}?`, about, 'Delete the session'))) return;
	conversation.turn?.leave();
	if (conversation.isServerManaged) await api.ask(agent, 'delete', { sessionId: conversation.id });
	else studio.local.remove(agent.name, conversation.id);
	await studio.readSessions(agent);
	location.hash = write({ ...studio.place, session: null, at: null, compare: null });
}
