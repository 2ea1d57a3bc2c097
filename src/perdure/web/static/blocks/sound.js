// A sound that can be heard here. It is played without an element of its own, which the page's policy
// does not allow.

import * as media from '../media.js';
import { Icon, html, useEffect, useRef, useState } from '../ui.js';
import { t } from '../language.js';

let context = null;

async function begin(id) {
  context ??= new AudioContext();
  await context.resume();
  const sound = await context.decodeAudioData(await media.bytes(id));
  const source = context.createBufferSource();
  source.buffer = sound;
  source.connect(context.destination);
  source.start();
  return source;
}

export function Sound({ id, name }) {
  const [state, setState] = useState('still');
  const [problem, setProblem] = useState('');
  const source = useRef(null);
  const stop = () => {
    source.current?.stop();
    source.current = null;
    setState('still');
  };
  useEffect(() => stop, []);
  const play = async () => {
    setState('loading');
    setProblem('');
    try {
      source.current = await begin(id);
      source.current.onended = () => setState('still');
      setState('playing');
    } catch (failure) {
      setProblem(failure.message || t('this_sound_cannot_be_played'));
      setState('still');
    }
  };
  const isOn = state !== 'still';
  const shown = name || t('the_sound');
  return html`<button type="button" class="file" aria-pressed=${String(isOn)} aria-label=${isOn ? t('stop_playing_name', { name: shown }) : t('play_name', { name: shown })} title=${problem || null} onClick=${isOn ? stop : play}>
    <${Icon} name=${isOn ? 'stop' : 'play'} />${name || t('sound')}
  </button>${problem ? html`<span class="problem">${problem}</span>` : null}`;
}
