// A file: a picture that is shown, or a button that saves it. Media are fetched with the token.

import * as media from '../media.js';
import { enlarge } from '../state.js';
import { html, lazily, render, useEffect, useState, Icon } from '../ui.js';
import { t } from '../language.js';

const Sound = lazily(async () => (await import('./sound.js')).Sound);

function Saving({ id, name, label }) {
  const [problem, setProblem] = useState('');
  const save = () => media.save(id, name).catch((failure) => setProblem(failure.message));
  return html`<button type="button" class=${problem ? 'file failed' : 'file'} title=${problem || null} onClick=${save}>
    <${Icon} name="file" />${label || name || t('attachment')}
  </button>`;
}

export function File({ id, name = '', mime = '', label = '' }) {
  const [picture, setPicture] = useState(null);
  useEffect(() => {
    let isGone = false;
    // Where it cannot be had, the button stays, and says what is wrong when it is used.
    media.picture(id, mime).then((found) => !isGone && setPicture(found), () => {});
    return () => {
      isGone = true;
    };
  }, [id]);
  if (/^audio\//.test(mime)) return html`<${Sound} id=${id} name=${name} />`;
  if (!picture) return html`<${Saving} id=${id} name=${name} label=${label} />`;
  const words = name || t('attached_image');
  const open = () => enlarge(picture, words);
  return html`<button type="button" class="picture" aria-label=${t('enlarge_name', { name: words })} onClick=${open}><img src=${picture} alt=${words} /></button>`;
}

function Attached({ media: id, url, name, mime, problem }) {
  return html`<span class="media">
    ${id ? html`<${File} id=${id} name=${name} mime=${mime} />` : name || url || t('attachment')}
    ${problem ? html`<span class="problem"><${Icon} name="alert" />${problem}</span>` : null}
  </span>`;
}

export function Files({ attachments }) {
  if (!attachments?.length) return null;
  return html`<div class="attached">${attachments.map((each) => html`<${Attached} key=${each.media ?? each.url} ...${each} />`)}</div>`;
}

// Pictures that stand within a text.
export function drawEmbedded(body) {
  for (const holder of body.querySelectorAll('.media[data-media]:empty')) {
    render(html`<${File} id=${holder.dataset.media} name=${holder.dataset.name} />`, holder);
  }
}
