"""One thread at a time: a lock per object that copies and pickles do not share."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Guard:
    """A lock that a thread may take again; a copy of it is a new one.

    >>> import copy
    >>> guard = Guard()
    >>> with guard:
    ...     copy.deepcopy(guard) is guard
    False
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Guard:
        return Guard()

    def __reduce__(self) -> tuple[type[Guard], tuple[()]]:
        return Guard, ()


def one_at_a_time(*names: str) -> Callable[[type[T]], type[T]]:
    """Class decorator: calls of these methods on one object wait for one another.

    No update is lost when several threads share an object, and no method sees it half changed. The
    order in which threads come is theirs.

    >>> @one_at_a_time("add")
    ... class Sum:
    ...     total = 0
    ...
    ...     def add(self, n):
    ...         self.total += n
    >>> some = Sum()
    >>> some.add(3)
    >>> some.total
    3
    """

    def decorated(kind: type[T]) -> type[T]:
        for name in names:
            setattr(kind, name, _guarded(getattr(kind, name)))
        return kind

    return decorated


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        guard = self.__dict__.get("_guard")
        if guard is None:
            # Of two threads that come here at once, both use the guard that was first.
            guard = self.__dict__.setdefault("_guard", Guard())
        with guard:
            return method(self, *arguments, **options)

    return call
