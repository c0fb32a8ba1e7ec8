"""What the tracking step will do, predicted from its gains alone; what the paper promises.

Near the truth every plane of the step is one scalar recursion. With the angle error
e = (true angle) - (estimated angle) after the correction, and the velocity error u = omega - W,

    drift     x  = e + u                          the innovation, without noise
    correct   e' = (1 - A) x - A n                A = position_gain, n = observation noise
    kick      u' = rho u - B x - B n + (1 - rho) omega + (change of omega)

B = velocity_gain, rho = retention. So z = (e, u) obeys z' = F z - (A, B) n + (0, forcing) with

    F = [[1 - A, 1 - A], [-B, rho - B]],   trace 1 - A + rho - B,   determinant rho (1 - A).

All functions take numbers or arrays and broadcast over them. Angles are radians, time is in frames.
`mechanics` holds the rigid body behind the paper: its energy and its symplectic integrators.
"""

from kgmrf.theory import energy, mechanics, risk, stability, torque
from kgmrf.theory.energy import *  # noqa: F403
from kgmrf.theory.risk import *  # noqa: F403
from kgmrf.theory.stability import *  # noqa: F403
from kgmrf.theory.torque import *  # noqa: F403

__all__ = ["mechanics"]
__all__ += energy.__all__ + risk.__all__ + stability.__all__ + torque.__all__
