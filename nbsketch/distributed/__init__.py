"""Rows in the partitions of Dask arrays; Dask is imported when such an array comes."""
