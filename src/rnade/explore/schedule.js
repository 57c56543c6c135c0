// Long work in short slices, so that the page answers while it goes on.

const SLICE = 8, PAUSE = 60; // milliseconds

class Schedule {
  #jobs = [];
  #waiting = [];
  #posted = false;
  #timer = null;
  #channel = new MessageChannel();

  constructor() {
    this.#channel.port1.onmessage = () => this.#slice();
  }

  /**
   * Drop what was going on and do these instead, one after the other: generators to run. They
   * begin after a pause, in which a slider may have moved on.
   */
  begin(jobs) {
    for (const job of this.#jobs) job.return();
    this.#jobs = [...jobs];
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#post(), PAUSE);
  }

  /** Do this before all others. */
  first(job) {
    this.#jobs.unshift(job);
    this.#post();
  }

  /** Resolves when there is nothing left to do. */
  done() {
    return new Promise((resolve) => {
      if (this.#jobs.length) this.#waiting.push(resolve);
      else resolve();
    });
  }

  #post() {
    if (!this.#posted) this.#channel.port2.postMessage(null);
    this.#posted = true;
  }

  #slice() {
    const end = performance.now() + SLICE;
    this.#posted = false;
    while (this.#jobs.length && performance.now() < end) {
      const jobs = this.#jobs, job = jobs.shift();
      if (job.next().done) continue;
      if (jobs === this.#jobs) jobs.unshift(job);
      else job.return(); // it has begun something else
    }
    if (this.#jobs.length) this.#post();
    else this.#waiting.splice(0).forEach((resolve) => resolve());
  }
}
