// What the backward pass of a single law is given; every array is C-contiguous, of doubles.
#pragma once
#include "declared.hpp"
#include <cstdint>

namespace kgmrf {

/// A sequence of T steps of n items, and derivatives of a loss; ``bar`` means by what it is named.
struct Unrolled {
    std::int64_t n_frames, n, d;
    const LawSettings& law;
    const std::uint8_t *moving, *observed;                     // (T, n)
    const double *frames, *velocities, *spreads, *vectors;     // states (T + 1, n, ...)
    const double *sequence, *counts;                           // (T, n, d, d), (T, n)
    const double* steps;                                       // LawStep (1 or T, 1 or n)
    std::int64_t step_frames, step_items;
    const double* tables;                                      // (1 or n, 2, d, d)
    std::int64_t n_tables;
    // By the states, used up but for their entries 0, and (T, n, 2) by nis and log_likelihood.
    double *frame_bars, *velocity_bars, *spread_bars, *vector_bars;
    const double* surprise_bars;
    // Found: derivatives by the inputs are added to these.
    double *sequence_bar, *counts_bar, *steps_bar, *tables_bar;
    LawSettings& law_bar;
};

}  // namespace kgmrf
