// What the bindings of all engines share: checked arrays, and an engine that hands out loops.
#pragma once
#include "arrays.hpp"
#include "loops.hpp"
#include <map>
#include <memory>
#include <mutex>
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <stdexcept>
#include <string>
#include <vector>

namespace nb = nanobind;

namespace kgmrf {

/// The loops for this processor, or those of the level in KGMRF_LEVEL: base, v3, v4.
struct Choice {
    const Loops& loops;
    const LawLoops& laws;
    const LayerLoops& layers;
};
Choice choose();

inline void require(bool good, const char* message) {
    if (!good) throw std::invalid_argument(message);
}

/// Where the parts of a row begin, by name: declared in Python, once for each engine.
using Places = std::map<std::string, std::int64_t>;

/// Loops of one plan: as many as threads have worked at once.
template <class Plan>
class Engine {
  public:
    using Make = Loop* (*)(const Plan&);
    Engine(Plan plan, Make make) : plan_(std::move(plan)), make_(make) {}

    /// The arguments of ``run``, checked.
    Lines lines(Out<double, 2> rows, In<std::int64_t, 1> track_index, In<double, 3> values,
                In<double, 1> counts, In<double, 1> dt, bool matrix, double tolerance,
                Out<double, 2> records, Out<std::int8_t, 1> status) const {
        const std::size_t n = track_index.shape(0);
        require(rows.shape(1) == std::size_t(plan_.size), "rows have another size");
        require(values.shape(0) == n && values.shape(2) == std::size_t(plan_.d),
                "values must be (N, samples, d)");
        require(!matrix || values.shape(1) == values.shape(2), "matrices must be square");
        require(counts.shape(0) == n && dt.shape(0) == n && status.shape(0) == n,
                "counts, dt and status must have one number for each line");
        require(records.shape(0) == 0 || records.shape(0) == n,
                "records must have one row for each line, or none");
        for (std::size_t i = 0; i < n; ++i)
            if (track_index.data()[i] < 0 || track_index.data()[i] >= std::int64_t(rows.shape(0)))
                throw nb::index_error("track_index points outside the rows");
        const bool keep = records.shape(0) > 0;
        return {rows.data(), std::int64_t(rows.shape(0)), track_index.data(), values.data(),
                std::int64_t(n), std::int64_t(values.shape(1)), counts.data(), dt.data(), matrix,
                tolerance, keep ? records.data() : nullptr,
                keep ? std::int64_t(records.shape(1)) : 0, status.data()};
    }

    void run(Out<double, 2> rows, In<std::int64_t, 1> track_index, In<double, 3> values,
             In<double, 1> counts, In<double, 1> dt, bool matrix, double tolerance,
             Out<double, 2> records, Out<std::int8_t, 1> status) {
        work(lines(rows, track_index, values, counts, dt, matrix, tolerance, records, status));
    }

    /// Run an idle loop over the lines, other threads of Python beside it.
    void work(const Lines& lines) {
        std::unique_ptr<Loop> loop = take();
        {
            nb::gil_scoped_release unlocked;
            loop->run(lines);
        }
        const std::unique_lock lock(mutex_, std::try_to_lock);
        if (lock) idle_.push_back(std::move(loop));
    }

    const Plan& plan() const { return plan_; }
    int size() const { return static_cast<int>(plan_.size); }

  private:
    std::unique_ptr<Loop> take() {
        {
            // Never waits: a child that was forked while another thread had the lock would for ever.
            const std::unique_lock lock(mutex_, std::try_to_lock);
            if (lock && !idle_.empty()) {
                auto loop = std::move(idle_.back());
                idle_.pop_back();
                return loop;
            }
        }
        return std::unique_ptr<Loop>(make_(plan_));
    }

    const Plan plan_;
    const Make make_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Loop>> idle_;
};

/// ``run`` of an engine with the arguments that all engines share.
template <class E>
void define_run(nb::class_<E>& engine) {
    engine.def_prop_ro("size", &E::size)
        .def("run", &E::run, nb::arg("rows").noconvert(), nb::arg("track_index").noconvert(),
             nb::arg("values").noconvert(), nb::arg("counts").noconvert(),
             nb::arg("dt").noconvert(), nb::arg("matrix"), nb::arg("tolerance"),
             nb::arg("records").noconvert(), nb::arg("status").noconvert());
}

void bind_alarm(nb::module_& m);
void bind_ensemble(nb::module_& m);
void bind_law(nb::module_& m);
void bind_linear_mean(nb::module_& m);
void bind_low_rank(nb::module_& m);
void bind_rotations(nb::module_& m);
void bind_time_scale(nb::module_& m);
void bind_vision(nb::module_& m);

}  // namespace kgmrf
