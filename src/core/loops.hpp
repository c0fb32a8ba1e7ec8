// What the module knows of the loops: lines go in, rows change. The loops themselves are compiled
// once for each level of processor (loops.cpp), each with one table `Loops` of what it can make.
// No function is defined here: the linker would keep one copy for processors of all levels.
#pragma once
#include "declared.hpp"
#include "vision_planes.hpp"
#include <cstdint>

namespace kgmrf {

enum class Status : std::int8_t { missing = MISSING, observed = OBSERVED, invalid = INVALID };

/// N observations of any tracks, in the order in which they came; see kgmrf.engines.Lines.
struct Lines {
    double* rows;
    std::int64_t n_rows;
    const std::int64_t* track_index;
    const double* values;  // (n, samples, d), or with ``matrix`` (n, d, d)
    std::int64_t n, samples;
    const double *counts, *dt;
    bool matrix;
    double tolerance;
    double* records;  // (n, record_width), or nullptr
    std::int64_t record_width;
    std::int8_t* status;
};

/// The loop of one engine over lines, with the space that it works in: one thread at a time.
struct Loop {
    Loop() = default;
    Loop(const Loop&) = delete;
    virtual ~Loop();
    virtual void run(const Lines& lines) = 0;
};

struct EnsemblePlan;
struct LawPlan;
struct Unrolled;
struct EnsembleUnrolled;
struct LowRankPlan;
struct RotationPlan;

/// What one level of processor can make.
struct Loops {
    Loop* (*ensemble)(const EnsemblePlan&);
    Loop* (*low_rank)(const LowRankPlan&);
    Loop* (*rotations)(const RotationPlan&);
    void (*inspect)(const double* matrices, std::int64_t n, int d, double tolerance,
                    std::int8_t* status);
    // vision
    void (*cell_moments)(Planes features, Cells cells, float* out);
    void (*place_costs)(Planes features, Cells cells, Models models, float* out);
    void (*colour_and_gradient)(Planes planes, const float* offset, const float* gain, float* out);
    void (*decimate_bytes)(ImageOf<std::uint8_t> image, Blocks blocks, std::int64_t height,
                           std::int64_t width, float* out);
    void (*decimate_floats)(ImageOf<float> image, Blocks blocks, std::int64_t height,
                            std::int64_t width, float* out);
    void (*sample_image)(ImageOf<float> image, Grid grid, PlanesOut out);
};

/// The same of single laws, which are compiled apart (law.cpp).
struct LawLoops {
    Loop* (*law)(const LawPlan&);
    void (*pull_back)(const Unrolled&);
};

/// Sequences of the ensemble, forwards, or back through them (ensemble_adjoint.cpp).
struct LayerLoops {
    void (*unroll)(const EnsembleUnrolled&, bool back);
};

extern const Loops loops_base, loops_v3, loops_v4;
extern const LawLoops law_base, law_v3, law_v4;
extern const LayerLoops layer_base, layer_v3, layer_v4;

}  // namespace kgmrf
