"""What neighbouring libraries can do with a table, found out by calling them.

    python -m benchmarks.neighbours

needs scikit-learn, pyvinecopulib, zuko, SDV, PyOD and rnade in one environment; the versions are
in the record. The table has numbers, a text and an integer column, and some missing cells. A call
that raises, or gives what is no answer (NaN for a row with a missing cell), counts as a no. Writes
results/neighbours/record.json, and from it table.md.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import study
from benchmarks.pages import markdown
from rnade.records import run_facts

RESULTS = study.folder_of("neighbours")
SEED = 0
LIBRARIES = ("rnade", "scikit-learn", "pyvinecopulib", "zuko", "sdv", "pyod")
SPELT = {"sdv": "SDV", "pyod": "PyOD"}
QUESTIONS = {
    "density": "log density of a row",
    "mixed": "text and integer columns as they are, and density of such a table",
    "missing": "fits and scores tables with missing cells",
    "given": "density of any column given any others, from one fit",
    "impute": "fills missing cells",
    "draws": "draws synthetic rows in the table's own types",
    "draws_given": "draws rows with given values",
    "p_values": "p-values of outliers, calibrated out of fold",
}
YES, NUMBERS, NO = "yes", "numbers only", "no"
PREDICTED = "means and quantiles, a fit for each column"
Check = Callable[[], bool]

rng = np.random.default_rng(SEED)
N = 300
X = rng.normal(size=(N, 3)) @ rng.normal(size=(3, 3))
GAPS = np.where(rng.random(X.shape) < 0.1, np.nan, X)
TABLE = pd.DataFrame(X, columns=list("abc")).assign(
    trade=rng.choice(["baker", "smith"], N), rooms=rng.poisson(3, N)
)
HOLES = TABLE.mask(rng.random(TABLE.shape) < 0.1)
FAST = {"n_hidden": 8, "epochs": 2, "random_state": SEED}


def finite(values: Any) -> bool:
    return bool(np.isfinite(np.asarray(values, dtype=float)).all())


def has_types(frame: Any) -> bool:
    return set(frame["trade"].dropna()) <= {"baker", "smith"} and "rooms" in frame


def rnade_checks() -> dict[str, dict[str, Check]]:
    from rnade import RNADE

    numbers, mixed = RNADE(**FAST).fit(X), RNADE(**FAST).fit(HOLES)
    given = mixed.conditional("a", {"trade": "baker"})
    return {
        "density": {YES: lambda: finite(numbers.score_samples(X))},
        "mixed": {YES: lambda: finite(mixed.score_samples(TABLE))},
        "missing": {YES: lambda: finite(mixed.score_samples(HOLES))},
        "given": {YES: lambda: finite(given.log_pdf([0.0]))},
        "impute": {YES: lambda: not mixed.impute(HOLES).isna().any().any()},
        "draws": {YES: lambda: has_types(mixed.sample(20, random_state=0))},
        "draws_given": {
            YES: lambda: set(mixed.sample(5, given={"trade": "baker"})["trade"]) == {"baker"}
        },
        "p_values": {YES: lambda: finite(mixed.pvalue(HOLES))},
    }


def sklearn_checks() -> dict[str, dict[str, Check]]:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer
    from sklearn.mixture import GaussianMixture
    from sklearn.neighbors import KernelDensity

    def mixture() -> Any:
        return GaussianMixture(2, random_state=SEED)

    fitted = mixture().fit(X)
    return {
        "density": {YES: lambda: finite(fitted.score_samples(X))},
        "mixed": {YES: lambda: finite(mixture().fit(TABLE).score_samples(TABLE))},
        "missing": {
            YES: lambda: (
                finite(mixture().fit(GAPS).score_samples(GAPS))
                or finite(KernelDensity().fit(GAPS).score_samples(GAPS))
            )
        },
        "given": {
            YES: lambda: hasattr(fitted, "conditional"),
            PREDICTED: lambda: finite(
                HistGradientBoostingRegressor(loss="quantile", quantile=0.9)
                .fit(X[:, 1:], X[:, 0])
                .predict(X[:, 1:])
            ),
        },
        "impute": {
            YES: lambda: not pd.isna(IterativeImputer().fit_transform(HOLES)).any(),
            NUMBERS: lambda: finite(IterativeImputer().fit_transform(GAPS)),
        },
        "draws": {
            YES: lambda: has_types(mixture().fit(TABLE).sample(5)[0]),
            NUMBERS: lambda: fitted.sample(5)[0].shape == (5, 3),
        },
        "draws_given": {YES: lambda: "given" in GaussianMixture.sample.__code__.co_varnames},
        "p_values": {YES: lambda: hasattr(fitted, "pvalue")},
    }


def vine_checks() -> dict[str, dict[str, Check]]:
    import pyvinecopulib as pv
    from pyvinecopulib.sklearn import VineRegressor

    fitted = pv.Vinedist.from_data(X)
    # Text has to be coded by the caller; levels and integers are discrete margins then.
    coded = TABLE.assign(trade=(TABLE["trade"] == "smith").astype(float)).to_numpy(float)
    kinds = ["c", "c", "c", "d", "d"]

    def of_numbers() -> bool:
        return finite(pv.Vinedist.from_data(coded, var_types=kinds).logpdf(coded))

    def conditional_draws() -> Any:
        return fitted.sample_conditional(np.zeros((4, 1)), conditioning_set=[1])

    return {
        "density": {YES: lambda: finite(fitted.logpdf(X))},
        "mixed": {
            YES: lambda: finite(pv.Vinedist.from_data(TABLE).logpdf(TABLE)),
            "coded as numbers": of_numbers,
        },
        "missing": {YES: lambda: finite(pv.Vinedist.from_data(GAPS).logpdf(GAPS))},
        "given": {
            YES: lambda: hasattr(fitted, "conditional_pdf"),
            PREDICTED: lambda: finite(VineRegressor().fit(X[:, 1:], X[:, 0]).predict(X[:, 1:])),
        },
        "impute": {YES: lambda: hasattr(fitted, "impute")},
        "draws": {
            YES: lambda: has_types(pv.Vinedist.from_data(TABLE).sample(5)),
            NUMBERS: lambda: np.shape(fitted.sample(5)) == (5, 3),
        },
        "draws_given": {
            "sets that its structure allows": lambda: finite(conditional_draws()),
        },
        "p_values": {YES: lambda: hasattr(fitted, "pvalue")},
    }


def zuko_checks() -> dict[str, dict[str, Check]]:
    import torch
    import zuko

    torch.manual_seed(SEED)
    flow = zuko.flows.NSF(3, transforms=1, hidden_features=[16])
    rows, gaps = (torch.as_tensor(t, dtype=torch.float32) for t in (X, GAPS))
    return {
        "density": {YES: lambda: finite(flow().log_prob(rows).detach())},
        "mixed": {YES: lambda: finite(flow().log_prob(TABLE))},
        "missing": {YES: lambda: finite(flow().log_prob(gaps).detach())},
        "given": {
            YES: lambda: hasattr(flow(), "conditional"),
            "columns chosen before training": lambda: finite(
                zuko.flows.NSF(2, context=1)(rows[0, :1]).log_prob(rows[:, 1:]).detach()
            ),
        },
        "impute": {YES: lambda: hasattr(flow, "impute")},
        "draws": {NUMBERS: lambda: flow().sample((5,)).shape == (5, 3)},
        "draws_given": {
            "columns chosen before training": lambda: (
                zuko.flows.NSF(2, context=1)(rows[0, :1]).sample((5,)).shape == (5, 2)
            ),
        },
        "p_values": {YES: lambda: hasattr(flow, "pvalue")},
    }


def sdv_checks() -> dict[str, dict[str, Check]]:
    from sdv.metadata import Metadata
    from sdv.sampling import Condition
    from sdv.single_table import GaussianCopulaSynthesizer

    found = Metadata.detect_from_dataframes({"table": HOLES})
    model = GaussianCopulaSynthesizer(found)
    model.fit({"table": HOLES})

    def drawn(n: int) -> Any:
        """Rows, of which this version gives a frame for each table."""
        found = model.sample(n)
        return found["table"] if isinstance(found, dict) else found

    def draw_given() -> bool:
        asked = Condition(num_rows=5, column_values={"trade": "baker"})
        rows = model.sample_from_conditions([asked])
        rows = rows["table"] if isinstance(rows, dict) else rows
        return set(rows["trade"]) == {"baker"}

    def density() -> bool:
        return any(hasattr(model, name) for name in ("log_prob", "pdf", "get_likelihood"))

    return {
        "density": {YES: density},
        "mixed": {YES: lambda: density(), "draws only": lambda: has_types(drawn(20))},
        "missing": {YES: lambda: density(), "draws only": lambda: len(drawn(20)) == 20},
        "given": {YES: lambda: hasattr(model, "conditional")},
        "impute": {YES: lambda: hasattr(model, "impute")},
        "draws": {YES: lambda: has_types(drawn(20))},
        "draws_given": {YES: draw_given},
        "p_values": {YES: lambda: hasattr(model, "pvalue")},
    }


def pyod_checks() -> dict[str, dict[str, Check]]:
    from pyod.models.ecod import ECOD
    from pyod.models.gmm import GMM
    from pyod.models.iforest import IForest

    fitted = GMM(n_components=2).fit(X)
    return {
        "density": {"outlier scores": lambda: finite(fitted.decision_function(X))},
        "mixed": {YES: lambda: finite(IForest().fit(TABLE).decision_function(TABLE))},
        "missing": {
            YES: lambda: (
                finite(IForest().fit(GAPS).decision_function(GAPS))
                or finite(ECOD().fit(GAPS).decision_function(GAPS))
            )
        },
        "given": {YES: lambda: hasattr(fitted, "conditional")},
        "impute": {YES: lambda: hasattr(fitted, "impute")},
        "draws": {YES: lambda: hasattr(fitted, "sample")},
        "draws_given": {YES: lambda: hasattr(fitted, "sample")},
        "p_values": {
            YES: lambda: hasattr(fitted, "pvalue") or hasattr(fitted, "p_values"),
            "scaled scores": lambda: finite(fitted.predict_proba(X)),
        },
    }


CHECKS = {
    "rnade": rnade_checks,
    "scikit-learn": sklearn_checks,
    "pyvinecopulib": vine_checks,
    "zuko": zuko_checks,
    "sdv": sdv_checks,
    "pyod": pyod_checks,
}


def answers(library: str) -> dict[str, dict[str, Any]]:
    """For each question what a library can, and what stood against more."""
    found: dict[str, dict[str, Any]] = {}
    for question, ways in CHECKS[library]().items():
        found[question] = {"answer": NO, "tried": []}
        for answer, check in ways.items():
            outcome = "worked"
            try:
                if not check():
                    outcome = "gave no such answer"
            except Exception as error:
                outcome = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            found[question]["tried"].append({"for": answer, "outcome": outcome})
            if outcome == "worked":
                found[question]["answer"] = answer
                break
    return found


def table(record: dict[str, Any]) -> str:
    """The record as a Markdown table."""
    versions = record["versions_of_libraries"]
    head = ["", *(f"{SPELT.get(name, name)} {versions[name]}" for name in LIBRARIES)]
    rows = [
        [text, *(record["answers"][name][question]["answer"] for name in LIBRARIES)]
        for question, text in QUESTIONS.items()
    ]
    return markdown(head, rows, left=len(head)) + "\n"


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found = {name: answers(name) for name in LIBRARIES}
    record = {
        **run_facts("python -m benchmarks.neighbours", seed=SEED, n_rows=N),
        "versions_of_libraries": {name: metadata.version(name) for name in LIBRARIES},
        "answers": found,
    }
    study.write_record(RESULTS / "record.json", record, table(record))


if __name__ == "__main__":
    main()
