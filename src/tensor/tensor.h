#pragma once

// Shapes, owning buffers and views.
//
//   Shape: up to 4 dimensions, outermost first (row-major), as safetensors writes them; GGUF's
//     reversed order is turned at load.
//   Buffer: owns bytes, 64-byte aligned, zero-filled, on huge pages when it is large and the system
//     has them.
//   TensorView: does not own. rows() x row_elements() of one dtype.
//
// Threads: a Buffer or view is a plain value; writes need the caller's synchronisation.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/result.h"
#include "tensor/dtype.h"

namespace deepinfer {

class Shape {
 public:
  static constexpr size_t kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<uint64_t> dims) {
    check(dims.size() <= kMaxRank, "rank above 4");
    for (uint64_t dim : dims) dims_[rank_++] = dim;
  }
  // Fails when rank > 4 or the product of the dimensions overflows 63 bits.
  static Result<Shape> create(std::span<const uint64_t> dims);

  size_t rank() const { return rank_; }
  uint64_t operator[](size_t axis) const { return dims_[axis]; }
  uint64_t elements() const;      // 1 for rank 0
  uint64_t row_elements() const;  // innermost dimension, 1 for rank 0
  uint64_t rows() const;          // elements() / row_elements(), 0 when a dimension is 0
  std::string text() const;       // "7168x1536"
  bool operator==(const Shape&) const = default;

 private:
  std::array<uint64_t, kMaxRank> dims_{};
  size_t rank_ = 0;
};

class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  // Fails with ErrorKind::exhausted when the system has no such memory.
  static Result<Buffer> create(size_t bytes);
  // For sizes that are small or whose limits were checked: aborts when there is no memory.
  explicit Buffer(size_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // bytes obtained by mmap, 0 when aligned_alloc
};

// How the bytes of a matrix lie: in rows as dtype.h says, or repacked for one kind of kernel
// (kernels/matmul.h), as packed checkpoints store them; then row() and decode_row() do not apply.
enum class PanelLayout : uint8_t { rows, ref, avx2, wide512 };

struct TensorView {
  DType dtype = DType::f32;
  Shape shape;
  const std::byte* data = nullptr;
  PanelLayout panels = PanelLayout::rows;

  uint64_t rows() const { return shape.rows(); }
  uint64_t row_elements() const { return shape.row_elements(); }
  size_t row_size() const { return row_bytes(dtype, shape.row_elements()); }
  size_t bytes() const { return row_size() * shape.rows(); }
  const std::byte* row(uint64_t index) const { return data + index * row_size(); }
};

}  // namespace deepinfer
