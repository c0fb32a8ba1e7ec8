"""Recentring: matrices whitened by a reference that follows the recording, and how far they are."""

from __future__ import annotations

import copy
from typing import Any, Self

import numpy as np

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.constants import SPREAD_GAIN, SPREAD_LIMIT, SPREAD_START
from kgmrf.geometry import so, spd
from kgmrf.sklearn.estimator import KineticTransformer

with optional():
    from sklearn.utils.validation import check_is_fitted

__all__ = ["OnlineRecenter", "RiemannianReference"]

HALF_LIVES = (8.0, 32.0, 128.0)
"""Matrices after which the means have half forgotten one; beside them is the mean of all."""

RETENTION = 0.98
"""Share of the score of a mean that is kept per matrix."""

SINGULAR = 1e-12
"""Smallest eigenvalue over the largest below which a matrix has no Riemannian distance."""


class RiemannianReference:
    """R, the Riemannian mean of matrices, forgetting as quickly as serves the next of them.

        R_k <- geodesic(R_k, C, 1 - 2^(-1/h_k)),   h = 8, 32, 128, and the mean of all
        L_k <- .98 L_k - p d_k^2 / (4 v),          d_k the distance of C from R_k before
        v   <- v + .02 (min_k d_k^2 - v),          p = d (d + 1)/2
        R   =  the log-Euclidean blend about the mean of all, with weights softmax(L)

    >>> reference = RiemannianReference()
    >>> for _ in range(3):
    ...     reference.update(np.diag([2.0, 0.5]))
    >>> reference.value().round(3).tolist()
    [[2.0, 0.0], [0.0, 0.5]]
    """

    def __init__(self) -> None:
        self.count = 0.0  # matrices in the mean of all
        self.scored = 0  # matrices whose distance is known
        self.spread = 0.0  # v
        self.scores: Numbers = np.zeros(len(HALF_LIVES) + 1)  # L
        self.means: Numbers = np.zeros((0, 0, 0))  # R_k, the mean of all last

    def update(self, C: Numbers) -> None:
        """Take in one matrix ``(d, d)``."""
        self.count += 1.0
        if not len(self.means):
            self.means = np.stack([C] * len(self.scores))
            return
        gains = np.append(1.0 - 2.0 ** (-1.0 / np.array(HALF_LIVES)), 0.0)
        gains = np.maximum(gains, 1.0 / self.count)
        # C as every mean sees it; one decomposition gives its distance and the step towards it.
        root = np.linalg.cholesky(self.means)
        half = np.linalg.solve(root, np.broadcast_to(C, root.shape))
        values, vectors = np.linalg.eigh(np.linalg.solve(root, np.swapaxes(half, -1, -2)))
        logs = np.log(values)
        self._score((logs**2).sum(axis=-1))
        turned = root @ vectors
        steps = np.exp(gains[:, None] * logs)[:, None, :]
        self.means = (turned * steps) @ np.swapaxes(turned, -1, -2)

    def _score(self, squares: Numbers) -> None:
        """Scores and the usual distance learn from squared distances ``(K,)``."""
        self.scored += 1
        least, d = squares.min(), self.means.shape[-1]
        if self.scored > SPREAD_START:
            least = min(least, SPREAD_LIMIT * self.spread)
        self.spread += max(SPREAD_GAIN, 1.0 / self.scored) * (least - self.spread)
        apart = squares - squares.min()
        unit = 4.0 * self.spread / (0.5 * d * (d + 1))
        self.scores = RETENTION * self.scores - apart / unit if unit > 0.0 else self.scores

    def value(self) -> Numbers:
        """The reference R ``(d, d)``."""
        if not len(self.means):
            raise ValueError("a reference without any matrix; call update first")
        weights = np.exp(self.scores - self.scores.max())
        weights /= weights.sum()
        root = np.linalg.cholesky(self.means[-1])
        inverse = np.linalg.inv(root)
        logs = spd.log(inverse @ self.means[:-1] @ inverse.T)
        return np.asarray(root @ spd.exp(np.tensordot(weights[:-1], logs, 1)) @ root.T)

    def score(self, C: Numbers) -> float:
        """Distance of a matrix from R over the usual distance; NaN before there is one."""
        if self.spread <= 0.0:
            return float("nan")
        return float(spd.distance(self.value(), C)) / float(np.sqrt(self.spread))

    def restart(self) -> None:
        """All that was seen counts as one matrix from now on."""
        self.count = min(self.count, 1.0)


class OnlineRecenter(KineticTransformer):
    """C_t -> R^{-1/2} C_t R^{-1/2}, where R is the mean of the matrices before C_t.

    Removes the slow change of a recording (another session, electrodes that drift), for a
    classifier that was trained before the change. Needs no labels and no data of the new session
    beforehand. X: ``(n_matrices, d, d)`` in time order, as from pyRiemann's ``Covariances``.

    `fit` takes in the training session, and `fit_transform` whitens all of it by the reference at
    its end. `transform` continues from there through the matrices of X, one after the other; the
    state stays, `partial_fit` changes it. One epoch at a time: ``model.transform(C[None])``, then
    ``model.partial_fit(C[None])``. Matrices of NaN are gaps.

    At a known start of a session call `new_session`: what was seen counts as one matrix from then
    on. Without it, some tens of epochs do the same.

    It cannot distinguish a change of the recording from a change of the classes. Where one class is
    far more frequent in the new session, or classes come in long blocks, R moves towards that class
    and the difference between the classes shrinks.

    Parameters
    ----------
    reference : str, default "riemannian"
        "riemannian", a :class:`RiemannianReference`: the geometric mean, with a memory that adapts.
        "tracker", the covariance that :class:`kgmrf.KGMRF` forecasts; it then whitens every matrix
        of the training session, too, by the matrices before it.
    n_samples, turning : default None and False
        Of reference="tracker". Samples behind each matrix (None takes 2 d, a cautious guess);
        whiten in the rotating eigenframe, diag(lam)^{-1/2} Q^T, which also removes a rotation of
        the channels (eigenvectors have a sign: no `new_session` between training and test).
    on_invalid : {"raise", "skip", "repair"}, default "raise"
        As for :class:`kgmrf.KGMRF`.

    References
    ----------
    Zanini, Congedo, Jutten, Said and Berthoumieu (2018), Transfer learning: a Riemannian geometry
    framework, IEEE TBME 65(5).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.tile(np.diag([2.0, 0.5]), (20, 1, 1))
    >>> OnlineRecenter().fit(X).transform(X)[0].round(1)
    array([[1., 0.],
           [0., 1.]])
    """

    go_on, gains, noise_floor = True, "auto", 0.0

    def __init__(
        self,
        *,
        reference: str = "riemannian",
        n_samples: float | None = None,
        turning: bool = False,
        on_invalid: OnInvalid = "raise",
    ) -> None:
        self.reference = reference
        self.n_samples = n_samples
        self.turning = turning
        self.on_invalid = on_invalid

    def fit_transform(self, X: Any, y: Any = None, *, times: Any = None) -> Numbers:
        """Take in the matrices X and return them whitened, ``(n_matrices, d, d)``."""
        if self._by_tracker():
            return super().fit_transform(X, times=times)
        self.__dict__.pop("n_features_in_", None)
        matrices, observed = self._checked(X, times)
        if not observed.any():
            raise ValueError(f"X of shape {matrices.shape} holds no matrix to begin with")
        self.n_features_in_ = matrices.shape[-1]
        self.reference_ = RiemannianReference()
        for C in matrices[observed]:
            self.reference_.update(C)
        root = _whitener(self.reference_.value())
        return np.where(observed[:, None, None], root @ matrices @ root, np.nan)

    def transform(self, X: Any, *, times: Any = None) -> Numbers:
        """The matrices X ``(n_matrices, d, d)``, whitened; the transformer is not changed."""
        if self._by_tracker():
            return super().transform(X, times=times)
        matrices, observed, reference = self._continued(X, times)
        out = np.full(matrices.shape, np.nan)
        for k in np.flatnonzero(observed):
            root = _whitener(reference.value())
            out[k] = root @ matrices[k] @ root
            reference.update(matrices[k])
        return out

    def artefact_score(self, X: Any) -> Numbers:
        """Distance of every matrix from the reference before it, over the usual one, ``(n,)``.

        About 1 for a usual matrix; NaN where there is none. Artefacts are far from the reference:
        leave out what scores above 2, say. The transformer is not changed.
        """
        if self._by_tracker():
            raise ValueError('artefact_score needs reference="riemannian"')
        matrices, observed, reference = self._continued(X, None)
        out = np.full(len(matrices), np.nan)
        for k in np.flatnonzero(observed):
            out[k] = reference.score(matrices[k])
            reference.update(matrices[k])
        return out

    def partial_fit(self, X: Any, y: Any = None, *, times: Any = None) -> Self:
        """Continue with the matrices X; the first call fits."""
        if not hasattr(self, "n_features_in_"):
            return self.fit(X, times=times)
        if self._by_tracker():
            self.tracker_.filter(self._matrices(X), times=times, fields=["log_likelihood"])
            return self
        matrices, observed = self._checked(X, times)
        for C in matrices[observed]:
            self.reference_.update(C)
        return self

    def new_session(self) -> Self:
        """A session begins: what was seen counts as one matrix, or with a tracker is forgotten."""
        check_is_fitted(self)
        if self._by_tracker():
            self.tracker_ = self._blank.copy()
        else:
            self.reference_.restart()
        return self

    def _by_tracker(self) -> bool:
        words = ("riemannian", "tracker")
        if _check.choice(self.reference, words, "reference") == "tracker":
            return True
        if self.n_samples is not None or self.turning:
            raise ValueError(
                f"n_samples={self.n_samples!r} and turning={self.turning!r} are settings of "
                'reference="tracker"; leave them out'
            )
        return False

    def _continued(self, X: Any, times: Any) -> tuple[Numbers, Any, RiemannianReference]:
        check_is_fitted(self)
        return *self._checked(X, times), copy.deepcopy(self.reference_)

    def _checked(self, X: Any, times: Any) -> tuple[Numbers, Any]:
        """Matrices, and which of them are there and have a Riemannian distance."""
        if times is not None:
            raise ValueError('reference="riemannian" counts matrices: leave out times')
        matrices = self._matrices(X)
        d: int = self.n_features_in_ if hasattr(self, "n_features_in_") else matrices.shape[-1]
        if matrices.shape[1:] != (d, d):
            raise ValueError(f"X has shape {matrices.shape}, but fit had matrices of {d} x {d}")
        observed = _check.present(matrices, "X")
        matrices, observed = _check.covariances(matrices, observed, "X", self.on_invalid)
        values = np.linalg.eigvalsh(np.where(observed[:, None, None], matrices, np.eye(d)))
        singular = observed & ~(values[:, 0] > SINGULAR * values[:, -1])
        if singular.any() and self.on_invalid != "skip":
            k = int(np.argmax(singular))
            raise ValueError(
                f"X[{k}] of shape {matrices.shape[1:]} is singular (eigenvalues from "
                f"{values[k, 0]:.3g} to {values[k, -1]:.3g}) and has no Riemannian distance; "
                "shrink it, as pyriemann's Covariances('oas') or ('lwf') do, reduce the number of "
                'channels, or use reference="tracker"'
            )
        return matrices, observed & ~singular

    def _through(self, tracker: Any, matrices: Numbers, times: Any) -> Numbers:
        began = None if tracker.batch_shape is None else tracker.estimate()
        result = tracker.filter(matrices, times=times)
        # The estimate before, turned by the time since; of the very first matrix, its own.
        before = {}
        for name in ("time", "frame", "spectrum", "velocity"):
            value = getattr(result, name)
            first = value[0] if began is None else getattr(began, name)
            before[name] = np.concatenate([first[None], value[:-1]])
        waited = (result.time - before["time"])[:, None, None]
        frame = before["frame"] @ so.exp(waited * before["velocity"])
        # Before there are as many samples as channels some eigenvalues are zero.
        spectrum = np.maximum(before["spectrum"], 1e-12 * before["spectrum"][:, :1])
        whitener = np.swapaxes(frame, -1, -2) / np.sqrt(spectrum)[:, :, None]
        if not self.turning:
            whitener = frame @ whitener
        return whitener @ matrices @ np.swapaxes(whitener, -1, -2)


def _whitener(reference: Numbers) -> Numbers:
    return np.asarray(spd.power(reference, -0.5))
