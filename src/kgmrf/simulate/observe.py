"""Gaps: masks that are True where there is an observation.

Frame 0 is always seen: every filter can start.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kgmrf._types import Mask


def _check(n_frames: int, probability: float = 0.0) -> None:
    if n_frames < 1:
        raise ValueError(f"n_frames must be at least 1, got {n_frames}")
    if not 0 <= probability <= 1:
        raise ValueError(f"probability must lie in [0, 1], got {probability}")


def iid(n_frames: int, probability: float, rng: np.random.Generator | int) -> Mask:
    """observed_t = (u_t >= p), u_t ~ U(0, 1) independent: each frame is lost with probability p.

    Shape (n_frames,).

    Parameters
    ----------
    n_frames : int
        Number of frames T.
    probability : float
        Probability p that a frame is lost; the first one never is.
    rng : np.random.Generator or int
        Generator or seed.

    Examples
    --------
    >>> iid(6, 0.5, 1)
    array([ True,  True, False,  True, False, False])
    """
    _check(n_frames, probability)
    observed: Mask = np.random.default_rng(rng).random(n_frames) >= probability
    observed[0] = True
    return observed


def bursts(
    n_frames: int,
    probability: float,
    rng: np.random.Generator | int | Sequence[int],
    *,
    length: int | tuple[int, int] = 9,
) -> Mask:
    """At every seen frame a gap of ``length`` frames starts with probability p.

    ``length`` may be a pair (shortest, longest). The missing share is p L / (p L + 1 - p), far
    above p: 50 % for p = .1 and L = 9. Shape (n_frames,).

    Parameters
    ----------
    n_frames : int
        Number of frames T.
    probability : float
        Probability p that a gap starts at a seen frame.
    rng
        Generator or seed.
    length : int or tuple[int, int], default 9
        Frames of a gap, or a pair (shortest, longest).

    Examples
    --------
    >>> bursts(8, 0.5, 3, length=2)
    array([ True, False, False, False, False,  True,  True, False])
    """
    _check(n_frames, probability)
    low, high = (length, length) if isinstance(length, int) else length
    if not 1 <= low <= high:
        raise ValueError(f"length must be positive and ordered, got {length}")
    r = np.random.default_rng(rng)
    observed = np.ones(n_frames, dtype=np.bool_)
    t = 1
    while t < n_frames:
        if r.random() < probability:
            # Drawn even when the length is fixed: the stream is part of the protocol.
            gap = int(r.integers(low, high + 1))
            observed[t : t + gap] = False
            t += gap
        else:
            t += 1
    return observed


def occlusions(
    n_frames: int = 400, *, starts: Sequence[int] = (100, 220, 340), length: int = 30
) -> Mask:
    """observed_t is False for start <= t < start + length: known windows without any data.

    The defaults are the three occlusions behind the paper's "20 % dropout". Shape (n_frames,).

    Parameters
    ----------
    n_frames : int, default 400
        Number of frames T.
    starts : Sequence[int], default (100, 220, 340)
        First frame of each gap; the defaults are the paper's.
    length : int, default 30
        Frames of a gap; the default is the paper's.

    Examples
    --------
    >>> occlusions(6, starts=(2,), length=3)
    array([ True,  True, False, False, False,  True])
    """
    _check(n_frames)
    if length < 0 or any(s < 1 for s in starts):
        raise ValueError(f"need length >= 0 and starts >= 1, got {length} and {tuple(starts)}")
    observed = np.ones(n_frames, dtype=np.bool_)
    for start in starts:
        observed[start : start + length] = False
    return observed
