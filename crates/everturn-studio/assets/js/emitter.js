/** A source of named events. */
export class Emitter extends EventTarget {
	/** @param {string} name @param {any} [detail] */
	emit(name, detail) {
		this.dispatchEvent(new CustomEvent(name, { detail }));
	}

	/**
	 * Adds a listener for events with one of these names, until `signal` is aborted.
	 * @param {string} names separated by spaces @param {(detail: any) => void} listener @param {AbortSignal} [signal]
	 */
	on(names, listener, signal) {
		for (const name of names.split(' ')) this.addEventListener(name, (event) => listener(/** @type {CustomEvent} */ (event).detail), { signal });
	}
}
