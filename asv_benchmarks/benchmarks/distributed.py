"""Weak scaling: a fit of rows in partitions, as many for each worker."""

import dask.array as da
from distributed import Client, LocalCluster

import nbsketch
from benchmarks.common import bandwidth_for, choose, identity, make_problem

version = identity(__file__)

ROWS = choose(fast=20_000, regular=500_000)  # of each worker
CHUNKS = 4  # of each worker
COMMON = {"bandwidth": bandwidth_for(10), "random_state": 0, "size": 100}


class WeakScaling:
    """Time should be the same for one and two workers of one thread each."""

    params = (["square", "huber"], [1, 2])
    param_names = ("loss", "workers")
    timeout = 600

    def setup(self, loss, workers):
        self.cluster = LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0"
        )
        self.client = Client(self.cluster)
        X, y = make_problem(ROWS * workers)
        rows = ROWS // CHUNKS
        arrays = da.from_array(X, chunks=(rows, -1)), da.from_array(y, chunks=rows)
        self.X, self.y = self.client.persist(list(arrays))
        self.model = nbsketch.SketchedKernelRegressor(
            loss=loss, alpha=1e-5, tol=1e-4, **COMMON
        )
        self.model.fit(self.X, self.y)

    def teardown(self, loss, workers):
        self.client.close()
        self.cluster.close()

    def time_fit(self, loss, workers):
        self.model.fit(self.X, self.y)
