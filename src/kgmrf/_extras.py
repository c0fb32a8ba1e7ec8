"""Optional packages: which extra of kgmrf brings each, and errors that say so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "typer": "cli",
    "rich": "cli",
    "matplotlib": "plots",
    "pandas": "pandas",
    "narwhals": "pandas",
    "pyarrow": "files",
    "h5py": "files",
    "xarray": "xarray",
    "sklearn": "sklearn",
    "skfolio": "skfolio",
    "torch": "torch",
    "cv2": "vision",
    "mne": "mne",
    "av": "av",
    "dask": "dask",
    "zarr": "dask",
}
"""The extra that installs each optional module."""


def remedy(error: ModuleNotFoundError) -> str | None:
    """What to install if a module is missing; None if it is none of the optional ones."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module)
    return None if extra is None else f'this needs {module}: pip install "kgmrf[{extra}]"'


@contextmanager
def optional() -> Iterator[None]:
    """Around imports of optional packages: if one is missing, the error names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        words = remedy(error)
        if words is None:
            raise
        raise ModuleNotFoundError(words, name=error.name) from error
