"""Looking back over a finished recording.

`gmrf` holds the Gauss-Markov random field itself: the precision matrix of all angles and velocities
of a plane, solved at once. The step-by-step smoother, `kgmrf.smoothing.law`, gives the same
numbers.
"""

from kgmrf.smoothing import gmrf

__all__ = ["gmrf"]
