"""Scalar SO(3) words for compiled loops: exp, log, right Jacobian.

All write into arrays given by the caller, so that a hot loop allocates nothing.
"""

from __future__ import annotations

import math
from typing import Any

from kgmrf.kernels.compile import jit


@jit
def exp3(x: float, y: float, z: float, out: Any) -> None:
    """out = Exp(hat(x, y, z)), Rodrigues."""
    t2 = x * x + y * y + z * z
    if t2 < 1e-6:
        a = 1.0 - t2 / 6.0 * (1.0 - t2 / 20.0)
        b = 0.5 - t2 / 24.0 * (1.0 - t2 / 30.0)
    else:
        t = math.sqrt(t2)
        a = math.sin(t) / t
        h = math.sin(0.5 * t)
        b = 2.0 * h * h / t2
    out[0, 0] = 1.0 - b * (y * y + z * z)
    out[1, 1] = 1.0 - b * (x * x + z * z)
    out[2, 2] = 1.0 - b * (x * x + y * y)
    out[0, 1] = b * x * y - a * z
    out[1, 0] = b * x * y + a * z
    out[0, 2] = b * x * z + a * y
    out[2, 0] = b * x * z - a * y
    out[1, 2] = b * y * z - a * x
    out[2, 1] = b * y * z + a * x


@jit
def relative_log3(a: Any, b: Any, out: Any) -> float:
    """out = vee(Log(a^T b)), principal; returns its length. Safe at 0 and at pi (quaternion)."""
    r00 = a[0, 0] * b[0, 0] + a[1, 0] * b[1, 0] + a[2, 0] * b[2, 0]
    r11 = a[0, 1] * b[0, 1] + a[1, 1] * b[1, 1] + a[2, 1] * b[2, 1]
    r22 = a[0, 2] * b[0, 2] + a[1, 2] * b[1, 2] + a[2, 2] * b[2, 2]
    r01 = a[0, 0] * b[0, 1] + a[1, 0] * b[1, 1] + a[2, 0] * b[2, 1]
    r10 = a[0, 1] * b[0, 0] + a[1, 1] * b[1, 0] + a[2, 1] * b[2, 0]
    r02 = a[0, 0] * b[0, 2] + a[1, 0] * b[1, 2] + a[2, 0] * b[2, 2]
    r20 = a[0, 2] * b[0, 0] + a[1, 2] * b[1, 0] + a[2, 2] * b[2, 0]
    r12 = a[0, 1] * b[0, 2] + a[1, 1] * b[1, 2] + a[2, 1] * b[2, 2]
    r21 = a[0, 2] * b[0, 1] + a[1, 2] * b[1, 1] + a[2, 2] * b[2, 1]
    trace = r00 + r11 + r22
    # quaternion (up to a common factor) from its largest component, so nothing cancels
    if trace >= r00 and trace >= r11 and trace >= r22:
        w = 1.0 + trace
        x = r21 - r12
        y = r02 - r20
        z = r10 - r01
    elif r00 >= r11 and r00 >= r22:
        w = r21 - r12
        x = 1.0 + 2.0 * r00 - trace
        y = r01 + r10
        z = r02 + r20
    elif r11 >= r22:
        w = r02 - r20
        x = r01 + r10
        y = 1.0 + 2.0 * r11 - trace
        z = r12 + r21
    else:
        w = r10 - r01
        x = r02 + r20
        y = r12 + r21
        z = 1.0 + 2.0 * r22 - trace
    if w < 0.0:
        w, x, y, z = -w, -x, -y, -z
    n = math.sqrt(x * x + y * y + z * z)
    t = 2.0 * math.atan2(n, w)
    f = t / n if n > 1e-150 else 0.0
    out[0] = f * x
    out[1] = f * y
    out[2] = f * z
    return t


@jit
def right_jacobian3(x: float, y: float, z: float, out: Any) -> None:
    """out = Jr(phi): Exp(phi + d) = Exp(phi) Exp(Jr d) to first order in d."""
    t2 = x * x + y * y + z * z
    if t2 < 1e-4:
        b = 0.5 - t2 / 24.0 * (1.0 - t2 / 30.0)
        c = 1.0 / 6.0 - t2 / 120.0 * (1.0 - t2 / 42.0)
    else:
        t = math.sqrt(t2)
        h = math.sin(0.5 * t)
        b = 2.0 * h * h / t2
        c = (t - math.sin(t)) / (t2 * t)
    out[0, 0] = 1.0 - c * (y * y + z * z)
    out[1, 1] = 1.0 - c * (x * x + z * z)
    out[2, 2] = 1.0 - c * (x * x + y * y)
    out[0, 1] = c * x * y + b * z
    out[1, 0] = c * x * y - b * z
    out[0, 2] = c * x * z - b * y
    out[2, 0] = c * x * z + b * y
    out[1, 2] = c * y * z + b * x
    out[2, 1] = c * y * z - b * x


@jit
def turn3(frame: Any, step: Any, scratch: Any) -> None:
    """frame <- frame @ step, in place."""
    for i in range(3):
        for j in range(3):
            scratch[i, j] = (
                frame[i, 0] * step[0, j] + frame[i, 1] * step[1, j] + frame[i, 2] * step[2, j]
            )
    for i in range(3):
        for j in range(3):
            frame[i, j] = scratch[i, j]


@jit
def polish3(frame: Any, gram: Any, scratch: Any) -> None:
    """One Newton-Schulz step towards the nearest rotation: Q <- Q (3 I - Q^T Q) / 2."""
    for i in range(3):
        for j in range(3):
            dot = frame[0, i] * frame[0, j] + frame[1, i] * frame[1, j] + frame[2, i] * frame[2, j]
            gram[i, j] = (1.5 if i == j else 0.0) - 0.5 * dot
    turn3(frame, gram, scratch)
