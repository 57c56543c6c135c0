// Two columns together: their joint distribution given what else is set, as a heat map.

const PAIR_BINS = 30, PAIR_LEVELS = 24, SHADES = 24;

class PairPicture {
  constructor(cards, node, change) {
    this.cards = cards;
    const chosen = () => change(this.selects.map(({ value }) => Number(value)));
    this.selects = ["first", "second"].map((which) => {
      const options = cards.map(({ column: { d, name } }) => element("option", { value: d }, name));
      const select = node.querySelector(`select[name=${which}]`);
      select.append(element("option", { value: -1 }, "none"), ...options);
      select.addEventListener("change", chosen);
      return select;
    });
    this.figure = node.querySelector("figure");
    this.caption = node.querySelector("figcaption");
    this.chart = node.querySelector(".chart");
  }

  show(pair) {
    this.selects.forEach((select, i) => (select.value = pair[i]));
    this.figure.hidden = !isPair(pair);
  }

  /** Compute and draw the joint distribution: a generator. */
  *work(model, pair, known, drawn) {
    if (!isPair(pair)) return;
    const own = pair.map((d) => this.cards[d]), slots = own.map(pairSlots);
    const joint = yield* jointMasses(model, pair, slots, known);
    this.#draw(own, slots, joint, known, drawn);
  }

  #draw([one, other], [across, up], joint, known, drawn) {
    const most = Math.max(...joint.map((masses) => Math.max(...masses)));
    const shades = Array.from({ length: SHADES }, () => "");
    joint.forEach((masses, i) => masses.forEach((mass, j) => {
      const shade = Math.ceil(SHADES * Math.sqrt(mass / most)) - 1;
      if (shade < 0 || !(most > 0)) return;
      const [left, right] = [i, i + 1].map((k) => rounded(k / across.length));
      const [bottom, top] = [j, j + 1].map((k) => rounded(1 - k / up.length));
      shades[shade] += `M${left} ${top}H${right}V${bottom}H${left}z`;
    }));
    const { svg, paths } = picture([...shades.map(() => "fill-gain"), "points-model", "line-model"],
      `Joint distribution of ${one.column.name} and ${other.column.name}`);
    shades.forEach((d, i) => {
      paths[i].setAttribute("d", d);
      paths[i].setAttribute("fill-opacity", ((i + 1) / SHADES).toFixed(2));
    });
    const placeOf = (row) =>
      [placeAmong(across, one, row[one.column.d]), placeAmong(up, other, row[other.column.d])];
    const points = drawn.map(placeOf).filter((place) => place.every(isKnown));
    paths[SHADES].setAttribute("d", dotsPath(points.map(([x]) => x), points.map(([, y]) => y)));
    const [x, y] = placeOf(known);
    paths[SHADES + 1].setAttribute("d", (isKnown(x) ? linesPath([x]) : "")
      + (isKnown(y) ? `M0 ${rounded(1 - y)}H${SIDE}` : ""));
    const [title, left, area, below, bottom] = this.chart.children;
    title.textContent = other.column.name;
    bottom.textContent = one.column.name;
    area.replaceChildren(svg);
    left.replaceChildren(...labels(up, other, "bottom"));
    below.replaceChildren(...labels(across, one, "left"));
    const [i, j] = likeliest(joint);
    const others = [one, other].some(({ column }) => isKnown(known[column.d]))
      ? " The lines are the values that are set, which count for nothing here." : "";
    const place = `${one.column.name} ${slotWords(one, across[i])} with ${other.column.name} `
      + slotWords(other, up[j]);
    this.caption.textContent = "Given all other values that are set, the likeliest place is "
      + `${place}. The stronger the colour, the likelier.${others}`;
  }
}

/** Slots of a column in a heat map: fewer than in a picture of its own. */
function pairSlots(card) {
  if (!card.column.levels) return slotsOf(card.column, card.range, PAIR_BINS);
  const shown = card.slots.toSorted((i, j) => card.alone[j.value] - card.alone[i.value]);
  return shown.slice(0, PAIR_LEVELS).sort((i, j) => i.value - j.value);
}

/** Where a value lies along an axis of slots, from 0 to 1; NaN where it has no place. */
function placeAmong(slots, { column }, x) {
  if (!isKnown(x)) return NaN;
  const holds = ({ value, low, high }) => (value ?? NaN) === x || (x > low && x <= high);
  const at = slots.findIndex(holds);
  if (at < 0) return NaN;
  const slot = slots[at];
  const whole = "value" in slot || column.cells.measure === INTEGER;
  const within = whole ? 0.5 : (x - slot.low) / (slot.high - slot.low);
  return (at + within) / slots.length;
}

/** Words along an axis: all levels while they are few, else some. */
function labels(slots, card, side) {
  const every = Math.ceil(slots.length / (card.column.levels ? 8 : 5));
  return slots.flatMap((slot, i) => {
    if (i % every) return [];
    const label = element("span", {}, slotWords(card, slot));
    label.style[side] = `${(100 * (i + 0.5)) / slots.length}%`;
    return [label];
  });
}

const slotWords = (card, slot) => valueWords(card.column, slot.middle, card.fine);

function likeliest(joint) {
  let best = [0, 0];
  joint.forEach((masses, i) => masses.forEach((mass, j) => {
    if (mass > joint[best[0]][best[1]]) best = [i, j];
  }));
  return best;
}
