"""DCC-GARCH with Student-t innovations (Engle 2002; Bollerslev's GARCH for each channel).

    h_it = omega_i + alpha_i x_i,t-1^2 + beta_i h_i,t-1            variance of channel i
    y_t  = x_t / sqrt(h_t)
    Q_t  = (1 - a - b) R + a y_{t-1} y_{t-1}^T + b Q_{t-1}         R = mean of y y^T
    S_t  = diag(h)^1/2 corr(Q_t) diag(h)^1/2

Fitted in two steps by maximum likelihood, each with its own degrees of freedom: **in hindsight**,
on all rows, those that are scored included, which favours it (`forecasts`); or again and again on
the rows so far (`Dcc`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.signal import lfilter
from scipy.special import expit, gammaln

from kgmrf._check import ObservationError
from kgmrf._types import Numbers

FIRST_FIT = 250
"""Rows after which it is fitted first."""


def variances(x: Numbers, omega: float, alpha: float, beta: float, first: float) -> Numbers:
    """h_t of one channel, every row."""
    drive = np.concatenate([[first], omega + alpha * x[:-1] ** 2])
    return np.asarray(lfilter([1.0], [1.0, -beta], drive))


def correlations(y: Numbers, R: Numbers, a: float, b: float) -> Numbers:
    """corr(Q_t), every row."""
    drive = (1.0 - a - b) * R + a * y[:-1, :, None] * y[:-1, None, :]
    Q = lfilter([1.0], [1.0, -b], np.concatenate([R[None], drive]), axis=0)
    size = np.sqrt(np.diagonal(Q, axis1=1, axis2=2))
    return np.asarray(Q / (size[:, :, None] * size[:, None, :]))


def reaches(y: Numbers, R: Numbers) -> tuple[Numbers, Numbers]:
    """y_t^T R_t^-1 y_t and log det R_t; inf if a matrix is not positive definite."""
    try:
        L = np.linalg.cholesky(R)
    except np.linalg.LinAlgError:
        return np.zeros(len(y)), np.full(len(y), np.inf)
    v = np.linalg.solve(L, y[..., None])[..., 0]
    return (v**2).sum(-1), 2.0 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(-1)


def _loss(squares: Numbers, log_det: Numbers, d: int, nu: float) -> float:
    """Minus the mean log-density of a t of covariance S: scale S (nu - 2)/nu."""
    head = gammaln((nu + d) / 2) - gammaln(nu / 2) - d / 2 * np.log((nu - 2) * np.pi)
    body = -0.5 * log_det - (nu + d) / 2 * np.log1p(squares / (nu - 2))
    return -float(head + body.mean())


def _simplex(p: Any) -> tuple[float, float]:
    """(alpha, beta) with alpha + beta < 1 from two free numbers."""
    total = 0.9999 * expit(p[0])
    share = expit(p[1])
    return total * share, total * (1.0 - share)


def garch(x: Numbers, fitted: int | None = None) -> Numbers:
    """Variances ``(T,)`` of one channel under its GARCH(1,1) with t innovations, fitted on the
    first rows or on all."""
    known = x[:fitted]
    level = float(np.mean(known**2))

    def path(p: Any, x: Numbers) -> Numbers:
        alpha, beta = _simplex(p)
        found: Numbers = variances(x, level * np.exp(p[2]), alpha, beta, level)
        return np.maximum(found, 1e-9 * level)

    def loss(p: Any) -> float:
        if np.abs(p).max() > 20:
            return 1e10
        h = path(p, known)
        return _loss(known**2 / h, np.log(h), 1, 2.05 + np.exp(p[3]))

    best: Any = None
    for total, share in ((0.98, 0.06), (0.9, 0.2)):
        start = [
            np.log(total / (0.9999 - total)),
            np.log(share / (1 - share)),
            np.log(1 - total),
            1.5,
        ]
        found = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 600, "fatol": 1e-7})
        if best is None or found.fun < best.fun:
            best = found
    return path(best.x, x)


def forecasts(x: Numbers, fitted: int | None = None) -> tuple[str, Numbers]:
    """What was fitted, on the first rows or on all, and S_t for every row, ``(T, d, d)``."""
    d = x.shape[1]
    h = np.column_stack([garch(np.ascontiguousarray(column), fitted) for column in x.T])
    y = np.ascontiguousarray(x / np.sqrt(h))
    known = y[:fitted]
    R = known.T @ known / len(known)

    def loss(p: Any) -> float:
        if np.abs(p).max() > 20:
            return 1e10
        found = reaches(known, correlations(known, R, *_simplex(p)))
        value = _loss(*found, d, 2.05 + float(np.exp(p[2])))
        return value if np.isfinite(value) else 1e10

    start = [np.log(0.97 / 0.03), np.log(0.03 / 0.97), 1.5]
    found = minimize(loss, start, method="Nelder-Mead", options={"maxiter": 150, "fatol": 1e-6})
    a, b = _simplex(found.x)
    S = correlations(y, R, a, b) * np.sqrt(h)[:, :, None] * np.sqrt(h)[:, None, :]
    return f"a {a:.3f}, b {b:.3f}, nu {2.05 + np.exp(found.x[2]):.1f}", S


class Dcc:
    """DCC-GARCH as a forecaster: fitted after 250 rows, and again whenever they have doubled.

    `covariance` of row t is that of row t + 1; NaN before the first fit.
    """

    def __init__(self, d: int) -> None:
        self.rows = np.zeros((0, d))

    def covariances(self, rows: Numbers) -> Numbers:
        """S_{t+1} after each of these rows, which follow those before, ``(n, d, d)``."""
        if np.isnan(rows).any():
            raise ObservationError("DCC-GARCH cannot use rows with gaps")
        first, d = len(self.rows), rows.shape[1]
        self.rows = np.concatenate([self.rows, rows])
        ahead = np.concatenate([self.rows, np.zeros((1, d))])  # nothing depends on the last row
        out = np.full((len(self.rows), d, d), np.nan)
        fitted = FIRST_FIT
        while fitted <= len(self.rows):
            until = min(2 * fitted, len(self.rows))
            if until >= first:
                _, S = forecasts(ahead[: until + 1], fitted)
                out[fitted - 1 : until] = S[fitted : until + 1]
            fitted *= 2
        return out[first:]
