// What the backward pass of the ensemble is given, and places of its derivatives.
#pragma once
#include "row.hpp"
#include <cstdint>

namespace kgmrf {

/// What the layer gives for every step, (n, T, ...): of the forecast before the observation, of its
/// log density, of the estimate after it. Matrices are lower triangles, row by row.
template <class Number>
struct LayerSteps {
    Number *forecast, *scale, *tails, *size_std;  // covariance, and the scale of the density
    Number* log_prob;
    Number *covariance, *weights;
    Number* youth = nullptr;  // delta and c of the forecast (youth.hpp); has no derivatives
};

/// n tracks of n_frames steps each, track by track, and derivatives of a loss; ``bar`` means by what
/// it is named.
struct EnsembleUnrolled {
    const EnsemblePlan& plan;
    std::int64_t n, n_frames, samples;
    bool matrix;
    // (n, T + 1, size): before each step, and after the last; without ``keep`` (n, 1, size).
    bool keep;
    double* rows;
    const double* values;       // (n, T, samples, d), or with ``matrix`` (n, T, d, d)
    const double *counts, *dt;  // (n, T); counts 0: no observation
    LayerSteps<double> out;
    LayerSteps<const double> bar;  // nullptr: none
    // Found: by observations (as values), rows of the start (n, size), and, added up over tracks,
    // the table of members and how they learn.
    double *values_bar, *start_bar, *table_bar, *learning_bar;
    // Derivatives pass from a step to the one before but for every reach-th; 0: always.
    std::int64_t reach;
};

}  // namespace kgmrf
