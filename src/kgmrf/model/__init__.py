"""What is assumed and how one law steps: gains, state, drift and step; Wishart; densities.

`gains`, `law_state`, `law_motion` and `step` are one gain law; `wishart` its noise. `density`,
`tail`, `contribution`, `factors` and `stationary` are distributions; `centring` and
`integrated_time` are about rows of samples.
"""
