// Follows the newest message while the reader is at the bottom, and leaves them alone elsewhere.

const NEAR_PX = 60;
const TOP_PX = 200;

export class Scroller {
  #box = null;
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
  }

  // Watches a box with one child that may be higher than it is. Returns what ends that.
  attach(box) {
    this.#box = box;
    box.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    // Images and the growing text box change heights outside of a redraw.
    const sizes = new ResizeObserver(() => this.#keep());
    sizes.observe(box);
    sizes.observe(box.firstElementChild);
    this.#keep();
    return () => {
      sizes.disconnect();
      if (this.#box === box) this.#box = null;
    };
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
    if (!this.#box) {
      redraw();
      return;
    }
    const anchor = this.#isFollowing ? null : this.#firstVisible();
    const before = anchor?.getBoundingClientRect().top;
    redraw();
    if (!this.#box) return;
    if (anchor?.isConnected) this.#box.scrollTop += anchor.getBoundingClientRect().top - before;
    this.#keep();
    if (this.#box.scrollTop < TOP_PX) this.#top();
  }

  #firstVisible() {
    const { top } = this.#box.getBoundingClientRect();
    for (const row of this.#box.querySelectorAll('.log > .row')) if (row.getBoundingClientRect().bottom > top) return row;
    return null;
  }

  #keep() {
    if (this.#isFollowing && this.#box) this.#box.scrollTop = this.#box.scrollHeight;
  }

  #scrolled() {
    const rest = this.#box.scrollHeight - this.#box.scrollTop - this.#box.clientHeight;
    this.#set(rest < NEAR_PX && !this.#bottom(rest));
    if (this.#box.scrollTop < TOP_PX) this.#top();
  }
}
