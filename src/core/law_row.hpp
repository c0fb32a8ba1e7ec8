// Where the numbers of a single law's track lie in its row, by the names of kgmrf.engines.law_row.
#pragma once
#include "loops.hpp"
#include <vector>

namespace kgmrf {

/// Lines with the strength of each observation (samples behind a matrix, or the noise variance of a
/// rotation) and which of the intervals leads to it.
struct LawLines : Lines {
    const double* strength;
    const LawStep* steps;
    const std::int64_t* interval;
};

struct LawPlan {
    int d, planes, pairs;
    LawSettings law;
    bool information, rotation;
    std::vector<double> tables, known;  // gains (k, 2, d, d) and spectra (k, d): one, or one a row
    std::int64_t n_tables, n_known;
    std::int64_t frame, spectrum, spectrum_var, velocity, p11 = 0, p12 = 0, p22 = 0, pool, size;

    template <class Places>
    LawPlan(int d, const LawSettings& law, std::vector<double> tables, std::vector<double> known,
            const Places& places)
        : d(d),
          planes(d * (d - 1) / 2),
          pairs(d * (d + 1) / 2),
          law(law),
          information(law.information != 0.0),
          rotation(law.rotation != 0.0),
          tables(std::move(tables)),
          known(std::move(known)),
          n_tables(std::int64_t(this->tables.size()) / (2 * d * d)),
          n_known(std::int64_t(this->known.size()) / d),
          frame(places.at("frame")),
          spectrum(places.at("spectrum")),
          spectrum_var(places.at("spectrum_var")),
          velocity(places.at("velocity")),
          pool(places.at("pool")),
          size(places.at("end")) {
        if (information) p11 = places.at("p11"), p12 = places.at("p12"), p22 = places.at("p22");
    }

    /// The gains and the given spectrum of a row.
    const double* gains(std::int64_t k) const {
        return tables.data() + (n_tables > 1 ? k : 0) * 2 * d * d;
    }
    const double* spectrum_of(std::int64_t k) const {
        return known.data() + (n_known > 1 ? k : 0) * d;
    }
};

/// A row by name (V: double), or rows side by side (V: vec). Without information gains there are
/// no p11, p12 and p22.
template <class V>
struct LawTrack {
    LawHeadOf<V>& head;
    double *frame, *spectrum, *spectrum_var, *velocity, *p11, *p12, *p22, *pool;

    LawTrack(double* row, const LawPlan& at)
        : LawTrack(row, at, sizeof(V) / sizeof(double)) {}

  private:
    LawTrack(double* row, const LawPlan& at, std::int64_t lanes)
        : head(*reinterpret_cast<LawHeadOf<V>*>(row)),
          frame(row + lanes * at.frame),
          spectrum(row + lanes * at.spectrum),
          spectrum_var(row + lanes * at.spectrum_var),
          velocity(row + lanes * at.velocity),
          p11(row + lanes * at.p11),
          p12(row + lanes * at.p12),
          p22(row + lanes * at.p22),
          pool(row + lanes * at.pool) {}
};

}  // namespace kgmrf
