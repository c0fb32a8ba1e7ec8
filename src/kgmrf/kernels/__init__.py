"""The last loops on Numba: those of vision in single precision, until they are in the core."""
