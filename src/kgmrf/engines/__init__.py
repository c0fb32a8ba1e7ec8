"""Engines: the mathematics of one way to follow something, as functions over arrays of tracks.

An engine has three verbs. The state of a track is one row of float64 numbers; everything that is
remembered of the track is in its row, so a tracker is one row, a bank is n rows, and a stream is
rows by key. All of them give the same numbers.

    rows = engine.init(n)                   (n, size), tracks that have seen nothing
    engine.advance(rows, which, ...)        lines of observations, in order; rows change in place
    engine.ahead(rows, dt)                  records of the forecast; rows stay

Above an engine, trackers and banks only check, remember and show.
"""
