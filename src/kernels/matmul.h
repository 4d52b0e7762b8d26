#pragma once

// Products of activation rows with a weight matrix in any storage format:
//   out[m][n] = sum over k of x[m][k] * w[n][k]   (+ bias[n])     w: [outputs, inputs] as stored
//
// Weights are repacked once, for the instruction set (PackedMatrix): rows interleaved into panels
// so that one vector lane is one output. Activations are prepared once for all products that read
// them (Activations): as they are (f32) or as int8 with one scale per 32 values.
//
//   PackedMatrix w = TRY(PackedMatrix::pack(view, target, pool));
//   acts.begin(target, rows, w.inputs(), w.form());
//   for (size_t r = 0; r < rows; ++r) acts.fill_row(r, x + r * inputs);
//   matmul(pool, acts, {{.weights = &w, .out = y, .stride = w.outputs()}});
//
// Bits: for every output the order of additions is fixed by the weights' shape and format alone:
//   int8: acc = fma(float(isum_b), d_w[b] * d_x[b], acc), b ascending, isum_b an exact integer
//         (formats with a minimum then add acc = fma(-min_b or m_b, d_x[b] * sum_x[b], acc));
//   f32:  acc = fma(w_k, x_k, acc), k ascending, one chain; w_k is the float that decode_row()
//         gives: of FP8 the product of code and scale, rounded once where the scale is no power of
//         two.
// So a row's result does not depend on the number of rows, its place, the threads or the chunks.
// int8 activations (source: spec of the int8 kernels): d = amax / 127 in fp32,
// q = round_to_nearest_even(x * (127 / amax)), clamped to +-127; amax = 0 gives d = 0, q = 0.
// Refined rows (kRefined) are two rows to the kernels: the codes of x and the codes of what they
// leave, r = fma(-d, q, x); the output is the sum of the two products, then the bias. 16 bits of
// activation for products that read few rows or that the model is sensitive to; a single row costs
// one pass over the weights all the same. NaN or infinite activations make d NaN, so the outputs
// are NaN and are noticed.
//
// Threads: pack() and matmul() use the pool, from one thread at a time; fill_row() of distinct rows
// from any worker. A PackedMatrix is read-only after pack().

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/isa.h"
#include "tensor/arena.h"
#include "tensor/scaled_view.h"
#include "tensor/tensor.h"

namespace deepinfer::kernels {

// What a product reads of its activations: a bit-or of these.
using ActivationForms = unsigned;
inline constexpr ActivationForms kFormF32 = 1;   // values as they are
inline constexpr ActivationForms kFormInt8 = 2;  // codes and a scale per 32 values
// Planes beside the int8 codes, one number per block and row, for one kind of weight code each:
inline constexpr ActivationForms kPlaneSum = 4;      // d * sum of codes (formats with a minimum)
inline constexpr ActivationForms kPlaneOffset8 = 8;  // -8 * sum, as the ISA's accumulator starts
inline constexpr ActivationForms kPlaneOffset12 = 16;
inline constexpr ActivationForms kPlaneOffset128 = 32;
inline constexpr ActivationForms kPlaneHalves32 = 64;  // two numbers: -32 * sum of each 16
// Not a need of a product but a wish of the model, or-ed in at Activations::begin(): int8 codes are
// followed by the codes of their error.
inline constexpr ActivationForms kRefined = 128;

struct MatmulKernel;  // kernels/matmul/matmul_kernel.h: one implementation

// What was chosen for an operation and why the others were not; printed by --explain.
struct Choice {
  std::string operation;                                     // "matmul Q4_0 2048x2048 fast"
  std::string chosen;                                        // "q4_0.int8.avx512"
  std::vector<std::pair<std::string, std::string>> refused;  // name, reason
};

class PackedMatrix {
 public:
  PackedMatrix() = default;

  // weights: rank 2, rows() outputs x row_elements() inputs, decodable dtype. Fails when the format
  // is unknown to every kernel, or memory is short. NaN or infinity in the scales is the caller's
  // business (weights are checked by the model that loads them).
  // The panels lie in `arena`, which must outlive the matrix (all weights of a model in one arena
  // share huge pages), or in a buffer of the matrix when it is null.
  static Result<PackedMatrix> pack(const TensorView& weights, Target target, ThreadPool& pool,
                                   Arena* arena = nullptr);
  // The same for codes with scales: F8_E4M3 with tiles of multiples of 32 by 32 (or no scales),
  // F4_E2M1 with F8_E8M0 scales of 1x32 tiles; others are refused (unsupported). A view that is
  // panels already (of a packed checkpoint: codes.panels) is used where it lies, without a copy,
  // and must outlive the matrix; it fails (unsupported, naming both) when the panels were made for
  // another kind of kernel.
  static Result<PackedMatrix> pack(const ScaledView& weights, Target target, ThreadPool& pool,
                                   Arena* arena = nullptr);
  // Packs into memory of the caller (a slot of a streamed cache), on this thread. Requires:
  // panels holds packed_bytes(); 8 KiB of readable memory follow it.
  static Result<PackedMatrix> pack_into(const ScaledView& weights, Target target,
                                        std::span<std::byte> panels);
  // Bytes of the panels that pack() would make of it; data is not read and may be null.
  static Result<size_t> packed_bytes(const ScaledView& weights, Target target);

  // The choice that pack() would make, without packing.
  static Result<Choice> explain(DType dtype, size_t outputs, size_t inputs, Target target);

  // Outputs [first, first + count) over the same panels, which must outlive the slice. Requires:
  // first is a multiple of panel_outputs().
  PackedMatrix slice_outputs(size_t first, size_t count) const;
  size_t panel_outputs() const;
  // Of the panels that pack() would make.
  static Result<size_t> panel_outputs(const ScaledView& weights, Target target);

  size_t outputs() const { return outputs_; }
  size_t inputs() const { return inputs_; }
  DType dtype() const { return dtype_; }
  ActivationForms form() const;
  std::string_view kernel_name() const;
  size_t bytes() const { return panel_count_ * panel_bytes_; }  // read by one pass over the matrix

  // out [inputs]: row `output` as float, exactly what the file's codes mean (embedding look-up).
  void decode_row(size_t output, float* out) const noexcept;

 private:
  friend struct MatmulRun;
  static Result<PackedMatrix> plan(const ScaledView& weights, Target target);
  void pack_panel(const ScaledView& weights, size_t panel);

  const MatmulKernel* kernel_ = nullptr;
  DType dtype_ = DType::f32;
  size_t outputs_ = 0;
  size_t inputs_ = 0;
  size_t panel_bytes_ = 0;
  size_t panel_count_ = 0;
  std::byte* panels_ = nullptr;  // [panel_count][panel_bytes], then memory that may be prefetched
  Buffer own_;                   // holds the panels when no arena does
};

// Some consecutive rows that a kernel takes together; their values are interleaved.
struct RowGroup {
  size_t first_row;
  size_t rows;    // real rows
  size_t padded;  // rows of the layout: a size that the kernels have a body for
  size_t offset;  // bytes into the form's buffer
};

// The layout of panels that the kernels of an instruction set read.
PanelLayout panel_layout(Isa isa);

// The rows that a group of products reads. Reused from step to step; memory grows to the largest.
class Activations {
 public:
  // Forgets the rows and takes the shape. forms: those of all products that will read the rows,
  // or-ed together; inputs <= 2^20.
  void begin(Target target, size_t rows, size_t inputs, ActivationForms forms);
  // Rows sorted into segments, each read by products of its own (the experts of a layer):
  // segment_rows[s] rows each, some may be 0. fill_row() counts rows over all segments.
  void begin(Target target, std::span<const uint32_t> segment_rows, size_t inputs,
             ActivationForms forms);
  // values [inputs]; each row once after begin(), distinct rows from any thread.
  void fill_row(size_t row, const float* values) noexcept;

  size_t rows() const { return rows_; }
  size_t inputs() const { return inputs_; }

 private:
  friend struct MatmulRun;
  struct Form {
    std::vector<RowGroup> groups;         // none crosses a segment
    std::vector<uint32_t> group_of;       // [rows, or twice as many when refined]
    std::vector<uint32_t> segment_group;  // [segments + 1]: first group of each, then their count
    Buffer bytes;
  };
  void layout(Form& form, size_t slots_per_row, std::span<const uint8_t> sizes,
              size_t floats_per_row);

  Target target_;
  size_t rows_ = 0;
  std::vector<uint32_t> segment_begin_;  // [segments + 1]: first row of each, then their count
  size_t inputs_ = 0;
  ActivationForms forms_ = 0;
  Form f32_;   // group: [inputs, to a multiple of 32][padded] float
  Form int8_;  // group: per 32 inputs a record of dwords {[8][padded] 4 codes, [padded] d, planes}
};

enum class Epilogue : uint8_t {
  store,  // out = product + bias
  add,    // out += product + bias
};

inline constexpr uint32_t kAllRows = UINT32_MAX;

struct Product {
  const PackedMatrix* weights = nullptr;
  uint32_t segment = kAllRows;  // or the rows of one segment; out's row 0 is its first row
  float* out = nullptr;         // row m at out + m * stride, [outputs] floats
  size_t stride = 0;
  const float* bias = nullptr;  // [outputs] or null
  Epilogue epilogue = Epilogue::store;
};

// All products in one region of the pool. Requires: every weights->inputs() ==
// activations.inputs(), the forms they need were begun, every row was filled.
void matmul(ThreadPool& pool, const Activations& activations, std::span<const Product> products);
inline void matmul(ThreadPool& pool, const Activations& activations,
                   std::initializer_list<Product> products) {
  matmul(pool, activations, std::span<const Product>(products.begin(), products.size()));
}

// What matmul() computed for this thread so far, by the instructions that did it; a multiplication
// and an addition count as two. Profiles state shares of the machine's limits with it.
struct ProductOperations {
  double f32 = 0;            // fma on fp32
  double int8_signed = 0;    // int8 activations, 8-bit codes
  double int8_unsigned = 0;  // int8 activations, codes of fewer bits
};
ProductOperations product_operations() noexcept;

}  // namespace deepinfer::kernels
