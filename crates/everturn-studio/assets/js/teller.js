/** Something that tells others what happens to it. */
export class Teller extends EventTarget {
	/** @param {string} name @param {any} [detail] */
	tell(name, detail) {
		this.dispatchEvent(new CustomEvent(name, { detail }));
	}

	/**
	 * Hears of events with one of these names, until `signal` is aborted.
	 * @param {string} names @param {(detail: any) => void} hear @param {AbortSignal} [signal]
	 */
	on(names, hear, signal) {
		for (const name of names.split(' ')) this.addEventListener(name, (event) => hear(/** @type {CustomEvent} */ (event).detail), { signal });
	}
}
