"""Where things live: rotations, covariances and isospectral orbits, as pure functions.

>>> import numpy as np
>>> from kgmrf.geometry import so
>>> so.exp(np.zeros((3, 3)))
array([[1., 0., 0.],
       [0., 1., 0.],
       [0., 0., 1.]])
"""

from kgmrf.geometry import orbit, so, spd

__all__ = ["orbit", "so", "spd"]
