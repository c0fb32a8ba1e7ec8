"""More tracks than one process holds: the trackers on dask, block by block of tracks.

Tracks never meet, so a block of them is a task of its own; time goes on inside it, chunk after
chunk, with the state carried over. `filter_array` is lazy, dask arrays in and out; `filter_zarr`
goes from disk to disk and can be killed and started again.

>>> import dask.array as da
>>> from kgmrf import TrackerBank
>>> from kgmrf.dask import filter_array
>>> samples = da.random.default_rng(0).normal(size=(20, 1000, 4, 3), chunks=(5, 256, 4, 3))
>>> filter_array(TrackerBank(0, 3), samples, samples=True)["covariance"].shape
(20, 1000, 3, 3)
"""

from kgmrf.dask._array import filter_array
from kgmrf.dask._zarr import filter_zarr

__all__ = ["filter_array", "filter_zarr"]
