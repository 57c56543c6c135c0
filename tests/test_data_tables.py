"""The UCI tables and the binary sets: columns, folds, parts."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from rnade.data import BINARY_SETS, UCI_SETS, DataStore, load_binary, load_uci, make_folds
from rnade.data.splits import folds_from_blocks
from rnade.data.uci import choose_columns

# The paper's Table 1: rows, columns, and what a Gaussian scores.
PAPER = {
    "red-wine": (1599, 11, -13.18, 0.05),
    "white-wine": (4898, 11, -13.20, 0.05),
    "parkinsons": (5875, 15, -10.85, 0.1),
    "ionosphere": (351, 32, -41.24, 0.6),
    "boston": (506, 10, -11.37, 0.1),
}


def test_the_rule_for_columns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    values = np.column_stack(
        [
            rng.integers(0, 1000, 200),  # whole numbers, however many
            x[:, 0],
            np.repeat(np.arange(39), 6)[:200] / 7,  # too few distinct values
            -2 * x[:, 0] + 1e-3 * x[:, 1],  # the later of a pair stays
            x[:, 2],
        ]
    )
    kept, dropped = choose_columns(values, ("whole", "twin", "few", "later", "free"))
    assert kept == [3, 4]
    assert dropped == {
        "whole": "whole numbers",
        "few": "34 distinct values",
        "twin": "correlates with later",
    }


@pytest.mark.parametrize("n_rows", [351, 506, 30])
def test_folds_are_a_partition(n_rows, seed):
    folds = make_folds(n_rows, seed=seed)
    assert len(folds) == 10
    for fold in folds:
        parts = np.concatenate([fold.train, fold.validation, fold.test])
        assert np.array_equal(np.sort(parts), np.arange(n_rows))
        assert abs(len(fold.test) - n_rows / 10) < 1
        assert abs(len(fold.validation) - len(fold.all_training) / 9) < 1
    for part in ("test", "validation"):  # every row tests once and validates once
        rows = np.concatenate([getattr(fold, part) for fold in folds])
        assert np.array_equal(np.sort(rows), np.arange(n_rows))


def test_folds_follow_their_seed():
    one, same, other = (make_folds(100, seed=s)[0].test for s in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    with pytest.raises(ValueError, match="from 3 to the number of rows, 5; got 10"):
        make_folds(5)


def test_the_authors_validate_on_the_last_block():
    blocks = np.array_split(np.arange(40), 10)
    folds = folds_from_blocks(blocks, validation="last")
    assert np.array_equal(folds[0].validation, blocks[9])
    assert np.array_equal(folds[9].validation, blocks[8])


@pytest.mark.data
@pytest.mark.parametrize("name", UCI_SETS)
def test_columns_and_a_gaussian_are_as_in_the_paper(name, data_folder):
    """The paper's sizes, and by SciPy's density the paper's score of a full Gaussian."""
    table = load_uci(name, DataStore(data_folder))
    n, d, score, tolerance = PAPER[name]
    assert table.X.shape == (n, d)
    assert len(table.columns) == d
    assert not set(table.columns) & set(table.dropped)
    means = []
    for fold in table.folds():
        rows = table.X[fold.all_training]
        Z = (table.X - rows.mean(0)) / rows.std(0)
        train = Z[fold.all_training]
        density = multivariate_normal(train.mean(0), np.cov(train, rowvar=False))
        means.append(density.logpdf(Z[fold.test]).mean())
    assert np.mean(means) == pytest.approx(score, abs=tolerance)


@pytest.mark.data
def test_red_wine_has_the_authors_folds(data_folder):
    table = load_uci("red-wine", DataStore(data_folder))
    sizes = [len(fold.test) for fold in table.folds()]
    assert sizes == [159] * 9 + [168]
    # The first two rows of the packaged file are 777 and 541, both of the first fold.
    assert table.folds()[0].test[:2].tolist() == [777, 541]
    assert len(table.folds(5)) == 5


@pytest.mark.data
@pytest.mark.parametrize("name", BINARY_SETS)
def test_binary_sets(name, data_folder):
    shapes = {
        "mushrooms": (2000, 500, 5624, 112),
        "dna": (1600, 400, 1186, 180),
        "nips": (400, 100, 1240, 500),
    }
    store = DataStore(data_folder)
    data = load_binary(name, store)
    *rows, columns = shapes[name]
    parts = (data.train, data.validation, data.test)
    assert [part.shape for part in parts] == [(n, columns) for n in rows]
    for part in parts:
        assert set(np.unique(part)) == {0, 1}
    text = store.read(f"binary/{name}.test.data").decode()
    slow = np.loadtxt(text.splitlines(), delimiter=",", dtype=np.uint8)
    assert np.array_equal(slow, data.test)


def test_unknown_names():
    with pytest.raises(ValueError, match="Unknown data set 'redwine'.*Did you mean 'red-wine'"):
        load_uci("redwine", DataStore())
    with pytest.raises(ValueError, match="Unknown data set 'mnist'"):
        load_binary("mnist", DataStore())
