/**
 * Creates elements from plain calls, and lists that keep their elements. No function here accepts markup.
 */

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Creates an element: a tag with its classes, such as `p.meta`, optional properties, and children. Properties that begin with
 * `on` are listeners, `style` sets style properties, `true` and `false` set and remove attributes, everything else is an attribute.
 * @template {string} T
 * @param {T} name
 * @param {...(Record<string, any> | Child | Child[])} rest
 * @returns {T extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[T]
 *   : T extends `${infer K extends keyof HTMLElementTagNameMap}.${string}` ? HTMLElementTagNameMap[K] : HTMLElement}
 */
export function h(name, ...rest) {
	const [tag, ...classes] = name.split('.');
	const element = document.createElement(tag);
	element.className = classes.join(' ');
	if (tag === 'button') element.setAttribute('type', 'button');
	const [first] = rest;
	if (first?.constructor === Object) set(element, /** @type {any} */ (rest.shift()));
	element.append(...nodes(rest));
	return /** @type {any} */ (element);
}

/**
 * Creates an SVG element.
 * @param {string} tag
 * @param {Record<string, string | number>} [properties]
 * @param {...Child} children
 */
export function svg(tag, properties = {}, ...children) {
	const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
	for (const [name, value] of Object.entries(properties)) element.setAttribute(name, String(value));
	element.append(...nodes(children));
	return element;
}

/**
 * Sets properties as {@link h} does.
 * @param {Element} element
 * @param {Record<string, any>} properties
 */
export function set(element, properties) {
	for (const [name, value] of Object.entries(properties)) {
		if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
		else if (name === 'class') element.className = value || '';
		else if (name === 'style') for (const [key, each] of Object.entries(value)) /** @type {HTMLElement} */ (element).style.setProperty(key, String(each));
		else if (name === 'value') /** @type {HTMLInputElement} */ (element).value = value ?? '';
		else if (value === true) element.setAttribute(name, '');
		else if (value === false || value === null || value === undefined) element.removeAttribute(name);
		else element.setAttribute(name, String(value));
	}
}

/**
 * Replaces the children of an element.
 * @param {Element | DocumentFragment} parent
 * @param {...(Child | Child[])} children
 */
export function fill(parent, ...children) {
	parent.replaceChildren(...nodes(children));
}

function nodes(children) {
	return children.flat().filter((child) => child !== null && child !== undefined && child !== false)
		.map((child) => (typeof child === 'number' ? String(child) : /** @type {Node | string} */ (child)));
}

/**
 * Shows a list whose items keep their elements: an element is created once per key, updated, moved and removed.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => HTMLElement} make
 * @param {(element: HTMLElement, item: T) => void} [update]
 */
export function keyed(parent, items, keyOf, make, update) {
	/** @type {Map<string, HTMLElement>} */
	const known = new Map();
	for (const child of [...parent.children]) {
		const key = /** @type {HTMLElement} */ (child).dataset.key;
		if (key !== undefined) known.set(key, /** @type {HTMLElement} */ (child));
	}
	let next = parent.firstElementChild;
	for (const item of items) {
		const key = keyOf(item);
		let element = known.get(key);
		known.delete(key);
		if (element) update?.(element, item);
		else {
			element = make(item);
			element.dataset.key = key;
		}
		if (element === next) next = next.nextElementSibling;
		else parent.insertBefore(element, next);
	}
	for (const element of known.values()) element.remove();
}

/** @param {string} name @param {string} label @param {(event: MouseEvent) => void} onclick @param {Record<string, any>} [more] */
export function iconButton(name, label, onclick, more = {}) {
	return h('button.icon', { 'aria-label': label, title: label, onclick, ...more }, icon(name));
}

const ICONS = /** @type {Record<string, string>} */ ({
	plus: 'M8 3v10M3 8h10',
	close: 'M4 4l8 8M12 4l-8 8',
	menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
	more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
	help: 'M6 6a2 2 0 1 1 2.8 1.9c-.5.2-.8.6-.8 1.1v.5M8 12h.01',
	theme: 'M8 2a6 6 0 1 0 0 12z M8 2a6 6 0 0 1 0 12',
	copy: 'M5.5 5.5h7v8h-7z M3.5 10.5v-8h7',
	edit: 'M3 13l1-3.5L11 2.5l2.5 2.5-7 7z',
	retry: 'M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3',
	branch: 'M5 3v10M5 9c0-3 6-1.5 6-5M5 3h.01M11 3h.01',
	download: 'M8 2v8M4.5 7L8 10.5 11.5 7M3 13.5h10',
	attach: 'M12.5 7.5l-5 5a3 3 0 0 1-4.3-4.3l5.3-5.3a2 2 0 0 1 2.9 2.9l-5.2 5.2a1 1 0 0 1-1.5-1.5l4.5-4.5',
	upload: 'M8 10.5V2.5M4.5 6L8 2.5 11.5 6M3 13.5h10',
});

/** @param {string} name */
export function icon(name) {
	return svg('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true', class: `glyph i-${name}` }, svg('path', { d: ICONS[name] ?? '' }));
}

/** Returns a function that schedules the work once for the next frame. @param {() => void} work */
export function perFrame(work) {
	let isDue = false;
	return () => {
		if (!isDue) requestAnimationFrame(() => {
			isDue = false;
			work();
		});
		isDue = true;
	};
}
