/** A line between two columns that can be dragged, or moved with the arrow keys. */

import { h } from './view.js';

/**
 * @param {string} property the custom property that holds the column's width
 * @param {HTMLElement} column
 * @param {1 | -1} direction whether the column grows to the right
 */
export function divider(property, column, direction) {
	const key = `everturn:width${property}`;
	const [least, most] = [200, 720];
	const set = (width) => {
		const bounded = Math.round(Math.max(least, Math.min(most, width)));
		document.documentElement.style.setProperty(property, `${bounded}px`);
		element.setAttribute('aria-valuenow', String(bounded));
		localStorage.setItem(key, String(bounded));
	};
	const element = h('div', {
		class: `divider of-${property.slice(2)}`, role: 'separator', tabindex: '0', 'aria-orientation': 'vertical', 'aria-label': `Width of the ${property.slice(2)}`, 'aria-valuemin': least, 'aria-valuemax': most,
		'aria-valuenow': 300,
		onpointerdown: (down) => {
			const [start, width] = [down.clientX, column.getBoundingClientRect().width];
			element.setPointerCapture(down.pointerId);
			element.onpointermove = (move) => set(width + (move.clientX - start) * direction);
			element.onpointerup = () => void (element.onpointermove = null);
		},
		onkeydown: (event) => {
			const step = { ArrowLeft: -16, ArrowRight: 16 }[event.key];
			if (step) set(column.getBoundingClientRect().width + step * direction);
		},
	});
	const kept = Number(localStorage.getItem(key));
	if (kept) set(kept);
	return element;
}
