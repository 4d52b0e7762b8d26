// GIF87a and GIF89a: the first frame on the logical screen. The LZW decoder holds 4096 codes and
// writes pixels as they come, so that a file costs its screen and nothing else.
// Source: the GIF89a specification.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "image/decoders.h"

namespace deepinfer::image {
namespace {

constexpr size_t kMaxCodes = 4096;
constexpr uint32_t kMaxCodeBits = 12;

struct Palette {
  const uint8_t* colours = nullptr;  // [count][3]
  size_t count = 0;
};

struct Frame {
  uint32_t left = 0, top = 0, width = 0, height = 0;
  bool interlaced = false;
  Palette palette;
  int transparent = -1;
};

// Reads forward; past the end it gives zeros and remembers.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> file) : file_(file) {}

  bool cut() const { return cut_; }
  uint8_t byte() {
    if (at_ >= file_.size()) {
      cut_ = true;
      return 0;
    }
    return static_cast<uint8_t>(file_[at_++]);
  }
  uint32_t word() {
    const uint32_t low = byte();
    return low | uint32_t{byte()} << 8;
  }
  const uint8_t* take(size_t bytes) {
    if (bytes > file_.size() - at_) {
      cut_ = true;
      at_ = file_.size();
      return nullptr;
    }
    const auto* data = reinterpret_cast<const uint8_t*>(file_.data()) + at_;
    at_ += bytes;
    return data;
  }
  // flags: as in both descriptors; bit 7 says that there is a table.
  Palette palette(uint8_t flags) {
    if ((flags & 0x80) == 0) return {};
    const size_t count = size_t{2} << (flags & 7);
    const uint8_t* colours = take(count * 3);
    return colours == nullptr ? Palette{} : Palette{colours, count};
  }
  void skip_blocks() {
    while (!cut_) {
      const uint8_t size = byte();
      if (size == 0) return;
      take(size);
    }
  }

 private:
  std::span<const std::byte> file_;
  size_t at_ = 0;
  bool cut_ = false;
};

// Codes of variable width, lowest bits first, out of a chain of blocks.
class CodeReader {
 public:
  explicit CodeReader(Cursor& cursor) : cursor_(cursor) {}

  // -1: the blocks or the file have ended.
  int next(uint32_t width) {
    while (held_ < width) {
      if (left_ == 0) {
        left_ = ended_ ? uint8_t{0} : cursor_.byte();
        if (left_ == 0) {
          ended_ = true;
          return -1;
        }
      }
      bits_ |= uint32_t{cursor_.byte()} << held_;
      held_ += 8;
      --left_;
      if (cursor_.cut()) return -1;
    }
    const uint32_t code = bits_ & ((1u << width) - 1);
    bits_ >>= width;
    held_ -= width;
    return static_cast<int>(code);
  }

  // To the end of the chain.
  void finish() {
    if (ended_) return;
    cursor_.take(left_);
    cursor_.skip_blocks();
  }

 private:
  Cursor& cursor_;
  uint32_t bits_ = 0;
  uint32_t held_ = 0;
  uint8_t left_ = 0;  // bytes of the block
  bool ended_ = false;
};

// Puts the pixels of a frame on the screen, in the order of the file.
class FrameWriter {
 public:
  FrameWriter(const Frame& frame, Picture& screen, bool strip)
      : frame_(frame), screen_(screen), strip_(strip) {}

  bool full() const { return row_ == frame_.height; }

  void put(uint8_t index) {
    const uint32_t x = frame_.left + column_, y = frame_.top + line_;
    const bool opaque = index < frame_.palette.count && (index != frame_.transparent || strip_);
    if (opaque && x < screen_.size.width && y < screen_.size.height) {
      std::copy_n(frame_.palette.colours + size_t{index} * 3, 3, screen_.row(y) + size_t{x} * 3);
    }
    if (++column_ < frame_.width) return;
    column_ = 0;
    ++row_;
    next_line();
  }

 private:
  // Interlaced rows come as 0, 8, 16 ..., 4, 12 ..., 2, 6 ..., 1, 3 ...
  void next_line() {
    if (!frame_.interlaced) {
      line_ = row_;
      return;
    }
    static constexpr std::array<uint32_t, 4> kFirst = {0, 4, 2, 1}, kStep = {8, 8, 4, 2};
    line_ += kStep[pass_];
    while (line_ >= frame_.height && pass_ < 3) line_ = kFirst[++pass_];
  }

  const Frame& frame_;
  Picture& screen_;
  bool strip_;
  uint32_t column_ = 0;
  uint32_t row_ = 0;   // rows done
  uint32_t line_ = 0;  // where the current one goes
  size_t pass_ = 0;
};

class LzwDecoder {
 public:
  explicit LzwDecoder(uint32_t root_bits) : root_bits_(root_bits), clear_(1u << root_bits) {
    for (uint32_t i = 0; i < clear_; ++i) last_[i] = static_cast<uint8_t>(i);
    reset();
  }

  // False: the codes contradict the table or end before the frame is full.
  bool run(CodeReader& codes, FrameWriter& writer) {
    while (!writer.full()) {
      const int read = codes.next(width_);
      if (read < 0) return false;
      const auto code = static_cast<uint32_t>(read);
      if (code == clear_) {
        reset();
      } else if (code == clear_ + 1 || !expand(code, writer)) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr uint32_t kNone = ~0u;

  void reset() {
    width_ = root_bits_ + 1;
    next_ = clear_ + 2;
    previous_ = kNone;
  }

  // Writes the string of a code and adds the previous one with the first value of this.
  bool expand(uint32_t code, FrameWriter& writer) {
    // The code that is about to be defined: the previous string and its first value again.
    const bool pending = code == next_ && previous_ != kNone && next_ < kMaxCodes;
    if (code >= next_ && !pending) return false;
    size_t depth = 0;
    if (pending) depth = 1;  // its last value is known below
    for (uint32_t at = pending ? previous_ : code;; at = prefix_[at]) {
      stack_[depth++] = last_[at];
      if (at < clear_) break;
    }
    const uint8_t first = stack_[depth - 1];
    if (pending) stack_[0] = first;
    while (depth > 0 && !writer.full()) writer.put(stack_[--depth]);
    if (previous_ != kNone && next_ < kMaxCodes) {
      prefix_[next_] = static_cast<uint16_t>(previous_);
      last_[next_] = first;
      ++next_;
    }
    if (next_ == 1u << width_ && width_ < kMaxCodeBits) ++width_;
    previous_ = code;
    return true;
  }

  uint32_t root_bits_;
  uint32_t clear_;  // the code after the roots; the next one ends the data
  uint32_t width_ = 0;
  uint32_t next_ = 0;  // code that is defined next
  uint32_t previous_ = kNone;
  std::array<uint16_t, kMaxCodes> prefix_ = {};
  std::array<uint8_t, kMaxCodes> last_ = {};
  std::array<uint8_t, kMaxCodes + 1> stack_ = {};
};

// From the descriptor on.
Frame read_frame(Cursor& cursor, const Palette& global, int transparent) {
  Frame frame;
  frame.left = cursor.word();
  frame.top = cursor.word();
  frame.width = cursor.word();
  frame.height = cursor.word();
  const uint8_t flags = cursor.byte();
  frame.interlaced = (flags & 0x40) != 0;
  frame.palette = cursor.palette(flags);
  if (frame.palette.count == 0) frame.palette = global;
  frame.transparent = transparent;
  return frame;
}

// An extension; the index of a graphic control replaces `transparent`.
void read_extension(Cursor& cursor, int& transparent) {
  if (cursor.byte() != 0xF9) return cursor.skip_blocks();
  const uint8_t size = cursor.byte();
  const uint8_t* control = size == 0 ? nullptr : cursor.take(size);
  if (control != nullptr && size >= 4) transparent = (control[0] & 1) != 0 ? control[3] : -1;
  if (size != 0) cursor.skip_blocks();
}

// What follows the first frame must be there; it is not decoded.
Result<void> check_rest(const DecodeJob& job, Cursor& cursor) {
  while (true) {
    const uint8_t block = cursor.byte();
    if (cursor.cut()) return job.damaged("GIF: the data are cut short");
    if (block == ';') return {};
    if (block == ',') {
      (void)read_frame(cursor, {}, -1);
      (void)cursor.byte();  // width of the codes
      cursor.skip_blocks();
    } else if (block == '!') {
      (void)cursor.byte();
      cursor.skip_blocks();
    } else {
      return job.damaged(fmt::format("GIF: a block of the unknown kind {}", block));
    }
  }
}

Result<void> read_pixels(const DecodeJob& job, Cursor& cursor, const Frame& frame,
                         Picture& screen) {
  const uint32_t root_bits = cursor.byte();
  if (cursor.cut()) return job.damaged("GIF: the data are cut short");
  if (frame.palette.count == 0) return job.damaged("GIF: there is no colour table");
  if (frame.width == 0 || frame.height == 0) {
    return job.damaged(fmt::format("GIF: the frame is {}x{}", frame.width, frame.height));
  }
  if (root_bits < 1 || root_bits > 8) {
    return job.damaged(fmt::format("GIF: codes of {} bits, known are 1 to 8", root_bits));
  }
  CodeReader codes(cursor);
  FrameWriter writer(frame, screen, job.strip());
  LzwDecoder decoder(root_bits);
  if (!decoder.run(codes, writer)) {
    return job.damaged(cursor.cut() ? "GIF: the data are cut short"
                                    : "GIF: the pixel data are damaged or too few");
  }
  codes.finish();
  return {};
}

void fill_screen(const DecodeJob& job, const Palette& global, uint8_t background, Picture& screen) {
  std::array<uint8_t, 3> colour = {kBackground, kBackground, kBackground};
  if (job.strip()) {
    colour = {};
    if (background < global.count) {
      std::copy_n(global.colours + size_t{background} * 3, 3, colour.begin());
    }
  }
  uint8_t* rgb = screen.row(0);
  for (size_t i = 0; i < screen.bytes(); i += 3) std::copy_n(colour.begin(), 3, rgb + i);
}

}  // namespace

Result<Picture> decode_gif(const DecodeJob& job) {
  Cursor cursor(job.file);
  cursor.take(6);  // the signature and any version
  const uint32_t width = cursor.word(), height = cursor.word();
  const uint8_t flags = cursor.byte(), background = cursor.byte();
  (void)cursor.byte();  // pixel aspect
  if (cursor.cut()) return job.damaged("GIF: there is no whole header");
  TRY(job.check_sides(width, height));
  const Palette global = cursor.palette(flags);
  int transparent = -1;
  while (true) {
    const uint8_t block = cursor.byte();
    if (cursor.cut()) return job.damaged("GIF: the data are cut short");
    if (block == '!') {
      read_extension(cursor, transparent);
    } else if (block == ',') {
      break;
    } else {
      return job.damaged("GIF: there is no frame");
    }
  }
  const Frame frame = read_frame(cursor, global, transparent);
  if (cursor.cut()) return job.damaged("GIF: the data are cut short");
  Picture screen = TRY(Picture::create({width, height}));
  fill_screen(job, global, background, screen);
  TRY(read_pixels(job, cursor, frame, screen));
  TRY(check_rest(job, cursor));
  return screen;
}

}  // namespace deepinfer::image
