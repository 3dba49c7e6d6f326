"""Sketched features against the dense formula, and as a scikit-learn transformer."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import nbsketch
from nbsketch import _expansion, _sketch_map
from nbsketch._expansion import cut_projection, projection
from nbsketch._sketch_map import SketchMap, features_design, sketched_design
from nbsketch.features import SketchedFeatures
from nbsketch.kernels import (
    GaussianKernel,
    LaplacianKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    PrecomputedKernel,
)
from nbsketch.sketches import (
    AccumulationSketch,
    CountSketch,
    GaussianSketch,
    IdentitySketch,
    LeverageSketch,
    PSparsifiedSketch,
    RademacherSketch,
    SparseJLSketch,
    SRHTSketch,
    SubsamplingSketch,
)
from nbsketch.solvers import scratch
from nbsketch.solvers.design import ArrayDesign, centered

N = 150
RECIPES = [
    PSparsifiedSketch(12),
    PSparsifiedSketch(12, density=0.02, law="gaussian"),
    PSparsifiedSketch(12, density=1.0),
    GaussianSketch(12),
    RademacherSketch(12),
    SubsamplingSketch(12),
    SubsamplingSketch(12, replace=True),
    LeverageSketch(12),
    AccumulationSketch(12, m=3),
    CountSketch(12),
    SparseJLSketch(12),
    SRHTSketch(12),
    SRHTSketch(12, transform="dct"),
    SRHTSketch(12, transform="fourier"),
    IdentitySketch(),
]
recipes = pytest.mark.parametrize("recipe", RECIPES, ids=repr)
TOLERANCE = {np.float64: 1e-10, np.float32: 1e-4}


def points(n=N, q=3, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(n, q)).astype(dtype)


def laplacian(X, Y, bandwidth=2.0):
    return np.exp(-cdist(X, Y, "cityblock") / bandwidth)


def approximation(K, K_rows, S, cut=1e-10):
    """Return K_rows S^T (S K S^T)^+ S K by the dense formula."""
    inverse = np.linalg.pinv(S @ K @ S.T, rcond=cut, hermitian=True)
    return K_rows @ S.T @ inverse @ S @ K


# the features -----------------------------------------------------------------------


@pytest.mark.thin(every=3)
@recipes
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_inner_products_are_those_of_the_sketched_kernel(recipe, dtype):
    X, new = points(dtype=dtype), points(20, seed=1, dtype=dtype)
    model = SketchedFeatures("laplacian", bandwidth=2.0, sketch=recipe, random_state=0)
    Z = model.fit_transform(X)
    S = model.sketch_.to_csr().toarray()
    K = laplacian(X.astype(float), X.astype(float))
    K_new = laplacian(new.astype(float), X.astype(float))
    cut = TOLERANCE[dtype]
    assert Z.dtype == dtype
    assert_allclose(Z @ Z.T, approximation(K, K, S), rtol=0, atol=cut)
    assert_allclose(
        model.transform(new) @ Z.T, approximation(K, K_new, S), rtol=0, atol=cut
    )


@pytest.mark.parametrize(
    "kernel",
    [
        GaussianKernel(bandwidth=1.0),
        GaussianKernel(bandwidth=(1.0, 2.0, 0.5)),
        MaternKernel(bandwidth=1.0, nu=0.5),
        PolynomialKernel(degree=2),
        LinearKernel(),
    ],
    ids=repr,
)
def test_any_kernel(kernel):
    X = points()
    model = SketchedFeatures(kernel, sketch=PSparsifiedSketch(30), random_state=0)
    Z = model.fit_transform(X)
    desired = approximation(kernel(X), kernel(X), model.sketch_.to_csr().toarray())
    assert_allclose(Z @ Z.T, desired, rtol=0, atol=1e-8 * desired.max())


@recipes
def test_identity_on_the_landmarks(recipe):
    # D_r^{-1/2} U^T (S K S^T) U D_r^{-1/2} = I: the features are orthonormal there
    X = points()
    model = SketchedFeatures("laplacian", bandwidth=2.0, sketch=recipe, random_state=0)
    model.fit(X)
    S = model.sketch_.to_csr().toarray()
    inner = S @ laplacian(X, X) @ S.T
    P = model.projection_
    assert_allclose(P.T @ inner @ P, np.eye(model.rank_), rtol=0, atol=1e-11)


@pytest.mark.thin(every=3)
@recipes
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_fitting_and_transforming_in_one_go_or_two(recipe, dtype):
    X = points(dtype=dtype)
    options = {"bandwidth": 1.0, "sketch": recipe, "random_state": 0}
    Z = SketchedFeatures("laplacian", **options).fit_transform(X)
    twice = SketchedFeatures("laplacian", **options).fit(X).transform(X)
    assert twice.dtype == dtype
    # the gaps of the eigenvalues of S K S^T, 1e-3 of the largest, enlarge rounding
    tolerance = TOLERANCE[dtype] if dtype == np.float32 else 1e-12
    assert_allclose(twice, Z, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_features_of_training_rows_beyond_the_memory_limit(dtype):
    X = points(dtype=dtype)
    model = SketchedFeatures(bandwidth=1.0, size=20, random_state=0)
    expected = model.fit_transform(X)
    nbsketch.set_memory_limit(1)
    try:
        Z = model.fit_transform(X)
    finally:
        nbsketch.set_memory_limit(None)
    assert type(Z) is np.ndarray and Z.dtype == dtype
    assert_allclose(Z, expected, rtol=0, atol=TOLERANCE[dtype])


def test_features_of_the_linear_kernel_are_no_view_of_the_rows():
    X = points()
    before = X.copy()
    model = SketchedFeatures("linear", size=len(X), random_state=0)
    Z = model.fit_transform(X)
    assert_array_equal(Z, model.transform(X))
    Z[:] = 0
    assert_array_equal(X, before)


def test_only_the_landmarks_are_kept():
    X = points(2000)
    model = SketchedFeatures(size=5, random_state=0).fit(X)
    assert_array_equal(model.landmarks_, X[model.sketch_.columns])
    assert 50 < len(model.landmarks_) < 150  # 5 rows of about 20 nonzeros
    assert model.projection_.shape == (5, model.rank_)


# rank -------------------------------------------------------------------------------


@pytest.mark.thin
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("kernel", "X", "rank"),
    [
        ("laplacian", np.repeat(points(30), 4, axis=0), 30),
        ("gaussian", np.full((40, 3), 0.1), 1),
        ("linear", points(60, q=4), 4),
        (PolynomialKernel(degree=2), points(60, q=1), 3),
        ("linear", np.zeros((10, 2)), 0),
    ],
    ids=["repeated rows", "one point", "linear", "polynomial", "zero"],
)
@pytest.mark.parametrize(
    "sketch", ["identity", "gaussian", "p-sparsified", "subsampling"]
)
def test_rank_is_that_of_the_kernel(kernel, X, rank, sketch, dtype):
    options = {} if sketch == "identity" else {"size": len(X)}
    model = SketchedFeatures(kernel, sketch=sketch, random_state=0, **options)
    X = X.astype(dtype)
    Z = model.fit_transform(X)
    assert model.rank_ == rank
    assert Z.shape == (len(X), rank)
    assert model.transform(X[:7]).shape == (7, rank)
    assert len(model.get_feature_names_out()) == rank
    K = model.kernel_(X)
    assert_allclose(Z @ Z.T, K, rtol=0, atol=TOLERANCE[dtype] * max(1.0, K.max()))


def test_a_sketch_without_a_nonzero_is_refused():
    recipe = PSparsifiedSketch(2, density=1e-12)
    with pytest.raises(ValueError, match="`sketch` must have a nonzero entry"):
        SketchedFeatures(sketch=recipe, random_state=0).fit(points())


# streaming --------------------------------------------------------------------------


@recipes
def test_streamed_features_are_the_kept_ones(recipe, monkeypatch):
    X = points()
    kernel = LaplacianKernel(bandwidth=2.0)
    sketch = recipe.draw(N, 0, X=X, kernel=kernel)
    sketch_map = SketchMap.of(kernel, X, sketch)
    projection, kept = sketched_design(sketch_map, X, keep=True)
    monkeypatch.setattr(scratch, "_BLOCK_BYTES", 1)
    again, streamed = sketched_design(sketch_map, X, keep=False)
    assert_allclose(again @ again.T, projection @ projection.T, rtol=0, atol=1e-9)
    assert streamed.shape == kept.shape
    blocks = list(streamed.blocks())
    assert [(start, stop) for start, stop, _ in blocks] == [
        (0, 64),
        (64, 128),
        (128, N),
    ]
    whole = np.vstack([block for _, _, block in blocks])
    assert_allclose(whole @ whole.T, kept.Z @ kept.Z.T, rtol=0, atol=1e-11)
    vector = np.arange(N) / N
    assert_allclose(streamed.rmv(vector), whole.T @ vector, rtol=0, atol=1e-11)
    some = np.array([0, 63, 64, N - 1])
    assert_allclose(streamed.gather(some).Z, whole[some], rtol=0, atol=1e-11)


def test_features_are_kept_as_long_as_there_is_room(monkeypatch):
    X = points()
    sketch = SubsamplingSketch(10).draw(N, 0)
    sketch_map = SketchMap.of(GaussianKernel(bandwidth=1.0), X, sketch)
    monkeypatch.setattr(_sketch_map, "KEEP_BYTES", N * 10 * 8)
    assert hasattr(sketched_design(sketch_map, X)[1], "Z")
    monkeypatch.setattr(_sketch_map, "KEEP_BYTES", N * 10 * 8 - 1)
    assert not hasattr(sketched_design(sketch_map, X)[1], "Z")


def test_transforming_in_blocks(monkeypatch):
    X = points()
    model = SketchedFeatures("laplacian", size=20, random_state=0).fit(X)
    whole = model.transform(X)
    monkeypatch.setattr(_expansion, "_BLOCK_BYTES", 1)
    assert_allclose(model.transform(X), whole, rtol=0, atol=1e-13)


# randomness -------------------------------------------------------------------------


def test_the_same_random_state_gives_the_same_features():
    X = points()
    first = SketchedFeatures(size=20, random_state=3).fit_transform(X)
    assert_array_equal(
        SketchedFeatures(size=20, random_state=3).fit_transform(X), first
    )
    generator = np.random.default_rng(3)
    model = SketchedFeatures(size=20, random_state=generator)
    assert_array_equal(model.fit_transform(X), first)
    assert np.abs(model.fit_transform(X)[:, 0] - first[:, 0]).max() > 1e-3
    other = SketchedFeatures(size=20, random_state=4).fit_transform(X)
    assert np.abs(other[:, 0] - first[:, 0]).max() > 1e-3


def test_the_kernel_does_not_change_the_sketch():
    X = points(1500)  # more rows than the median heuristic looks at
    columns = SketchedFeatures(size=5, random_state=0).fit(X).sketch_.columns
    for options in (
        {"bandwidth": 2.0},
        {"kernel": "laplacian"},
        {"kernel": MaternKernel()},
        {"kernel": lambda X, Y: X @ Y.T},
    ):
        model = SketchedFeatures(size=5, random_state=0, **options).fit(X)
        assert_array_equal(model.sketch_.columns, columns)


# in scikit-learn --------------------------------------------------------------------


def test_a_linear_model_on_the_features_is_the_kernel_machine():
    X = points()
    y = np.sin(X[:, 0]) + X[:, 1]
    options = {"bandwidth": 2.0, "sketch": SubsamplingSketch(N), "random_state": 0}
    model = make_pipeline(SketchedFeatures("laplacian", **options), Ridge(alpha=0.5))
    K = laplacian(X, X)
    center = np.eye(N) - 1 / N
    dual = np.linalg.solve(center @ K @ center + 0.5 * np.eye(N), center @ y)
    desired = center @ K @ center @ dual + y.mean()
    assert_allclose(model.fit(X, y).predict(X), desired, rtol=0, atol=1e-9)


def test_names_of_the_features():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(points(), columns=["a", "b", "c"])
    model = SketchedFeatures(size=4, random_state=0).set_output(transform="pandas")
    Z = model.fit_transform(X)
    assert list(Z.columns) == [f"sketchedfeatures{j}" for j in range(4)]
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert_allclose(Z, SketchedFeatures(size=4, random_state=0).fit_transform(X.values))
    with pytest.raises(ValueError, match="feature names"):
        model.transform(X[["b", "a", "c"]])


def test_precomputed_kernel():
    X, new = points(), points(9, seed=1)
    options = {"size": 20, "random_state": 0}
    model = SketchedFeatures("laplacian", bandwidth=2.0, **options)
    Z, Z_new = model.fit_transform(X), model.transform(new)
    for kernel in ("precomputed", PrecomputedKernel()):
        model = SketchedFeatures(kernel, **options)
        # the projection enlarges the rounding of kernel values
        assert_allclose(model.fit_transform(laplacian(X, X)), Z, rtol=0, atol=1e-11)
        assert_allclose(model.transform(laplacian(new, X)), Z_new, rtol=0, atol=1e-11)
        assert_allclose(
            SketchedFeatures(kernel, **options).fit(laplacian(X, X)).projection_,
            model.projection_, rtol=0, atol=1e-11,
        )  # fmt: skip


def test_callable_kernel_is_asked_for_tiles_of_the_landmarks_only():
    shapes = []

    def kernel(X, Y):
        shapes.append((len(X), len(Y)))
        return laplacian(X, Y)

    X = points(400)
    model = SketchedFeatures(kernel, size=3, random_state=0)
    Z = model.fit_transform(X)
    assert {count for _, count in shapes} == {len(model.landmarks_)}
    assert len(model.landmarks_) < 100
    options = {"bandwidth": 2.0, "size": 3, "random_state": 0}
    assert_allclose(
        SketchedFeatures("laplacian", **options).fit_transform(X), Z, rtol=0, atol=1e-12
    )


# errors -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "`size` must be at least 1, got 0"),
        ({"sketch": GaussianSketch(N + 1)}, "`size` must be at most"),
        ({"sketch": "nystrom"}, "`sketch` must be one of .* got 'nystrom'"),
        ({"sketch": GaussianSketch(3), "size": 3}, "`size` requires the name"),
        ({"sketch": "identity", "size": 3}, "`size` must be None"),
        ({"kernel": "rbf"}, "`kernel` must be one of .* got 'rbf'"),
        ({"kernel": GaussianKernel(), "bandwidth": 1.0}, "`bandwidth` requires"),
        ({"kernel": "linear", "bandwidth": 1.0}, "`bandwidth` must be None"),
        ({"bandwidth": 0.0}, r"`bandwidth` must be in \(0, inf\)"),
        ({"bandwidth": [1.0, 2.0]}, "`bandwidth` must have one number per feature, 3"),
        ({"kernel": "precomputed"}, r"`X` must be the square .* got shape \(150, 3\)"),
    ],
)
def test_errors_name_the_argument(options, words):
    with pytest.raises(ValueError, match=words):
        SketchedFeatures(**options).fit(points())


def test_errors_of_transform():
    with pytest.raises(NotFittedError):
        SketchedFeatures().transform(points())
    model = SketchedFeatures(size=4).fit(points())
    with pytest.raises(ValueError, match=r"has 2 features, .* expecting 3"):
        model.transform(points(q=2))
    with pytest.raises(ValueError, match="NaN"):
        model.transform(np.full((2, 3), np.nan))


def test_a_size_above_the_number_of_rows_warns_and_takes_all():
    with pytest.warns(
        UserWarning, match="`size`.* samples, 150: all are used, got 151"
    ):
        model = SketchedFeatures(size=N + 1, random_state=0).fit(points())
    assert model.sketch_.is_identity


def test_what_is_cut_is_inverted_beside_rounding(rng):
    Q = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    values = np.array([1.0, 0.5, 0.1, 1e-13, 1e-13, 2e-14])
    inner = Q * values @ Q.T
    P = projection(inner)
    cut = cut_projection(P, inner)
    assert P.shape == cut.shape == (6, 3)
    assert_allclose(P.T @ cut, 0, atol=1e-9 * np.abs(cut).max())
    expected = Q[:, 3:] / values[3:] @ Q[:, 3:].T
    assert_allclose(cut @ cut.T, expected, atol=0.02 * np.abs(expected).max())


def test_features_of_what_is_cut_are_stored_with_the_others(rng):
    X = rng.normal(size=(300, 1))
    kernel = GaussianKernel(2.0)
    sketch_map = SketchMap.of(kernel, X, PSparsifiedSketch(40, 0.05).draw(300, rng))
    P, design = sketched_design(sketch_map, X)
    whitened = cut_projection(P, sketch_map.inner(X))
    streamed = features_design(sketch_map, whitened, X).collect()
    assert 0 < streamed.shape[1] == 40 - P.shape[1]
    assert_allclose(design.cut.collect(), streamed, atol=1e-6 * np.abs(streamed).max())
    shifted = ArrayDesign(design.collect() + 100)
    shifted.cut = design.cut
    assert centered(shifted) is not shifted and centered(shifted).cut is design.cut
    assert sketched_design(sketch_map, X, keep=False)[1].cut is None
