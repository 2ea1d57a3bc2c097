// A dialog over the page.

import { html, useLayoutEffect, useRef } from '../ui.js';

// It opens for what is shown, and again for something else. closed() is called when it was closed,
// however that happened.
export function Dialog({ shown, closed, children, ...rest }) {
  const dialog = useRef(null);
  useLayoutEffect(() => {
    // What is shown may take the focus, which a dialog gives to its first button.
    if (shown && !dialog.current.open) dialog.current.showModal();
  }, [shown]);
  // It is told later, and may have been opened for something else by then.
  const over = () => dialog.current.open || closed();
  // A click beside the dialog is one on its backdrop.
  const clicked = (event) => event.target === dialog.current && dialog.current.close();
  return html`<dialog ref=${dialog} onClose=${over} onClick=${clicked} ...${rest}>${children}</dialog>`;
}
