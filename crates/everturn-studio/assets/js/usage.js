/** Describes the usage of models and tools. */

import { costs } from './spans.js';
import { lasted } from './time.js';

/** @param {string} by @param {Usage} [usage] */
export function used(by, { inputTokens = 0, outputTokens = 0, modelCalls = 0, toolCalls = 0, modelMs = 0, toolMs = 0, cost } = {}) {
	return modelCalls + toolCalls > 0 ? `${by}: ${inputTokens} tokens in, ${outputTokens} out · ${modelCalls} model calls ${lasted(modelMs)} · ${toolCalls} tool calls ${lasted(toolMs)}${costs(cost)}` : '';
}

/** Subtracts the usage before a turn from the usage after it. @param {Usage} usage @param {Usage} [before] @returns {Usage} */
export function minus(usage, before = {}) {
	return Object.fromEntries(Object.entries(usage).map(([name, value]) => [name, value - (before[/** @type {keyof Usage} */ (name)] ?? 0)]));
}
