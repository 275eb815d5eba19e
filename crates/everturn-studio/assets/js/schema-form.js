/** A form made from a JSON schema: one field per property of an object. */

import { h } from './view.js';

/**
 * @param {any} schema
 * @param {(value: any) => void} submit
 */
export function schemaForm(schema, submit) {
	const properties = Object.entries(schema?.properties ?? {});
	const required = new Set(schema?.required ?? []);
	const fields = properties.map(([name, each]) => field(name, /** @type {any} */ (each), required.has(name)));
	const send = () => {
		const value = Object.fromEntries(fields.map(({ name, read }) => [name, read()]).filter(([, each]) => each !== undefined));
		submit(value);
	};
	return h('div.schema-form', fields.map(({ element }) => element), h('div.row', h('button', { onclick: send }, 'Submit')));
}

function field(name, schema, isRequired) {
	const type = Array.isArray(schema.type) ? schema.type.find((each) => each !== 'null') : schema.type;
	const label = `${schema.title ?? name}${isRequired ? '' : ' (optional)'}`;
	if (Array.isArray(schema.enum)) {
		const select = h('select', schema.enum.map((each) => h('option', { value: JSON.stringify(each) }, String(each))));
		return { name, element: labelled(label, select, schema), read: () => JSON.parse(select.value) };
	}
	if (type === 'boolean') {
		const box = h('input', { type: 'checkbox', checked: schema.default === true });
		return { name, element: h('label.check', box, ` ${label}`), read: () => box.checked };
	}
	const isNumber = type === 'integer' || type === 'number';
	const input = h('input', { type: isNumber ? 'number' : 'text', value: schema.default === undefined ? '' : String(schema.default), step: type === 'number' ? 'any' : null });
	return {
		name, element: labelled(label, input, schema),
		read: () => {
			if (input.value === '') return isRequired && type === 'string' ? '' : undefined;
			if (isNumber) return Number(input.value);
			if (type === 'string' || type === undefined) return input.value;
			return parsed(input.value);
		},
	};
}

function labelled(text, control, schema) {
	return h('label.field', h('span', text), control, schema.description ? h('span.meta', schema.description) : null);
}

function parsed(text) {
	try {
		return JSON.parse(text);
	} catch {
		return text;
	}
}
