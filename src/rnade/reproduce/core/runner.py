"""Running a plan of jobs: one record a job, and what is recorded is never run again."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rnade.exceptions import DataError
from rnade.records import run_facts

Record = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A unit of work whose result is one record.

    Attributes
    ----------
    key : dict
        What the job is of: data set, model, fold and so on, as plain JSON values.
    settings : dict
        What else its result depends on, seeds too. A job with other settings is another job.
    """

    key: dict[str, Any]
    settings: dict[str, Any]

    @property
    def identity(self) -> str:
        """Key and settings as text: equal for equal jobs."""
        return _identity(self.key, self.settings)


# Does several jobs, perhaps at once as a bank, and gives the result of each as it is known.
Execute = Callable[[Sequence[Job]], Iterable[tuple[Job, dict[str, Any]]]]


class RecordFile:
    """Records in a file of JSON lines, which survives being killed at any moment.

    A record is there once its line has ended. A last line without an end is what a killed run
    left: it is not read, and it is cut off before the next record is written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def read(self) -> dict[str, Record]:
        """Records by the identity of their job; of several for one job the last."""
        if not self.path.exists():
            return {}
        *lines, _ = self.path.read_bytes().split(b"\n")
        records = {}
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                records[_identity(record["job"], record["settings"])] = record
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"Line {number} of {self.path} is not a record ({error}). Fix or delete the"
                    " line to continue; its job then runs again."
                ) from error
        return records

    def append(self, record: Record) -> None:
        """Write a record to the end of the file, and through to the disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record, allow_nan=False) + "\n"
        with open(self.path, "ab+") as file:
            self._cut_off_half_a_line(file)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def _cut_off_half_a_line(file: Any) -> None:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def pending(plan: Sequence[Sequence[Job]], records: RecordFile) -> list[list[Job]]:
    """Give the groups of a plan without the jobs that have a record."""
    known = records.read()
    left = [[job for job in group if job.identity not in known] for group in plan]
    return [group for group in left if group]


def run_plan(
    plan: Sequence[Sequence[Job]], execute: Execute, records: RecordFile, *, command: str
) -> Iterator[Record]:
    """Run the jobs that have no record yet, group by group; each record is written, then given.

    The command is what a reader types to make the records again.
    """
    facts = run_facts(command)
    for group in pending(plan, records):
        began = time.perf_counter()
        for job, result in execute(group):
            now = time.perf_counter()
            record = {
                "job": job.key,
                **facts,
                "settings": job.settings,
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": round(now - began, 3),
                "result": result,
            }
            records.append(record)
            yield record
            began = now


def _identity(key: dict[str, Any], settings: dict[str, Any]) -> str:
    return json.dumps([key, settings], sort_keys=True)
