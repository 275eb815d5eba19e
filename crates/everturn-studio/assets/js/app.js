/** Assembles the parts of the page. */

import { h, fill, icon, iconButton } from './view.js';
import { ApiError, hasToken, keepToken } from './api.js';
import { Studio } from './studio.js';
import { agentsList } from './agents-list.js';
import { askTexts } from './dialogs.js';
import { backgroundRuns } from './background-runs.js';
import { composer } from './composer.js';
import { conversationLog } from './conversation-log.js';
import { differences } from './differences.js';
import { divider } from './divider.js';
import { inspector } from './inspector.js';
import { listenToKeys, showKeys } from './keys.js';
import { sessionHeader } from './session-header.js';
import { sessionsList } from './sessions-list.js';
import { applyTheme, nextTheme } from './theme.js';

applyTheme();
const studio = new Studio();
const sessions = sessionsList(studio);
const log = conversationLog(studio);
const writing = composer(studio);
const tabs = inspector(studio);
const notices = h('div.notices', { role: 'status' });
const reach = h('div.reach', { role: 'status', hidden: true }, 'The server cannot be reached. The page reconnects automatically.');

/** @type {Shortcut[]} */
const shortcuts = [
	{ keys: '/', about: 'find a session', run: () => { openSidebar(); sessions.find(); } },
	{ keys: 'n', about: 'new session', run: () => { studio.go({ session: null, at: null, compare: null }); writing.focus(); } },
	{ keys: 'm', about: 'write a message', run: () => writing.focus() },
	{ keys: 'g s', about: 'state', run: () => tabs.open('State') },
	{ keys: 'g t', about: 'timeline', run: () => tabs.open('Timeline') },
	{ keys: 'g a', about: 'artifacts', run: () => tabs.open('Artifacts') },
	{ keys: 'g r', about: 'trace', run: () => tabs.open('Trace') },
	{ keys: 'g e', about: 'events', run: () => tabs.open('Events') },
	{ keys: '[', about: 'earlier snapshot', run: () => walk(-1) },
	{ keys: ']', about: 'later snapshot', run: () => walk(1) },
	{ keys: 'c', about: 'compare, in the timeline', run: () => { tabs.open('Timeline'); studio.emit('compare'); } },
	{ keys: '.', about: 'stop the turn', run: () => void studio.conversation?.turn?.stop() },
	{ keys: '?', about: 'this list', run: () => showKeys(shortcuts) },
];
listenToKeys(shortcuts);

function walk(step) {
	const { conversation } = studio;
	if (!conversation) return;
	const place = conversation.tree.findIndex((each) => each.snapshotId === (studio.place.at ?? conversation.snapshot?.snapshotId));
	const next = conversation.tree[place + step];
	if (next) studio.go({ at: next.snapshotId });
}

const sidebar = h('aside.sidebar', { 'aria-label': 'Agents and sessions' },
	agentsList(studio), sessions.element, backgroundRuns(studio));
const openSidebar = () => void document.body.classList.toggle('sidebar-open');
const themeButton = iconButton('theme', 'Light or dark', () => notice(`Theme: ${nextTheme()}`));
const top = h('header.top', {},
	h('a.brand', { href: '#/' }, icon('branch'), 'Everturn'), h('span.space'), themeButton,
	iconButton('help', 'Keyboard shortcuts', () => showKeys(shortcuts)));
const middle = h('main', sessionHeader(studio, openSidebar), reach, differences(studio), log.element, writing.element);
const veil = h('div.veil', { onclick: openSidebar });
document.body.append(top, h('div.columns', sidebar, divider('--sidebar', sidebar, 1), middle, divider('--inspector', tabs.element, -1), tabs.element), veil, notices);

function notice(text) {
	const line = h('div.notice', text, iconButton('close', 'Dismiss', () => line.remove()));
	notices.append(line);
	while (notices.childElementCount > 3) notices.firstElementChild?.remove();
	setTimeout(() => line.remove(), 8000);
}

studio.on('notice', notice);
studio.on('reach', () => void (reach.hidden = studio.isReachable));
studio.on('compose', () => writing.focus());
studio.on('place', () => {
	document.body.classList.remove('sidebar-open');
	middle.classList.toggle('comparing', studio.place.compare !== null);
});

try {
	await studio.open();
} catch (error) {
	const code = error instanceof ApiError ? error.code : null;
	if (code === 401 || (code === 403 && hasToken())) {
		await askForToken(hasToken() ? `The server rejects this token: ${error.message}` : 'This server needs a token. It is kept in this tab only.');
	} else {
		fill(middle, h('div.welcome', h('h2', 'The agents cannot be read'), h('p', error.message), h('button', { onclick: () => location.reload() }, 'Try again')));
	}
}

/** Asks for the token that the server requires, and restarts the page with it. @param {string} why */
async function askForToken(why) {
	const answer = await askTexts('Token', [{ name: 'Token', secret: true }], 'Continue', why);
	const token = answer?.[0].trim() || null;
	keepToken(token);
	if (token) return location.reload();
	const again = h('button.primary', { onclick: () => void askForToken(why) }, 'Enter a token');
	fill(middle, h('div.welcome', h('h2', 'The server needs a token'), h('p', 'Its agents and sessions are available to callers with a token.'), again));
}
