/** The layout of a session's tree: time runs down, branches go right. */

/** The number of snapshots without a branch that are shown before they fold into one line. */
export const FOLD = 12;

/**
 * Lays out the tree. Each branch has its own lane; the first child of a snapshot continues its lane.
 * @param {Snapshot[]} snapshots oldest first
 * @param {string | null} current the current snapshot
 * @param {Set<string>} [opened] the first snapshots of runs that are shown in full
 * @returns {{rows: Row[], lanes: number}}
 */
export function layout(snapshots, current, opened = new Set()) {
	const numbers = new Map(snapshots.map((snapshot, index) => [snapshot.snapshotId, index]));
	/** @type {number[][]} */
	const children = snapshots.map(() => []);
	/** @type {number[]} */
	const roots = [];
	const parents = snapshots.map((snapshot, index) => {
		const parent = snapshot.parentId === undefined ? undefined : numbers.get(snapshot.parentId);
		// A parent is older than its child; otherwise the file is damaged, and the snapshot becomes a root.
		return parent !== undefined && parent < index ? parent : -1;
	});
	parents.forEach((parent, index) => (parent < 0 ? roots : children[parent]).push(index));
	const path = new Set();
	const here = current === null ? -1 : numbers.get(current) ?? -1;
	for (let at = here; at >= 0; at = parents[at]) path.add(at);

	/** @type {Row[]} */
	const rows = [];
	const rowOf = new Map();
	let lanes = 0;
	// Branches are drawn after the line that they leave, so the newest branch follows it directly.
	/** @type {{at: number, lane: number, depth: number}[]} */
	const waiting = roots.map((at, index) => ({ at, lane: index === 0 ? 0 : -1, depth: 1 })).reverse();
	while (waiting.length > 0) {
		const { at: start, lane: wanted, depth } = /** @type {any} */ (waiting.pop());
		const lane = wanted >= 0 ? wanted : lanes;
		lanes = Math.max(lanes, lane + 1);
		const line = [start];
		while (children[line[line.length - 1]].length > 0) line.push(children[line[line.length - 1]][0]);
		for (const { first, last } of runs(line, children, snapshots, here)) {
			for (let index = first; index <= last; index += 1) {
				const at = line[index];
				const hides = last - first + 1 > FOLD && !opened.has(snapshots[line[first]].snapshotId);
				if (hides && index > first && index < last) continue;
				const folded = hides && index === last ? last - first - 1 : 0;
				rowOf.set(at, rows.length);
				const before = index === 0 ? parents[at] : line[index - 1];
				rows.push({
					snapshot: snapshots[at], number: at + 1, lane, depth, folded, onPath: path.has(at),
					parentRow: visible(before, rowOf, parents),
				});
			}
		}
		for (const at of line) {
			for (const branch of children[at].slice(1).reverse()) {
				waiting.push({ at: branch, lane: -1, depth: depth + 1 });
			}
		}
	}
	return { rows, lanes: Math.max(lanes, 1) };
}

function visible(at, rowOf, parents) {
	let place = at;
	while (place >= 0 && !rowOf.has(place)) place = parents[place];
	return place < 0 ? -1 : rowOf.get(place) ?? -1;
}

/**
 * Splits a line into runs that may fold: a run ends before a labelled, failed or current snapshot.
 * @param {number[]} line @param {number[][]} children @param {Snapshot[]} snapshots @param {number} current
 */
function runs(line, children, snapshots, current) {
	const found = [];
	let first = 0;
	const isPlain = (at) => {
		const { labels, note, status } = snapshots[at];
		return children[at].length <= 1 && !labels?.length && !note && status === 'completed' && at !== current;
	};
	line.forEach((at, index) => {
		const isLast = index === line.length - 1;
		// The newest snapshots of a line stay visible.
		if (!isPlain(at) || isLast || index === line.length - 4) {
			if (index > first) found.push({ first, last: index - 1 });
			found.push({ first: index, last: index });
			first = index + 1;
		}
	});
	if (first < line.length) found.push({ first, last: line.length - 1 });
	return found;
}

/**
 * Returns the ids from the beginning of the session to a snapshot.
 * @param {Snapshot[]} snapshots @param {string | null | undefined} id
 */
export function pathTo(snapshots, id) {
	const byId = new Map(snapshots.map((snapshot) => [snapshot.snapshotId, snapshot]));
	const path = [];
	const seen = new Set();
	for (let at = id ? byId.get(id) : undefined; at && !seen.has(at.snapshotId); at = at.parentId ? byId.get(at.parentId) : undefined) {
		seen.add(at.snapshotId);
		path.unshift(at);
	}
	return path;
}
