// The ensemble as Python sees it.
#include "adjoint_parts.hpp"
#include "bind.hpp"
#include "row.hpp"

namespace kgmrf {

using E = Engine<EnsemblePlan>;

/// ``unroll`` of n tracks of T steps: rows and records, or back: derivatives; see adjoint_parts.hpp.
/// Derivatives that are not given have no numbers.
static void unroll(E& self, bool back, Out<double, 3> rows, In<double, 4> values,
                   In<double, 2> counts, In<double, 2> dt, bool matrix, Out<double, 3> forecasts,
                   Out<double, 3> records, In<double, 3> covariance_bar, In<double, 3> scale_bar,
                   In<double, 3> tails_bar, In<double, 2> size_bar, In<double, 2> likelihood_bar,
                   In<double, 3> estimate_bar, In<double, 3> roots_bar, Out<double, 4> values_bar,
                   Out<double, 2> start_bar, Out<double, 2> table_bar, Out<double, 1> learning_bar,
                   std::int64_t reach) {
    const EnsemblePlan& plan = self.plan();
    const std::size_t n = counts.shape(0), T = counts.shape(1), d = plan.d, k = plan.members.size();
    const auto size = std::size_t(plan.size), samples = values.shape(2);
    require(rows.shape(0) == n && rows.shape(1) == T + 1 && rows.shape(2) == size,
            "rows must be (n, T + 1, size)");
    require(values.shape(0) == n && values.shape(1) == T && values.shape(3) == d,
            "values must be (n, T, samples, d)");
    require(!matrix || samples == d, "matrices must be square");
    require(dt.shape(0) == n && dt.shape(1) == T, "dt must be (n, T)");
    const auto fits = [&](const auto& array, std::size_t width) {
        return array.shape(0) == 0 ||
               (array.shape(0) == n && array.shape(1) == T && array.shape(2) == width);
    };
    const auto flat = [&](const auto& array) {
        return array.shape(0) == 0 || (array.shape(0) == n && array.shape(1) == T);
    };
    const std::size_t width = forecasts.shape(2), pairs = plan.pairs;
    if (back) {
        require(fits(covariance_bar, pairs) && fits(scale_bar, pairs) &&
                    fits(tails_bar, N_TAILS) && flat(size_bar) && flat(likelihood_bar) &&
                    fits(estimate_bar, pairs) && fits(roots_bar, k),
                "derivatives must be (n, T, ...), or empty");
        require(values_bar.shape(0) == n && values_bar.shape(1) == T &&
                    values_bar.shape(2) == samples && values_bar.shape(3) == d,
                "values_bar must be as the values");
        require(start_bar.shape(0) == n && start_bar.shape(1) == size, "start_bar must be (n, size)");
        require(table_bar.shape(0) == k && table_bar.shape(1) == sizeof(MemberLine) / sizeof(double),
                "table_bar must be as the table");
        require(learning_bar.shape(0) == sizeof(Learning) / sizeof(double),
                "learning_bar must be the numbers of a Learning");
    } else {
        require(forecasts.shape(0) == n && forecasts.shape(1) == T && records.shape(0) == n &&
                    records.shape(1) == T && records.shape(2) == width,
                "records must be (n, T, width)");
    }
    const auto given_or_null = [](const auto& array) {
        return array.shape(0) == 0 ? nullptr : array.data();
    };
    const EnsembleUnrolled given{plan,
                                 std::int64_t(n),
                                 std::int64_t(T),
                                 std::int64_t(samples),
                                 matrix,
                                 rows.data(),
                                 values.data(),
                                 counts.data(),
                                 dt.data(),
                                 forecasts.data(),
                                 records.data(),
                                 std::int64_t(width),
                                 given_or_null(covariance_bar),
                                 given_or_null(scale_bar),
                                 given_or_null(tails_bar),
                                 given_or_null(size_bar),
                                 given_or_null(likelihood_bar),
                                 given_or_null(estimate_bar),
                                 given_or_null(roots_bar),
                                 values_bar.data(),
                                 start_bar.data(),
                                 table_bar.data(),
                                 learning_bar.data(),
                                 reach};
    nb::gil_scoped_release unlocked;
    choose().layers.unroll(given, back);
}

void bind_ensemble(nb::module_& m) {
    auto engine = nb::class_<E>(m, "Ensemble");
    engine.def(
        "__init__",
        [](E* self, int d, In<double, 2> table, const Places& places, In<double, 1> learning) {
            require(d >= 1, "d must be positive");
            require(table.shape(1) == sizeof(MemberLine) / sizeof(double),
                    "table must have one column for each number of a MemberLine");
            require(learning.shape(0) == sizeof(Learning) / sizeof(double),
                    "learning must be the numbers of a Learning");
            new (self) E(EnsemblePlan(d, table.data(), static_cast<int>(table.shape(0)), places,
                                      *reinterpret_cast<const Learning*>(learning.data())),
                         choose().loops.ensemble);
        },
        nb::arg("d"), nb::arg("table").noconvert(), nb::arg("places"),
        nb::arg("learning").noconvert());
    define_run(engine);
    engine.def("unroll", &unroll, nb::arg("back"), nb::arg("rows").noconvert(),
               nb::arg("values").noconvert(), nb::arg("counts").noconvert(),
               nb::arg("dt").noconvert(), nb::arg("matrix"), nb::arg("forecasts").noconvert(),
               nb::arg("records").noconvert(), nb::arg("covariance_bar").noconvert(),
               nb::arg("scale_bar").noconvert(), nb::arg("tails_bar").noconvert(),
               nb::arg("size_bar").noconvert(), nb::arg("likelihood_bar").noconvert(),
               nb::arg("estimate_bar").noconvert(), nb::arg("roots_bar").noconvert(),
               nb::arg("values_bar").noconvert(), nb::arg("start_bar").noconvert(),
               nb::arg("table_bar").noconvert(), nb::arg("learning_bar").noconvert(),
               nb::arg("reach"));
}

}  // namespace kgmrf
