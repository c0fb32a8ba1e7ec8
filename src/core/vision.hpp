// Loops of vision in single precision: windows of images, cells as SPD matrices, and what a box
// costs at every shift. kgmrf.vision.cells says what the numbers mean.
#pragma once
#include "storage.hpp"
#include "vision_planes.hpp"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

using std::int64_t;

inline void clear(float* a, int64_t n) { std::memset(a, 0, sizeof(float) * std::size_t(n)); }

// ------------------------------------------------------------------------- cells

/// Where cells are: rows and columns of their upper left samples.
struct Places {
    RoomOf<int64_t> tops, lefts;
    int64_t high, wide;
    Places(int64_t high, int64_t wide)
        : tops(std::size_t(high)), lefts(std::size_t(wide)), high(high), wide(wide) {}
};

/// mean(z z^T), z = (1, x, y, f), of the cells at some places: means of f, slopes along x, slopes
/// along y, then second moments, packed by rows of the lower triangle. x and y have zero mean and
/// unit variance over the cell.
inline void moments(kgmrf::Planes features, kgmrf::Cells cells, const Places& at,
                    kgmrf::PlanesOut out) {
    const int64_t d = features.n, width = features.width, cell = cells.cell;
    const int64_t free = width - cell + 1;
    const auto size = std::size_t(width);
    RoomOf<float> ramp(static_cast<std::size_t>(cell)), down(size), sloped(size);
    RoomOf<float> mean(size), along(size), across(size);
    const double deviation = std::sqrt(double(cell * cell - 1) / 12.0);
    for (int64_t k = 0; k < cell; ++k)
        ramp[k] = cell == 1 ? 0.0f : float((double(k) - 0.5 * double(cell - 1)) / deviation);
    const float inverse = float(1.0 / double(cell * cell));
    const auto put = [&](int64_t plane, int64_t i, const float* sums, float start) {
        float* target = out.row(plane, i);
        for (int64_t j = 0; j < at.wide; ++j) target[j] = sums[at.lefts[j]] * inverse + start;
    };
    for (int64_t i = 0; i < at.high; ++i) {
        const int64_t top = at.tops[i];
        for (int64_t a = 0; a < d; ++a) {
            float *__restrict line = down, *__restrict slope = sloped;
            clear(line, width), clear(slope, width);
            for (int64_t k = 0; k < cell; ++k) {
                const float *f = features.row(a, top + k), g = ramp[k];
                for (int64_t j = 0; j < width; ++j) line[j] += f[j], slope[j] += g * f[j];
            }
            float *__restrict s = mean, *__restrict x = along, *__restrict y = across;
            clear(s, free), clear(x, free), clear(y, free);
            for (int64_t k = 0; k < cell; ++k) {
                const float g = ramp[k];
                for (int64_t j = 0; j < free; ++j)
                    s[j] += line[j + k], x[j] += g * line[j + k], y[j] += slope[j + k];
            }
            put(a, i, s, 0.0f), put(d + a, i, x, 0.0f), put(2 * d + a, i, y, 0.0f);
        }
        int64_t p = 3 * d;
        for (int64_t a = 0; a < d; ++a)
            for (int64_t b = 0; b <= a; ++b) {
                float *__restrict line = down, *__restrict total = mean;
                clear(line, width), clear(total, free);
                for (int64_t k = 0; k < cell; ++k) {
                    const float *u = features.row(a, top + k), *v = features.row(b, top + k);
                    for (int64_t j = 0; j < width; ++j) line[j] += u[j] * v[j];
                }
                for (int64_t k = 0; k < cell; ++k)
                    for (int64_t j = 0; j < free; ++j) total[j] += line[j + k];
                put(p++, i, total, a == b ? cells.ridge : 0.0f);
            }
    }
}

/// The moments of every cell at multiples of the stride.
inline void cell_moments(kgmrf::Planes features, kgmrf::Cells cells, float* out) {
    Places at(cells.places(features.height), cells.places(features.width));
    for (int64_t i = 0; i < at.high; ++i) at.tops[i] = i * cells.stride;
    for (int64_t j = 0; j < at.wide; ++j) at.lefts[j] = j * cells.stride;
    moments(features, cells, at, {out, 0, at.high, at.wide});
}

// ------------------------------------------------------------------------- determinants

/// log x of positive numbers in place: exponent and the series of artanh, to 5e-7. A function of
/// the library would stand in the way of several numbers at a time.
inline void log_in_place(float* __restrict x, int64_t n) {
    for (int64_t j = 0; j < n; ++j) {
        std::int32_t bits;
        __builtin_memcpy(&bits, x + j, sizeof bits);
        float exponent = float((bits >> 23) - 127);
        bits = (bits & 0x7FFFFF) | 0x3F800000;
        float m;
        __builtin_memcpy(&m, &bits, sizeof m);
        const bool large = m > 1.4142135f;
        m = large ? 0.5f * m : m;
        exponent += large ? 1.0f : 0.0f;
        const float s = (m - 1.0f) / (m + 1.0f), q = s * s;
        const float series =
            1.0f + q * (1.0f / 3 + q * (0.2f + q * (1.0f / 7 + q * (1.0f / 9))));
        x[j] = 2.0f * s * series + exponent * 0.69314718f;
    }
}

/// Packed lower triangles of n matrices side by side.
struct Triangles {
    RoomOf<float> entries, product;
    int64_t n;
    Triangles(int64_t d, int64_t n)
        : entries(std::size_t(d * (d + 1) / 2 * n)), product(std::size_t(n)), n(n) {}
    float* at(int64_t r, int64_t c) const { return entries + (r * (r + 1) / 2 + c) * n; }
};

/// log det of the first n of them: Cholesky without square roots, which uses them up.
inline void log_det(const Triangles& packed, int64_t d, int64_t n, float* __restrict out) {
    float* __restrict product = packed.product;
    clear(out, n);
    for (int64_t k = 0; k < d; ++k) {
        float* __restrict pivot = packed.at(k, k);
        // Logarithms of four pivots at a time: the product of more could overflow.
        if (k % 4 == 0)
            for (int64_t j = 0; j < n; ++j) product[j] = pivot[j];
        else
            for (int64_t j = 0; j < n; ++j) product[j] *= pivot[j];
        if (k % 4 == 3 || k == d - 1) {
            log_in_place(product, n);
            for (int64_t j = 0; j < n; ++j) out[j] += product[j];
        }
        for (int64_t j = 0; j < n; ++j) pivot[j] = 1.0f / pivot[j];
        // Last row first: a row is scaled in place once no later one needs it as it was.
        for (int64_t r = d - 1; r > k; --r) {
            float *__restrict row = packed.at(r, k), *__restrict own = packed.at(r, r);
            for (int64_t j = 0; j < n; ++j) {
                const float scaled = row[j] * pivot[j];
                own[j] -= row[j] * scaled;
                row[j] = scaled;
            }
            for (int64_t c = k + 1; c < r; ++c) {
                const float* __restrict other = packed.at(c, k);
                float* __restrict target = packed.at(r, c);
                for (int64_t j = 0; j < n; ++j) target[j] -= row[j] * other[j];
            }
        }
    }
}

/// log det of every cell of ``maps`` with d features: as the leading block is I, that of their
/// second moments less what the means and slopes explain.
inline void log_determinants(kgmrf::Planes maps, int64_t d, float* out) {
    const int64_t wide = maps.width;
    const Triangles packed(d, wide);
    for (int64_t i = 0; i < maps.height; ++i) {
        for (int64_t a = 0, q = 3 * d; a < d; ++a)
            for (int64_t b = 0; b <= a; ++b, ++q) {
                float* __restrict target = packed.at(a, b);
                const float* moment = maps.row(q, i);
                for (int64_t j = 0; j < wide; ++j) target[j] = moment[j];
                for (int64_t r = 0; r < 3; ++r) {
                    const float *u = maps.row(r * d + a, i), *v = maps.row(r * d + b, i);
                    for (int64_t j = 0; j < wide; ++j) target[j] -= u[j] * v[j];
                }
            }
        log_det(packed, d, wide, out + i * wide);
    }
}

// ------------------------------------------------------------------------- what a shift costs

/// Sum over cells k of w_k t/(1 + softness t), t = log det((C_k + M_k)/2) - log det(C_k)/2
/// - log det(M_k)/2, at every shift. Neighbouring cells are (step_y, step_x) places apart. A block
/// of rows of shifts at a time, so that the work stays in the nearest cache.
inline void cost_map(kgmrf::Planes maps, const float* log_dets, kgmrf::Models models,
                     int64_t step_y, int64_t step_x, kgmrf::PlanesOut out) {
    const int64_t size = [&] {
        int64_t d = 1;
        while (3 * d + d * (d + 1) / 2 < maps.n) ++d;
        return d + 3;
    }();
    const int64_t d = size - 3, nv = out.height, nu = out.width;
    const int64_t block = std::max<int64_t>(1, std::min<int64_t>(nv, 128 / nu));
    const Triangles packed(d, block * nu);
    const RoomOf<float> cross(std::size_t(3 * d * block * nu)), found(std::size_t(block * nu));
    clear(out.p, nv * nu);
    for (int64_t k = 0; k < models.nx * models.ny; ++k) {
        const float weight = models.weights[k];
        if (weight == 0.0f) continue;
        const float* M = models.matrices + k * size * size;
        const auto model = [&](int64_t r, int64_t c) { return M[r * size + c]; };
        // Cholesky of the leading block (I + M)/2, the same for every shift.
        const float l00 = std::sqrt(0.5f * (1.0f + model(0, 0)));
        const float l10 = 0.5f * model(1, 0) / l00, l20 = 0.5f * model(2, 0) / l00;
        const float l11 = std::sqrt(0.5f * (1.0f + model(1, 1)) - l10 * l10);
        const float l21 = (0.5f * model(2, 1) - l20 * l10) / l11;
        const float l22 = std::sqrt(0.5f * (1.0f + model(2, 2)) - l20 * l20 - l21 * l21);
        const float constant = 2.0f * std::log(l00 * l11 * l22) - 0.5f * models.log_dets[k];
        const float i0 = 1.0f / l00, i1 = 1.0f / l11, i2 = 1.0f / l22;
        const int64_t top = k / models.nx * step_y, left = k % models.nx * step_x;
        for (int64_t v = 0; v < nv; v += block) {
            const int64_t rows = std::min(block, nv - v), n = rows * nu;
            for (int64_t a = 0; a < d; ++a) {
                const float c0 = model(3 + a, 0), c1 = model(3 + a, 1), c2 = model(3 + a, 2);
                for (int64_t r = 0; r < rows; ++r) {
                    const int64_t i = top + v + r;
                    const float* __restrict s0 = maps.row(a, i) + left;
                    const float* __restrict s1 = maps.row(d + a, i) + left;
                    const float* __restrict s2 = maps.row(2 * d + a, i) + left;
                    float* __restrict t0 = cross + (3 * a * block + r) * nu;
                    float* __restrict t1 = t0 + block * nu;
                    float* __restrict t2 = t1 + block * nu;
                    for (int64_t j = 0; j < nu; ++j) {
                        const float x0 = 0.5f * (s0[j] + c0) * i0;
                        const float x1 = (0.5f * (s1[j] + c1) - l10 * x0) * i1;
                        t0[j] = x0;
                        t1[j] = x1;
                        t2[j] = (0.5f * (s2[j] + c2) - l20 * x0 - l21 * x1) * i2;
                    }
                }
            }
            for (int64_t a = 0, q = 3 * d; a < d; ++a)
                for (int64_t b = 0; b <= a; ++b, ++q) {
                    const float c = model(3 + a, 3 + b);
                    float* __restrict target = packed.at(a, b);
                    for (int64_t r = 0; r < rows; ++r) {
                        const float* moment = maps.row(q, top + v + r) + left;
                        for (int64_t j = 0; j < nu; ++j)
                            target[r * nu + j] = 0.5f * (moment[j] + c);
                    }
                    const float *y = cross + 3 * a * block * nu, *z = cross + 3 * b * block * nu;
                    const int64_t m = block * nu;
                    for (int64_t j = 0; j < n; ++j)
                        target[j] -= y[j] * z[j] + y[m + j] * z[m + j] + y[2 * m + j] * z[2 * m + j];
                }
            log_det(packed, d, n, found);
            for (int64_t r = 0; r < rows; ++r) {
                const float* __restrict own = log_dets + (top + v + r) * maps.width + left;
                const float* __restrict both = found + r * nu;
                float* __restrict target = out.row(0, v + r);
                for (int64_t j = 0; j < nu; ++j) {
                    float t = both[j] - 0.5f * own[j] + constant;
                    t = t > 0.0f ? t : 0.0f;
                    target[j] += weight * t / (1.0f + models.softness * t);
                }
            }
        }
    }
}

/// The costs of ny x nx cells of features at every stride-th shift. A stride above 1 divides the
/// cell, and cells of several shifts share their places; with 1 the window is the box and some
/// samples around it, and only where its cells land are places.
inline void place_costs(kgmrf::Planes features, kgmrf::Cells cells, kgmrf::Models models,
                        float* out) {
    const int64_t d = features.n, planes = 3 * d + d * (d + 1) / 2;
    const int64_t nv = cells.shifts(features.height, models.ny);
    const int64_t nu = cells.shifts(features.width, models.nx);
    const bool shared = cells.stride > 1;
    const int64_t step_y = shared ? cells.cell / cells.stride : nv;
    const int64_t step_x = shared ? cells.cell / cells.stride : nu;
    Places at(shared ? cells.places(features.height) : models.ny * nv,
              shared ? cells.places(features.width) : models.nx * nu);
    const auto place = [&](int64_t i, int64_t step) {
        return shared ? i * cells.stride : i / step * cells.cell + i % step;
    };
    for (int64_t i = 0; i < at.high; ++i) at.tops[i] = place(i, step_y);
    for (int64_t j = 0; j < at.wide; ++j) at.lefts[j] = place(j, step_x);
    const RoomOf<float> maps(std::size_t(planes * at.high * at.wide));
    const RoomOf<float> log_dets(std::size_t(at.high * at.wide));
    moments(features, cells, at, {maps, planes, at.high, at.wide});
    log_determinants({maps, planes, at.high, at.wide}, d, log_dets);
    cost_map({maps, planes, at.high, at.wide}, log_dets, models, step_y, step_x, {out, 1, nv, nu});
}

// ------------------------------------------------------------------------- features

/// (f - offset) gain, without the outermost samples; the features f are the channels, and the
/// absolute central differences of their mean along x and along y.
inline void colour_and_gradient(kgmrf::Planes planes, const float* offset, const float* gain,
                                float* out) {
    const int64_t channels = planes.n, height = planes.height, width = planes.width;
    const kgmrf::PlanesOut features{out, channels + 2, height - 2, width - 2};
    const RoomOf<float> grey(std::size_t(height * width));
    for (int64_t c = 0; c < channels; ++c) {
        const float* __restrict source = planes.row(c, 0);
        float* __restrict sum = grey;
        for (int64_t j = 0; j < height * width; ++j) sum[j] += source[j];
    }
    const float half = float(0.5 / double(channels));
    const float *o = offset + channels, *g = gain + channels;
    for (int64_t i = 0; i < height - 2; ++i) {
        for (int64_t c = 0; c < channels; ++c) {
            const float* __restrict source = planes.row(c, i + 1) + 1;
            float* __restrict target = features.row(c, i);
            const float from = offset[c], scale = gain[c];
            for (int64_t j = 0; j < width - 2; ++j) target[j] = (source[j] - from) * scale;
        }
        const float* __restrict above = grey + i * width;
        const float *__restrict middle = above + width, *__restrict below = middle + width;
        float* __restrict along_x = features.row(channels, i);
        float* __restrict along_y = features.row(channels + 1, i);
        const float o0 = o[0], o1 = o[1], g0 = g[0], g1 = g[1];
        for (int64_t j = 0; j < width - 2; ++j) {
            along_x[j] = (std::fabs(half * (middle[j + 2] - middle[j])) - o0) * g0;
            along_y[j] = (std::fabs(half * (below[j + 1] - above[j + 1])) - o1) * g1;
        }
    }
}

// ------------------------------------------------------------------------- windows of images

inline int64_t within(int64_t i, int64_t low, int64_t high) {
    return std::min(std::max(i, low), high);
}

/// inverse times the sums of n neighbouring blocks of `wide` pixels of a row.
template <int channels>
void block_means(const float* __restrict row, int64_t wide, int64_t n, float inverse,
                 float* __restrict out) {
    for (int64_t j = 0; j < n; ++j, out += channels) {
        float total[channels] = {};
        for (int64_t k = 0; k < wide; ++k, row += channels)
            for (int c = 0; c < channels; ++c) total[c] += row[c];
        for (int c = 0; c < channels; ++c) out[c] = total[c] * inverse;
    }
}

/// Means of blocks of pixels: (height, width, channels).
template <class T>
void decimate(kgmrf::ImageOf<T> image, kgmrf::Blocks blocks, int64_t height, int64_t width,
              float* out) {
    const int64_t channels = image.channels, bx = blocks.block_x, by = blocks.block_y;
    const float inverse = float(1.0 / double(bx * by));
    // The columns inside the image; those beside it repeat the first or the last.
    const int64_t first = within(blocks.left, 0, image.width - 1);
    const int64_t last = std::max(std::min(blocks.left + width * bx, image.width) - 1, first);
    const int64_t n = (last + 1 - first) * channels;
    const RoomOf<float> sums(static_cast<std::size_t>(n));
    const RoomOf<int64_t> columns(std::size_t(width * bx));
    for (int64_t j = 0; j < width * bx; ++j)
        columns[j] = (within(blocks.left + j, first, last) - first) * channels;
    // Blocks from `inside` to `beyond` repeat no column.
    const int64_t inside = within((first - blocks.left + bx - 1) / bx, 0, width);
    const int64_t beyond = within((last + 1 - blocks.left) / bx, inside, width);
    const int64_t start = inside < beyond ? columns[inside * bx] : 0;
    float* __restrict row = sums;
    for (int64_t i = 0; i < height; ++i) {
        clear(row, n);
        for (int64_t k = 0; k < by; ++k) {
            const int64_t line = within(blocks.top + i * by + k, 0, image.height - 1);
            const T* __restrict source = image.p + (line * image.width + first) * channels;
            for (int64_t j = 0; j < n; ++j) row[j] += float(source[j]);
        }
        const auto block = [&](int64_t j) {
            for (int64_t c = 0; c < channels; ++c) {
                float total = 0.0f;
                for (int64_t k = 0; k < bx; ++k) total += row[columns[j * bx + k] + c];
                out[j * channels + c] = total * inverse;
            }
        };
        for (int64_t j = 0; j < inside; ++j) block(j);
        const float* whole = row + start;
        float* target = out + inside * channels;
        if (channels == 3)
            block_means<3>(whole, bx, beyond - inside, inverse, target);
        else if (channels == 1)
            block_means<1>(whole, bx, beyond - inside, inverse, target);
        else
            for (int64_t j = inside; j < beyond; ++j) block(j);
        for (int64_t j = beyond; j < width; ++j) block(j);
        out += width * channels;
    }
}

/// Which pixels make each of n points along one axis of an image, and their weights.
struct Taps {
    int64_t m;
    RoomOf<int64_t> index;
    RoomOf<float> weight;

    /// A triangle as wide as the step: linear interpolation where an image is enlarged, smoothing
    /// where it is made smaller.
    Taps(double start, double step, int64_t n, int64_t size)
        : m(int64_t(std::ceil(2.0 * std::max(1.0, step))) + 1),
          index(std::size_t(n * m)),
          weight(std::size_t(n * m)) {
        const double support = std::max(1.0, step);
        for (int64_t i = 0; i < n; ++i) {
            const double c = start + double(i) * step;
            const int64_t low = int64_t(std::floor(c - support)) + 1;
            const auto triangle = [&](int64_t k) {
                return std::max(0.0, 1.0 - std::fabs(double(low + k) - c) / support);
            };
            double total = 0.0, one = 0.0, two = 0.0;
            for (int64_t k = 0; k < m; ++k) {
                const double u = double(low + k) - c, a = triangle(k);
                total += a, one += a * u, two += a * u * u;
            }
            // Cut off at whole pixels the triangle is a little lopsided: it is tilted back, so that
            // a plane is sampled exactly. Only when one pixel has all the weight is spread 0.
            const double spread = total * two - one * one;
            const double tilt = spread > 1e-9 ? one / spread : 0.0;
            const double constant = spread > 1e-9 ? two / spread : 1.0 / total;
            for (int64_t k = 0; k < m; ++k) {
                index[i * m + k] = within(low + k, 0, size - 1);
                weight[i * m + k] =
                    float(triangle(k) * (constant - tilt * (double(low + k) - c)));
            }
        }
    }
};

/// I(x + j step_x, y + i step_y): planes (channels, height, width).
inline void sample_image(kgmrf::ImageOf<float> image, kgmrf::Grid grid, kgmrf::PlanesOut out) {
    const int64_t channels = image.channels;
    const Taps rows(grid.y, grid.step_y, out.height, image.height);
    const Taps columns(grid.x, grid.step_x, out.width, image.width);
    int64_t first = image.width - 1, last = 0;
    for (int64_t j = 0; j < out.width * columns.m; ++j) {
        first = std::min(first, columns.index[j]);
        last = std::max(last, columns.index[j]);
    }
    const int64_t n = (last + 1 - first) * channels;
    const RoomOf<float> sums(static_cast<std::size_t>(n));
    float* __restrict row = sums;
    for (int64_t i = 0; i < out.height; ++i) {
        clear(row, n);
        for (int64_t k = 0; k < rows.m; ++k) {
            const float g = rows.weight[i * rows.m + k];
            if (g == 0.0f) continue;
            const float* __restrict source =
                image.p + (rows.index[i * rows.m + k] * image.width + first) * channels;
            for (int64_t j = 0; j < n; ++j) row[j] += g * source[j];
        }
        for (int64_t c = 0; c < channels; ++c) {
            float* target = out.row(c, i);
            for (int64_t j = 0; j < out.width; ++j) {
                const int64_t* index = columns.index + j * columns.m;
                const float* weight = columns.weight + j * columns.m;
                float total = 0.0f;
                for (int64_t k = 0; k < columns.m; ++k)
                    total += weight[k] * row[(index[k] - first) * channels + c];
                target[j] = total;
            }
        }
    }
}

}  // namespace
