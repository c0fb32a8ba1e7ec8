// All loops, compiled once for each level of processor; LEVEL is the name of their table. All else
// is in unnamed namespaces: the linker must not mix code for different processors.
#include "ensemble.hpp"
#include "low_rank.hpp"
#include "observe.hpp"
#include "rotations.hpp"
#include "vision.hpp"

namespace {

kgmrf::Loop* make_ensemble(const kgmrf::EnsemblePlan& plan) {
    if (plan.d <= 8) return new Ensemble<8>(plan);
    if (plan.d <= 16) return new Ensemble<16>(plan);
    if (plan.d <= 24) return new Ensemble<24>(plan);
    return new Ensemble<0>(plan);
}

kgmrf::Loop* make_low_rank(const kgmrf::LowRankPlan& plan) { return new LowRank(plan); }
kgmrf::Loop* make_rotations(const kgmrf::RotationPlan& plan) { return new Rotations(plan); }

}  // namespace

namespace kgmrf {

extern const Loops LEVEL;
const Loops LEVEL = {make_ensemble,
                     make_low_rank,
                     make_rotations,
                     inspect_matrices,
                     cell_moments,
                     place_costs,
                     colour_and_gradient,
                     decimate<std::uint8_t>,
                     decimate<float>,
                     sample_image};

}  // namespace kgmrf
