// Linear means as Python sees them: rows of any tracks in, the mean before each out.
#include "bind.hpp"
#include "linear_mean.hpp"

namespace kgmrf {

void bind_linear_mean(nb::module_& m) {
    m.def(
        "follow_linear_mean",
        [](Out<double, 2> rows, In<std::int64_t, 1> track_index, In<double, 2> values, int lags,
           Out<double, 2> means) {
            const std::size_t n = values.shape(0), d = values.shape(1);
            require(d >= 1 && lags >= 1, "there must be a channel and a lag");
            require(rows.shape(1) == std::size_t(LinearMean::size(d, lags)),
                    "rows must have the numbers of a linear mean");
            require(track_index.shape(0) == n && means.shape(0) == n && means.shape(1) == d,
                    "track_index and means must have one entry for each line");
            for (std::size_t i = 0; i < n; ++i)
                if (track_index.data()[i] < 0 ||
                    track_index.data()[i] >= std::int64_t(rows.shape(0)))
                    throw nb::index_error("track_index points outside the rows");
            nb::gil_scoped_release unlocked;
            LinearMean track(int(d), lags);
            for (std::size_t i = 0; i < n; ++i) {
                track.open(rows.data() + track_index.data()[i] * rows.shape(1));
                track.step(values.data() + i * d, means.data() + i * d);
            }
        },
        nb::arg("rows").noconvert(), nb::arg("track_index").noconvert(),
        nb::arg("values").noconvert(), nb::arg("lags"), nb::arg("means").noconvert());
}

}  // namespace kgmrf
