"""Where the parts of a bank are trained: here, one after the other, or at once on a Ray cluster.

Parts are independent. On Ray each is a task: it is given the members, the state of their run and
how far to train, and gives the state back. A worker that is lost has its task done again, from the
same state and so to the same numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rnade.checks import unknown_name
from rnade.training.member import Member
from rnade.training.part import Part

ENGINES = ("local", "ray")
# Times that a task whose worker was lost is done again.
MOST_RETRIES = 10

_engine: ContextVar[str] = ContextVar("engine", default="local")


@contextmanager
def bank_engine(name: str) -> Iterator[None]:
    """Within it, banks train on this engine, "local" or "ray", unless they are told another."""
    before = _engine.set(check_engine(name))
    try:
        yield
    finally:
        _engine.reset(before)


def check_engine(name: str | None) -> str:
    """Give the name of an engine, that of `bank_engine` for None, or say which there are."""
    name = _engine.get() if name is None else name
    if name not in ENGINES:
        raise unknown_name(name, list(ENGINES), "engine")
    if name == "ray":
        import_ray()
    return name


def import_ray() -> Any:
    """Give Ray, or say how to get it; join a cluster, or start one on this machine."""
    try:
        import ray
    except ImportError:
        raise ImportError(
            "Ray is not installed. Install it with: pip install 'rnade[ray]'"
        ) from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    return ray


def n_workers() -> int:
    """Tasks that the cluster can do at a time."""
    return max(1, int(import_ray().cluster_resources().get("CPU", 1)))


def advance_on_ray(
    parts: Sequence[Part],
    members: Sequence[Member],
    share: float,
    on_part: Callable[[Part], None],
) -> None:
    """Train parts up to a share of their epochs, all at once.

    Parameters
    ----------
    parts : sequence of Part
        Their runs end where the tasks have brought them.
    members : sequence of Member
        All members of the bank.
    share : float
    on_part : callable
        Called with each part as it is done.
    """
    ray = import_ray()
    task = ray.remote(max_retries=MOST_RETRIES)(_advanced)
    waiting = {}
    for part in parts:
        if not part.run.finished:
            own = [members[m] for m in part.at]
            state = part.run.state() if part.run.marks else None
            waiting[task.remote(own, state, share)] = part
    while waiting:
        (done,), _ = ray.wait(list(waiting), num_returns=1)
        part = waiting.pop(done)
        part.run.restore(*ray.get(done))
        on_part(part)


def _advanced(members: Sequence[Member], state: Any, share: float) -> Any:
    part = Part(members, range(len(members)), "task")
    if state is not None:
        part.run.restore(*state)
    part.advance(share, lambda: None)
    return part.run.state()
