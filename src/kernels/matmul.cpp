#include "kernels/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/matmul_scratch.h"
#include "kernels/matmul_kernel.h"
#include "kernels/quantize_row.h"

namespace deepinfer::kernels {
namespace {

// Panels past the last one that a kernel may prefetch.
constexpr size_t kSlackBytes = 8192;

bool wants(const MatmulKernel& kernel, Numerics numerics) {
  return numerics == Numerics::fast || (kernel.forms & kFormF32) != 0;
}

struct Selection {
  const MatmulKernel* kernel = nullptr;
  Choice choice;
};

Result<Selection> select(DType dtype, size_t outputs, size_t inputs, Target target) {
  Selection s;
  s.choice.operation = fmt::format("matmul {} {}x{} {}", dtype_info(dtype).name, outputs, inputs,
                                   numerics_name(target.numerics));
  for (const MatmulKernel& kernel : matmul_kernels(target.isa)) {
    if (kernel.dtype != dtype) continue;
    std::string why = kernel.refuse(inputs);
    if (why.empty() && !wants(kernel, target.numerics)) why = "rounds activations to int8";
    if (why.empty()) {
      s.kernel = &kernel;
      s.choice.chosen = kernel.name;
      return s;
    }
    s.choice.refused.emplace_back(kernel.name, std::move(why));
  }
  return Error::unsupported(s.choice.operation,
                            s.choice.refused.empty()
                                ? "no kernel reads this format"
                                : "refused by every kernel: " + s.choice.refused.back().second);
}

}  // namespace

float* matmul_scratch(size_t floats) noexcept {
  static thread_local Buffer buffer;
  if (buffer.size() < floats * sizeof(float)) buffer = Buffer(floats * sizeof(float));
  return buffer.as<float>();
}

Result<Choice> PackedMatrix::explain(DType dtype, size_t outputs, size_t inputs, Target target) {
  return TRY(select(dtype, outputs, inputs, target)).choice;
}

Result<PackedMatrix> PackedMatrix::pack(const TensorView& weights, Target target, ThreadPool& pool,
                                        Arena* arena) {
  const Selection s = TRY(select(weights.dtype, weights.rows(), weights.row_elements(), target));
  PackedMatrix m;
  m.kernel_ = s.kernel;
  m.dtype_ = weights.dtype;
  m.outputs_ = weights.rows();
  m.inputs_ = weights.row_elements();
  m.panel_bytes_ = s.kernel->panel_bytes(m.inputs_);
  m.panel_count_ = (m.outputs_ + s.kernel->panel_outputs - 1) / s.kernel->panel_outputs;
  if (arena) {
    m.panels_ = TRY(arena->allocate(m.bytes()));
  } else {
    m.own_ = TRY(Buffer::create(m.bytes() + kSlackBytes));
    m.panels_ = m.own_.data();
  }
  pool.run(m.panel_count_, [&](size_t p, size_t) {
    s.kernel->pack(weights, p * s.kernel->panel_outputs, m.panels_ + p * m.panel_bytes_);
  });
  return m;
}

ActivationForms PackedMatrix::form() const { return kernel_->forms; }
std::string_view PackedMatrix::kernel_name() const { return kernel_->name; }

void PackedMatrix::decode_row(size_t output, float* out) const noexcept {
  const size_t lanes = kernel_->panel_outputs;
  kernel_->decode_row(panels_ + output / lanes * panel_bytes_, output % lanes, inputs_, out);
}

size_t int8_record_dwords(ActivationForms forms, ActivationForms plane) {
  size_t dwords = 9;  // 8 of codes, 1 scale
  for (ActivationForms bit = kPlaneSum; bit <= kPlaneHalves32; bit <<= 1) {
    if (bit == plane) return dwords;
    if (forms & bit) dwords += bit == kPlaneHalves32 ? 2 : 1;
  }
  return dwords;
}

void Activations::begin(Target target, size_t rows, size_t inputs, ActivationForms forms) {
  check(inputs > 0 && inputs <= (size_t{1} << 20), "inputs out of range");
  check((forms & (kFormF32 | kFormInt8)) != 0, "no activation form");
  target_ = target;
  rows_ = rows;
  inputs_ = inputs;
  forms_ = forms;
  if (forms & kFormF32) layout(f32_, rows, f32_group_sizes(target.isa), (inputs + 1) / 2 * 2);
  if (forms & kFormInt8) {
    layout(int8_, rows * (forms & kRefined ? 2 : 1), int8_group_sizes(target.isa),
           (inputs + 31) / 32 * int8_record_dwords(forms, 0));
  }
}

void Activations::layout(Form& form, size_t rows, std::span<const uint8_t> sizes,
                         size_t floats_per_row) {
  form.groups.clear();
  size_t offset = 0;
  for (size_t row = 0; row < rows;) {
    const size_t here = std::min<size_t>(rows - row, sizes.back());
    const size_t padded = *std::lower_bound(sizes.begin(), sizes.end(), here);
    form.groups.push_back({row, here, padded, offset});
    offset += (padded * floats_per_row * sizeof(float) + 63) / 64 * 64;
    row += here;
  }
  if (form.bytes.size() < offset) form.bytes = Buffer(offset + offset / 4);
  // Rows that only fill up a group: any finite numbers will do, they are never written out.
  for (const RowGroup& group : form.groups) {
    if (group.padded != group.rows || inputs_ % 32 != 0) {
      std::memset(form.bytes.data() + group.offset, 0,
                  group.padded * floats_per_row * sizeof(float));
    }
  }
}

void Activations::fill_row(size_t row, const float* values) noexcept {
  if (forms_ & kFormF32) {
    const size_t largest = f32_group_sizes(target_.isa).back();
    const RowGroup& group = f32_.groups[row / largest];
    float* out = reinterpret_cast<float*>(f32_.bytes.data() + group.offset) + row % largest;
    for (size_t k = 0; k < inputs_; ++k) out[k * group.padded] = values[k];
  }
  if (forms_ & kFormInt8) {
    const size_t slot = row * (forms_ & kRefined ? 2 : 1);
    const std::span<const uint8_t> sizes = int8_group_sizes(target_.isa);
    // Both slots of a refined row lie in one group: the largest size is even on every set.
    const RowGroup& group = int8_.groups[slot / sizes.back()];
    quantize_row(target_.isa, values, inputs_,
                 {.group = reinterpret_cast<uint32_t*>(int8_.bytes.data() + group.offset),
                  .padded = group.padded,
                  .row = slot % sizes.back(),
                  .forms = forms_,
                  .paired_planes = target_.isa == Isa::avx2});
  }
}

// Splits the panels of all products into chunks of about equal bytes.
struct MatmulRun {
  struct Part {
    size_t product;
    size_t panel_begin, panel_end;
  };

  static MatmulChunk chunk_of(const Activations& a, const Product& product) {
    const PackedMatrix& w = *product.weights;
    const bool int8 = (w.kernel_->forms & kFormInt8) != 0;
    const Activations::Form& form = int8 ? a.int8_ : a.f32_;
    const ActivationForms plane = w.kernel_->forms & ~(kFormInt8 | kFormF32);
    return {.panels = w.panels_,
            .panel_bytes = w.panel_bytes_,
            .inputs = w.inputs_,
            .outputs = w.outputs_,
            .groups = form.groups,
            .activations = form.bytes.data(),
            .record_dwords = int8 ? int8_record_dwords(a.forms_, 0) : 0,
            .plane_dword = plane ? int8_record_dwords(a.forms_, plane) : 0,
            .rows_per_output = int8 && (a.forms_ & kRefined) ? size_t{2} : size_t{1},
            .out = product.out,
            .stride = product.stride,
            .bias = product.bias,
            .epilogue = product.epilogue};
  }

  // At least 8 chunks a thread where the work allows, none below about 16 KiB of weights times
  // rows.
  static size_t panels_per_chunk(const PackedMatrix& w, size_t rows, size_t total_bytes,
                                 size_t threads) {
    const size_t even = total_bytes / (threads * 8);
    const size_t least = std::max<size_t>(16 * 1024 / std::max<size_t>(rows, 1), 1);
    const size_t panels = std::max(even, least) / w.panel_bytes_;
    const size_t most = rows > 24 ? 8 : 4096;  // many rows: panels should stay in the L2 cache
    return std::clamp<size_t>(panels, 1, most);
  }

  static void run(ThreadPool& pool, const Activations& a, std::span<const Product> products) {
    static thread_local std::vector<Part> parts;
    static thread_local std::vector<MatmulChunk> chunks;
    parts.clear();
    chunks.clear();
    size_t total_bytes = 0;
    for (const Product& p : products) total_bytes += p.weights->bytes();
    for (size_t i = 0; i < products.size(); ++i) {
      const PackedMatrix& w = *products[i].weights;
      check(w.inputs_ == a.inputs_ && (w.kernel_->forms & ~a.forms_) == 0 &&
                w.kernel_->isa == a.target_.isa,
            "product and activations disagree");
      chunks.push_back(chunk_of(a, products[i]));
      const size_t panels = w.panel_count_;
      const size_t step = panels_per_chunk(w, a.rows_, total_bytes, pool.thread_count());
      for (size_t p = 0; p < panels; p += step) {
        parts.push_back({i, p, std::min(p + step, panels)});
      }
    }
    const Part* list = parts.data();
    const MatmulChunk* chunk_list = chunks.data();
    pool.run(parts.size(), [&](size_t index, size_t) {
      const Part& part = list[index];
      MatmulChunk chunk = chunk_list[part.product];
      chunk.panel_begin = part.panel_begin;
      chunk.panel_end = part.panel_end;
      products[part.product].weights->kernel_->run(chunk);
    });
  }
};

void matmul(ThreadPool& pool, const Activations& activations, std::span<const Product> products) {
  if (activations.rows() > 0) MatmulRun::run(pool, activations, products);
}

}  // namespace deepinfer::kernels
