/** The keyboard shortcuts, which the help dialog lists. */

import { h } from './view.js';
import { show } from './dialogs.js';

/** @param {Shortcut[]} shortcuts */
export function listenToKeys(shortcuts) {
	let before = '';
	addEventListener('keydown', (event) => {
		const target = /** @type {HTMLElement} */ (event.target);
		const isWriting = target.closest?.('input, textarea, select, [contenteditable]');
		if (isWriting || event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
		const typed = before ? `${before} ${event.key}` : event.key;
		const found = shortcuts.find(({ keys }) => keys === typed) ?? shortcuts.find(({ keys }) => keys === event.key);
		before = event.key === 'g' && !before ? 'g' : '';
		if (!found) return;
		event.preventDefault();
		found.run();
	});
}

/** @param {Shortcut[]} shortcuts */
export function showKeys(shortcuts) {
	const more = [['Enter', 'send'], ['Shift+Enter', 'break the line'], ['↑', 'recall the last message'], ['↑ ↓ ← →', 'walk the timeline']];
	const dialog = h('dialog', { 'aria-label': 'Keys', class: 'keys' }, h('h2', 'Keys'),
		h('dl', [...shortcuts.map(({ keys, about }) => [keys, about]), ...more].map(([keys, about]) => h('div', h('dt', keys.split(' ').map((key) => h('kbd', key))), h('dd', about)))),
		h('div.row.end', h('button', { onclick: () => dialog.close() }, 'Close')));
	show(dialog);
}
