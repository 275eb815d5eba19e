/** Formats times, sizes and ids. */

/**
 * @param {string | number | Date} moment
 * @param {number} [now]
 */
export function ago(moment, now = Date.now()) {
	const seconds = Math.max(0, Math.round((now - new Date(moment).getTime()) / 1000));
	if (seconds < 5) return 'now';
	if (seconds < 60) return `${seconds} s`;
	if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
	if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
	return `${Math.floor(seconds / 86_400)} d`;
}

/** @param {string | number | Date} moment */
export function exact(moment) {
	return new Date(moment).toLocaleString();
}

/** @param {number} milliseconds */
export function lasted(milliseconds) {
	if (milliseconds < 1) return '<1 ms';
	if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
	if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
	return `${Math.floor(milliseconds / 60_000)} min ${Math.round((milliseconds % 60_000) / 1000)} s`;
}

/** @param {string} text @param {number} length */
export function clip(text, length) {
	const line = text.replace(/\s+/g, ' ').trim();
	return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}

/**
 * Creates the name of a session from its first words.
 * @param {string} text
 * @param {() => number} [random]
 */
export function sessionName(text, random = Math.random) {
	const words = text.toLowerCase().normalize('NFKD').replace(/[^\p{Letter}\p{Number}\s-]/gu, '').split(/\s+/).filter(Boolean);
	const mark = Math.floor(random() * 36 ** 4).toString(36).padStart(4, '0');
	return [...words.slice(0, 4), mark].join('-').slice(0, 60);
}
