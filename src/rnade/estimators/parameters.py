"""Parameters that several estimators share, each declared and documented once.

An estimator is a dataclass of its parameters: scikit-learn reads their names from the signature
that this makes, and a group of shared parameters is a base class.
"""

import dataclasses
import inspect
import os
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T", bound=type)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
def estimator(cls: T) -> T:
    """Make the annotated attributes of a class its parameters and complete its docstring.

    A line of the docstring that holds the name of a base class in braces stands for the
    parameters that this class documents.
    """
    # All of the work is done on the class itself, which is given back.
    dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)
    # Python 3.13 takes the indentation out of docstrings, and older ones leave it there.
    text = inspect.cleandoc(cls.__doc__ or "") + "\n"
    for base in cls.__mro__[1:]:
        text = text.replace(f"{{{base.__name__}}}\n", _documented(base))
    cls.__doc__ = text
    return cls


def _documented(base: type) -> str:
    """The entries of the section "Parameters" of a docstring."""
    return inspect.cleandoc(base.__doc__ or "").partition("----------\n")[2] + "\n"


@estimator
class FitParameters:
    """What every density estimator takes.

    Parameters
    ----------
    validation_fraction : float
        Share of the rows held out: they give `held_out_score` and calibrate p-values. Where one
        model is fitted, they also choose what is kept of it: its epoch (early stopping), its
        settings or its size. The models of an average early-stop on 1/8 folds of the other rows,
        which calibrate p-values too.
    retrain : bool or None
        Afterwards train again on all rows, until the training log-likelihood of the best epoch is
        reached (the paper's rule). P-values keep the held-out scores of the first training, and
        those of an average its models too. Where it breaks, the first model is kept, with a
        warning. Not of RNADE's and FVBN's tables with other than complete real-valued columns.
        None leaves it to the estimator: RNADE's average of several kinds of model is trained
        again where it gains most, on up to 4,000 rows, and with effort "best"; others are not.
    contamination : "auto" or float
        Share of rows that `predict` and `fit_predict` label as outliers, of rows like those
        fitted, at most 0.5. "auto" is 0.01. It has no part in training.
    device : {"auto", "cpu", "cuda"}
        Where to compute.
    random_state : int, RandomState instance or None
        Seed of held-out rows, starting values and minibatches.
    verbose : int
        1 shows a progress bar on stderr.
    """

    validation_fraction: float = 0.1
    retrain: bool | None = None
    contamination: str | float = "auto"
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0


@estimator
class TrainingParameters(FitParameters):
    """What estimators take that are trained by gradients.

    Parameters
    ----------
    recipe : {"modern", "paper"}
        How to train. "modern" is Adam with a cosine rate, gradient clipping, averaged weights and
        early stopping; "paper" is the paper's section 4.1, with the momentum of its authors'
        code. The settings below change either.
    learning_rate : float, optional
        Largest learning rate.
    batch_size : int, optional
        Rows in a minibatch.
    epochs : int, optional
        Largest number of epochs.
    batches_per_epoch : int, optional
        Minibatches that make an epoch; by default one pass over the rows, but at least 20.
    momentum : float, optional
        Momentum of plain gradient descent (the paper's recipe), from the second epoch on.
    weight_decay : float, optional
        Decay of the input-to-hidden weights (of FVSBN, of the regression weights).
    patience : int, optional
        Epochs without a better early-stopping score after which training stops.
    checkpoint : path, optional
        A folder for checkpoints, made if need be. Training that was killed goes on from the last
        one, at most 30 seconds back, and ends with the same numbers.
    dtype : {"float32", "float64"}
        Precision of training.
    score_dtype : {"auto", "float32", "float64"}
        Precision of scores, p-values and samples. "float64" is exact to the last digits.
        "float32" reaches the fused GPU kernels, many times faster. "auto" is float64 on a CPU; on
        a GPU it scores large tables in float32 where that changes a sample of their scores by
        less than 1e-4 nats, and draws large samples in float32.
    {FitParameters}
    """

    recipe: str = "modern"
    learning_rate: float | None = None
    batch_size: int | None = None
    epochs: int | None = None
    batches_per_epoch: int | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    patience: int | None = None
    checkpoint: str | os.PathLike[str] | None = None
    dtype: str = "float32"
    score_dtype: str = "auto"


@estimator
class RoundingParameters:
    """What estimators of real values take against spikes on rounded values.

    Parameters
    ----------
    sigma_floor : "auto" or float
        Smallest scale of a component, in units of the column's standard deviation. "auto" ties it
        to the column's resolution where values are rounded; 0 is the paper's.
    dequantize : bool
        Train with uniform noise as wide as the rounding interval added to rounded columns.
    """

    sigma_floor: str | float = "auto"
    dequantize: bool = False


@estimator
class EMParameters(FitParameters):
    """What mixtures trained by EM take.

    Parameters
    ----------
    n_init : int
        Starts; the best on the held-out rows is kept.
    max_iter : int
        Largest number of iterations.
    tol : float
        Stop once an iteration raises the mean log-likelihood by less (nats per row).
    patience : int, optional
        Looks at the held-out rows without a better score after which EM stops: a look each
        iteration.
    {FitParameters}
    """

    n_init: int = 1
    max_iter: int = 200
    tol: float = 1e-4
    patience: int | None = 10


@estimator
class MixtureParameters(EMParameters):
    """What mixtures of Gaussians trained by EM take.

    Parameters
    ----------
    init : {"k-means++", "random"}
        Where EM starts: clusters of rows, or random rows.
    batch_size : int, optional
        Rows of a minibatch; by default all rows. With minibatches each tenth iteration is a look,
        and `tol` is not used.
    step_size : float
        With minibatches, how far to go towards each minibatch's own parameters; it falls linearly
        to 0.
    sigma_floor : "auto" or float
        Smallest standard deviation of a component in any direction (of factor analysers, of the
        noise), in units of the columns' own. "auto" ties it to the columns' resolution where
        values are rounded; 0 is none.
    dtype : {"float64", "float32"}
        Precision of training; sums over rows are added up, and scores computed, in float64 always.
    {EMParameters}
    """

    init: str = "k-means++"
    batch_size: int | None = None
    step_size: float = 0.1
    sigma_floor: str | float = "auto"
    dtype: str = "float64"
