// JPEG by libjpeg-turbo: slow integer IDCT and triangle upsampling, its defaults, which are what
// the official decoders compute.
//
// The library reports errors by longjmp: between setjmp and the return of a method of JpegReader
// there is no object with a destructor.

#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

// After <cstdio>, which they need.
#include <jerror.h>
#include <jpeglib.h>

#include "image/decoders.h"

namespace deepinfer::image {
namespace {

// A progressive file of many empty scans costs a pass over all coefficients for each.
constexpr int kScanLimit = 256;

class JpegReader {
 public:
  JpegReader() {
    std::memset(&info_, 0, sizeof info_);
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    errors_.output_message = on_output;
    info_.client_data = this;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  const char* message() const { return message_; }
  uint32_t width() const { return info_.image_width; }
  uint32_t height() const { return info_.image_height; }
  int channels() const { return info_.output_components; }  // 1, 3, or 4: CMYK
  bool inverted() const { return info_.saw_Adobe_marker != 0; }

  bool read_header(std::span<const std::byte> file) {
    if (setjmp(failed_) != 0) return false;
    jpeg_create_decompress(&info_);
    progress_.progress_monitor = on_progress;
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  bool start() {
    if (setjmp(failed_) != 0) return false;
    switch (info_.jpeg_color_space) {
      case JCS_GRAYSCALE:
        info_.out_color_space = JCS_GRAYSCALE;
        break;
      case JCS_CMYK:
      case JCS_YCCK:
        info_.out_color_space = JCS_CMYK;
        break;
      default:
        info_.out_color_space = JCS_RGB;
    }
    info_.dct_method = JDCT_ISLOW;
    info_.do_fancy_upsampling = TRUE;
    jpeg_start_decompress(&info_);
    return true;
  }

  bool read_row(uint8_t* row) {
    if (setjmp(failed_) != 0) return false;
    JSAMPROW rows[1] = {row};
    jpeg_read_scanlines(&info_, rows, 1);
    return true;
  }

  // To EOI.
  bool finish() {
    if (setjmp(failed_) != 0) return false;
    jpeg_finish_decompress(&info_);
    return true;
  }

 private:
  static JpegReader* self(j_common_ptr info) { return static_cast<JpegReader*>(info->client_data); }
  [[noreturn]] static void on_error(j_common_ptr info) {
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    JpegReader* reader = self(info);
    std::snprintf(reader->message_, sizeof reader->message_, "%.90s", text);
    std::longjmp(reader->failed_, 1);
  }
  // Warnings that tell of missing or wrong picture data are errors; the others (bytes between
  // segments, odd versions) are not.
  static void on_message(j_common_ptr info, int level) {
    if (level >= 0) return;
    switch (info->err->msg_code) {
      case JWRN_JPEG_EOF:
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_MUST_RESYNC:
        on_error(info);
      default:
        break;
    }
  }
  static void on_output(j_common_ptr) {}
  static void on_progress(j_common_ptr info) {
    if (!info->is_decompressor) return;
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kScanLimit) return;
    JpegReader* reader = self(info);
    std::snprintf(reader->message_, sizeof reader->message_, "there are more than %d scans",
                  kScanLimit);
    std::longjmp(reader->failed_, 1);
  }

  jpeg_decompress_struct info_;
  jpeg_error_mgr errors_;
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf failed_;
  char message_[96] = "";
};

// cmyk [pixels][4], ink as it is printed or (inverted) as the paper left of it.
void cmyk_to_rgb(const uint8_t* cmyk, size_t pixels, bool inverted, uint8_t* rgb) {
  const uint32_t flip = inverted ? 0 : 255;
  for (size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    const uint32_t black = cmyk[3] ^ flip;  // 255 - K
    for (size_t c = 0; c < 3; ++c) {
      rgb[c] = static_cast<uint8_t>(((cmyk[c] ^ flip) * black + 127) / 255);
    }
  }
}

}  // namespace

Result<Picture> decode_jpeg(const DecodeJob& job) {
  JpegReader reader;
  const auto failed = [&] { return job.damaged(fmt::format("JPEG: {}", reader.message())); };
  if (!reader.read_header(job.file)) return failed();
  TRY(job.check_sides(reader.width(), reader.height()));
  if (!reader.start()) return failed();
  Picture picture = TRY(Picture::create({reader.width(), reader.height()}));
  const size_t pixels = picture.size.width;
  const bool direct = reader.channels() == 3;
  Buffer row = TRY(Buffer::create(pixels * 4));  // [width][channels]
  for (uint32_t y = 0; y < picture.size.height; ++y) {
    uint8_t* out = picture.row(y);
    if (!reader.read_row(direct ? out : row.as<uint8_t>())) return failed();
    if (reader.channels() == 1) {
      to_rgb(row.as<uint8_t>(), pixels, 1, job.options.samples, out);
    } else if (!direct) {
      cmyk_to_rgb(row.as<uint8_t>(), pixels, reader.inverted(), out);
    }
  }
  if (!reader.finish()) return failed();
  return picture;
}

}  // namespace deepinfer::image
