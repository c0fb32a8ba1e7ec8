"""The integrated time of signals: after how many rows a row is new."""

from __future__ import annotations

import warnings

import numpy as np

from kgmrf._types import Numbers

__all__ = ["LONGEST", "THRESHOLD", "integrated_time", "warn_of"]

LONGEST = 2048
"""Rows from which it is measured."""

THRESHOLD = 4.0
"""From here on the rows are a signal: returns and differenced sensors have 1 to 2."""

FEWEST = 128
RUN, QUIET = 8, 0.01


def integrated_time(rows: Numbers) -> float:
    """tau = 1 + 2 sum_l rho2_l, in rows; 1 where rows do not predict each other.

    z = S^-1/2 (x - mean) scaled to |z|^2 = d; rho2_l is the mean over channels of the squared
    autocorrelation of z at lag l, minus 1/n. The sum ends where eight lags average below .01.
    Linear autocorrelation tells a signal from a covariance that moves, correlated squares do not.

    rows: ``(n, d)``, NaN where nothing was seen; the first 2,048 count. NaN for less than 128 rows.

    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=(4000, 3))
    >>> integrated_time(noise) < 1.5
    True
    >>> smooth = np.apply_along_axis(np.convolve, 0, noise, np.ones(20) / 20.0, "valid")
    >>> 10 < integrated_time(smooth) < 30
    True
    """
    rows = rows[:LONGEST]
    there = np.asarray(~np.isnan(rows).all(axis=1))
    n = int(there.sum())
    if n < FEWEST:
        return float("nan")
    known = ~np.isnan(rows)
    x = np.where(known, rows, 0.0)
    x = np.where(known, x - x.sum(axis=0) / np.maximum(known.sum(axis=0), 1), 0.0)
    largest = np.abs(x).max(axis=0)
    x = x[:, largest > 0.0] / largest[largest > 0.0]
    if not x.shape[1]:
        return 1.0
    values, vectors = np.linalg.eigh(x.T @ x / n)
    kept = values > 1e-10 * values[-1]
    z = x @ vectors[:, kept] / np.sqrt(values[kept])
    size = (z**2).mean(axis=1, keepdims=True)
    z = z / np.sqrt(np.where(size > 0.0, size, 1.0))
    length = len(z) // 2
    products, pairs = _lagged(z, length), _lagged(there[:, None].astype(float), length)
    # Long lags have few pairs: their sum is divided as if there were as many as of lag 0.
    share = len(z) / (len(z) - np.arange(length))[:, None]
    correlation = products / np.maximum(share * pairs, 1.0) / (products[0] / n)
    squares = np.where(pairs[:, 0] > n / 4.0, (correlation**2).mean(axis=1) - 1.0 / n, 0.0)[1:]
    sums = np.cumsum(squares)
    runs = (sums[RUN - 1 :] - np.concatenate([[0.0], sums[:-RUN]])) / RUN
    quiet = runs < QUIET
    last = int(np.argmax(quiet)) if quiet.any() else len(squares)
    return max(1.0, 1.0 + 2.0 * float(squares[:last].sum()))


def _lagged(z: Numbers, length: int) -> Numbers:
    """sum_t z_t z_{t+l} of every column, for l < length."""
    spectrum = np.fft.rfft(z, 2 * len(z), axis=0)
    return np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[:length]


def warn_of(tau: float, remedy: str) -> None:
    """One warning that rows predict each other, and what to do."""
    warnings.warn(
        f"rows predict each other: their integrated time is {tau:.0f} rows. Judged one row ahead, "
        f"the covariance is that of the last few rows; {remedy}",
        UserWarning,
        stacklevel=4,
    )
