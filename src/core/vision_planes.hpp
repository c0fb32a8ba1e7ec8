// What the loops of vision are given: planes of single-precision numbers, images, cells, models.
#pragma once
#include <cstdint>

namespace kgmrf {

/// Planes (n, height, width), one behind the other.
template <class T>
struct PlanesOf {
    T* p;
    std::int64_t n, height, width;
    T* row(std::int64_t plane, std::int64_t i) const { return p + (plane * height + i) * width; }
};
using Planes = PlanesOf<const float>;
using PlanesOut = PlanesOf<float>;

/// An image (height, width, channels).
template <class T>
struct ImageOf {
    const T* p;
    std::int64_t height, width, channels;
};

/// Squares of cell x cell samples whose places are ``stride`` apart; ``ridge`` is added to the
/// second moments of the features.
struct Cells {
    std::int64_t cell, stride;
    float ridge;

    std::int64_t places(std::int64_t size) const { return (size - cell) / stride + 1; }
    /// Shifts of n neighbouring cells within ``size`` samples.
    std::int64_t shifts(std::int64_t size, std::int64_t n) const {
        return places(size) - (n - 1) * (cell / stride);
    }
};

/// What ny x nx neighbouring cells are compared with: matrices (ny nx, d + 3, d + 3), their log
/// determinants, the weight of each cell; costs t count as t / (1 + softness t).
struct Models {
    const float *matrices, *log_dets, *weights;
    std::int64_t nx, ny;
    float softness;
};

/// A window of an image by blocks of pixels; outside, the edge is repeated.
struct Blocks {
    std::int64_t left, top, block_x, block_y;
};

/// Points x + j step_x, y + i step_y of an image.
struct Grid {
    double x, y, step_x, step_y;
};

}  // namespace kgmrf
