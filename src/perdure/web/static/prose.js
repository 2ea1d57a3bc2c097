// Markdown is loaded with the first text. If that fails, texts are shown as they are.

let markdown = null;
let loading = null;

export const isReady = () => markdown !== null;

// What draws a text as markdown; null until it is there.
export const drawing = () => markdown;

export function ready() {
  loading ??= import('./markdown.js').then(
    (found) => {
      markdown = found;
    },
    () => {
      loading = null;
    },
  );
  return loading;
}
