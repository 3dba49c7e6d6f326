"""Drawing sketches, and finding the columns that matter."""

import nbsketch
from benchmarks.common import choose

SIZE = 100
FAMILIES = {
    "gaussian": nbsketch.GaussianSketch,
    "rademacher": nbsketch.RademacherSketch,
    "subsampling": nbsketch.SubsamplingSketch,
    "p-sparsified, gaussian": lambda s: nbsketch.PSparsifiedSketch(s, law="gaussian"),
    "p-sparsified, p = 0.1": lambda s: nbsketch.PSparsifiedSketch(s, density=0.1),
}


class PSparsified:
    """The default recipe: time must not grow with n."""

    params = choose(fast=[10**8], regular=[10**4, 10**6, 10**8])
    param_names = ("n",)

    def setup(self, n):
        self.recipe = nbsketch.PSparsifiedSketch(SIZE)
        self.draw(n)

    def draw(self, n):
        sketch = self.recipe.draw(n, rng=0)
        return sketch.columns, sketch.weights

    def time_draw(self, n):
        self.draw(n)


class Others:
    params = choose(fast=["gaussian", "p-sparsified, p = 0.1"], regular=list(FAMILIES))
    param_names = ("recipe",)
    n = choose(fast=10**4, regular=10**6)

    def setup(self, recipe):
        self.recipe = FAMILIES[recipe](SIZE)
        self.draw()

    def draw(self):
        sketch = self.recipe.draw(self.n, rng=0)
        return sketch.columns, sketch.weights

    def time_draw(self, recipe):
        self.draw()
