// Records what a person says, as a file to attach.

import { t } from '../language.js';

const TYPES = ['audio/webm;codecs=opus', 'audio/ogg;codecs=opus', 'audio/mp4'];
const LONGEST_MS = 10 * 60_000;

// Returns what ends the recording. `over(file)` is called with what was recorded.
export async function record(over) {
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch {
    throw new Error(t('the_microphone_cannot_be_used'));
  }
  const mimeType = TYPES.find((type) => MediaRecorder.isTypeSupported(type));
  const recorder = new MediaRecorder(stream, mimeType ? { mimeType } : {});
  const pieces = [];
  const timer = setTimeout(() => recorder.stop(), LONGEST_MS);
  recorder.ondataavailable = ({ data }) => pieces.push(data);
  recorder.onstop = () => {
    clearTimeout(timer);
    for (const track of stream.getTracks()) track.stop();
    const type = recorder.mimeType.split(';')[0];
    over(new File(pieces, `voice.${type.split('/')[1]}`, { type }));
  };
  recorder.start();
  return () => recorder.stop();
}
