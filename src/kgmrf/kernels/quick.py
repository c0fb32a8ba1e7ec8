"""How Numba is made to compile our loops in a third of its usual time.

This reaches into Numba where it promises nothing, so :mod:`kgmrf.kernels.compile` uses it only with
the releases it was tested with; others compile the same loops in the ordinary way, more slowly.
"""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from numba.core import typed_passes, types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager

if TYPE_CHECKING:
    from collections.abc import Iterator

_compiling = threading.RLock()


class Part(JITCodeLibrary):
    """Code of a helper as it was written, to be linked into a loop and optimised there, once.

    Numba itself would optimise each helper, make machine code of it that nobody calls, and do both
    again with every function above it.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        """Take in nothing more."""
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """No address: there is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """What makes the code, without environments: they need an address too."""
        return _NoEnvironment(self._codegen)


class _NoEnvironment:
    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        """Keep none."""


class Whole(JITCodeLibrary):
    """Code of a loop and of all its parts."""

    def add_linking_library(self, library: Any) -> None:
        """Link in a library and its parts, behind all that call them: what nothing calls when its
        turn comes is left out."""
        if library in self._linking_libraries:
            self._linking_libraries.remove(library)
        super().add_linking_library(library)  # type: ignore[no-untyped-call]
        if isinstance(library, Part):
            for part in library._linking_libraries:
                self.add_linking_library(part)


class Loop(Compiler):
    """Compiles a loop that Python calls."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)  # type: ignore[no-untyped-call]
        library: Any = Whole
        self.state.library = library(self.state.targetctx.codegen(), "loop")
        self.state.library.enable_object_caching()


class Helper(Compiler):
    """Compiles a helper into a `Part`, with the passes that plain loops over numbers need."""

    PASSES = (
        untyped_passes.TranslateByteCode,
        untyped_passes.FixupArgs,
        untyped_passes.IRProcessing,
        untyped_passes.ReconstructSSA,
        typed_passes.NopythonTypeInference,
        typed_passes.PreLowerStripPhis,
        typed_passes.IRLegalization,
        typed_passes.NativeLowering,
        typed_passes.NoPythonBackend,
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)  # type: ignore[no-untyped-call]
        library: Any = Part
        self.state.library = library(self.state.targetctx.codegen(), "helper")

    def define_pipelines(self) -> list[Any]:
        """One list of passes."""
        passes = PassManager("helper")
        for step in self.PASSES:
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


@contextmanager
def quickly() -> Iterator[None]:
    """Resolve calls of the same types once; leave the garbage where it is until the end.

    Numba tries every template of an operator again at each place of use, and again when it makes
    code; the collector would walk through all that Numba keeps again and again.
    """
    known: dict[Any, Any] = {}
    kinds: Any = (types.BaseFunction, types.Dispatcher)

    def remembering(original: Any) -> Any:
        def get_call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
            ours = isinstance(self, types.Dispatcher)
            if ours and not self.dispatcher.targetoptions.get("_nrt", True):
                args = tuple(map(types.unliteral, args))  # compiled once, not for each number
            key = (self, tuple(args), tuple(kws.items()) if kws else ())
            found = known.get(key)
            if found is None:
                found = known[key] = original(self, context, args, kws)
            return found

        return get_call_type

    with _compiling:
        originals = [kind.get_call_type for kind in kinds]
        collecting = gc.isenabled()
        gc.disable()
        for kind, original in zip(kinds, originals, strict=True):
            kind.get_call_type = remembering(original)
        try:
            yield
        finally:
            for kind, original in zip(kinds, originals, strict=True):
                kind.get_call_type = original
            if collecting:
                gc.enable()
