// What the backward pass of the ensemble is given, and places of its derivatives.
#pragma once
#include "row.hpp"
#include <cstdint>

namespace kgmrf {

/// n tracks of n_frames steps each, track by track, and derivatives of a loss; ``bar`` means by what
/// it is named. Matrices that are handed out are packed: lower triangles, row by row.
struct EnsembleUnrolled {
    const EnsemblePlan& plan;
    std::int64_t n, n_frames, samples;
    bool matrix;
    double* rows;                    // (n, T + 1, size): before each step, and after the last
    const double *values;            // (n, T, samples, d), or with ``matrix`` (n, T, d, d)
    const double *counts, *dt;       // (n, T); counts 0: no observation
    double *forecasts, *records;     // (n, T, width): records before and after each observation
    std::int64_t width;
    // By the forecast before each observation: its covariance and scale, tails and size_std; by the
    // log density of the observation; by covariance and roots after it.
    const double *covariance_bar, *scale_bar, *tails_bar, *size_bar;
    const double* likelihood_bar;
    const double *estimate_bar, *roots_bar;
    // Found: by observations (as values), rows of the start (n, size), and, added up over tracks,
    // the table of members and how they learn.
    double *values_bar, *start_bar, *table_bar, *learning_bar;
    // Derivatives pass from a step to the one before but for every reach-th; 0: always.
    std::int64_t reach;
};

}  // namespace kgmrf
