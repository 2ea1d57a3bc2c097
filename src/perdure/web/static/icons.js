const SVG = 'http://www.w3.org/2000/svg';

export const PATHS = {
  plus: 'M12 5v14M5 12h14',
  menu: 'M4 7h16M4 12h16M4 17h10',
  close: 'M6 6l12 12M18 6L6 18',
  send: 'M12 19V5M5.5 11.5L12 5l6.5 6.5',
  stop: 'M8 8h8v8H8z',
  down: 'M12 5v14M5.5 12.5L12 19l6.5-6.5',
  paperclip: 'M20 11.5l-8.2 8.2a5 5 0 0 1-7.1-7.1l8.5-8.5a3.4 3.4 0 0 1 4.8 4.8l-8.5 8.5a1.7 1.7 0 0 1-2.4-2.4l7.8-7.8',
  file: 'M13.5 3.5H7a1.5 1.5 0 0 0-1.5 1.5v14A1.5 1.5 0 0 0 7 20.5h10a1.5 1.5 0 0 0 1.5-1.5V8.5zM13.5 3.5v5h5',
  tool: 'M14.5 6.2a4 4 0 0 1 5 5l-2.2-.6-1.6-1.6-.6-2.3zM15 11l-8.3 8.3a1.9 1.9 0 0 1-2.7-2.7L12.3 8.3',
  shield: 'M12 3.5l7 2.6v5.4c0 4.2-2.8 7.4-7 9-4.2-1.6-7-4.8-7-9V6.1zM9 11.8l2.2 2.2 4-4.2',
  question: 'M9 9.2a3 3 0 1 1 4.4 2.7c-.9.5-1.4 1.1-1.4 2.1v.4M12 17.4v.1M12 3.5a8.5 8.5 0 1 1 0 17 8.5 8.5 0 0 1 0-17z',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  copy: 'M9 9h10v11H9zM6 15H5V4h10v1',
  again: 'M19 12a7 7 0 1 1-2-4.9M19 4v4h-4',
  edit: 'M5 19l1-4L16 5l3 3L9 18zM14 7l3 3',
  branch: 'M7 8v8M7 8a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM7 20a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM17 9a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM17 9c0 4-10 2-10 6',
  why: 'M12 11v5M12 7.6v.1M12 3.5a8.5 8.5 0 1 1 0 17 8.5 8.5 0 0 1 0-17z',
  search: 'M11 4.5a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM16 16l4 4',
  play: 'M8 5.5v13l11-6.5z',
  mic: 'M12 3.5a2.5 2.5 0 0 1 2.5 2.5v6a2.5 2.5 0 0 1-5 0V6A2.5 2.5 0 0 1 12 3.5zM6 11.5a6 6 0 0 0 12 0M12 17.5v3',
  left: 'M14.5 6l-6 6 6 6',
  right: 'M9.5 6l6 6-6 6',
  more: 'M6 12h.01M12 12h.01M18 12h.01',
  history: 'M4 12a8 8 0 1 0 2.6-5.9M4 4v4h4M12 8v4l3 2',
  alert: 'M12 8v5M12 16.4v.1M12 3.5l9 16H3z',
};

export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  svg.setAttribute('class', `glyph glyph-${name}`);
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', PATHS[name]);
  svg.append(path);
  return svg;
}

export function drawIcons(root) {
  for (const element of root.querySelectorAll('[data-icon]')) element.prepend(icon(element.dataset.icon));
}
