// Follows the newest message while the reader is at the bottom, and leaves them alone elsewhere.

const NEAR_PX = 60;
const TOP_PX = 200;

export class Scroller {
  #box = document.getElementById('scroller');
  #jump = document.getElementById('jump');
  #isFollowing = true;
  #top;
  #bottom;
  #followed;

  // top() and bottom() are called near an end of what is drawn, followed(isFollowing) when that
  // changes. bottom() tells whether there is more below.
  constructor({ top, bottom, followed }) {
    this.#top = top;
    this.#bottom = bottom;
    this.#followed = followed;
    this.#box.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    this.#jump.addEventListener('click', () => this.follow());
    // Images and the growing text box change heights outside of a redraw.
    const sizes = new ResizeObserver(() => this.#keep());
    sizes.observe(this.#box);
    sizes.observe(this.#box.firstElementChild);
  }

  get isFollowing() {
    return this.#isFollowing;
  }

  follow() {
    this.#set(true);
    this.#keep();
  }

  // Leaves the newest message, to show another one.
  leave() {
    this.#set(false);
    this.#keep();
  }

  #set(isFollowing) {
    const isNew = isFollowing !== this.#isFollowing;
    this.#isFollowing = isFollowing;
    if (isNew) this.#followed(isFollowing);
  }

  // Runs a redraw. Rows added above must not move what is being read.
  around(redraw) {
    const anchor = this.#isFollowing ? null : this.#firstVisible();
    const before = anchor?.getBoundingClientRect().top;
    redraw();
    if (anchor?.isConnected) this.#box.scrollTop += anchor.getBoundingClientRect().top - before;
    this.#keep();
    if (this.#box.scrollTop < TOP_PX) this.#top();
  }

  #firstVisible() {
    const { top } = this.#box.getBoundingClientRect();
    const rows = document.getElementById('log').children;
    for (const row of rows) if (row.getBoundingClientRect().bottom > top) return row;
    return null;
  }

  #keep() {
    if (this.#isFollowing) this.#box.scrollTop = this.#box.scrollHeight;
    this.#jump.hidden = this.#isFollowing;
  }

  #scrolled() {
    const rest = this.#box.scrollHeight - this.#box.scrollTop - this.#box.clientHeight;
    this.#set(rest < NEAR_PX && !this.#bottom(rest));
    this.#jump.hidden = this.#isFollowing;
    if (this.#box.scrollTop < TOP_PX) this.#top();
  }
}
