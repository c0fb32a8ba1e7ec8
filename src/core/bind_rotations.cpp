// The rotation filter as Python sees it.
#include "bind.hpp"
#include "rotation_row.hpp"

namespace kgmrf {

void bind_rotations(nb::module_& m) {
    using E = Engine<RotationPlan>;
    nb::class_<E>(m, "Rotations")
        .def(
            "__init__",
            [](E* self, In<double, 2> isotropic, In<double, 2> dense, const Places& places) {
                require(isotropic.shape(0) == ROTATION_MEMBERS &&
                            isotropic.shape(1) == sizeof(IsotropicLaw) / sizeof(double),
                        "isotropic must have one IsotropicLaw for each member");
                require(dense.shape(0) == DENSE_MEMBERS &&
                            dense.shape(1) == sizeof(DenseLaw) / sizeof(double),
                        "dense must have one DenseLaw for each member");
                new (self) E(RotationPlan(isotropic.data(), dense.data(), places),
                             choose().loops.rotations);
            },
            nb::arg("isotropic").noconvert(), nb::arg("dense").noconvert(), nb::arg("places"))
        .def_prop_ro("size", &E::size)
        .def(
            "run",
            [](E& self, Out<double, 2> rows, In<std::int64_t, 1> track_index, In<double, 3> values,
               In<double, 1> counts, In<double, 1> dt, bool matrix, double tolerance,
               Out<double, 2> records, Out<std::int8_t, 1> status, In<double, 2> settings,
               In<double, 2> rates) {
                RotationLines lines{self.lines(rows, track_index, values, counts, dt, matrix,
                                               tolerance, records, status),
                                    rates.shape(0) > 0 ? rates.data() : nullptr, settings.data(), std::int64_t(settings.shape(0)),
                                    std::int64_t(settings.shape(1))};
                require(matrix, "rotations are observed as matrices");
                require(!lines.records || lines.record_width == self.plan().record.end,
                        "records have another size");
                require(rates.shape(1) == 4 &&
                            (rates.shape(0) == 0 || rates.shape(0) == track_index.shape(0)),
                        "rates must have four numbers for each line, or no line");
                require(settings.shape(0) == 1 || settings.shape(0) == rows.shape(0),
                        "settings must have one row, or one for each track");
                const std::size_t head = sizeof(RotationSettings) / sizeof(double);
                require(settings.shape(1) > head, "settings have no level of the noise");
                for (std::int64_t i = 0; i < lines.n_settings; ++i) {
                    const NoiseLevels levels(lines.settings + i * lines.settings_width);
                    require(levels.n >= 1 && settings.shape(1) == head + 3 * std::size_t(levels.n),
                            "settings must have three numbers for each level of the noise");
                }
                self.work(lines);
            },
            nb::arg("rows").noconvert(), nb::arg("track_index").noconvert(),
            nb::arg("values").noconvert(), nb::arg("counts").noconvert(),
            nb::arg("dt").noconvert(), nb::arg("matrix"), nb::arg("tolerance"),
            nb::arg("records").noconvert(), nb::arg("status").noconvert(),
            nb::arg("settings").noconvert(), nb::arg("rates").noconvert());
}

}  // namespace kgmrf
