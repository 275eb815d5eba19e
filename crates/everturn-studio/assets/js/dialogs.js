/** Dialogs. */

import { h } from './view.js';

/**
 * Asks for one or more texts; `null` if the dialog is closed.
 * @param {string} title
 * @param {{name: string, value?: string, rows?: number, secret?: boolean}[]} fields
 * @param {string} action
 * @param {string} [about]
 * @param {string} [kind] the kind of the button
 * @returns {Promise<string[] | null>}
 */
export function askTexts(title, fields, action, about = '', kind = 'primary') {
	return new Promise((resolve) => {
		const controls = fields.map(({ name, value = '', rows, secret }) => {
			const line = secret ? { type: 'password', autocomplete: 'off' } : { type: 'text' };
			const control = rows ? h('textarea', { 'aria-label': name, rows, class: 'mono', spellcheck: 'false' }) : h('input', { ...line, 'aria-label': name });
			control.value = value;
			return { name, control };
		});
		const done = () => {
			resolve(controls.map(({ control }) => control.value));
			dialog.close();
		};
		const dialog = h('dialog', { 'aria-label': title },
			h('h2', title), about ? h(kind === 'danger' ? 'p' : 'p.meta', about) : null,
			controls.map(({ name, control }) => h('label.field', h('span', name), control)),
			h('div.row.end', h('button', { onclick: () => dialog.close() }, 'Cancel'), h('button', { class: kind, onclick: done }, action)));
		for (const { control } of controls) {
			control.addEventListener('keydown', (event) => {
				if (/** @type {KeyboardEvent} */ (event).key === 'Enter' && control instanceof HTMLInputElement) done();
			});
		}
		show(dialog, () => resolve(null));
	});
}

/**
 * Asks for confirmation of an irreversible action.
 * @param {string} title @param {string} about @param {string} action
 */
export async function confirm(title, about, action) {
	return (await askTexts(title, [], action, about, 'danger')) !== null;
}

/** @param {HTMLDialogElement} dialog @param {() => void} [closed] */
export function show(dialog, closed) {
	dialog.addEventListener('close', () => {
		closed?.();
		dialog.remove();
	});
	dialog.addEventListener('click', (event) => {
		if (event.target === dialog) dialog.close();
	});
	document.body.append(dialog);
	dialog.showModal();
}
