"""Several trackers under one clock: the product of their manifolds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import numpy as np

from kgmrf._check import ObservationError
from kgmrf._types import Numbers
from kgmrf.trackers._contract import Tracker, part_of
from kgmrf.trackers._files import rebuilt


class ProductEstimate:
    """What is known at one time: ``estimate["name"]`` or ``estimate.name`` is one `Estimate`.

    >>> from kgmrf.trackers.vector import VectorTracker
    >>> pair = ProductTracker(
    ...     {"place": VectorTracker(noise_std=1.0), "size": VectorTracker(noise_std=1.0)}
    ... )
    >>> pair.update({"place": [1.0, 2.0], "size": [0.5]})
    ProductEstimate(place, size; time=0)
    """

    def __init__(self, parts: Mapping[str, Any], log_likelihood: Numbers | None = None) -> None:
        self._parts = dict(parts)
        self._log_likelihood = log_likelihood

    def __getitem__(self, name: Any) -> Any:
        try:
            return self._parts[name]
        except KeyError:
            raise KeyError(f"no component {name!r}; there are {', '.join(self._parts)}") from None

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
        """Time of the step."""
        return next(iter(self._parts.values())).time

    @property
    def age(self) -> Numbers:
        """Time since any component was last observed; NaN before that."""
        return np.fmin.reduce([part.age for part in self._parts.values()])

    @property
    def log_likelihood(self) -> Numbers:
        """Joint one-step-ahead log-likelihood: the sum over the components that have one."""
        if self._log_likelihood is not None:
            return self._log_likelihood
        each = np.stack([part.log_likelihood for part in self._parts.values()])
        return np.where(np.isnan(each).all(axis=0), np.nan, np.nansum(each, axis=0))

    def __repr__(self) -> str:
        time = f"{float(self.time):g}" if np.ndim(self.time) == 0 else f"array{self.time.shape}"
        return f"{type(self).__name__}({', '.join(self._parts)}; time={time})"


class ProductResult(ProductEstimate):
    """What was known at every time: ``result["name"]`` is a `Result`, ``result[k]`` a step.

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


class Composite(Tracker):
    """A tracker that holds others by name, as ``components``, all with its batch shape.

    >>> from kgmrf import PoseTracker
    >>> list(PoseTracker().components)
    ['rotation', 'position']
    """

    components: dict[str, Tracker]
    axes = 0
    _state_attributes: ClassVar[tuple[str, ...]] = ("components",)

    def allocate(self, shape: tuple[int, ...]) -> None:
        """Allocate for a batch of this shape."""
        for part in self.components.values():
            if part.d is not None:
                part.allocate((*shape, *(part.d,) * part.axes))
        self.batch_shape = tuple(shape)

    def prepare(self, state: dict[str, Numbers]) -> None:
        """What has to be known of a file before `allocate`."""
        for name, part in self.components.items():
            part.prepare(part_of(f"components.{name}", state))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What raises an error within changes nothing, in none of the components."""
        with ExitStack() as stack:
            for part in self.components.values():
                stack.enter_context(part.transaction())
            stack.enter_context(super().transaction())
            yield

    @property
    def counted_now(self) -> float | None:
        """Counted time of the last step; None before the first."""
        return next(iter(self.components.values())).counted_now


class ProductTracker(Composite):
    """Components under one clock: update({"name": observation or None, ...}), one contract.

    Every component sees every step; one without an observation coasts. The joint log-likelihood is
    the sum over the components. An observation that one component refuses changes none of them.

    Parameters
    ----------
    components : Mapping[str, Tracker or dict[str, Any]]
        Fresh trackers by name.

    Examples
    --------
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
            if tracker.now is not None:
                raise ValueError(f"component {name!r} has started; give fresh trackers, one clock")
            self.components[name] = tracker

    def update(  # type: ignore[override]
        self, observation: Mapping[str, Any] | None, *, dt: float | Numbers = 1.0
    ) -> ProductEstimate:
        """Take in one step: observations by name; a component without one coasts.

        dt: time since the step before, for all components.
        """
        table = self._table(observation, "observation")
        return ProductEstimate(self._each(lambda name, part: part.update(table.get(name), dt=dt)))

    def forecast(self, steps: float = 1.0) -> ProductEstimate:  # type: ignore[override]
        """The estimate ``steps`` units of time ahead, as for every tracker; changes nothing."""
        return ProductEstimate({n: part.forecast(steps) for n, part in self.components.items()})

    def filter(  # type: ignore[override]
        self, sequence: Mapping[str, Any], *, times: Any = None, mask: Any = None
    ) -> ProductResult:
        """Run over whole sequences, one per component, all of the same length.

        times: ``(T,)`` for all components. mask: ``(T, ...)`` for all, or a dict by component.
        """
        return self._over("filter", sequence, mask, times=times)

    def _over(
        self, method: str, sequence: Any, mask: Any, own: Any = None, **options: Any
    ) -> ProductResult:
        """A method of every component over its sequence; one without a sequence sees gaps.

        own: further options by component.
        """
        own = own or {}
        found = self._table(sequence, "sequence")
        table = {name: steps for name, steps in found.items() if steps is not None}
        lengths = {name: len(steps) for name, steps in table.items()}
        if len(set(lengths.values())) != 1:
            raise ObservationError(f"one clock needs sequences of one length, got {lengths}")
        gaps = [None] * next(iter(lengths.values()))
        masks = mask if isinstance(mask, Mapping) else dict.fromkeys(self.components, mask)
        return ProductResult(
            self._each(
                lambda name, part: getattr(part, method)(
                    table.get(name, gaps), mask=masks.get(name), **options, **own.get(name, {})
                )
            )
        )

    def _each(self, call: Callable[[str, Tracker], Any]) -> dict[str, Any]:
        """What all components answer, or an error that names the one that refused."""
        found = {}
        with self.transaction():
            for name, part in self.components.items():
                try:
                    found[name] = call(name, part)
                except ValueError as error:
                    raise type(error)(f"component {name!r}: {error}") from error
            shapes = {name: part.batch_shape for name, part in self.components.items()}
            if len(set(shapes.values())) > 1:
                raise ObservationError(
                    f"the components' batch shapes disagree: {shapes}; a batch begins with an "
                    "observation for every component"
                )
            self.batch_shape = next(iter(shapes.values()))
        return found

    def _table(self, value: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise ObservationError(
                f"{name} must be a dict by component, e.g. "
                f"{{{next(iter(self.components))!r}: ...}}, got {type(value).__name__}"
            )
        strangers = [key for key in value if key not in self.components]
        if strangers:
            raise ObservationError(
                f"{name} names {strangers[0]!r}; the components are {', '.join(self.components)}"
            )
        return dict(value)
