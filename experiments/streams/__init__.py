"""Real streams: the default tracker against tuned rivals, on data that nobody simulated.

    python -m experiments run streams

``data`` prepares the streams, ``rivals`` and ``dcc`` forecast, ``scores`` judges, ``study`` puts
them together, ``shown`` writes the tables.
"""
