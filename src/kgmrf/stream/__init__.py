"""Live streams: JSON or CSV lines in, estimates out, many keyed tracks, safe against kill -9."""

from kgmrf.stream.loop import Counts, Settings, Stream, StreamError, run

__all__ = ["Counts", "Settings", "Stream", "StreamError", "run"]
