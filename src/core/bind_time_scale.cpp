// Signals on a time scale as Python sees them: rows of one track in, its covariances out.
#include "bind.hpp"
#include "time_scale.hpp"

namespace kgmrf {

void bind_time_scale(nb::module_& m) {
    m.def(
        "follow_time_scale",
        [](Out<double, 1> row, In<double, 2> values, In<double, 1> dt, Out<double, 2> records) {
            const std::size_t n = values.shape(0), d = values.shape(1);
            require(d >= 1 && row.shape(0) == std::size_t(TimeScale::size(int(d))),
                    "row must have the head of a TimeScaleHead and five packed matrices");
            require(dt.shape(0) == n, "dt must have one number for each line");
            require(records.shape(0) == 0 || (records.shape(0) == n && records.shape(1) == 1 + d * d),
                    "records must have 1 + d d numbers for each line, or none");
            require(row.data()[0] > 0.0, "the horizon of a row must be positive");
            nb::gil_scoped_release unlocked;
            TimeScale track(row.data(), int(d));
            for (std::size_t i = 0; i < n; ++i) {
                track.step(values.data() + i * d, dt.data()[i]);
                if (records.shape(0)) track.write(records.data() + i * records.shape(1));
            }
        },
        nb::arg("row").noconvert(), nb::arg("values").noconvert(), nb::arg("dt").noconvert(),
        nb::arg("records").noconvert());
}

}  // namespace kgmrf
