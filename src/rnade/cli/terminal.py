"""What the command line says and how it ends: results to stdout, all else to stderr.

Every failure that a person can fix is one line and exit code 2. ``--debug`` before the command,
or RNADE_DEBUG=1 in the environment, shows the traceback instead.
"""

import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

EXIT_BAD_INPUT = 2
EXIT_BUG = 1
EXIT_INTERRUPTED = 130

# What users can fix. Anything else is a bug of ours.
_THEIRS = (ValueError, TypeError, OSError, MemoryError)


def say(text: str) -> None:
    """Write a line for a person to stderr."""
    print(text, file=sys.stderr, flush=True)


def note(text: str, *, quiet: bool) -> None:
    """Write a line that ``--quiet`` suppresses to stderr."""
    if not quiet:
        say(f"rnade: {text}")


def shows_progress(*, quiet: bool) -> bool:
    """Whether a person looks on who may want to see how far the work is."""
    return sys.stderr.isatty() and not quiet


def counted(n: int, noun: str) -> str:
    """Write a number of things, as one or as many.

    >>> counted(1, "row"), counted(2, "row")
    ('1 row', '2 rows')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def one_line(text: object) -> str:
    """Bring a message to one line."""
    return " ".join(str(text).split())


def print_json(value: Mapping[str, Any]) -> None:
    """Write a result as JSON to stdout; a number that is not finite becomes null, a date text."""
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)
    print(text)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _let_go_of_stdout() -> None:
    # Or else Python flushes once more as it ends, and complains.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _shown_warnings() -> Iterator[None]:
    """Within it, a warning meant for users is one line on stderr, and is shown once."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"rnade: warning: {one_line(message)}")

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def run(app: Callable[..., Any], arguments: list[str]) -> int:
    """Run a typer app and give the exit code; every way to end is handled here."""
    debug = os.environ.get("RNADE_DEBUG", "") not in ("", "0") or arguments[:1] == ["--debug"]
    try:
        with _shown_warnings():
            code = app(args=arguments, prog_name="rnade", standalone_mode=False)
            sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as end:
        # A reader that has read enough (``| head``) is no error; typer and rich make exit code 1
        # of it, and use it for nothing else here.
        if isinstance(end, SystemExit) and end.code != 1:
            raise
        _let_go_of_stdout()
        return 0
    except Exception as error:
        # Errors of usage; typer keeps their class under a name of its own.
        usage = getattr(error, "format_message", None)
        if usage is not None:
            command = getattr(getattr(error, "ctx", None), "command_path", "rnade")
            say(f"rnade: error: {one_line(usage())} (see {command} --help)")
            return EXIT_BAD_INPUT
        if debug:
            raise
        return _report(error)
    if code == EXIT_INTERRUPTED:
        say("rnade: interrupted")
    return code if isinstance(code, int) else 0


def _report(error: Exception) -> int:
    from rnade.exceptions import RnadeError

    text = one_line(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        text = f"{place}{error.strerror}"
    if isinstance(error, (*_THEIRS, RnadeError)):
        say(f"rnade: error: {text}")
        return EXIT_BAD_INPUT
    say(f"rnade: error: {type(error).__name__}: {text} (a bug in rnade; try rnade --debug ...)")
    return EXIT_BUG
