// The engine for many channels as Python sees it.
#include "bind.hpp"
#include "low_rank_row.hpp"

namespace kgmrf {

void bind_low_rank(nb::module_& m) {
    using E = Engine<LowRankPlan>;
    auto engine = nb::class_<E>(m, "LowRank");
    engine.def(
        "__init__",
        [](E* self, int d, In<double, 2> table, const Places& places) {
            require(d >= 1, "d must be positive");
            require(table.shape(0) >= 1 && table.shape(1) == sizeof(FactorsLine) / sizeof(double),
                    "table must have one column for each number of a FactorsLine");
            new (self) E(LowRankPlan(d, table.data(), static_cast<int>(table.shape(0)), places),
                         choose().loops.low_rank);
        },
        nb::arg("d"), nb::arg("table").noconvert(), nb::arg("places"));
    define_run(engine);
}

}  // namespace kgmrf
