// PNG by libpng: samples brought to 8 bits and expanded palettes row by row.
//
// libpng reports errors by longjmp: between setjmp and the return of a method of PngReader there is
// no object with a destructor.

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "image/decoders.h"

namespace deepinfer::image {
namespace {

// What libpng may take for a chunk that is no pixel data.
constexpr png_alloc_size_t kChunkBytes = png_alloc_size_t{16} << 20;
constexpr size_t kSignatureBytes = 8;
constexpr size_t kHeaderBytes = 33;  // signature and IHDR

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> file) : file_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool created() const { return info_ != nullptr; }
  const char* message() const { return message_; }
  // After read_header(), of the rows that come out.
  int channels() const { return png_get_channels(png_, info_); }
  int depth() const { return png_get_bit_depth(png_, info_); }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  bool interlaced() const { return passes_ > 1; }

  // strip: high bytes of 16 bits, but grey stays as it is, for convert_row().
  bool read_header(bool strip) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, on_read);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the sides were checked
    png_set_chunk_malloc_max(png_, kChunkBytes);
    // Text, profiles and the like are skipped; their checksums count all the same.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_read_info(png_, info_);
    const int type = png_get_color_type(png_, info_);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png_);  // its key is ignored
    if (type == PNG_COLOR_TYPE_RGB && png_get_valid(png_, info_, PNG_INFO_tRNS) != 0) {
      png_set_tRNS_to_alpha(png_);
    }
    if (!strip) {
      png_set_scale_16(png_);  // round(v / 257)
    } else if (type != PNG_COLOR_TYPE_GRAY) {
      png_set_strip_16(png_);
    }
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read_row(uint8_t* row) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_row(png_, row, nullptr);
    return true;
  }

  // All passes into rows of `stride` bytes.
  bool read_all(uint8_t* rows, size_t stride, uint32_t height) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    for (int pass = 0; pass < passes_; ++pass) {
      for (uint32_t y = 0; y < height; ++y) png_read_row(png_, rows + y * stride, nullptr);
    }
    return true;
  }

  // To IEND.
  bool read_end() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self->message_, sizeof self->message_, "%s", text);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep target, size_t bytes) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (bytes > self->file_.size() - self->offset_) png_error(png, "the data are cut short");
    std::memcpy(target, self->file_.data() + self->offset_, bytes);
    self->offset_ += bytes;
  }

  std::span<const std::byte> file_;
  size_t offset_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
  char message_[96] = "";
};

// One row as libpng gave it.
void convert_row(const PngReader& reader, const uint8_t* row, size_t pixels, SampleRule rule,
                 uint8_t* rgb) {
  if (reader.depth() == 16) {  // grey, strip: clipped, not scaled
    for (size_t i = 0; i < pixels; ++i) {
      const uint8_t value = row[2 * i] != 0 ? uint8_t{255} : row[2 * i + 1];
      std::fill_n(rgb + 3 * i, 3, value);
    }
    return;
  }
  to_rgb(row, pixels, reader.channels(), rule, rgb);
}

Result<void> read_rows(const DecodeJob& job, PngReader& reader, Picture& picture) {
  const auto [width, height] = picture.size;
  const auto failed = [&] { return job.damaged(fmt::format("PNG: {}", reader.message())); };
  const SampleRule rule = job.options.samples;
  if (reader.interlaced()) {
    // [height][row_bytes], at most 4 bytes a pixel
    Buffer rows = TRY(Buffer::create(reader.row_bytes() * height));
    if (!reader.read_all(rows.as<uint8_t>(), reader.row_bytes(), height)) return failed();
    for (uint32_t y = 0; y < height; ++y) {
      const uint8_t* row = rows.as<uint8_t>() + y * reader.row_bytes();
      convert_row(reader, row, width, rule, picture.row(y));
    }
  } else {
    Buffer row = TRY(Buffer::create(reader.row_bytes()));
    for (uint32_t y = 0; y < height; ++y) {
      if (!reader.read_row(row.as<uint8_t>())) return failed();
      convert_row(reader, row.as<uint8_t>(), width, rule, picture.row(y));
    }
  }
  if (!reader.read_end()) return failed();
  return {};
}

}  // namespace

Result<Picture> decode_png(const DecodeJob& job) {
  if (job.file.size() < kHeaderBytes ||
      std::memcmp(job.data() + kSignatureBytes + 4, "IHDR", 4) != 0) {
    return job.damaged("PNG: there is no whole header");
  }
  const Size size = {big_endian(job.data() + 16), big_endian(job.data() + 20)};
  TRY(job.check_sides(size.width, size.height));
  PngReader reader(job.file);
  if (!reader.created()) return Error::exhausted(job.thing, "no memory for a PNG decoder");
  if (!reader.read_header(job.strip())) {
    return job.damaged(fmt::format("PNG: {}", reader.message()));
  }
  Picture picture = TRY(Picture::create(size));
  TRY(read_rows(job, reader, picture));
  return picture;
}

}  // namespace deepinfer::image
