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

from kgmrf.theory import mechanics
from kgmrf.theory.energy import (
    InertiaRange,
    energy_contraction,
    energy_inertia,
    lyapunov_contraction,
    lyapunov_energy,
    lyapunov_matrix,
)
from kgmrf.theory.lag import first_order_lag, lock_limit, printed_lag, steady_lag
from kgmrf.theory.minimax import (
    FixedGainMinimax,
    fixed_gain_minimax,
    minimax_lower_bound,
    two_point_bound,
)
from kgmrf.theory.noise import (
    SteadyGains,
    steady_information_gains,
    steady_noise_covariance,
    steady_noise_variance,
)
from kgmrf.theory.risk import RiskTerms, risk_bound
from kgmrf.theory.stability import (
    convergence_rate,
    error_map,
    printed_domain,
    stability_radius,
    stable,
    time_constant,
    turning_map,
)
from kgmrf.theory.torque import torque_lipschitz, torque_variance, wishart_second_moment

__all__ = [
    "FixedGainMinimax",
    "InertiaRange",
    "RiskTerms",
    "SteadyGains",
    "convergence_rate",
    "energy_contraction",
    "energy_inertia",
    "error_map",
    "first_order_lag",
    "fixed_gain_minimax",
    "lock_limit",
    "lyapunov_contraction",
    "lyapunov_energy",
    "lyapunov_matrix",
    "mechanics",
    "minimax_lower_bound",
    "printed_domain",
    "printed_lag",
    "risk_bound",
    "stability_radius",
    "stable",
    "steady_information_gains",
    "steady_lag",
    "steady_noise_covariance",
    "steady_noise_variance",
    "time_constant",
    "torque_lipschitz",
    "torque_variance",
    "turning_map",
    "two_point_bound",
    "wishart_second_moment",
]
