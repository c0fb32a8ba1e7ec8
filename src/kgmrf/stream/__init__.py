"""Live streams: JSON or CSV lines in, estimates out, many keyed tracks, safe against kill -9."""

from kgmrf import _deprecated
from kgmrf.stream.loop import Output, Stream
from kgmrf.stream.report import Report
from kgmrf.stream.run import run
from kgmrf.stream.settings import Counts, Fault, Settings, StreamError

__all__ = ["Counts", "Fault", "Output", "Report", "Settings", "Stream", "StreamError", "run"]

__getattr__ = _deprecated.names(__name__, {"Moved": ("kgmrf.stream", "Output")})
Stream.faults = _deprecated.attribute("errors")  # type: ignore[attr-defined]
