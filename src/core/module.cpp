// The module kgmrf._core: one class for each engine (bind_*.cpp), and which loops this processor
// can run.
//
// To add an engine: its plan (a struct with d and size), its loop in a header of its own, one line
// in `Loops` (loops.hpp) and in the table of loops.cpp, and a file bind_NAME.cpp.
#include "bind.hpp"
#include "declared.hpp"
#include "processor.hpp"
#include <cstdlib>

namespace kgmrf {

Loop::~Loop() = default;

/// Found once: a virtual machine takes some 30 microseconds to answer.
[[maybe_unused]] static const int here = processor_level();

/// What was built and this processor can run, the best first.
static std::vector<std::string> levels() {
    std::vector<std::string> found;
#ifdef KGMRF_V4
    if (here >= 4) found.push_back("v4");
#endif
#ifdef KGMRF_V3
    if (here >= 3) found.push_back("v3");
#endif
#ifdef KGMRF_BASE
    found.push_back("base");
#endif
    return found;
}

Choice choose() {
    const char* asked = std::getenv("KGMRF_LEVEL");
    static const std::string best = levels().empty() ? "" : levels().front();
    const std::string wanted = asked && *asked ? asked : best;
#ifdef KGMRF_V4
    if (wanted == "v4" && here >= 4) return {loops_v4, law_v4, layer_v4};
#endif
#ifdef KGMRF_V3
    if (wanted == "v3" && here >= 3) return {loops_v3, law_v3, layer_v3};
#endif
#ifdef KGMRF_BASE
    if (wanted == "base") return {loops_base, law_base, layer_base};
#endif
    if (wanted.empty())
        throw std::invalid_argument("kgmrf was built for another processor: build it again here");
    throw std::invalid_argument("no loops of level " + wanted + " in this build, or none that this processor can run");
}

}  // namespace kgmrf

NB_MODULE(_core, m) {
    using namespace kgmrf;
    nb::list found;
    for (const std::string& level : levels()) found.append(level.c_str());
    m.attr("levels") = nb::tuple(found);
    m.attr("checksum") = DECLARED_CHECKSUM;
    bind_alarm(m);
    bind_ensemble(m);
    bind_law(m);
    bind_linear_mean(m);
    bind_low_rank(m);
    bind_rotations(m);
    bind_time_scale(m);
    bind_vision(m);
    m.def(
        "inspect",
        [](In<double, 3> matrices, double tolerance, Out<std::int8_t, 1> status) {
            require(matrices.shape(1) == matrices.shape(2), "matrices must be square");
            require(status.shape(0) == matrices.shape(0), "status must have one number each");
            nb::gil_scoped_release unlocked;
            choose().loops.inspect(matrices.data(), std::int64_t(matrices.shape(0)),
                               int(matrices.shape(1)), tolerance, status.data());
        },
        nb::arg("matrices").noconvert(), nb::arg("tolerance"), nb::arg("status").noconvert());
}
