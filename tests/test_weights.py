"""Sample weights: zero is no row, two is a row twice, in every estimator."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier
from sklearn.model_selection import KFold
from sklearn.utils.class_weight import compute_sample_weight

import nbsketch
from nbsketch import (
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDClassifier,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
    TabularKernelClassifier,
    TabularKernelRegressor,
)
from nbsketch._quantiles import conformal_quantile
from nbsketch.conformal import ConformalRegressor
from nbsketch.kernels import median_distance, weighted_median
from nbsketch.rows import transform
from nbsketch.rows.class_weights import weights_of_classes

N, Q = 60, 3
# A row of weight zero in every place that could matter: the first, the last, and half
# of those between.
KEPT = np.flatnonzero(np.random.default_rng(5).permutation(N) % 2 * np.arange(N) % N)
KEPT = KEPT[KEPT < N - 1]

MODELS = [
    SketchedKernelRegressor(),
    SketchedKernelRegressor(bandwidth="median", preprocessing="both", size=9),
    SketchedKernelRegressor(loss="huber", size="auto"),
    SketchedKernelRegressor("precomputed", loss="epsilon-insensitive"),
    SketchedKernelRegressor("precomputed", sketch="leverage", size=9),
    SketchedKernelClassifier(),
    SketchedKernelClassifier(loss="logistic", class_weight="balanced"),
    JointQuantileRegressor((0.2, 0.8), calibration=0.4, alpha=1e-2),
    JointQuantileRegressor((0.2, 0.8), calibration=0.4, kernel="precomputed"),
    SpectralFilterRegressor(criterion="leave-one-out"),
    SpectralFilterRegressor("precomputed", filter="landweber", size=9),
    SketchedSGDRegressor(early_stopping=True),
    SketchedSGDRegressor("precomputed", early_stopping=True),
    SketchedSGDClassifier(loss="logistic", class_weight="balanced"),
    InputOutputKernelRegressor(),
    InputOutputKernelRegressor(sketch="gaussian", output_sketch="gaussian"),
    InputOutputKernelRegressor("precomputed", sketch="subsampling", size=9),
]


def data(model):
    """Return X, y and kernel values where the model wants these."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, Q))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=N)
    if isinstance(model, SketchedKernelClassifier | SketchedSGDClassifier):
        y = np.where(y > 0.5, "high", np.where(y < -0.5, "low", "middle"))
    elif isinstance(model, InputOutputKernelRegressor):
        y = np.column_stack([y > 0, X[:, 0] > 0]).astype(float)
    return X, y


def gram(A, B):
    return np.exp(-np.square(A[:, None] - B[None]).sum(axis=2) / 4)


def changed(X, y):
    """Return other values in the rows that are not kept."""
    rng, X, y = np.random.default_rng(1), X.copy(), y.copy()
    dropped = np.delete(np.arange(N), KEPT)
    X[dropped] = 1e6 * rng.normal(size=(len(dropped), Q))
    y[dropped] = "other" if y.dtype.kind == "U" else -1e6
    return X, y


def fitted_values(model, index=None):
    """Return the fitted attributes that are numbers or arrays."""
    values = {
        name: value
        for name, value in vars(model).items()
        if name[-1] == "_" and isinstance(value, float | np.ndarray)
    }
    if index is not None and values["landmarks_"].dtype.kind == "i":
        values["landmarks_"] = index[values["landmarks_"]]
    return values


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_row_of_weight_zero_is_no_row(model, weighted):
    """Fits are equal bit for bit to those without the row, whatever its values are."""
    X, y = data(model)
    w = np.zeros(N)
    w[KEPT] = np.random.default_rng(2).uniform(1, 3, len(KEPT)) if weighted else 2.0
    X_new = np.random.default_rng(3).normal(size=(7, Q))
    garbage, y_garbage = changed(X, y)
    rows, rows_new, rows_all = X[KEPT], X_new, garbage
    all_new = X_new
    pairwise = model.kernel == "precomputed"
    if pairwise:
        rows, rows_new = gram(X[KEPT], X[KEPT]), gram(X_new, X[KEPT])
        rows_all, all_new = gram(garbage, garbage), gram(X_new, garbage)
    model.set_params(random_state=0)
    without = model.fit(rows, y[KEPT], w[KEPT] if weighted else None)
    expected, predicted = fitted_values(model, KEPT), model.predict(rows_new)
    del without
    model.fit(rows_all, y_garbage, w)
    found = fitted_values(model)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_array_equal(found[name], value, err_msg=name)
    assert_array_equal(model.predict(all_new), predicted)


@pytest.mark.parametrize("kernel", ["gaussian", "precomputed"])
def test_a_row_of_weight_zero_is_no_row_of_a_stream(kernel):
    X, y = data(None)
    w = np.zeros(N)
    w[KEPT] = np.random.default_rng(2).uniform(0.5, 3, len(KEPT))
    all_rows, y_all = changed(X, y)
    K, K_all = gram(X[KEPT], X[KEPT]), gram(all_rows, all_rows)
    options = {"bandwidth": 1.0} if kernel == "gaussian" else {}
    one, two = (SketchedSGDRegressor(kernel, random_state=0, **options) for _ in "12")
    for _ in range(3):
        one.partial_fit(X[KEPT] if options else K, y[KEPT], w[KEPT])
        two.partial_fit(all_rows if options else K_all, y_all, w)
    assert_array_equal(one.coef_, two.coef_)
    assert one.n_steps_ == two.n_steps_


def test_kernel_values_of_the_kept_rows_are_saved(tmp_path):
    X, y = data(None)
    w = np.ones(N)
    w[::3] = 0
    model = SketchedKernelRegressor("precomputed", alpha=0.1).fit(gram(X, X), y, w)
    model.save(tmp_path / "model.npz")
    again = nbsketch.load(tmp_path / "model.npz")
    assert_array_equal(again.predict(gram(X, X)), model.predict(gram(X, X)))


def test_validation_rows_of_kernel_values_have_all_columns():
    X, y = data(None)
    w = np.ones(N)
    w[::3] = 0
    kept, new = np.flatnonzero(w), np.random.default_rng(1).normal(size=(20, Q))
    targets = new[:, 0]
    model = SpectralFilterRegressor("precomputed", size=20, random_state=0)
    validation = {"X_val": gram(new, X), "y_val": targets}
    found = model.fit(gram(X, X), y, w, **validation).path_["error"]
    validation["X_val"] = gram(new, X[kept])
    model.fit(gram(X[kept], X[kept]), y[kept], **validation)
    assert_array_equal(found, model.path_["error"])


def test_a_class_of_weight_zero_is_no_class():
    X, y = data(SketchedKernelClassifier())
    model = SketchedKernelClassifier(bandwidth=1.0, alpha=0.1)
    assert model.fit(X, y, y != "low").classes_.tolist() == ["high", "middle"]
    model.set_params(class_weight={"low": 0})
    assert model.fit(X, y).classes_.tolist() == ["high", "middle"]
    model.set_params(class_weight=None)
    with pytest.raises(ValueError, match="at least two classes, got 1 class"):
        model.fit(X, y, y == "high")


# repetition -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        SketchedKernelRegressor(alpha=1.0, size=5),
        SketchedKernelClassifier(alpha=1.0, size=5),
        TabularKernelRegressor(),
        ConformalRegressor(SketchedKernelRegressor(alpha=1.0, size=5), random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_sample_with_most_of_the_weight_is_told(model):
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = X[:, 0] > 0 if is_classifier(model) else X[:, 0]
    weights = np.ones(40)
    weights[7] = 156.0
    with pytest.warns(UserWarning, match=r"one of \d0 samples has 8\d% of the"):
        model.fit(X, y, sample_weight=weights)
    weights[7] = 10.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y, sample_weight=weights)


def test_median_distance_counts_a_weight_as_a_repetition():
    rng = np.random.default_rng(0)
    for n in (2, 3, 10, 41):
        X, w = rng.normal(size=(n, 2)), rng.integers(1, 5, size=n)
        for metric in ("euclidean", "cityblock"):
            repeated = median_distance(np.repeat(X, w, axis=0), metric)
            assert median_distance(X, metric, None, w.astype(float)) == repeated
            assert median_distance(X, metric, None, w / 3.0) == repeated
            equal = median_distance(X, metric, None, np.full(n, 0.7))
            assert equal == median_distance(X, metric)


def test_weighted_median_is_that_of_repeated_values():
    rng = np.random.default_rng(0)
    for n in range(1, 30):
        values, w = rng.normal(size=n), rng.integers(1, 4, size=n)
        desired = np.median(np.repeat(values, w))
        assert weighted_median(values, w) == desired
        assert weighted_median(values, w / w.mean()) == desired


@pytest.mark.parametrize("loss", ["square", "huber"])
def test_a_weight_is_a_repetition(loss):
    X, y = data(None)
    w = np.random.default_rng(4).integers(0, 4, size=N)
    rows = np.repeat(np.arange(N), w)
    options = {"bandwidth": "median", "sketch": "identity", "tol": 1e-10}
    model = SketchedKernelRegressor(loss=loss, alpha=1e-2, **options)
    expected = model.fit(X[rows], y[rows]).predict(X)
    assert_allclose(model.fit(X, y, w).predict(X), expected, rtol=1e-6, atol=1e-8)


# class weights ----------------------------------------------------------------------


@pytest.mark.parametrize("labels", ["ints", "text"])
def test_class_weights_are_sample_weights(labels):
    X, _ = data(None)
    y = (X[:, 0] > 1).astype(int) + (X[:, 1] > 0)
    factors = {0: 2.0, 2: 0.25}
    if labels == "text":
        y, factors = np.array(["a", "b", "c"])[y], {"a": 2.0, "c": 0.25}
    w = np.random.default_rng(0).uniform(size=N)
    model = SketchedKernelClassifier(bandwidth=1.0, alpha=1e-2, random_state=0)
    weights = np.array([factors.get(label, 1.0) for label in y.tolist()])
    expected = model.fit(X, y, w * weights).decision_function(X)
    model.set_params(class_weight=factors)
    assert_array_equal(model.fit(X, y, w).decision_function(X), expected)
    assert not np.array_equal(model.fit(X, y).decision_function(X), expected)


def test_a_class_of_tiny_weight_does_not_overflow():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = np.where(X[:, 0] + rng.normal(size=120) > 0, "a", "b")
    found = [
        TabularKernelClassifier(
            class_weight={"a": large, "b": 1 / large}, random_state=0
        )
        .fit(X, y)
        .predict(X)
        for large in (1e25, 1e300)
    ]
    assert set(found[0]) == set(found[1]) == {"a"}
    for weights in ({"class_weight": {"a": 1e308}}, {}):
        model = TabularKernelClassifier(**weights)
        with pytest.raises(ValueError, match="_weight` must give weights of at most 1"):
            model.fit(X, y, None if weights else np.linspace(1, 1e308, 120))


def test_balanced_classes_have_equal_weight():
    X, _ = data(None)
    y = (X[:, 0] > 1).astype(int)
    w = np.random.default_rng(0).uniform(size=N)
    model = SketchedKernelClassifier(
        bandwidth=1.0, alpha=1e-2, class_weight="balanced", random_state=0
    )
    totals = [w[y == label].sum() for label in (0, 1)]
    balanced = w / np.array(totals)[y]
    found = model.fit(X, y, w).decision_function(X)
    model.set_params(class_weight=None)
    expected = model.fit(X, y, balanced).decision_function(X)
    assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def test_balanced_weights_are_those_of_scikit_learn():
    y = np.array([0, 0, 0, 1, 2, 2])
    found = weights_of_classes("balanced", y, None)
    assert_allclose(found, compute_sample_weight("balanced", y))
    weights = np.array([1.0, 2, 0, 1, 3, 0])
    found = weights_of_classes("balanced", y, weights)
    totals = np.array([3.0, 1.0, 3.0])
    assert_allclose(found, weights * (7 / (3 * totals))[y])


@pytest.mark.parametrize("value", ["equal", 1.0, [1, 2]])
def test_class_weight_is_checked(value):
    X, y = data(SketchedKernelClassifier())
    with pytest.raises(ValueError, match="class_weight"):
        SketchedKernelClassifier(class_weight=value).fit(X, y)


WEIGHTED = [
    SketchedKernelClassifier(bandwidth=1.0, alpha=1e-2, random_state=0),
    SketchedSGDClassifier(bandwidth=1.0, random_state=0),
    TabularKernelClassifier(random_state=0),
]


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("model", WEIGHTED, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("labels", [[1, 2], [1.0, 2.0], ["1", "2"], [False, True]])
def test_class_weights_are_named_by_labels_or_their_text(model, labels):
    X = data(None)[0][:40]
    y = np.array(labels)[(X[:, 0] + X[:, 1] > 0).astype(int)]
    w = np.where(y == labels[1], 5.0, 1.0)
    expected = clone(model).fit(X, y, sample_weight=w)
    text = {str(label): w for label, w in zip(labels, (1, 5), strict=True)}
    for factors in ({labels[0]: 1, labels[1]: 5}, text, {labels[1]: 5}):
        weighted = clone(model).set_params(class_weight=factors).fit(X, y)
        assert_array_equal(weighted.predict(X), expected.predict(X))
    both = {labels[0]: 1, labels[1]: 5, "another": 3}  # of a fold without this class
    clone(model).set_params(class_weight=both).fit(X, y)


@pytest.mark.parametrize("model", WEIGHTED, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ({1: -1, 2: 5}, r"`class_weight\[1\]` must be in \[0, inf\), got -1"),
        ({1: np.nan, 2: 5}, r"`class_weight\[1\]` must be in \[0, inf\), got nan"),
        ({1: 1, 2: np.inf}, r"`class_weight\[2\]` must be in \[0, inf\), got inf"),
        ({1: "one"}, r"`class_weight\[1\]` must be a number in .*, got 'one'"),
        ({1: None}, r"`class_weight\[1\]` must be a number in .*, got None"),
        ({1: 0, 2: 0}, "`class_weight` must be positive for a class, got zeros only"),
        ({1: 1, 3: 2}, r"`class_weight` must be of the classes \[1, 2\], got \[3\]"),
        ({1: 1, "1": 2}, "`class_weight` must name each class once, got 1 twice"),
        ([1, 5], "`class_weight` must be None, 'balanced' or a dict .*, got"),
        ("equal", "`class_weight` must be None, 'balanced' or a dict .*, got 'equal'"),
    ],
)
def test_errors_of_class_weights_name_the_class(model, factors, message):
    X, _ = data(None)
    y = (X[:, 0] > 0) + 1
    with pytest.raises((ValueError, TypeError), match=message):
        clone(model).set_params(class_weight=factors).fit(X, y)


# calibration ------------------------------------------------------------------------


@pytest.mark.parametrize("coverage", [0.1, 0.5, 0.8, 0.9])
def test_weighted_conformal_quantile(coverage):
    rng = np.random.default_rng(0)
    for m in (1, 4, 9, 30):
        scores, w = rng.normal(size=m), rng.exponential(size=m)
        w /= w.mean()
        candidates = np.append(np.sort(scores), np.inf)
        # the definition: weight of scores at or below, of m + 1 with the new row
        below = [(w * (scores <= c)).sum() / (m + 1) for c in candidates[:-1]] + [1.0]
        desired = candidates[np.argmax(np.array(below) >= coverage)]
        assert conformal_quantile(scores, coverage, w) == desired
        equal = conformal_quantile(scores, coverage, np.ones(m))
        assert equal == conformal_quantile(scores, coverage)


def test_weights_shift_the_coverage():
    """Intervals cover where the weight is, though most rows are elsewhere."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(3000, 1))
    y = np.where(X[:, 0] > 0.8, 3.0, 0.3) * rng.normal(size=3000)
    w = np.where(X[:, 0] > 0.8, 1.0, 0.01)
    # a bandwidth at which one law is fitted to all rows
    model = JointQuantileRegressor(
        (0.1, 0.9),
        bandwidth=100.0,
        alpha=1.0,
        calibration=0.5,
        random_state=0,
        tol=1e-3,
    )
    new = rng.uniform(0.8, 1, size=(2000, 1))
    truth = 3.0 * rng.normal(size=2000)

    def coverage():
        low, high = model.predict_interval(new, 0.8).T
        return np.mean((low <= truth) & (truth <= high))

    model.fit(X, y)
    assert coverage() < 0.7
    model.fit(X, y, w)
    assert 0.77 < coverage() < 0.85
    assert model.calibration_weights_.shape == (1500,)


# structured prediction --------------------------------------------------------------


def test_weighted_structured_regression_without_a_sketch():
    X, Y = data(InputOutputKernelRegressor())
    w = np.random.default_rng(0).uniform(0.1, 3, size=N)
    model = InputOutputKernelRegressor(
        bandwidth=1.0, output_kernel="linear", alpha=1e-2
    ).fit(X, Y, w)
    K, W = model.kernel_(X), np.diag(w / w.mean())
    coef = np.linalg.solve(W @ K + N * 1e-2 * np.eye(N), W @ Y)
    candidates = model.candidates_
    expected = K @ coef @ candidates.T - np.square(candidates).sum(axis=1) / 2
    assert_allclose(model.decision_function(X), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("output_sketch", ["identity", "gaussian"])
def test_weighted_structured_regression_with_a_sketch(output_sketch):
    X, Y = data(InputOutputKernelRegressor())
    w = np.random.default_rng(0).uniform(0.1, 3, size=N)
    model = InputOutputKernelRegressor(
        bandwidth=1.0, output_kernel="linear", alpha=1e-2, sketch="gaussian", size=8,
        output_sketch=output_sketch, random_state=0,
        output_size=4 if output_sketch == "gaussian" else None,
    ).fit(X, Y, w)  # fmt: skip
    S, K, W = model.sketch_.to_csr().toarray(), model.kernel_(X), np.diag(w / w.mean())
    A = S @ K @ W @ K @ S.T + N * 1e-2 * S @ K @ S.T
    coef = np.linalg.solve(A, S @ K @ W @ Y)
    candidates = model.candidates_
    expected = K @ S.T @ coef @ candidates.T - np.square(candidates).sum(axis=1) / 2
    assert_allclose(model.decision_function(X), expected, rtol=1e-6, atol=1e-8)


def test_weights_count_copies_when_length_scales_of_structured_outputs_are_learned():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 2))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2]) + 0.1 * rng.normal(size=(N, 2))
    w = rng.choice([1, 2], size=N)
    model = InputOutputKernelRegressor(random_state=0)
    found = model.fit(X, Y, 3.0 * w).decision_function(X, Y)
    rows = np.repeat(np.arange(N), w)
    expected = model.fit(X[rows], Y[rows]).decision_function(X, Y)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_zero_weights_and_indices_of_outputs_are_refused():
    X, Y = data(InputOutputKernelRegressor())
    w = np.ones(N)
    model = InputOutputKernelRegressor(output_kernel="precomputed")
    model.fit(X, gram(Y, Y), w)
    w[3] = 0
    with pytest.raises(ValueError, match="`sample_weight` must be positive for a prec"):
        model.fit(X, gram(Y, Y), w)


# folds ------------------------------------------------------------------------------


@pytest.mark.thin(times=1)
@pytest.mark.parametrize("kind", ["blocks", "splitter", "arrays", "groups"])
@pytest.mark.parametrize(
    "model", [SketchedKernelRegressor(), SketchedKernelClassifier()], ids=repr
)
def test_rows_of_weight_zero_are_in_no_fold(model, kind):
    X, y = data(model)
    garbage, y_garbage = changed(X, y)
    w, groups = np.zeros(N), np.arange(N) // 9
    w[KEPT] = 1.0
    place = np.full(N, -1)
    place[KEPT] = np.arange(len(KEPT))
    pairs = [(np.flatnonzero(groups % 3 != k), np.flatnonzero(groups % 3 == k))
             for k in range(3)]  # fmt: skip
    kept_pairs = [tuple(place[p][place[p] >= 0] for p in pair) for pair in pairs]
    cvs = {"blocks": (3, 3), "splitter": (KFold(3), KFold(3)), "groups": (3, 3)}
    cv, kept_cv = cvs.get(kind, (pairs, kept_pairs))
    labels = groups if kind == "groups" else None
    kept_labels = None if labels is None else labels[KEPT]
    model.set_params(random_state=0, cv=kept_cv, bandwidth="median")
    expected = fitted_values(model.fit(X[KEPT], y[KEPT], groups=kept_labels))
    model.set_params(cv=cv).fit(garbage, y_garbage, w, groups=labels)
    for name, value in fitted_values(model).items():
        assert_array_equal(value, expected[name], err_msg=name)


def test_quantiles_of_weighted_columns_are_symmetric():
    """A row is in the middle of its weight: of -x they are minus those of x."""
    column, weights = np.array([3.0, 0.0, 1.0]), np.array([1.0, 1.0, 2.0])
    levels = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    found = transform._quantiles(column[:, None], levels, weights)[:, 0]
    assert_allclose(found, [0.0, 0.5, 1.0, 2.0, 3.0])
    weights[0] = 4.0
    found = transform._quantiles(column[:, None], levels, weights)[:, 0]
    turned = transform._quantiles(-column[:, None], 1 - levels, weights)[:, 0]
    assert_allclose(found, -turned)
