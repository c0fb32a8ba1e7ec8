// Work arrays: each its own allocation, so that a sanitizer sees where it ends.
#pragma once
#include <cstddef>
#include <cstring>
#include <new>

namespace {

/// Numbers that begin on a cache line; zero at first.
class Room {
  public:
    explicit Room(std::size_t n) : p_(static_cast<double*>(::operator new[](8 * n, LINE))) {
        std::memset(p_, 0, 8 * n);
    }
    Room(const Room&) = delete;
    ~Room() { ::operator delete[](p_, LINE); }
    operator double*() const { return p_; }
    double* data() const { return p_; }

  private:
    static constexpr std::align_val_t LINE{64};
    double* p_;
};

}  // namespace
