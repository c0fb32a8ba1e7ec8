// The loops of single laws, compiled once for each level of processor, as loops.cpp; without
// contraction of a b + c, so that one track and several side by side round alike.
#include "adjoint.hpp"
#include "law_loop.hpp"

namespace {

kgmrf::Loop* make(const kgmrf::LawPlan& plan) {
    if (plan.d <= 8) return new Law<8>(plan);
    if (plan.d <= 16) return new Law<16>(plan);
    if (plan.d <= 24) return new Law<24>(plan);
    return new Law<0>(plan);
}

}  // namespace

namespace kgmrf {

extern const LawLoops LAW_LEVEL;
const LawLoops LAW_LEVEL = {make, pull_back};

}  // namespace kgmrf
