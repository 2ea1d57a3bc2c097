// Makes elements. Text is always text.

export function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== null && child !== ''));
  return element;
}

export function button(label, className, action) {
  const element = make('button', className, label);
  element.type = 'button';
  element.addEventListener('click', action);
  return element;
}
