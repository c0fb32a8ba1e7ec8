// Work arrays: each its own allocation, so that a sanitizer sees where it ends.
#pragma once
#include <cstddef>
#include <cstring>
#include <new>

namespace {

/// Numbers that begin on a cache line; zero at first.
template <class T>
class RoomOf {
  public:
    explicit RoomOf(std::size_t n)
        : p_(static_cast<T*>(::operator new[](sizeof(T) * n, LINE))) {
        std::memset(p_, 0, sizeof(T) * n);
    }
    RoomOf(const RoomOf&) = delete;
    ~RoomOf() { ::operator delete[](p_, LINE); }
    operator T*() const { return p_; }
    T* data() const { return p_; }

  private:
    static constexpr std::align_val_t LINE{64};
    T* p_;
};
using Room = RoomOf<double>;

}  // namespace
