// What all parts of the way back through the ensemble work with: the forward pass, derivatives found
// so far, and space.
#pragma once
#include "adjoint_parts.hpp"
#include "compare_adjoint.hpp"
#include "turn_adjoint.hpp"

namespace {

using namespace kgmrf;

template <int S>
struct AdjointRoom {
    explicit AdjointRoom(const EnsembleUnrolled& given)
        : given(given), plan(given.plan), f(given.plan), d(plan.d), n(plan.pairs), k_(f.k_) {}

    const EnsembleUnrolled& given;
    const EnsemblePlan& plan;
    Ensemble<S> f;  // forwards
    const int d, n, k_;
    const int room = padded(n) + 8;
    CompareAdjoint<S> compared{d};
    TurnBack<S> turning{d};

    // Derivatives by S_k and S of this step, by what an observation was for the members, and by the
    // weights.
    Room parts_bar{std::size_t(k_) * room}, mean_bar{room + 0u}, rest_bar{room + 0u};
    Room weights_bar{k_ + 0u};
    const std::size_t square = std::size_t(padded(d)) * padded(d);
    const std::size_t vector = std::size_t(padded(d)) + 8;
    Room x_bar{vector};  // by a single sample, beside what goes through mean_bar
    Room total_room{square};
    Matrix<S> total_bar{total_room, d};

    // Space.
    Room packed{room + 0u}, y{vector}, y_bar{vector};
    Room full[4] = {Room(square), Room(square), Room(square), Room(square)};
    Matrix<S> a{full[0], d}, b{full[1], d}, c{full[2], d}, e{full[3], d};

    double* part_bar(int k) const { return parts_bar + std::size_t(k) * room; }
    MemberLine& table_bar(int k) const {
        return reinterpret_cast<MemberLine*>(given.table_bar)[k];
    }
    Learning& learning_bar() const { return *reinterpret_cast<Learning*>(given.learning_bar); }
};

/// What one observation says to all members, and derivatives by u and by the limited weight.
struct Learnt {
    double u, limited, n_there;
    bool early, single;
    double u_bar, limited_bar;
};

}  // namespace
