"""Data frames in and out of every transformer."""

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import TransformerMixin, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nbsketch
from nbsketch import LandmarkSketch, RandomFourierFeatures, SketchedFeatures

X = np.random.default_rng(0).uniform(-1, 1, size=(60, 3))
NAMES = ["a", "b", "c"]
FRAMES = {
    "pandas": lambda rows: pd.DataFrame(rows, columns=NAMES),
    "polars": lambda rows: pl.DataFrame(rows, schema=NAMES),
}
TRANSFORMERS = [
    SketchedFeatures(size=5, random_state=0),
    SketchedFeatures(sketch=LandmarkSketch(X[:4]), bandwidth=1.0),
    RandomFourierFeatures(size=6, bandwidth=1.0, random_state=0),
]
cases = pytest.mark.parametrize("transformer", TRANSFORMERS, ids=str)
kinds = pytest.mark.parametrize("kind", FRAMES)


def test_every_transformer_is_tested():
    public = [getattr(nbsketch, name) for name in nbsketch.__all__]
    classes = [c for c in public if inspect.isclass(c)]
    found = {c for c in classes if issubclass(c, TransformerMixin)}
    assert found == {type(transformer) for transformer in TRANSFORMERS}


@cases
@kinds
def test_frames_in_and_out(transformer, kind):
    frame = FRAMES[kind](X)
    expected = clone(transformer).fit_transform(X)
    model = clone(transformer).set_output(transform=kind)
    for found in (model.fit_transform(frame), model.transform(frame)):
        assert type(found) is type(frame)
        assert list(found.columns) == list(model.get_feature_names_out())
        assert_allclose(found.to_numpy(), expected, atol=1e-12)
    assert_array_equal(model.feature_names_in_, NAMES)
    assert_array_equal(model.get_feature_names_out(NAMES), found.columns)
    assert len(set(found.columns)) == expected.shape[1]
    assert isinstance(
        model.set_output(transform="default").transform(frame), np.ndarray
    )


@cases
@kinds
def test_other_names_are_an_error_and_the_index_of_pandas_is_kept(transformer, kind):
    model = clone(transformer).set_output(transform=kind).fit(FRAMES[kind](X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(FRAMES[kind](X)[["b", "a", "c"]])
    with pytest.raises(ValueError, match="input_features is not equal"):
        model.get_feature_names_out(["x", "y", "z"])
    rows = pd.DataFrame(X[:3], columns=NAMES, index=[7, 5, 9])
    if kind == "pandas":
        assert list(model.transform(rows).index) == [7, 5, 9]


@cases
@kinds
def test_pipelines_pass_frames_through(transformer, kind):
    model = make_pipeline(StandardScaler(), clone(transformer))
    found = model.set_output(transform=kind).fit_transform(FRAMES[kind](X))
    assert type(found) is type(FRAMES[kind](X))
    assert list(found.columns) == list(model.get_feature_names_out())
