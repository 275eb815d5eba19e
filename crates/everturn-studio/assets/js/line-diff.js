/** The difference of two texts, line by line. */

/** @typedef {{sign: ' ' | '-' | '+', text: string}} Line */

/** The product of lengths beyond which texts are not aligned. */
const MOST = 4_000_000;

/** @param {string} left @param {string} right @returns {Line[]} */
export function lineDiff(left, right) {
	const a = left.split('\n');
	const b = right.split('\n');
	let start = 0;
	while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
	let end = 0;
	while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
	const same = (text) => ({ sign: /** @type {' '} */ (' '), text });
	return [
		...a.slice(0, start).map(same),
		...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
		...a.slice(a.length - end).map(same),
	];
}

function middle(a, b) {
	const gone = (text) => ({ sign: /** @type {'-'} */ ('-'), text });
	const came = (text) => ({ sign: /** @type {'+'} */ ('+'), text });
	if (a.length * b.length > MOST || a.length === 0 || b.length === 0) return [...a.map(gone), ...b.map(came)];
	const width = b.length + 1;
	const longest = new Uint32Array((a.length + 1) * width);
	for (let i = a.length - 1; i >= 0; i -= 1) {
		for (let j = b.length - 1; j >= 0; j -= 1) {
			longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1
				: Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
		}
	}
	/** @type {Line[]} */
	const lines = [];
	let [i, j] = [0, 0];
	while (i < a.length || j < b.length) {
		if (i < a.length && j < b.length && a[i] === b[j]) {
			lines.push({ sign: ' ', text: a[i] });
			i += 1;
			j += 1;
		} else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
			lines.push(gone(a[i]));
			i += 1;
		} else {
			lines.push(came(b[j]));
			j += 1;
		}
	}
	return lines;
}
