"""Questions as they are typed, ``income | age=40, sex=F``: into their parts and back to text.

A question is a column, and after ``|`` conditions with commas between them. A condition is a name
and a value, or an interval with either end left open: ``age=40``, ``age=30..40``, ``age=30..``.
A name or value that holds ``|``, ``,`` or ``=``, and a value that holds ``..``, stands in quotes,
single or double; a quote within is doubled. What a value means depends on its column: see
`rnade.cli.given`.
"""

from dataclasses import dataclass

_QUOTES = ("'", '"')
_AFTER_NAMES = ("|", ",", "=")
_AFTER_VALUES = (*_AFTER_NAMES, "..")
_QUOTE = "; put a name or value that holds | , = or .. in quotes"


@dataclass(frozen=True)
class Interval:
    """From one value to another; None is an open end."""

    low: str | None
    high: str | None


@dataclass(frozen=True)
class Condition:
    """What is known of one column."""

    column: str
    value: str | Interval


@dataclass(frozen=True)
class Question:
    """A column, and what is known of others."""

    column: str
    given: tuple[Condition, ...] = ()


def parse_question(text: str) -> Question:
    """Give the parts of a question, or say what was expected, and where.

    >>> question = parse_question("'price | eur' | city=Rome, built=1990..")
    >>> question.column
    'price | eur'
    >>> question.given[1]
    Condition(column='built', value=Interval(low='1990', high=None))
    """
    scan = _Scanner(text)
    column = scan.name("a column to ask about, such as in income | age=40")
    mark = scan.mark()
    if not mark:
        return Question(column)
    if mark == ",":
        raise scan.error(f"ask about one column at a time, such as {column}{_QUOTE}")
    if mark == "=":
        raise scan.error(f"expected a column, then | and NAME=VALUE{_QUOTE}")
    given = _conditions(scan)
    if column in [condition.column for condition in given]:
        raise scan.error(f"{column!r} is what is asked for, so it cannot be given too")
    return Question(column, given)


def parse_conditions(texts: list[str]) -> tuple[Condition, ...]:
    """Give what conditions say, each text one or more of them with commas between.

    >>> parse_conditions(["age=40", 'city="Rome, Italy"'])[1]
    Condition(column='city', value='Rome, Italy')
    """
    found: list[Condition] = []
    for text in texts:
        found += _conditions(_Scanner(text))
    _check_once(found)
    return tuple(found)


def write_question(question: Question) -> str:
    """Write a question as text that `parse_question` reads.

    >>> write_question(Question("price | eur", (Condition("age", Interval("30", None)),)))
    "'price | eur' | age=30.."
    """
    given = ", ".join(map(write_condition, question.given))
    return _quoted(question.column) + (f" | {given}" if given else "")


def write_condition(condition: Condition) -> str:
    """Write a condition as text that `parse_conditions` reads."""
    return f"{_quoted(condition.column)}={write_value(condition.value)}"


def write_value(value: str | Interval) -> str:
    """Write a value or an interval as it stands in a condition."""
    if isinstance(value, Interval):
        return "..".join("" if end is None else _quoted(end) for end in (value.low, value.high))
    return _quoted(value)


def _quoted(text: str) -> str:
    """Put text into quotes if it would be read as something else without them."""
    bare = text and text == text.strip() and not text.startswith(_QUOTES)
    # A point beside the two of an interval would be taken for one of them.
    if bare and text.strip(".") == text and not any(mark in text for mark in _AFTER_VALUES):
        return text
    quote = '"' if "'" in text and '"' not in text else "'"
    return quote + text.replace(quote, 2 * quote) + quote


def _conditions(scan: "_Scanner") -> tuple[Condition, ...]:
    found = []
    while True:
        name = scan.name("NAME=VALUE, such as age=40")
        if scan.mark() != "=":
            signs = "<" in name or ">" in name
            hint = "; intervals are written as age=30..40, age=30.. or age=..40" if signs else ""
            raise scan.error(f"expected NAME=VALUE, such as age=40, but got {name!r}{hint}")
        found.append(Condition(name, _value(scan, name)))
        mark = scan.mark()
        if not mark:
            _check_once(found)
            return tuple(found)
        if mark != ",":
            raise scan.error(f"{mark!r} follows the value of {name!r}, not a comma{_QUOTE}")


def _value(scan: "_Scanner", name: str) -> str | Interval:
    low = scan.value()
    if scan.mark("..") is None:
        if low is None:
            raise scan.error(f"expected a value of {name!r}, such as {name}=40")
        return low
    high = scan.value()
    if low is None and high is None:
        raise scan.error(f"the interval of {name!r} has no end; expected one such as 30.. or ..40")
    return Interval(low, high)


def _check_once(conditions: list[Condition]) -> None:
    names = [condition.column for condition in conditions]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(f"Column {name!r} is given more than once.")


class _Scanner:
    """Reads names and values, in quotes or not, and the marks between them."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def error(self, problem: str) -> ValueError:
        """Make the error that says what is wrong with the text."""
        return ValueError(f"Cannot read {self._text!r}: {problem}.")

    def mark(self, *wanted: str) -> str | None:
        """Go past the next mark, one of some if they are named; None if there is none."""
        self._skip_blanks()
        for mark in wanted or _AFTER_VALUES:
            if self._text.startswith(mark, self._at):
                self._at += len(mark)
                return mark
        return None

    def name(self, expected: str) -> str:
        """Give the next word, which must be there."""
        found = self._word(_AFTER_NAMES)
        if not found:
            raise self.error(f"expected {expected}")
        return found

    def value(self) -> str | None:
        """Give the next word; None where a mark or the end comes first."""
        return self._word(_AFTER_VALUES)

    def _word(self, marks: tuple[str, ...]) -> str | None:
        self._skip_blanks()
        if self._text.startswith(_QUOTES, self._at):
            return self._in_quotes(marks)
        rest = self._text[self._at :]
        ends = [rest.index(mark) for mark in marks if mark in rest]
        word = rest[: min(ends, default=len(rest))]
        self._at += len(word)
        return word.strip() or None

    def _in_quotes(self, marks: tuple[str, ...]) -> str:
        quote, parts = self._text[self._at], []
        while True:
            end = self._text.find(quote, self._at + 1)
            if end < 0:
                raise self.error(f"a quote {quote} is never closed")
            parts.append(self._text[self._at + 1 : end])
            self._at = end + 1
            if not self._text.startswith(quote, self._at):  # a doubled one goes on
                break
        self._skip_blanks()
        rest = self._text[self._at :]
        if rest and not rest.startswith(marks):
            raise self.error(f"expected one of {' '.join(marks)} after a quote; got {rest!r}")
        return quote.join(parts)

    def _skip_blanks(self) -> None:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
