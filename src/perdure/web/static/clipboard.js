// Puts text on the clipboard, also where the page is not a secure context, such as plain http on a
// home network. Returns whether that worked.

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text) {
  const before = document.activeElement;
  const holder = document.createElement('textarea');
  holder.value = text;
  holder.className = 'visually-hidden';
  document.body.append(holder);
  holder.select();
  const isCopied = document.execCommand('copy');
  holder.remove();
  before?.focus?.({ preventScroll: true });
  return isCopied;
}
