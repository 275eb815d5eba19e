/** JSON Patch (RFC 6902) on plain values. A patched value is a new value; what did not change is shared. */

/** @param {string} pointer @returns {string[]} */
export function segments(pointer) {
	if (pointer === '') return [];
	return pointer.slice(1).split('/').map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/** @param {any} value @param {string} pointer */
export function at(value, pointer) {
	return segments(pointer).reduce((inner, key) => inner?.[key], value);
}

/**
 * Applies operations in their order.
 * @param {any} value
 * @param {Operation[]} operations
 */
export function apply(value, operations) {
	return operations.reduce((document, operation) => applyOne(document, operation), value);
}

/** @param {any} value @param {Operation} operation */
function applyOne(value, operation) {
	const { op, path } = operation;
	if (op === 'test') return value;
	if (op === 'remove') return change(value, segments(path), remove);
	if (op === 'move' || op === 'copy') {
		const moved = at(value, operation.from ?? '');
		const rest = op === 'move' ? change(value, segments(operation.from ?? ''), remove) : value;
		return change(rest, segments(path), put(moved, true));
	}
	return change(value, segments(path), put(operation.value, op === 'add'));
}

/** @typedef {(parent: any, key: string) => any} Edit */

/** @param {any} value @param {string[]} path @param {Edit} edit @returns {any} */
function change(value, path, edit) {
	if (path.length === 0) return edit({ '': value }, '')[''] ?? null;
	const [key, ...rest] = path;
	if (rest.length === 0) return edit(value, key);
	const copy = Array.isArray(value) ? [...value] : { ...value };
	copy[key] = change(copy[key], rest, edit);
	return copy;
}

/** @type {Edit} */
function remove(parent, key) {
	if (Array.isArray(parent)) return parent.filter((_, index) => index !== Number(key));
	const { [key]: _gone, ...rest } = parent ?? {};
	return rest;
}

/** @param {any} value @param {boolean} inserts @returns {Edit} */
function put(value, inserts) {
	return (parent, key) => {
		if (!Array.isArray(parent)) return { ...parent, [key]: value };
		const copy = [...parent];
		const index = key === '-' ? copy.length : Number(key);
		copy.splice(index, inserts ? 0 : 1, value);
		return copy;
	};
}

/**
 * Describes an operation briefly.
 * @param {Operation} operation
 */
export function describe(operation) {
	const sign = operation.op === 'remove' ? '−' : operation.op === 'replace' ? '~' : '+';
	return { sign, path: operation.path || '/', value: operation.op === 'remove' ? undefined : operation.value };
}
