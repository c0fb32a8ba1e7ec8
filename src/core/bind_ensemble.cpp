// The ensemble as Python sees it.
#include "adjoint_parts.hpp"
#include "bind.hpp"
#include "row.hpp"

namespace kgmrf {

using E = Engine<EnsemblePlan>;

/// n tracks of T steps each, as Python gives them; see adjoint_parts.hpp.
static EnsembleUnrolled sequences(E& self, const Out<double, 3>& rows, const In<double, 4>& values,
                                  const In<double, 2>& counts, const In<double, 2>& dt,
                                  bool matrix) {
    const EnsemblePlan& plan = self.plan();
    const std::size_t n = counts.shape(0), T = counts.shape(1), d = plan.d;
    const bool keep = rows.shape(1) == T + 1;
    require(rows.shape(0) == n && (keep || rows.shape(1) == 1) &&
                rows.shape(2) == std::size_t(plan.size),
            "rows must be (n, T + 1, size) or (n, 1, size)");
    require(values.shape(0) == n && values.shape(1) == T && values.shape(3) == d,
            "values must be (n, T, samples, d)");
    require(!matrix || values.shape(2) == d, "matrices must be square");
    require(dt.shape(0) == n && dt.shape(1) == T, "dt must be (n, T)");
    return {plan,          std::int64_t(n), std::int64_t(T), std::int64_t(values.shape(2)),
            matrix,        keep,            rows.data(),     values.data(),
            counts.data(), dt.data(),       {},              {},
            nullptr,       nullptr,         nullptr,         nullptr,
            0};
}

/// The numbers of an array (n, T, width) or (n, T); nullptr where there are none.
template <class T, int N>
static T* numbers_of(const Array<T, N>& array, const EnsembleUnrolled& given, std::size_t width = 1) {
    if (array.shape(0) == 0) return nullptr;
    require(array.shape(0) == std::size_t(given.n) && array.shape(1) == std::size_t(given.n_frames),
            "what the layer gives must be (n, T, ...)");
    if constexpr (N == 3) require(array.shape(2) == width, "what the layer gives has another width");
    return array.data();
}

template <class Number, class Three, class Two>
static LayerSteps<Number> steps_of(const EnsembleUnrolled& given, const Three& forecast,
                                   const Three& scale, const Three& tails, const Two& size_std,
                                   const Two& log_prob, const Three& covariance,
                                   const Three& weights) {
    const std::size_t pairs = given.plan.pairs;
    return {numbers_of(forecast, given, pairs),   numbers_of(scale, given, pairs),
            numbers_of(tails, given, N_TAILS),    numbers_of(size_std, given),
            numbers_of(log_prob, given),          numbers_of(covariance, given, pairs),
            numbers_of(weights, given, given.plan.members.size())};
}

/// All steps: the rows, and what the layer gives.
static void forwards(E& self, Out<double, 3> rows, In<double, 4> values, In<double, 2> counts,
                     In<double, 2> dt, bool matrix, Out<double, 3> forecast, Out<double, 3> scale,
                     Out<double, 3> tails, Out<double, 2> size_std, Out<double, 2> log_prob,
                     Out<double, 3> covariance, Out<double, 3> weights, Out<double, 3> youth) {
    EnsembleUnrolled given = sequences(self, rows, values, counts, dt, matrix);
    given.out = steps_of<double>(given, forecast, scale, tails, size_std, log_prob, covariance, weights);
    given.out.youth = numbers_of(youth, given, 2);
    require(given.n == 0 || (given.out.forecast && given.out.scale && given.out.tails &&
                             given.out.size_std && given.out.log_prob && given.out.covariance &&
                             given.out.weights && given.out.youth),
            "nothing may be left out");
    nb::gil_scoped_release unlocked;
    choose().layers.unroll(given, false);
}

/// Back through them, from derivatives by what the layer gave; those without numbers are none.
static void backwards(E& self, Out<double, 3> rows, In<double, 4> values, In<double, 2> counts,
                      In<double, 2> dt, bool matrix, In<double, 3> forecast_bar,
                      In<double, 3> scale_bar, In<double, 3> tails_bar, In<double, 2> size_bar,
                      In<double, 2> log_prob_bar, In<double, 3> covariance_bar,
                      In<double, 3> weights_bar, Out<double, 4> values_bar, Out<double, 2> start_bar,
                      Out<double, 2> table_bar, Out<double, 1> learning_bar, std::int64_t reach) {
    EnsembleUnrolled given = sequences(self, rows, values, counts, dt, matrix);
    const EnsemblePlan& plan = given.plan;
    require(given.keep, "the way back needs all rows");
    given.bar = steps_of<const double>(given, forecast_bar, scale_bar, tails_bar, size_bar,
                                       log_prob_bar, covariance_bar, weights_bar);
    bool alike = true;
    for (int k = 0; k < 4; ++k) alike = alike && values_bar.shape(k) == values.shape(k);
    require(alike, "values_bar must be as the values");
    require(start_bar.shape(0) == counts.shape(0) && start_bar.shape(1) == std::size_t(plan.size),
            "start_bar must be (n, size)");
    require(table_bar.shape(0) == plan.members.size() &&
                table_bar.shape(1) == sizeof(MemberLine) / sizeof(double),
            "table_bar must be as the table");
    require(learning_bar.shape(0) == sizeof(Learning) / sizeof(double),
            "learning_bar must be the numbers of a Learning");
    given.values_bar = values_bar.data(), given.start_bar = start_bar.data();
    given.table_bar = table_bar.data(), given.learning_bar = learning_bar.data();
    given.reach = reach;
    nb::gil_scoped_release unlocked;
    choose().layers.unroll(given, true);
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
    engine.def("forwards", &forwards, nb::arg("rows").noconvert(), nb::arg("values").noconvert(),
               nb::arg("counts").noconvert(), nb::arg("dt").noconvert(), nb::arg("matrix"),
               nb::arg("forecast").noconvert(), nb::arg("scale").noconvert(),
               nb::arg("tails").noconvert(), nb::arg("size_std").noconvert(),
               nb::arg("log_prob").noconvert(), nb::arg("covariance").noconvert(),
               nb::arg("weights").noconvert(), nb::arg("youth").noconvert());
    engine.def("backwards", &backwards, nb::arg("rows").noconvert(), nb::arg("values").noconvert(),
               nb::arg("counts").noconvert(), nb::arg("dt").noconvert(), nb::arg("matrix"),
               nb::arg("forecast_bar").noconvert(), nb::arg("scale_bar").noconvert(),
               nb::arg("tails_bar").noconvert(), nb::arg("size_bar").noconvert(),
               nb::arg("log_prob_bar").noconvert(), nb::arg("covariance_bar").noconvert(),
               nb::arg("weights_bar").noconvert(), nb::arg("values_bar").noconvert(),
               nb::arg("start_bar").noconvert(), nb::arg("table_bar").noconvert(),
               nb::arg("learning_bar").noconvert(), nb::arg("reach"));
}

}  // namespace kgmrf
