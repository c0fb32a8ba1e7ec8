// Alarms as Python sees them: p-values of any tracks in, what became of each row out.
#include "alarm.hpp"
#include "bind.hpp"

namespace kgmrf {

void bind_alarm(nb::module_& m) {
    m.def(
        "follow_alarms",
        [](Out<double, 2> rows, In<std::int64_t, 1> track_index, In<double, 1> p_values,
           In<double, 2> bets, double warm_up, Out<double, 2> records,
           Out<std::int8_t, 1> status) {
            const std::size_t n = track_index.shape(0), width = sizeof(AlarmRow) / sizeof(double);
            require(rows.shape(1) == width, "rows must have the numbers of an AlarmRow");
            require(bets.shape(0) == 2 && bets.shape(1) == ALARM_BETS,
                    "bets must have references and thresholds");
            require(p_values.shape(0) == n && status.shape(0) == n && records.shape(0) == n &&
                        records.shape(1) == 3,
                    "p_values, records (N, 3) and status must have one entry for each line");
            for (std::size_t i = 0; i < n; ++i)
                if (track_index.data()[i] < 0 ||
                    track_index.data()[i] >= std::int64_t(rows.shape(0)))
                    throw nb::index_error("track_index points outside the rows");
            const double *references = bets.data(), *thresholds = references + ALARM_BETS;
            nb::gil_scoped_release unlocked;
            for (std::size_t i = 0; i < n; ++i) {
                auto& row = reinterpret_cast<AlarmRow*>(rows.data())[track_index.data()[i]];
                double* record = records.data() + 3 * i;
                status.data()[i] = static_cast<std::int8_t>(
                    follow_alarm(row, p_values.data()[i], references, thresholds, warm_up,
                                 record[0]));
                record[1] = row.count - row.onset;
                record[2] = row.count - row.last;
            }
        },
        nb::arg("rows").noconvert(), nb::arg("track_index").noconvert(),
        nb::arg("p_values").noconvert(), nb::arg("bets").noconvert(), nb::arg("warm_up"),
        nb::arg("records").noconvert(), nb::arg("status").noconvert());
}

}  // namespace kgmrf
