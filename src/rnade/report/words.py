"""Numbers and names as a person reads them."""

import math
from collections.abc import Sequence

MINUS = "\N{MINUS SIGN}"
_LONGEST_NAME = 60


def number(x: float, digits: int = 3) -> str:
    """Write a number with so many significant digits, without an exponent where that is short.

    >>> number(1234567), number(-0.01234), number(3.0), number(1.5e-9)
    ('1,234,567', '−0.0123', '3', '1.5e−9')
    """
    if not math.isfinite(x):
        return "not known" if math.isnan(x) else ("∞" if x > 0 else f"{MINUS}∞")
    size = abs(x)
    if size == 0:
        return "0"
    if size >= 1e9 or size < 1e-4:
        mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
        if "." in mantissa:
            mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    text = f"{x:,.{decimals}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", MINUS)


def fixed(x: float, decimals: int) -> str:
    """Write a number with so many decimals, for columns of figures.

    >>> fixed(-1234.5, 2)
    '−1,234.50'
    """
    return f"{x:,.{decimals}f}".replace("-", MINUS) if math.isfinite(x) else number(x)


def near(x: float, span: float) -> str:
    """Write a number as finely as a range of this width asks for.

    >>> near(1.3196, 0.18), near(-1.8e-5, 7.1), near(990.12, 23.0)
    ('1.32', '0', '990')
    """
    if not (math.isfinite(x) and math.isfinite(span) and span > 0):
        return number(x)
    decimals = 1 - math.floor(math.log10(span))
    if decimals > 6 or abs(x) >= 1e9:
        return number(x)
    rounded = round(x, decimals) + 0.0  # no minus before a zero
    text = fixed(rounded, max(0, decimals))
    return text.rstrip("0").rstrip(".") if "." in text else text


def decimals_for(error: float) -> int:
    """Decimals worth giving beside a standard error: two digits of it if the first is 1 or 2.

    >>> decimals_for(0.0123), decimals_for(0.099), decimals_for(14.0), decimals_for(float("nan"))
    (3, 2, 0, 2)
    """
    if not (math.isfinite(error) and error > 0):
        return 2
    exponent = math.floor(math.log10(error))
    return min(6, max(0, (error < 3 * 10.0**exponent) - exponent))


def percent(share: float) -> str:
    r"""Write a share as a percentage, with a digit more where it is small and a fixed blank.

    >>> percent(0.1234), percent(0.0123), percent(0.00012), percent(0.0)
    ('12\xa0%', '1.2\xa0%', '0.012\xa0%', '0\xa0%')
    """
    value = 100 * share
    text = f"{value:.0f}" if value >= 10 else number(value, 2)
    return f"{text}\N{NO-BREAK SPACE}%"


def plural(n: int, noun: str) -> str:
    """Count things.

    >>> plural(1, "row"), plural(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def quoted(name: str) -> str:
    """Put a name in quotation marks, for a sentence; a very long one is cut."""
    return f"“{name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + '…'}”"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Join names for a sentence, the first few of many.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('“a”, “b” and “c”', '“a”')
    """
    shown = [quoted(name) for name in names[:most]]
    rest = len(names) - most
    if rest > 0:
        return ", ".join(shown) + f" and {rest} more"
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1]


def times(nats: float) -> str:
    """Say how many times as likely a difference of log densities is, roughly.

    >>> times(0.207), times(3.616), times(800)
    ('1.2 times', '37 times', 'over 100,000 times')
    """
    factor = math.exp(min(nats, 700.0))
    if factor >= 100_000:
        return "over 100,000 times"
    if factor >= 1000:
        return f"{round(factor, -2):,.0f} times"
    return f"{number(factor, 2)} times"
