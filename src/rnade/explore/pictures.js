// Pictures on a square of 1000 x 1000 that fills its place, in the classes of the style sheet.

const SIDE = 1000;

/** An element with attributes and children; words from data enter as text alone. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  made.append(...children);
  return made;
}

function shape(kind) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "path");
  made.setAttribute("class", kind);
  return made;
}

/** An empty picture with paths of these classes, and what it shows for those who do not see it. */
function picture(kinds, label) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${SIDE} ${SIDE}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const paths = kinds.map(shape);
  svg.append(...paths);
  return { svg, paths };
}

const rounded = (x) => Math.round(Math.min(Math.max(x, -0.5), 1.5) * SIDE);

/** The outline of a histogram, to be filled; heights from 0 to 1. */
function stepsPath(places, heights) {
  let d = `M${rounded(places[0])} ${SIDE}`;
  for (let i = 0; i < heights.length; i++)
    d += `V${rounded(1 - heights[i])}H${rounded(places[i + 1])}`;
  return `${d}V${SIDE}`;
}

/** Upright bars at places, each as wide as `width`. */
function barsPath(places, heights, width) {
  let d = "";
  places.forEach((x, i) => {
    const left = rounded(Math.min(Math.max(x - width / 2, 0), 1 - width));
    d += `M${left} ${SIDE}V${rounded(1 - heights[i])}H${left + rounded(width)}V${SIDE}z`;
  });
  return d;
}

/** A bar from the left. */
const barPath = (share) => `M0 0H${rounded(share)}V${SIDE}H0z`;

/** Round points, as the caps of lines of no length. */
function dotsPath(places, heights) {
  let d = "";
  places.forEach((x, i) => (d += `M${rounded(x)} ${rounded(1 - heights[i])}h0`));
  return d;
}

/** Upright lines over the whole height. */
const linesPath = (places) => places.map((x) => `M${rounded(x)} 0V${SIDE}`).join("");
