"""Amounts of memory, as people write them and as the machine has them."""

import os
import re

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def bytes_of(memory: int | float | str) -> int:
    """Give the bytes that a number or a text such as "2GB" means; 1 KB is 1024 bytes.

    >>> bytes_of("2GB"), bytes_of("512 MiB"), bytes_of(1000)
    (2147483648, 536870912, 1000)
    """
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kmgt]?)i?b?\s*", str(memory).lower())
    try:
        amount = float(found[1]) * 1024 ** _UNITS[found[2]] if found else 0.0
    except ValueError:
        amount = 0.0
    if amount < 1:
        raise ValueError(f"Expected an amount of memory such as '2GB'; got {memory!r}.")
    return int(amount)


def machine_memory() -> int:
    """Bytes of memory that this machine has, or 4 GiB where it does not say."""
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return 2**32
