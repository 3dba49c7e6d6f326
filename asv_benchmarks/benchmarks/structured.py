"""Structured prediction: training, decoding, and the scores of the sketched methods."""

import nbsketch
from benchmarks.common import choose, identity
from nbsketch.datasets import make_documents
from nbsketch.metrics import example_f1

version = identity(__file__)

N = choose(fast=2000, regular=10_000)
N_TEST = 1000
METHODS = {
    "IOKR": ("identity", "identity"),
    "SISOKR": (
        nbsketch.SubsamplingSketch(N // 5),
        nbsketch.PSparsifiedSketch(100, law="gaussian"),
    ),
}


class Labels:
    """Sparse rows of words, label sets as outputs."""

    params = choose(fast=["SISOKR"], regular=list(METHODS))
    param_names = ("method",)

    def setup(self, method):
        X, Y = make_documents(N + N_TEST, n_words=1000, n_labels=100, random_state=0)
        self.train, self.X_test, self.Y_test = (X[:N], Y[:N]), X[N:], Y[N:]
        sketch, output_sketch = METHODS[method]
        self.model = nbsketch.InputOutputKernelRegressor(
            nbsketch.GaussianKernel(15.0),
            nbsketch.GaussianKernel(3.0),
            sketch=sketch,
            output_sketch=output_sketch,
            random_state=0,
        ).fit(*self.train)
        self.model.predict(self.X_test)

    def time_fit(self, method):
        self.model.fit(*self.train)

    def time_predict(self, method):
        self.model.predict(self.X_test)

    def peakmem_predict(self, method):
        self.model.predict(self.X_test)

    def track_f1(self, method):
        return example_f1(self.Y_test, self.model.predict(self.X_test))
