// Arrays as arguments: C-contiguous, of exactly this type and number of axes, never converted: an
// array of another type would be copied in silence, and what is written into the copy is lost.
// The buffer protocol takes a tenth of the time of nanobind's own arrays, and a call has nine.
#pragma once
#include <cstdint>
#include <nanobind/nanobind.h>

namespace kgmrf {

/// A view of an argument while the call lasts. T const: it may be read-only.
template <class T, int N>
struct Array {
    T* p = nullptr;
    std::size_t sizes[N] = {};
    T* data() const { return p; }
    std::size_t shape(int axis) const { return sizes[axis]; }
};

template <class T, int N>
using In = Array<const T, N>;
template <class T, int N>
using Out = Array<T, N>;

/// Whether a buffer of this format holds numbers of type T, whose size fits.
template <class T>
bool is_format(const char* format) {
    const char c = format ? format[0] : 'B';
    if (c == 0 || format[1] != 0) return false;
    if constexpr (std::is_same_v<T, double>) return c == 'd';
    if constexpr (std::is_same_v<T, float>) return c == 'f';
    if constexpr (std::is_same_v<T, std::int8_t>) return c == 'b';
    if constexpr (std::is_same_v<T, std::uint8_t>) return c == 'B' || c == '?';
    return c == 'l' || c == 'q';
}

}  // namespace kgmrf

namespace nanobind::detail {

template <class T, int N>
struct type_caster<kgmrf::Array<T, N>> {
    using Array = kgmrf::Array<T, N>;
    using Number = std::remove_const_t<T>;
    NB_TYPE_CASTER(Array, const_name("numpy.ndarray"))

    bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {
        const int writable = std::is_const_v<T> ? 0 : PyBUF_WRITABLE;
        held = PyObject_GetBuffer(source.ptr(), &view,
                                  PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | writable) == 0;
        if (!held) {
            PyErr_Clear();
            return false;
        }
        if (view.ndim != N || view.itemsize != sizeof(T) || !kgmrf::is_format<Number>(view.format))
            return false;
        value.p = static_cast<T*>(view.buf);
        for (int i = 0; i < N; ++i) value.sizes[i] = static_cast<std::size_t>(view.shape[i]);
        return true;
    }
    ~type_caster() {
        if (held) PyBuffer_Release(&view);
    }

    bool held = false;
    Py_buffer view;
};

}  // namespace nanobind::detail
