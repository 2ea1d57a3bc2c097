// The files that go with what is being written, each with what became of its upload.

import { t } from '../language.js';
import { Button, Icon, html, useEffect, useState } from '../ui.js';

const SHOWN = /^image\/(png|jpeg|gif|webp|avif)$/;

// A picture is shown before it is sent.
function Thumbnail({ source }) {
  const [address, setAddress] = useState('');
  useEffect(() => {
    const made = URL.createObjectURL(source);
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [source]);
  return address ? html`<img class="thumbnail" src=${address} alt="" />` : html`<${Icon} name="file" />`;
}

function Chip({ file, draft }) {
  const { source, name, mime, media, error } = file;
  return html`<li class=${error ? 'chip failed' : 'chip'}>
    ${SHOWN.test(mime) ? html`<${Thumbnail} source=${source} />` : html`<${Icon} name="file" />`}
    <span class="chip-name" dir="auto">${name}</span>
    <span class="chip-state">${error ?? (media ? '' : t('uploading'))}</span>
    ${error ? html`<${Button} class="link" label=${t('retry')} action=${() => draft.upload(file)} />` : null}
    <button type="button" class="icon tiny" aria-label=${t('remove_name', { name })} onClick=${() => draft.remove(file)}><${Icon} name="close" /></button>
  </li>`;
}

export const Chips = ({ draft }) => html`<ul class="chips" aria-label=${t('attachments')} hidden=${!draft.files.length}>
  ${draft.files.map((file) => html`<${Chip} key=${file} file=${file} draft=${draft} />`)}
</ul>`;
