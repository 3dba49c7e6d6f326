"""From rows to features."""

import nbsketch
from benchmarks.common import bandwidth_for, choose, make_rows


class Features:
    params = (
        choose(fast=[10**4], regular=[10**4, 10**6]),
        choose(fast=["p-sparsified"], regular=["p-sparsified", "subsampling"]),
    )
    param_names = ("n", "sketch")

    def setup(self, n, sketch):
        self.X = make_rows(n, 10)
        self.transformer = nbsketch.SketchedFeatures(
            bandwidth=bandwidth_for(10), sketch=sketch, size=100, random_state=0
        )
        self.transformer.fit_transform(self.X)

    def time_fit_transform(self, n, sketch):
        self.transformer.fit_transform(self.X)

    def time_transform(self, n, sketch):
        self.transformer.transform(self.X)
