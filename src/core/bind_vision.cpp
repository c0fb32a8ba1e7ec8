// The loops of vision as Python sees them: arrays in, what is found is written into ``out``.
#include "bind.hpp"
#include "vision_planes.hpp"

namespace kgmrf {

template <class T>
static Planes planes(T array) {
    return {array.data(), std::int64_t(array.shape(0)), std::int64_t(array.shape(1)),
            std::int64_t(array.shape(2))};
}

static Cells cells_of(const Planes& features, std::int64_t cell, std::int64_t stride,
                      double ridge) {
    require(cell >= 1 && stride >= 1, "cell and stride must be at least 1");
    require(features.n >= 1 && features.height >= cell && features.width >= cell,
            "features must be (d, H, W), d >= 1, and as large as a cell");
    return {cell, stride, static_cast<float>(ridge)};
}

template <class T>
static void decimate_image(In<T, 3> image, std::int64_t left, std::int64_t top,
                           std::int64_t block_x, std::int64_t block_y, Out<float, 3> out,
                           void (*loop)(ImageOf<T>, Blocks, std::int64_t, std::int64_t, float*)) {
    require(image.shape(0) && image.shape(1) && image.shape(2) == out.shape(2),
            "image must be (H, W, C) and not empty, out (h, w, C)");
    require(block_x >= 1 && block_y >= 1, "blocks must be at least one pixel");
    constexpr std::int64_t far = std::int64_t(1) << 40;
    require(left > -far && left < far && top > -far && top < far && block_x < far &&
                block_y < far && std::int64_t(out.shape(0)) < far / block_y &&
                std::int64_t(out.shape(1)) < far / block_x,
            "the window is too far from the image, or too large");
    nb::gil_scoped_release unlocked;
    loop({image.data(), std::int64_t(image.shape(0)), std::int64_t(image.shape(1)),
          std::int64_t(image.shape(2))},
         {left, top, block_x, block_y}, std::int64_t(out.shape(0)), std::int64_t(out.shape(1)),
         out.data());
}

template <class T>
static void define_decimate(nb::module_& m,
                            void (*Loops::*loop)(ImageOf<T>, Blocks, std::int64_t, std::int64_t,
                                                 float*)) {
    m.def(
        "decimate",
        [loop](In<T, 3> image, std::int64_t left, std::int64_t top, std::int64_t block_x,
               std::int64_t block_y, Out<float, 3> out) {
            decimate_image<T>(image, left, top, block_x, block_y, out, choose().loops.*loop);
        },
        nb::arg("image").noconvert(), nb::arg("left"), nb::arg("top"), nb::arg("block_x"),
        nb::arg("block_y"), nb::arg("out").noconvert());
}

void bind_vision(nb::module_& m) {
    m.def(
        "cell_moments",
        [](In<float, 3> features, std::int64_t cell, std::int64_t stride, double ridge,
           Out<float, 3> out) {
            const Planes f = planes(features);
            const Cells cells = cells_of(f, cell, stride, ridge);
            require(std::int64_t(out.shape(0)) == 3 * f.n + f.n * (f.n + 1) / 2 &&
                        std::int64_t(out.shape(1)) == cells.places(f.height) &&
                        std::int64_t(out.shape(2)) == cells.places(f.width),
                    "out must be (3 d + d (d + 1)/2, places, places)");
            nb::gil_scoped_release unlocked;
            choose().loops.cell_moments(f, cells, out.data());
        },
        nb::arg("features").noconvert(), nb::arg("cell"), nb::arg("stride"), nb::arg("ridge"),
        nb::arg("out").noconvert());
    m.def(
        "place_costs",
        [](In<float, 3> features, std::int64_t cell, std::int64_t stride, double ridge,
           In<float, 3> models, In<float, 1> log_dets, In<float, 1> weights, std::int64_t nx,
           std::int64_t ny, double softness, Out<float, 2> out) {
            const Planes f = planes(features);
            const Cells cells = cells_of(f, cell, stride, ridge);
            require(cell % stride == 0, "the stride must divide the cell");
            require(nx >= 1 && nx <= f.width && ny >= 1 && ny <= f.height,
                    "nx and ny must be from 1 to the size of the features");
            const auto n = std::size_t(nx * ny), size = std::size_t(f.n + 3);
            require(models.shape(0) == n && models.shape(1) == size && models.shape(2) == size &&
                        log_dets.shape(0) == n && weights.shape(0) == n,
                    "models must be (ny nx, d + 3, d + 3), with a log_det and a weight each");
            require(cells.shifts(f.height, ny) >= 1 && cells.shifts(f.width, nx) >= 1,
                    "features must be as large as the cells together");
            require(std::int64_t(out.shape(0)) == cells.shifts(f.height, ny) &&
                        std::int64_t(out.shape(1)) == cells.shifts(f.width, nx),
                    "out must have one number for each shift");
            nb::gil_scoped_release unlocked;
            choose().loops.place_costs(f, cells,
                                         {models.data(), log_dets.data(), weights.data(), nx, ny,
                                          static_cast<float>(softness)},
                                         out.data());
        },
        nb::arg("features").noconvert(), nb::arg("cell"), nb::arg("stride"), nb::arg("ridge"),
        nb::arg("models").noconvert(), nb::arg("log_dets").noconvert(),
        nb::arg("weights").noconvert(), nb::arg("nx"), nb::arg("ny"), nb::arg("softness"),
        nb::arg("out").noconvert());
    m.def(
        "colour_and_gradient",
        [](In<float, 3> image, In<float, 1> offset, In<float, 1> gain, Out<float, 3> out) {
            const Planes f = planes(image);
            require(f.n >= 1 && f.height >= 3 && f.width >= 3,
                    "planes must be (C, H, W), three by three at least");
            require(std::int64_t(offset.shape(0)) == f.n + 2 &&
                        std::int64_t(gain.shape(0)) == f.n + 2,
                    "offset and gain must have C + 2 numbers");
            require(std::int64_t(out.shape(0)) == f.n + 2 &&
                        std::int64_t(out.shape(1)) == f.height - 2 &&
                        std::int64_t(out.shape(2)) == f.width - 2,
                    "out must be (C + 2, H - 2, W - 2)");
            nb::gil_scoped_release unlocked;
            choose().loops.colour_and_gradient(f, offset.data(), gain.data(), out.data());
        },
        nb::arg("planes").noconvert(), nb::arg("offset").noconvert(), nb::arg("gain").noconvert(),
        nb::arg("out").noconvert());
    define_decimate<std::uint8_t>(m, &Loops::decimate_bytes);
    define_decimate<float>(m, &Loops::decimate_floats);
    m.def(
        "sample_image",
        [](In<float, 3> image, double x, double y, double step_x, double step_y,
           Out<float, 3> out) {
            require(image.shape(0) && image.shape(1) && image.shape(2) == out.shape(0) &&
                        out.shape(2) > 0,
                    "image must be (H, W, C) and not empty, out (C, h, w)");
            constexpr double far = 1e9;
            require(std::abs(x) < far && std::abs(y) < far && step_x > 0.0 && step_x < 1e6 &&
                        step_y > 0.0 && step_y < 1e6,
                    "points must be within 1e9 pixels, and steps above 0 and below 1e6 pixels");
            nb::gil_scoped_release unlocked;
            choose().loops.sample_image(
                {image.data(), std::int64_t(image.shape(0)), std::int64_t(image.shape(1)),
                 std::int64_t(image.shape(2))},
                {x, y, step_x, step_y},
                {out.data(), std::int64_t(out.shape(0)), std::int64_t(out.shape(1)),
                 std::int64_t(out.shape(2))});
        },
        nb::arg("image").noconvert(), nb::arg("x"), nb::arg("y"), nb::arg("step_x"),
        nb::arg("step_y"), nb::arg("out").noconvert());
}

}  // namespace kgmrf
