"""One thread at a time: a lock per object that copies and pickles do not share."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

GUARDED = (
    *("update", "partial_fit", "take", "filter", "estimate", "forecast", "copy", "save"),
    *("add", "remove", "select", "memory", "restore", "feed_table"),
)
"""Methods of a tracker or a bank that read or change its state."""


class OneAtATime:
    """Calls of `GUARDED` methods on one object wait for one another.

    No update is lost when several threads share an object, and no method sees it half changed. The
    order in which threads come is theirs.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in GUARDED:
            if name in vars(cls):
                setattr(cls, name, _guarded(vars(cls)[name]))

    def __copy__(self: Any) -> Any:
        return self.copy()  # a shallow one would move when the original does

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_guard"}


_guarded_objects: weakref.WeakSet[Any] = weakref.WeakSet()


def _forget_guards() -> None:
    """A child of a fork has none of its parent's threads: nobody gives their guards back."""
    for one in list(_guarded_objects):
        one.__dict__.pop("_guard", None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_guards)


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        # Every online update comes here: self among the arguments and no with statement halve it.
        try:
            guard = arguments[0]._guard
        except AttributeError:
            # Of two threads that come here at once, both use the guard that was first.
            guard = arguments[0].__dict__.setdefault("_guard", threading.RLock())
            _guarded_objects.add(arguments[0])
        guard.acquire()
        try:
            return method(*arguments, **options)
        finally:
            guard.release()

    return call
