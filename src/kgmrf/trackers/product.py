"""Several trackers under one clock: the product of their manifolds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kgmrf._check import ObservationError
from kgmrf._extras import optional
from kgmrf._types import Numbers
from kgmrf.trackers._contract import Tracker, part_of
from kgmrf.trackers._files import rebuilt

if TYPE_CHECKING:
    import pandas


class _Parts:
    """One entry per component, and what they have in common."""

    def __init__(self, parts: Mapping[str, Any], log_likelihood: Numbers | None = None) -> None:
        self._parts = dict(parts)
        self._log_likelihood = log_likelihood

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._parts[key]
        except KeyError:
            raise KeyError(f"no component {key!r}; there are {', '.join(self._parts)}") from None

    def __getattr__(self, name: str) -> Any:
        parts = self.__dict__.get("_parts", {})
        if name in parts:
            return parts[name]
        raise AttributeError(f"no component or field {name!r}; there are {', '.join(parts)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def keys(self) -> tuple[str, ...]:
        """The names of the components."""
        return tuple(self._parts)

    def items(self) -> tuple[tuple[str, Any], ...]:
        """Names and entries of the components."""
        return tuple(self._parts.items())

    @property
    def time(self) -> Numbers:
        """Time of the frame."""
        return next(iter(self._parts.values())).time

    @property
    def age(self) -> Numbers:
        """Time since any component was last observed; NaN before that."""
        ages = [part.age for part in self._parts.values()]
        youngest = np.min([np.where(np.isnan(age), np.inf, age) for age in ages], axis=0)
        return np.where(np.isinf(youngest), np.nan, youngest)

    @property
    def nis(self) -> Numbers:
        """Sum of the components' normalised innovations squared; NaN where all are."""
        return _total([part.nis for part in self._parts.values()])

    @property
    def log_likelihood(self) -> Numbers:
        """Joint one-step-ahead log-likelihood: the sum over the components that have one."""
        if self._log_likelihood is not None:
            return self._log_likelihood
        return _total([part.log_likelihood for part in self._parts.values()])


def _total(values: list[Numbers]) -> Numbers:
    stacked = np.stack(values)
    there = ~np.isnan(stacked)
    total = np.where(there, stacked, 0.0).sum(axis=0)
    return np.where(there.any(axis=0), total, np.nan)


class ProductEstimate(_Parts):
    """What is known at one time: ``estimate["name"]`` or ``estimate.name`` is one `Estimate`.

    >>> from kgmrf.trackers.vector import VectorTracker
    >>> pair = ProductTracker(
    ...     {"place": VectorTracker(noise_std=1.0), "size": VectorTracker(noise_std=1.0)}
    ... )
    >>> pair.update({"place": [1.0, 2.0], "size": [0.5]})
    ProductEstimate(place, size; time=0)
    """

    def __repr__(self) -> str:
        time = f"{float(self.time):g}" if np.ndim(self.time) == 0 else f"array{self.time.shape}"
        return f"{type(self).__name__}({', '.join(self._parts)}; time={time})"


class ProductResult(_Parts):
    """What was known at every time: ``result["name"]`` is a `Result`, ``result[k]`` a frame.

    >>> from kgmrf.trackers.vector import VectorTracker
    >>> result = ProductTracker({"place": VectorTracker(noise_std=1.0)}).filter(
    ...     {"place": [[0.0], [1.0]]}
    ... )
    >>> len(result), result["place"].position.shape, result[1]
    (2, (2, 1), ProductEstimate(place; time=1))
    """

    _estimate: type[ProductEstimate] = ProductEstimate

    def __len__(self) -> int:
        return int(self.time.shape[0])

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(key)
        kind = type(self) if isinstance(key, slice) else self._estimate
        joint = None if self._log_likelihood is None else self._log_likelihood[key]
        return kind({name: part[key] for name, part in self._parts.items()}, joint)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} steps: {', '.join(self._parts)})"

    def to_frame(self) -> pandas.DataFrame:
        """A pandas table with the columns of every component, such as ``place.position_0``."""
        with optional():
            import pandas as pd

        shared = ("time", "frame_number")
        tables = []
        for k, (name, part) in enumerate(self._parts.items()):
            table = part.to_frame()
            common = [c for c in table if c in shared or c.startswith("item_")]
            named = table.drop(columns=common).add_prefix(f"{name}.")
            tables += [table[common], named] if k == 0 else [named]
        joined = pd.concat(tables, axis=1)
        joined["log_likelihood"] = np.reshape(self.log_likelihood, -1)
        return joined


class Composite(Tracker):
    """A tracker that holds others by name, as ``components``, all with its batch shape.

    >>> from kgmrf import KineticGaussian
    >>> list(KineticGaussian().components)
    ['mean', 'covariance']
    """

    components: dict[str, Tracker]
    axes = 0
    _kept: ClassVar[tuple[str, ...]] = ("components",)

    def __getitem__(self, name: str) -> Tracker:
        """The component of that name."""
        return self.components[name]

    def begin(self, shape: tuple[int, ...]) -> None:
        """Allocate for a batch of this shape."""
        for part in self.components.values():
            if part.d is not None:
                part.begin((*shape, *(part.d,) * part.axes))
        self.batch_shape = tuple(shape)

    def prepare(self, memory: dict[str, Numbers]) -> None:
        """What has to be known of a file before `begin`."""
        for name, part in self.components.items():
            part.prepare(part_of(f"components.{name}", memory))

    @property
    def counted_now(self) -> float | None:
        """Counted time of the last step; None before the first."""
        return next(iter(self.components.values())).counted_now


class ProductTracker(Composite):
    """Components under one clock: update({"name": observation or None, ...}), one contract.

    components: trackers by name, all fresh, or all at the same time.

    Every component sees every frame; one without an observation coasts. Keywords other than
    ``dt``, ``times`` and ``mask`` are tables by component too, e.g. ``n_samples={"shape": 8}``.
    The joint log-likelihood is the sum over the components. An observation that one component
    refuses changes none of them.

    >>> import numpy as np
    >>> from kgmrf import KGMRF
    >>> from kgmrf.trackers.vector import VectorTracker
    >>> tracker = ProductTracker(
    ...     {"place": VectorTracker(2, noise_std=1.0), "shape": KGMRF(2, n_samples=8)}
    ... )
    >>> estimate = tracker.update({"place": [3.0, 4.0], "shape": np.diag([2.0, 0.5])})
    >>> estimate = tracker.update({"place": [3.5, 4.0]})
    >>> estimate["place"].position.shape, estimate.shape.age.item(), estimate.age.item()
    ((2,), 1.0, 0.0)
    """

    kind = "product"

    def __init__(self, components: Mapping[str, Tracker | dict[str, Any]]) -> None:
        super().__init__()
        if not components:
            raise ValueError('components is empty; give trackers by name, e.g. {"place": ...}')
        self.components = {}
        for name, part in components.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise ValueError(f"components need names like 'place', got {name!r}")
            tracker = rebuilt(part) if isinstance(part, dict) else part
            if not isinstance(tracker, Tracker) or isinstance(tracker, Composite):
                raise ValueError(f"component {name!r} must be a simple tracker, got {part!r}")
            if any(tracker is other for other in self.components.values()):
                raise ValueError(f"component {name!r} is the same tracker as another; copy() it")
            self.components[name] = tracker
        clocks = {name: tracker.now for name, tracker in self.components.items()}
        if len(set(clocks.values())) > 1:
            raise ValueError(f"the components' clocks disagree: {clocks}; start with fresh ones")
        if next(iter(clocks.values())) is not None:
            self.batch_shape = next(iter(self.components.values())).batch_shape

    # ------------------------------------------------------------------ the public contract

    def update(  # type: ignore[override]
        self,
        observation: Mapping[str, Any] | None,
        *,
        dt: float | Numbers = 1.0,
        assume_valid: bool = False,
        **by_component: Mapping[str, Any],
    ) -> ProductEstimate:
        """Take in one frame: observations by name; a component without one coasts.

        dt: time since the frame before, for all components.
        by_component: tables of the components' own keywords, e.g. ``n_samples={"shape": 8}``.
        assume_valid: skip the checks, for hot loops.
        """
        table = self._table(observation, "observation")
        options = self._options(by_component)
        shapes = (np.shape(v)[: -self[k].axes] for k, v in table.items() if v is not None)
        batch = next(shapes, ()) if self.batch_shape is None else self.batch_shape
        parts: dict[str, Any] = {}
        with self._together(parts, list(self.components), safe=not assume_valid):
            for name, tracker in self.components.items():
                seen = table.get(name)
                if seen is None and batch and tracker.d is not None:
                    seen = np.full((*batch, *(tracker.d,) * tracker.axes), np.nan)
                parts[name] = tracker.update(
                    seen, dt=dt, assume_valid=assume_valid, **options[name]
                )
        return ProductEstimate(parts)

    def forecast(self, steps: float = 1.0) -> ProductEstimate:  # type: ignore[override]
        """The estimate ``steps`` units of time ahead, as for every tracker; changes nothing."""
        return ProductEstimate({n: part.forecast(steps) for n, part in self.components.items()})

    def filter(  # type: ignore[override]
        self,
        sequence: Mapping[str, Any],
        *,
        times: Any = None,
        mask: Any = None,
        **by_component: Mapping[str, Any],
    ) -> ProductResult:
        """Run over whole sequences, one per component, all of the same length.

        times: ``(T,)`` for all components. mask: ``(T, ...)`` for all, or a table by component.
        by_component: as in `update`.
        """
        table = {k: v for k, v in self._table(sequence, "sequence").items() if v is not None}
        lengths = {name: len(frames) for name, frames in table.items()}
        if len(set(lengths.values())) != 1:
            raise ObservationError(f"one clock needs sequences of one length, got {lengths}")
        n_frames = next(iter(lengths.values()))
        options = self._options(by_component)
        masks = mask if isinstance(mask, Mapping) else dict.fromkeys(self.components, mask)
        parts: dict[str, Any] = {}
        # Components with data first: they tell the batch shape to those without.
        order = sorted(self.components, key=lambda name: name not in table)
        with self._together(parts, order):
            for name in order:
                tracker, frames = self.components[name], table.get(name)
                if frames is None:
                    batch = self.components[order[0]].batch_shape or ()
                    if tracker.d is None:
                        raise ObservationError("it has no sequence and d is unknown; give d")
                    frames = np.full((n_frames, *batch, *(tracker.d,) * tracker.axes), np.nan)
                parts[name] = tracker.filter(
                    frames, times=times, mask=masks.get(name), **options[name]
                )
        return ProductResult({name: parts[name] for name in self.components})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.components!r})"

    # ------------------------------------------------------------------ machinery

    def _table(self, value: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise ObservationError(
                f"{name} must be a table by component, e.g. "
                f"{{{next(iter(self.components))!r}: ...}}, got {type(value).__name__}"
            )
        strangers = [key for key in value if key not in self.components]
        if strangers:
            raise ObservationError(
                f"{name} names {strangers[0]!r}; the components are {', '.join(self.components)}"
            )
        return dict(value)

    def _options(self, by_component: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        options: dict[str, dict[str, Any]] = {name: {} for name in self.components}
        for keyword, table in by_component.items():
            for name, value in self._table(table, keyword).items():
                options[name][keyword] = value
        return options

    @contextmanager
    def _together(
        self, parts: dict[str, Any], order: list[str], *, safe: bool = True
    ) -> Iterator[None]:
        """All components or none: an error restores them and names the one that refused.

        parts: what those that are done have given. safe: whether to be able to go back.
        """
        every = self.components if safe else {}
        before = {
            name: (part.d, part.batch_shape, {k: np.array(v) for k, v in part.memory().items()})
            for name, part in every.items()
        }
        try:
            yield
            shapes = {name: part.batch_shape for name, part in self.components.items()}
            if len(set(shapes.values())) > 1:
                raise ObservationError(f"the components' batch shapes disagree: {shapes}")
            self.batch_shape = next(iter(shapes.values()))
        except ValueError as error:
            for name, (d, batch, memory) in before.items():
                part = self.components[name]
                part.d, part.batch_shape = d, batch
                if memory:
                    part.restore(memory)
            refused = [name for name in order if name not in parts]
            where = f"component {refused[0]!r}: " if refused else ""
            raise type(error)(f"{where}{error}") from error
