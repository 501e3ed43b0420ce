// Elements of the page. Text comes in as text nodes only, so that no name can become markup.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// What a screen reader says next.
export function tell(words) {
  document.getElementById('told').textContent = words;
}

export function chooser(label, options, chosen, changed) {
  const select = make('select', { onchange: () => changed(select.value) });
  for (const [value, title] of options) select.append(make('option', { value, selected: value === chosen }, title));
  return make('label', {}, `${label} `, select);
}
