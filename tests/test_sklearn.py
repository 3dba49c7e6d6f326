"""The contract of scikit-learn, by its own checks."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from nbsketch import (
    InputOutputKernelRegressor,
    JointQuantileRegressor,
    RandomFourierFeatures,
    SketchedFeatures,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedSGDRegressor,
    SpectralFilterRegressor,
)

WEIGHTS = dict.fromkeys(
    (
        "check_sample_weight_equivalence_on_dense_data",
        "check_sample_weight_equivalence_on_sparse_data",
    ),
    "the random sketch, the median bandwidth and the rows that leave-one-out leaves "
    "out are chosen from the rows, whatever their weights",
)

LEVELS = dict.fromkeys(
    (
        "check_regressors_train",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
    ),
    "predictions have one column for each level",
)

# Each estimator with the checks that it cannot pass, and why. Given a bandwidth, an
# alpha and no sketch, a weight is a repetition and no reason is left.
ESTIMATORS = [
    (SketchedKernelRegressor(), WEIGHTS),
    (SketchedKernelRegressor(sketch="identity"), WEIGHTS),
    (SketchedKernelRegressor(sketch="identity", bandwidth=1.0, alpha=0.1), {}),
    (SketchedKernelRegressor("precomputed", fit_intercept=False), {}),
    (SketchedKernelRegressor(loss="huber", alpha=1e-3), WEIGHTS),
    (SketchedKernelClassifier(alpha=1e-3), WEIGHTS),
    (SketchedKernelClassifier(loss="logistic"), WEIGHTS),
    (JointQuantileRegressor(quantiles=(0.25, 0.75), alpha=1e-3), WEIGHTS | LEVELS),
    (SketchedSGDRegressor(), WEIGHTS),
    (SketchedSGDRegressor(method="adam", early_stopping=True), WEIGHTS),
    (SpectralFilterRegressor(), WEIGHTS),
    (SpectralFilterRegressor(filter="landweber"), WEIGHTS),
    (
        SpectralFilterRegressor(
            filter="iterated-ridge", sketch="identity", bandwidth=1.0, alpha=0.1
        ),
        {},
    ),
    (InputOutputKernelRegressor(), {}),
    (
        InputOutputKernelRegressor(
            output_kernel="linear", sketch="subsampling", output_sketch="p-sparsified"
        ),
        {},
    ),
    (SketchedFeatures(), {}),
    (SketchedFeatures("precomputed", sketch="identity"), {}),
    (RandomFourierFeatures(), {}),
    (RandomFourierFeatures("laplacian", bandwidth=1.0), {}),
]


def expected_failures(estimator):
    return next(
        failures for other, failures in ESTIMATORS if repr(other) == repr(estimator)
    )


@parametrize_with_checks(
    [estimator for estimator, _ in ESTIMATORS],
    expected_failed_checks=expected_failures,
)
def test_contract(estimator, check):
    check(estimator)
