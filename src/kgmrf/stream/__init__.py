"""Live streams: JSON or CSV lines in, estimates out, many keyed tracks, safe against kill -9."""

from kgmrf.stream.loop import Counts, Moved, Settings, Stream, StreamError, run

__all__ = ["Counts", "Moved", "Settings", "Stream", "StreamError", "run"]
