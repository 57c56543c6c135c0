// Reads what the page carries, and begins.

async function start() {
  const facts = JSON.parse(document.getElementById("facts").textContent), tensors = {};
  const blocks = [...document.querySelectorAll("script.tensors")];
  for (const [i, block] of blocks.entries())
    Object.assign(tensors, await readTensors(block.textContent, facts.directories[i]));
  document.getElementById("explore").hidden = false;
  const page = new Page(facts, tensors);
  document.getElementById("waiting").remove();
  return page;
}

/** What scripts may ask of a page: `(await rnade).ask.logDensity(values)`, NaN where unknown. */
function answersOf(model) {
  const whole = (job) => {
    for (;;) {
      const { done, value } = job.next();
      if (done) return value;
    }
  };
  return {
    conditionals: (values) => new Conditionals(model, values),
    logDensity: (values) => logAverage(whole(logDensities(model, values))),
    draw: (values, n, seed) => {
      const random = randomNumbers(seed);
      return Array.from({ length: n }, () => whole(drawRow(model, values, random)).row);
    },
    pValue: (values, n, seed) => whole(pValue(model, values, n, randomNumbers(seed), () => {})),
    joint: (pair, slots, values) => whole(jointMasses(model, pair, slots, values)),
  };
}

window.rnade = start().catch((error) => {
  document.getElementById("waiting").textContent =
    `This browser cannot show the page (${error.message}). It needs Chrome 110, Firefox 115, `
    + "Safari 16.4 or a later one.";
  throw error;
});
