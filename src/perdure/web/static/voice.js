// Records what a person says, as a file to attach.
import { t } from './language.js';

const TYPES = ['audio/webm;codecs=opus', 'audio/ogg;codecs=opus', 'audio/mp4'];
const LONGEST_MS = 10 * 60_000;

export class Recorder {
  #button;
  #recorder = null;
  #timer = null;
  #taken;
  #failed;

  // taken(file) is called with what was recorded, failed(words) when that is not possible.
  constructor(button, { taken, failed }) {
    this.#button = button;
    this.#taken = taken;
    this.#failed = failed;
  }

  toggle() {
    if (this.#recorder) this.#recorder.stop();
    else this.#begin();
  }

  async #begin() {
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch {
      this.#failed('The microphone cannot be used: the browser does not allow it here.');
      return;
    }
    const mimeType = TYPES.find((type) => MediaRecorder.isTypeSupported(type));
    const recorder = new MediaRecorder(stream, mimeType ? { mimeType } : {});
    const pieces = [];
    recorder.ondataavailable = ({ data }) => pieces.push(data);
    recorder.onstop = () => {
      for (const track of stream.getTracks()) track.stop();
      const type = recorder.mimeType.split(';')[0];
      this.#shown(null);
      this.#taken(new File(pieces, `voice.${type.split('/')[1]}`, { type }));
    };
    recorder.start();
    this.#shown(recorder);
  }

  #shown(recorder) {
    this.#recorder = recorder;
    clearTimeout(this.#timer);
    if (recorder) this.#timer = setTimeout(() => recorder.stop(), LONGEST_MS);
    this.#button.setAttribute('aria-pressed', String(Boolean(recorder)));
    this.#button.setAttribute('aria-label', recorder ? t('Stop recording') : t('Record a voice message'));
  }
}
