// The ensemble as Python sees it.
#include "bind.hpp"
#include "row.hpp"

namespace kgmrf {

void bind_ensemble(nb::module_& m) {
    using E = Engine<EnsemblePlan>;
    auto engine = nb::class_<E>(m, "Ensemble");
    engine.def(
        "__init__",
        [](E* self, int d, In<double, 2> table, const Places& places) {
            require(d >= 1, "d must be positive");
            require(table.shape(1) == sizeof(MemberLine) / sizeof(double),
                    "table must have one column for each number of a MemberLine");
            new (self) E(EnsemblePlan(d, table.data(), static_cast<int>(table.shape(0)), places),
                         choose().loops.ensemble);
        },
        nb::arg("d"), nb::arg("table").noconvert(), nb::arg("places"));
    define_run(engine);
}

}  // namespace kgmrf
