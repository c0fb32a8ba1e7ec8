// Single laws as Python sees them.
#include "adjoint_row.hpp"
#include "bind.hpp"
#include "law_row.hpp"

namespace kgmrf {

static std::vector<double> held(const double* numbers, std::size_t n) {
    return {numbers, numbers + n};
}

/// Whether an array has this shape.
template <class T, int N>
static bool is(const Array<T, N>& array, const std::size_t (&shape)[N]) {
    for (int k = 0; k < N; ++k)
        if (array.shape(k) != shape[k]) return false;
    return true;
}

/// The backward pass of a sequence; see adjoint_row.hpp.
static void pull_back(In<std::uint8_t, 2> moving, In<std::uint8_t, 2> observed,
                      In<double, 4> frames, In<double, 4> velocities, In<double, 5> spreads,
                      In<double, 4> vectors, In<double, 4> sequence, In<double, 2> counts,
                      In<double, 3> steps, In<double, 1> settings, In<double, 4> tables,
                      Out<double, 4> frame_bars, Out<double, 4> velocity_bars,
                      Out<double, 4> spread_bars, Out<double, 4> vector_bars,
                      In<double, 3> surprise_bars, Out<double, 4> sequence_bar,
                      Out<double, 2> counts_bar, Out<double, 3> steps_bar,
                      Out<double, 3> tables_bar, Out<double, 1> settings_bar) {
    const std::size_t T = sequence.shape(0), n = sequence.shape(1), d = sequence.shape(2);
    const std::size_t numbers = sizeof(LawSettings) / sizeof(double),
                      interval = sizeof(LawStep) / sizeof(double);
    const std::size_t a = steps.shape(0), b = steps.shape(1), k = tables.shape(0);
    require(T >= 1 && n >= 1 && d >= 1 && sequence.shape(3) == d, "sequence must be (T, n, d, d)");
    require(is(moving, {T, n}) && is(observed, {T, n}), "moving and observed must be (T, n)");
    require(is(frames, {T + 1, n, d, d}) && is(velocities, {T + 1, n, d, d}) &&
                is(spreads, {T + 1, n, 3, d, d}) && is(vectors, {T + 1, n, 2, d}),
            "states must be (T + 1, n, ...)");
    require(is(counts, {T, n}) && is(counts_bar, {T, n}) && is(sequence_bar, {T, n, d, d}),
            "counts and derivatives must have the shape of the sequence");
    require((a == 1 || a == T) && (b == 1 || b == n) && steps.shape(2) == interval &&
                is(steps_bar, {a, b, interval}),
            "steps must be (1 or T, 1 or n, numbers of a LawStep)");
    require(settings.shape(0) == numbers && settings_bar.shape(0) == numbers,
            "settings must be the numbers of a LawSettings");
    require((k == 1 || k == n) && is(tables, {k, 2, d, d}) && is(tables_bar, {2, d, d}),
            "tables must be (1 or n, 2, d, d)");
    require(is(frame_bars, {T + 1, n, d, d}) && is(velocity_bars, {T + 1, n, d, d}) &&
                is(spread_bars, {n, 3, d, d}) && is(vector_bars, {T + 1, n, 2, d}) &&
                is(surprise_bars, {T, n, 2}),
            "derivatives must have the shapes of the states");
    const Unrolled given{std::int64_t(T),
                         std::int64_t(n),
                         std::int64_t(d),
                         *reinterpret_cast<const LawSettings*>(settings.data()),
                         moving.data(),
                         observed.data(),
                         frames.data(),
                         velocities.data(),
                         spreads.data(),
                         vectors.data(),
                         sequence.data(),
                         counts.data(),
                         steps.data(),
                         std::int64_t(a),
                         std::int64_t(b),
                         tables.data(),
                         std::int64_t(k),
                         frame_bars.data(),
                         velocity_bars.data(),
                         spread_bars.data(),
                         vector_bars.data(),
                         surprise_bars.data(),
                         sequence_bar.data(),
                         counts_bar.data(),
                         steps_bar.data(),
                         tables_bar.data(),
                         *reinterpret_cast<LawSettings*>(settings_bar.data())};
    const Choice chosen = choose();
    nb::gil_scoped_release unlocked;
    chosen.laws.pull_back(given);
}

void bind_law(nb::module_& m) {
    m.def("pull_back", &pull_back, nb::arg("moving").noconvert(), nb::arg("observed").noconvert(),
          nb::arg("frames").noconvert(), nb::arg("velocities").noconvert(),
          nb::arg("spreads").noconvert(), nb::arg("vectors").noconvert(),
          nb::arg("sequence").noconvert(), nb::arg("counts").noconvert(),
          nb::arg("steps").noconvert(), nb::arg("settings").noconvert(),
          nb::arg("tables").noconvert(), nb::arg("frame_bars").noconvert(),
          nb::arg("velocity_bars").noconvert(), nb::arg("spread_bars").noconvert(),
          nb::arg("vector_bars").noconvert(), nb::arg("surprise_bars").noconvert(),
          nb::arg("sequence_bar").noconvert(), nb::arg("counts_bar").noconvert(),
          nb::arg("steps_bar").noconvert(), nb::arg("tables_bar").noconvert(),
          nb::arg("settings_bar").noconvert());
    using E = Engine<LawPlan>;
    nb::class_<E>(m, "Law")
        .def(
            "__init__",
            [](E* self, In<double, 1> settings, In<double, 4> tables, In<double, 2> known,
               const Places& places) {
                const std::size_t d = known.shape(1);
                require(settings.shape(0) == sizeof(LawSettings) / sizeof(double),
                        "settings must be the numbers of a LawSettings");
                require(d >= 1 && known.shape(0) >= 1, "known must be (k, d)");
                require(tables.shape(0) >= 1 && tables.shape(1) == 2 && tables.shape(2) == d &&
                            tables.shape(3) == d,
                        "tables must be (k, 2, d, d)");
                const auto& law = *reinterpret_cast<const LawSettings*>(settings.data());
                require(law.rotation == 0.0 || d == 2 || d == 3, "rotations have d = 2 or 3");
                new (self) E(LawPlan(int(d), law, held(tables.data(), tables.shape(0) * 2 * d * d),
                                     held(known.data(), known.shape(0) * d), places),
                             choose().laws.law);
            },
            nb::arg("settings").noconvert(), nb::arg("tables").noconvert(),
            nb::arg("known").noconvert(), nb::arg("places"))
        .def_prop_ro("size", &E::size)
        .def(
            "run",
            [](E& self, Out<double, 2> rows, In<std::int64_t, 1> track_index, In<double, 3> values,
               In<double, 1> counts, In<double, 1> dt, bool matrix, double tolerance,
               Out<double, 2> records, Out<std::int8_t, 1> status, In<double, 1> strength,
               In<double, 2> steps, In<std::int64_t, 1> interval) {
                const LawPlan& plan = self.plan();
                const LawLines lines{self.lines(rows, track_index, values, counts, dt, matrix,
                                                tolerance, records, status),
                                     strength.data(),
                                     reinterpret_cast<const LawStep*>(steps.data()),
                                     interval.data()};
                const std::size_t n = track_index.shape(0), n_rows = rows.shape(0);
                require(matrix, "a single law takes in matrices");
                require(!lines.records || lines.record_width <= plan.size,
                        "records must be the beginnings of rows");
                require(strength.shape(0) == n && interval.shape(0) == n,
                        "strength and interval must have one number for each line");
                require(steps.shape(1) == sizeof(LawStep) / sizeof(double),
                        "steps must have the numbers of a LawStep");
                require(plan.n_tables == 1 || std::size_t(plan.n_tables) >= n_rows,
                        "tables must have one part, or one for each row");
                require(plan.n_known == 1 || std::size_t(plan.n_known) >= n_rows,
                        "known must have one part, or one for each row");
                for (std::size_t i = 0; i < n; ++i)
                    if (lines.interval[i] < 0 || lines.interval[i] >= std::int64_t(steps.shape(0)))
                        throw nb::index_error("interval points outside the steps");
                self.work(lines);
            },
            nb::arg("rows").noconvert(), nb::arg("track_index").noconvert(),
            nb::arg("values").noconvert(), nb::arg("counts").noconvert(),
            nb::arg("dt").noconvert(), nb::arg("matrix"), nb::arg("tolerance"),
            nb::arg("records").noconvert(), nb::arg("status").noconvert(),
            nb::arg("strength").noconvert(), nb::arg("steps").noconvert(),
            nb::arg("interval").noconvert());
}

}  // namespace kgmrf
