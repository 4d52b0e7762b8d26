#include "kernels/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/matmul_scratch.h"
#include "kernels/matmul/matmul_kernel.h"

namespace deepinfer::kernels {
namespace {

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
  const DType format = dtype == DType::f4_e2m1 ? DType::mxfp4 : dtype;  // the same panels
  for (const MatmulKernel& kernel : matmul_kernels(target.isa)) {
    if (kernel.dtype != format) continue;
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

// Far above any model; keeps sizes of panels from overflowing.
constexpr size_t kMostOutputs = size_t{1} << 32;
constexpr size_t kMostInputs = size_t{1} << 20;

std::string matrix_name(const ScaledView& view) {
  return fmt::format("matrix {} {}", dtype_info(view.codes.dtype).name, view.codes.shape.text());
}

// Scales as the panels can hold them.
Result<void> check_tiles(const ScaledView& view) {
  TRY(check_scaled_shape(view, matrix_name(view)));
  const DType dtype = view.codes.dtype;
  const std::string tile = fmt::format("{}x{}", view.tile_outputs, view.tile_inputs);
  if (dtype == DType::f4_e2m1) {
    if (!view.scaled()) return Error::unsupported(matrix_name(view), "has no scales");
    if (view.scales.dtype != DType::f8_e8m0 || view.tile_outputs != 1 || view.tile_inputs != 32) {
      return Error::unsupported(matrix_name(view),
                                fmt::format("has {} scales of {} tiles, FP4 products read F8_E8M0 "
                                            "scales of 1x32 tiles",
                                            dtype_info(view.scales.dtype).name, tile));
    }
  } else if (dtype == DType::f8_e4m3) {
    if (view.scaled() && (view.tile_outputs % 32 != 0 || view.tile_inputs % 32 != 0)) {
      return Error::unsupported(
          matrix_name(view),
          fmt::format("has scales of {} tiles, FP8 products read multiples of 32x32", tile));
    }
  } else if (view.scaled()) {
    return Error::unsupported(matrix_name(view), "has scales beside its codes");
  }
  return {};
}

std::string_view layout_name(PanelLayout layout) {
  switch (layout) {
    case PanelLayout::rows:
      return "rows";
    case PanelLayout::ref:
      return "ref";
    case PanelLayout::avx2:
      return "avx2";
    case PanelLayout::wide512:
      return "wide512";
  }
  return "?";
}

Result<void> check_panels(const TensorView& codes, Isa isa) {
  const PanelLayout layout = panel_layout(isa);
  const std::string thing = "packed matrix " + codes.shape.text();
  if (codes.panels != layout) {
    return Error::unsupported(
        thing, fmt::format("was packed for {}, {} reads {}", layout_name(codes.panels),
                           isa_name(isa), layout_name(layout)));
  }
  if (reinterpret_cast<uintptr_t>(codes.data) % Buffer::kAlignment != 0) {
    return Error::corrupt(
        thing, fmt::format("does not start at a multiple of {} bytes", Buffer::kAlignment));
  }
  return {};
}

}  // namespace

PanelLayout panel_layout(Isa isa) {
  switch (isa) {
    case Isa::ref:
      return PanelLayout::ref;
    case Isa::avx2:
      return PanelLayout::avx2;
    case Isa::avx512:
    case Isa::emulated512:
      return PanelLayout::wide512;
  }
  return PanelLayout::rows;
}

float* matmul_scratch(size_t floats) noexcept {
  static thread_local Buffer buffer;
  if (buffer.size() < floats * sizeof(float)) buffer = Buffer(floats * sizeof(float));
  return buffer.as<float>();
}

Result<Choice> PackedMatrix::explain(DType dtype, size_t outputs, size_t inputs, Target target) {
  return TRY(select(dtype, outputs, inputs, target)).choice;
}

Result<PackedMatrix> PackedMatrix::plan(const ScaledView& weights, Target target) {
  const size_t outputs = weights.outputs(), inputs = weights.inputs();
  if (weights.codes.shape.rank() != 2 || outputs > kMostOutputs || inputs > kMostInputs) {
    return Error::unsupported(
        matrix_name(weights),
        fmt::format("products take matrices of at most {}x{}", kMostOutputs, kMostInputs));
  }
  PackedMatrix m;
  m.dtype_ = weights.codes.dtype;
  m.kernel_ = TRY(select(m.dtype_, outputs, inputs, target)).kernel;
  m.outputs_ = outputs;
  m.inputs_ = inputs;
  m.panel_bytes_ = m.kernel_->panel_bytes(inputs);
  m.panel_count_ = (outputs + m.kernel_->panel_outputs - 1) / m.kernel_->panel_outputs;
  return m;
}

Result<size_t> PackedMatrix::packed_bytes(const ScaledView& weights, Target target) {
  return TRY(plan(weights, target)).bytes();
}

size_t PackedMatrix::panel_outputs() const { return kernel_->panel_outputs; }

Result<size_t> PackedMatrix::panel_outputs(const ScaledView& weights, Target target) {
  return TRY(plan(weights, target)).panel_outputs();
}

PackedMatrix PackedMatrix::slice_outputs(size_t first, size_t count) const {
  const size_t lanes = kernel_->panel_outputs;
  check(first % lanes == 0 && first + count <= outputs_, "a slice starts with a panel");
  PackedMatrix slice;
  slice.kernel_ = kernel_;
  slice.dtype_ = dtype_;
  slice.outputs_ = count;
  slice.inputs_ = inputs_;
  slice.panel_bytes_ = panel_bytes_;
  slice.panel_count_ = (count + lanes - 1) / lanes;
  slice.panels_ = panels_ + first / lanes * panel_bytes_;
  return slice;
}

void PackedMatrix::pack_panel(const ScaledView& weights, size_t panel) {
  kernel_->pack(weights, panel * kernel_->panel_outputs, panels_ + panel * panel_bytes_);
}

Result<PackedMatrix> PackedMatrix::pack(const TensorView& weights, Target target, ThreadPool& pool,
                                        Arena* arena) {
  return pack(ScaledView{weights, {}, 0, 0}, target, pool, arena);
}

Result<PackedMatrix> PackedMatrix::pack(const ScaledView& weights, Target target, ThreadPool& pool,
                                        Arena* arena) {
  PackedMatrix m = TRY(plan(weights, target));
  if (weights.codes.panels != PanelLayout::rows) {
    TRY(check_panels(weights.codes, target.isa));
    m.panels_ = const_cast<std::byte*>(weights.codes.data);  // read-only from here on
    return m;
  }
  TRY(check_tiles(weights));
  if (arena) {
    m.panels_ = TRY(arena->allocate(m.bytes()));
  } else {
    m.own_ = TRY(Buffer::create(m.bytes() + Arena::kSlackBytes));
    m.panels_ = m.own_.data();
  }
  pool.run(m.panel_count_, [&](size_t p, size_t) { m.pack_panel(weights, p); });
  return m;
}

Result<PackedMatrix> PackedMatrix::pack_into(const ScaledView& weights, Target target,
                                             std::span<std::byte> panels) {
  PackedMatrix m = TRY(plan(weights, target));
  check(weights.codes.panels == PanelLayout::rows, "panels are packed already");
  check(panels.size() >= m.bytes(), "no room for the panels");
  check(reinterpret_cast<uintptr_t>(panels.data()) % Buffer::kAlignment == 0, "unaligned panels");
  TRY(check_tiles(weights));
  m.panels_ = panels.data();
  std::memset(m.panels_, 0, m.bytes());
  for (size_t p = 0; p < m.panel_count_; ++p) m.pack_panel(weights, p);
  return m;
}

ActivationForms PackedMatrix::form() const { return kernel_->forms; }
std::string_view PackedMatrix::kernel_name() const { return kernel_->name; }

void PackedMatrix::decode_row(size_t output, float* out) const noexcept {
  const size_t lanes = kernel_->panel_outputs;
  kernel_->decode_row(panels_ + output / lanes * panel_bytes_, output % lanes, inputs_, out);
}

namespace {

ProductOperations& counted() noexcept {
  static thread_local ProductOperations operations;
  return operations;
}

}  // namespace

ProductOperations product_operations() noexcept { return counted(); }

// Splits the panels of all products into chunks of about equal work.
struct MatmulRun {
  struct Part {
    size_t product;
    size_t panel_begin, panel_end;
  };

  static const Activations::Form& form_of(const Activations& a, const PackedMatrix& w) {
    return w.kernel_->forms & kFormInt8 ? a.int8_ : a.f32_;
  }

  static size_t rows_of(const Activations& a, const Product& product) {
    if (product.segment == kAllRows) return a.rows_;
    return a.segment_begin_[product.segment + 1] - a.segment_begin_[product.segment];
  }

  static MatmulChunk chunk_of(const Activations& a, const Product& product) {
    const PackedMatrix& w = *product.weights;
    const bool int8 = (w.kernel_->forms & kFormInt8) != 0;
    const Activations::Form& form = form_of(a, w);
    const ActivationForms plane = w.kernel_->forms & ~(kFormInt8 | kFormF32);
    std::span<const RowGroup> groups = form.groups;
    size_t first_row = 0;
    if (product.segment != kAllRows) {
      const size_t first = form.segment_group[product.segment];
      groups = groups.subspan(first, form.segment_group[product.segment + 1] - first);
      first_row = a.segment_begin_[product.segment];
    }
    return {.panels = w.panels_,
            .panel_bytes = w.panel_bytes_,
            .inputs = w.inputs_,
            .outputs = w.outputs_,
            .groups = groups,
            .activations = form.bytes.data(),
            .record_dwords = int8 ? int8_record_dwords(a.forms_, 0) : 0,
            .plane_dword = plane ? int8_record_dwords(a.forms_, plane) : 0,
            .rows_per_output = int8 && (a.forms_ & kRefined) ? size_t{2} : size_t{1},
            .first_row = first_row,
            .out = product.out,
            .stride = product.stride,
            .bias = product.bias,
            .epilogue = product.epilogue};
  }

  // Of one byte of weights: reading it costs about as much as the arithmetic of this many rows.
  static size_t work_per_byte(size_t rows) { return rows + 8; }

  // At least 8 chunks a thread where the work allows, none below about 16 KiB of weights times
  // rows.
  static size_t panels_per_chunk(const PackedMatrix& w, size_t rows, size_t work_per_chunk) {
    const size_t even = work_per_chunk / work_per_byte(rows);
    const size_t least = std::max<size_t>(16 * 1024 / rows, 1);
    const size_t panels = std::max(even, least) / w.panel_bytes_;
    const size_t most = rows > 24 ? 8 : 4096;  // many rows: panels should stay in the L2 cache
    const size_t together = w.kernel_->panels_together;
    return (std::clamp<size_t>(panels, 1, most) + together - 1) / together * together;
  }

  static void check_product(const Activations& a, const Product& p) {
    const PackedMatrix& w = *p.weights;
    check(w.inputs_ == a.inputs_ && (w.kernel_->forms & ~a.forms_) == 0 &&
              w.kernel_->isa == a.target_.isa,
          "product and activations disagree");
    check(p.segment == kAllRows || p.segment + 1 < a.segment_begin_.size(), "no such segment");
  }

  static void count(const Activations& a, const PackedMatrix& w, size_t rows) {
    const double operations = 2.0 * static_cast<double>(rows) * static_cast<double>(w.outputs_) *
                              static_cast<double>(w.inputs_);
    if (!(w.kernel_->forms & kFormInt8)) {
      counted().f32 += operations;
    } else {
      const double passes = a.forms_ & kRefined ? 2 : 1;
      (w.dtype_ == DType::q8_0 ? counted().int8_signed : counted().int8_unsigned) +=
          passes * operations;
    }
  }

  static void run(ThreadPool& pool, const Activations& a, std::span<const Product> products) {
    static thread_local std::vector<uint32_t> order;
    static thread_local std::vector<Part> parts;
    static thread_local std::vector<MatmulChunk> chunks;
    order.clear();
    parts.clear();
    chunks.clear();
    size_t work = 0;
    for (size_t i = 0; i < products.size(); ++i) {
      check_product(a, products[i]);
      chunks.push_back(chunk_of(a, products[i]));
      const size_t rows = rows_of(a, products[i]);
      if (rows == 0) continue;
      order.push_back(static_cast<uint32_t>(i));
      count(a, *products[i].weights, rows);
      work += products[i].weights->bytes() * work_per_byte(rows);
    }
    // Segments of many rows first: the last chunks of a region should be the short ones.
    std::sort(order.begin(), order.end(), [&](uint32_t x, uint32_t y) {
      const size_t rows_x = rows_of(a, products[x]), rows_y = rows_of(a, products[y]);
      return rows_x != rows_y ? rows_x > rows_y : x < y;
    });
    const size_t work_per_chunk = work / (pool.thread_count() * 8);
    size_t left = work;
    for (const uint32_t i : order) {
      const PackedMatrix& w = *products[i].weights;
      const size_t rows = rows_of(a, products[i]);
      for (size_t p = 0, end = 0; p < w.panel_count_; p = end) {
        // The last quarter in short chunks, so that the threads end together.
        const size_t even = left < work / 4 ? work_per_chunk / 4 : work_per_chunk;
        end = std::min(p + panels_per_chunk(w, rows, even), w.panel_count_);
        parts.push_back({i, p, end});
        left -= (end - p) * w.panel_bytes_ * work_per_byte(rows);
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
