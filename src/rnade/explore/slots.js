// The values of a column as slots of a picture: levels, single values and bins, each with a middle.

/**
 * Slots of a column, at most about `most`: {value} of a level or single value, {low, high} of a
 * bin. Bins span `range`; those of whole numbers hold as many numbers each.
 */
function slotsOf(column, range, most) {
  const { cells } = column;
  if (cells.measure === LEVEL)
    return Array.from(cells.points, (_, value) => ({ value, middle: value }));
  const atoms = Array.from(cells.atoms, (value) => ({ value, middle: value }));
  if (!cells.hasSmooth) return atoms;
  const bins = [], [low, high] = range;
  if (cells.measure === INTEGER) {
    const first = Math.floor(low), last = Math.ceil(high);
    const step = Math.ceil((last - first + 1) / most);
    for (let at = first; at <= last; at += step)
      bins.push({ low: at - 1, high: at + step - 1, middle: at + Math.floor((step - 1) / 2) });
  } else {
    for (let i = 0; i < most; i++) {
      const ends = [i, i + 1].map((k) => low + ((high - low) * k) / most);
      bins.push({ low: ends[0], high: ends[1], middle: (ends[0] + ends[1]) / 2 });
    }
  }
  return [...atoms, ...bins];
}

/** The probability of each slot: of a bin, of values above its low end and up to its high one. */
function massesOf(density, slots) {
  const { column } = density, masses = new Float64Array(slots.length);
  if (column.measure === LEVEL) return density.probabilities();
  let end = NaN, reached = 0;
  slots.forEach((slot, i) => {
    if ("value" in slot) {
      masses[i] = column.inside * density.cells[column.nIntervals + i];
      return;
    }
    if (slot.low !== end) reached = density.smoothCdf(slot.low);
    const next = density.smoothCdf(slot.high);
    masses[i] = column.inside * Math.max(next - reached, 0);
    [end, reached] = [slot.high, next];
  });
  return masses;
}

/** Mean log density of a column's own values, by which one of them is judged surprising or not. */
function typicalLogDensity(density, slots) {
  const masses = massesOf(density, slots);
  let total = 0, sum = 0;
  slots.forEach((slot, i) => {
    if (masses[i] <= 0) return;
    const width = "value" in slot ? 1 : slot.high - slot.low;
    total += masses[i] * Math.log(masses[i] / width);
    sum += masses[i];
  });
  return sum > 0 ? total / sum : 0;
}

/** Quantiles to look at, from the masses of bins and atoms: between them, as if spread evenly. */
function quantilesOf(density, slots, masses, shares) {
  const { column } = density;
  if (column.measure !== LEVEL && !column.hasSmooth) return shares.map((q) => density.quantile(q));
  const parts = slots.map((slot, i) => ({ ...slot, mass: masses[i], from: slot.value ?? slot.low }))
    .sort((one, other) => one.from - other.from);
  const whole = column.measure === INTEGER;
  // What lies below the first bin and above the last one has no slot.
  const first = parts.find((part) => "low" in part);
  const start = first ? column.inside * density.smoothCdf(first.low) : 0;
  return shares.map((q) => {
    let left = q * column.inside - start;
    if (left <= 0) return density.quantile(q, 40);
    for (const part of parts) {
      if (left <= part.mass) {
        if ("value" in part) return part.value;
        const x = part.low + ((part.high - part.low) * left) / part.mass;
        return whole ? Math.min(Math.ceil(x), part.high) : x;
      }
      left -= part.mass;
    }
    return density.quantile(q, 40);
  });
}
