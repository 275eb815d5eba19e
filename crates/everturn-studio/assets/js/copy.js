/** Copies and downloads. */

import { iconButton } from './view.js';

/** @param {() => string} text @param {string} [label] */
export function copyButton(text, label = 'Copy') {
	const button = iconButton('copy', label, async () => {
		await copy(text());
		button.classList.add('done');
		setTimeout(() => button.classList.remove('done'), 1200);
	});
	return button;
}

/** @param {string} text */
export async function copy(text) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		// Fallback without the permission, or on an insecure page.
		const area = document.createElement('textarea');
		area.value = text;
		document.body.append(area);
		area.select();
		document.execCommand('copy');
		area.remove();
	}
}

/** @param {string} name @param {Blob} content */
export function download(name, content) {
	const link = document.createElement('a');
	link.href = URL.createObjectURL(content);
	link.download = name.replace(/[^\p{Letter}\p{Number}._ -]/gu, '_') || 'file';
	link.click();
	setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
