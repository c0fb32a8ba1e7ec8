"""Arrays whose numbers do not begin on a multiple of eight bytes, as buffers of processes do."""

import pickle

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from kgmrf import KGMRF, RotationTracker, TrackerBank


def unaligned(array):
    """The same numbers, one byte further on."""
    array = np.ascontiguousarray(array)
    out = np.frombuffer(bytearray(b"x" + array.tobytes()), dtype=array.dtype, offset=1)
    assert not out.flags.aligned
    return out.reshape(array.shape)


@pytest.mark.parametrize("d", [3, 70])
def test_samples(d):
    x = np.random.default_rng(0).normal(size=(40, d))
    np.testing.assert_array_equal(
        KGMRF().filter(unaligned(x)).covariance, KGMRF().filter(x).covariance
    )


def _covariances(n):
    x = np.random.default_rng(0).normal(size=(n, 3, 9))
    return x @ np.swapaxes(x, 1, 2) / 9


def _rotations(n):
    return Rotation.random(n, rng=np.random.default_rng(1)).as_matrix()


@pytest.mark.parametrize(
    ("tracker", "field", "draw", "words"),
    [
        (KGMRF, "covariance", _covariances, {"n_samples": 9}),
        (RotationTracker, "rotation", _rotations, {}),
    ],
)
def test_matrices_and_rotations(tracker, field, draw, words):
    seen = draw(20)
    found = tracker().filter(unaligned(seen), **words)
    np.testing.assert_array_equal(
        getattr(found, field), getattr(tracker().filter(seen, **words), field)
    )


@pytest.mark.parametrize(
    ("field", "draw", "words"),
    [
        ("covariance", _covariances, {"n_samples": 6}),
        ("rotation", _rotations, {"kind": "rotation"}),
    ],
)
def test_banks(field, draw, words):
    seen = draw(20)
    banks = [TrackerBank(20, 3, **words) for _ in range(2)]
    for bank, array in zip(banks, (unaligned(seen), seen), strict=True):
        for _ in range(3):
            bank.update(array)
    found, expected = (getattr(bank.estimate(), field) for bank in banks)
    np.testing.assert_array_equal(found, expected)


def _elsewhere(thing):
    """The same thing from buffers that begin one byte off, as dask hands them to its workers."""
    kept = []
    text = pickle.dumps(thing, protocol=5, buffer_callback=kept.append)
    return pickle.loads(text, buffers=[_shifted(bytes(part.raw())) for part in kept])


def _shifted(content):
    return memoryview(bytearray(b"x" + content))[1:]


def test_trackers_go_on_in_another_process():
    x = np.random.default_rng(0).normal(size=(4, 1, 3))
    tracker, bank = KGMRF(), TrackerBank(4, 3)
    tracker.partial_fit(x[0])
    bank.update(x[:, 0])
    there, there_bank = _elsewhere(tracker), _elsewhere(bank)
    expected, found = (t.partial_fit(x[1]).covariance for t in (tracker, there))
    np.testing.assert_array_equal(found, expected)
    for each in (bank, there_bank):
        each.update(x[:, 0])
    np.testing.assert_array_equal(there_bank.estimate().covariance, bank.estimate().covariance)
