// Sequences of the ensemble with their way back, compiled once for each level of processor, as
// loops.cpp.
#include "ensemble_adjoint.hpp"

namespace {

template <int S>
void both(const kgmrf::EnsembleUnrolled& given, bool back) {
    EnsembleAdjoint<S> sequences(given);
    if (back)
        sequences.backwards();
    else
        sequences.forwards();
}

void unroll(const kgmrf::EnsembleUnrolled& given, bool back) {
    if (given.plan.d <= 8) return both<8>(given, back);
    if (given.plan.d <= 16) return both<16>(given, back);
    both<0>(given, back);
}

}  // namespace

namespace kgmrf {

extern const LayerLoops LAYER_LEVEL;
const LayerLoops LAYER_LEVEL = {unroll};

}  // namespace kgmrf
