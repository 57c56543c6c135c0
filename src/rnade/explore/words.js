// Numbers, shares, dates as a person reads them: `rnade.report.words` and `rnade.report.kinds`.

const MINUS = "−";
const DAY = 86400;

/** A number with so many significant digits, without an exponent where that is short. */
function numberWords(x, digits = 3) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "not known" : x > 0 ? "∞" : `${MINUS}∞`;
  const size = Math.abs(x);
  if (size === 0) return "0";
  if (size >= 1e9 || size < 1e-4) {
    const [mantissa, exponent] = x.toExponential(digits - 1).split("e");
    return `${Number(mantissa)}e${Number(exponent)}`.replaceAll("-", MINUS);
  }
  return fixedWords(x, Math.max(0, digits - 1 - Math.floor(Math.log10(size))), true);
}

/** A number with so many decimals, or at most so many. */
function fixedWords(x, decimals, atMost = false) {
  const text = x.toLocaleString("en-US", {
    minimumFractionDigits: atMost ? 0 : decimals, maximumFractionDigits: decimals,
  });
  return text.replace("-", MINUS).replace(/^−0$/, "0");
}

/** A number as finely as a range of this width asks for. */
function nearWords(x, span) {
  if (!(Number.isFinite(x) && span > 0)) return numberWords(x);
  const decimals = 1 - Math.floor(Math.log10(span));
  if (decimals > 6 || Math.abs(x) >= 1e9) return numberWords(x);
  return fixedWords(x, Math.max(0, decimals), true);
}

function percentWords(share) {
  const value = 100 * share;
  return `${value >= 10 ? value.toFixed(0) : numberWords(value, 2)} %`;
}

const clocks = new Map(); // of time zones, which are slow to make

/** The time on the clock of a zone: "2024-01-31T08:30:00". */
function clockOf(seconds, zone) {
  if (!clocks.has(zone))
    clocks.set(zone, new Intl.DateTimeFormat("en-GB", {
      timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit",
      hour: "2-digit", minute: "2-digit", second: "2-digit",
    }));
  const parts = clocks.get(zone).formatToParts(new Date(1000 * seconds));
  const { year, month, day, hour, minute, second } =
    Object.fromEntries(parts.map(({ type, value }) => [type, value]));
  return `${year.padStart(4, "0")}-${month}-${day}T${hour}:${minute}:${second}`;
}

/** A date in ISO form, with the time of day where there is one. */
function isoDate(x, { unit, zone }) {
  if (unit === "day") return new Date(1000 * DAY * x).toISOString().split("T")[0];
  const seconds = Math.round(x);
  return zone ? clockOf(seconds, zone) : new Date(1000 * seconds).toISOString().split(".")[0];
}

/** What `isoDate` wrote, as a number of days or seconds since 1970-01-01; NaN if it is no date. */
function readDate(text, { unit, zone }) {
  const local = Date.parse(`${text.includes("T") ? text : `${text}T00:00:00`}Z`) / 1000;
  if (unit === "day") return Math.round(local / DAY);
  if (!zone || Number.isNaN(local)) return local;
  // The offset of the zone at that time, found in two steps as it may change nearby.
  const offset = (at) => Date.parse(`${isoDate(at, { unit, zone })}Z`) / 1000 - at;
  return local - offset(local - offset(local));
}

/** A value of a column in words, as finely as a range of this width asks for. */
function valueWords(column, x, span) {
  if (Number.isNaN(x)) return "unknown";
  if (column.levels) return column.levels[x] ?? "a new level";
  if (column.unit) {
    const [date, time] = isoDate(x, column).split("T");
    if (!time || span > 20 * DAY) return date;
    return `${date} ${span > 60 ? time.slice(0, 5) : time}`;
  }
  if (column.cells.measure === INTEGER && Math.abs(x) < 1e9) return fixedWords(x, 0);
  return nearWords(x, span);
}
