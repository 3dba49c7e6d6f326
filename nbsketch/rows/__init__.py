"""Rows in memory, in files and in the partitions of Dask."""
