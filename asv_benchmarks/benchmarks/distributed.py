"""Weak scaling: a fit of NBSKETCH_ROWS rows for each worker, in partitions."""

import os

import dask.array as da
from distributed import Client, LocalCluster

import nbsketch
from benchmarks.common import bandwidth_for, choose, identity, make_problem

version = identity(__file__)

ROWS = int(float(os.environ.get("NBSKETCH_ROWS", choose(fast=2e4, regular=5e5))))
CHUNKS = 4  # of each worker
COMMON = {"bandwidth": bandwidth_for(10), "random_state": 0, "alpha": 1e-5}
FITS = {
    "square": {"size": 100},
    "huber": {"size": 100, "loss": "huber", "tol": 1e-4},
    "landmarks": {"size": choose(fast=1100, regular=2500)},  # by passes over them
}


class WeakScaling:
    """Time should be the same for one and two workers of one thread each."""

    params = (list(FITS), [1, 2])
    param_names = ("fit", "workers")
    timeout = 600

    def setup(self, fit, workers):
        self.cluster = LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0"
        )
        self.client = Client(self.cluster)
        X, y = make_problem(ROWS * workers)
        rows = ROWS // CHUNKS
        arrays = da.from_array(X, chunks=(rows, -1)), da.from_array(y, chunks=rows)
        self.X, self.y = self.client.persist(list(arrays))
        self.model = nbsketch.SketchedKernelRegressor(**COMMON, **FITS[fit])
        self.model.fit(self.X, self.y)

    def teardown(self, fit, workers):
        self.client.close()
        self.cluster.close()

    def time_fit(self, fit, workers):
        self.model.fit(self.X, self.y)
