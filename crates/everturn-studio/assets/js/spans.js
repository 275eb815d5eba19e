/** A trace as a waterfall: spans in the order of their beginning, each below its parent. */

/** @param {Record<string, Span>} spans @param {number} [now] @returns {Bar[]} */
export function waterfall(spans, now = Date.now()) {
	const all = Object.values(spans).sort((a, b) => a.startTime - b.startTime);
	if (all.length === 0) return [];
	const endOf = (span) => span.endTime || Math.max(now, span.startTime);
	const begin = all[0].startTime;
	const length = Math.max(...all.map(endOf)) - begin || 1;
	const known = new Set(all.map((span) => span.spanId));
	/** @type {Map<string, Span[]>} */
	const children = new Map();
	for (const span of all) {
		const parent = span.parentSpanId && known.has(span.parentSpanId) ? span.parentSpanId : '';
		children.set(parent, [...(children.get(parent) ?? []), span]);
	}
	/** @type {Bar[]} */
	const bars = [];
	const walk = (parent, depth) => {
		for (const span of children.get(parent) ?? []) {
			const time = endOf(span) - span.startTime;
			bars.push({
				span, depth, kind: kindOf(span), time, tokens: tokensOf(span), cost: Number(span.attributes['everturn.usage.cost'] ?? 0),
				left: (span.startTime - begin) / length, width: Math.max(time / length, 0.004),
				failed: span.status?.code === 2, running: !span.endTime,
			});
			if (depth < 40) walk(span.spanId, depth + 1);
		}
	};
	walk('', 0);
	return bars;
}

/** @param {Span} span @returns {Bar['kind']} */
export function kindOf(span) {
	const type = String(span.attributes['genkit:metadata:subtype'] ?? span.attributes['genkit:type'] ?? '');
	const name = span.displayName.toLowerCase();
	if (type.includes('model') || type === 'embedder') return 'model';
	if (type.includes('tool')) return 'tool';
	if (type.includes('store') || /snapshot|journal|store/.test(name)) return 'store';
	return 'other';
}

/** @param {Span} span */
export function tokensOf(span) {
	if (kindOf(span) !== 'model') return null;
	const output = parsed(span.attributes['genkit:output']);
	const usage = output?.usage;
	if (!usage) return null;
	return usage.totalTokens ?? ((usage.inputTokens ?? 0) + (usage.outputTokens ?? 0) || null);
}

/** What models cost, in words. @param {number} [cost] in the currency of the application's prices */
export function costs(cost = 0) {
	return cost > 0 ? ` · cost ${cost.toLocaleString('en', { maximumSignificantDigits: 3 })}` : '';
}

/** @param {any} text */
export function parsed(text) {
	if (typeof text !== 'string') return text;
	try {
		return JSON.parse(text);
	} catch {
		return text;
	}
}
