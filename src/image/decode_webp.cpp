// WebP by libwebp; of an animation the first frame on an empty canvas.

#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>

#include "image/decoders.h"

namespace deepinfer::image {
namespace {

uint32_t little_endian(const uint8_t* p) {
  return p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}

// Decodes one bitstream into samples [height][stride] of 3 or 4 channels.
bool decode_stream(std::span<const uint8_t> stream, int channels, uint8_t* samples, size_t stride,
                   size_t bytes) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return false;
  config.output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
  config.output.u.RGBA = {.rgba = samples, .stride = static_cast<int>(stride), .size = bytes};
  config.output.is_external_memory = 1;
  const bool done = WebPDecode(stream.data(), stream.size(), &config) == VP8_STATUS_OK;
  WebPFreeDecBuffer(&config.output);
  return done;
}

Result<Picture> decode_still(const DecodeJob& job, const WebPBitstreamFeatures& features) {
  const Size size = {static_cast<uint32_t>(features.width), static_cast<uint32_t>(features.height)};
  const std::span<const uint8_t> stream(job.data(), job.file.size());
  Picture picture = TRY(Picture::create(size));
  if (features.has_alpha == 0) {
    if (!decode_stream(stream, 3, picture.row(0), picture.stride(), picture.bytes())) {
      return job.damaged("WebP: the data are damaged or cut short");
    }
    return picture;
  }
  const size_t stride = size_t{size.width} * 4;
  Buffer samples = TRY(Buffer::create(stride * size.height));  // [height][width][4]
  if (!decode_stream(stream, 4, samples.as<uint8_t>(), stride, stride * size.height)) {
    return job.damaged("WebP: the data are damaged or cut short");
  }
  to_rgb(samples.as<uint8_t>(), size_t{size.width} * size.height, 4, job.options.samples,
         picture.row(0));
  return picture;
}

struct FreeDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};
struct FirstFrame {
  WebPIterator at = {};
  FirstFrame() = default;
  FirstFrame(const FirstFrame&) = delete;
  FirstFrame& operator=(const FirstFrame&) = delete;
  ~FirstFrame() { WebPDemuxReleaseIterator(&at); }
};

Result<Picture> decode_animated(const DecodeJob& job) {
  const WebPData data = {.bytes = job.data(), .size = job.file.size()};
  const std::unique_ptr<WebPDemuxer, FreeDemuxer> demuxer(WebPDemux(&data));
  if (demuxer == nullptr) return job.damaged("WebP: the animation is damaged or cut short");
  const Size canvas = {WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                       WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT)};
  TRY(job.check_sides(canvas.width, canvas.height));
  FirstFrame frame;
  if (WebPDemuxGetFrame(demuxer.get(), 1, &frame.at) == 0 || frame.at.complete == 0) {
    return job.damaged("WebP: the animation has no whole frame");
  }
  const auto x = static_cast<uint64_t>(frame.at.x_offset);
  const auto y = static_cast<uint64_t>(frame.at.y_offset);
  const auto width = static_cast<uint64_t>(frame.at.width);
  const auto height = static_cast<uint64_t>(frame.at.height);
  if (frame.at.x_offset < 0 || frame.at.y_offset < 0 || frame.at.width < 1 || frame.at.height < 1 ||
      x + width > canvas.width || y + height > canvas.height) {
    return job.damaged("WebP: the first frame leaves the canvas");
  }
  Picture picture = TRY(Picture::create(canvas));
  const uint8_t empty = job.strip() ? 0 : kBackground;
  std::fill_n(picture.row(0), picture.bytes(), empty);
  Buffer samples = TRY(Buffer::create(width * height * 4));  // [height][width][4]
  const WebPData& stream = frame.at.fragment;
  if (!decode_stream({stream.bytes, stream.size}, 4, samples.as<uint8_t>(), width * 4,
                     width * height * 4)) {
    return job.damaged("WebP: the first frame is damaged or cut short");
  }
  for (uint64_t row = 0; row < height; ++row) {
    to_rgb(samples.as<uint8_t>() + row * width * 4, width, 4, job.options.samples,
           picture.row(y + row) + 3 * x);
  }
  return picture;
}

}  // namespace

Result<Picture> decode_webp(const DecodeJob& job) {
  // RIFF tells the bytes after its own header of 8; an odd last chunk is padded.
  if (uint64_t{little_endian(job.data() + 4)} + 8 > job.file.size()) {
    return job.damaged("WebP: the data are cut short");
  }
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(job.data(), job.file.size(), &features) != VP8_STATUS_OK) {
    return job.damaged("WebP: the header is damaged");
  }
  if (features.width < 0 || features.height < 0) return job.damaged("WebP: the size is damaged");
  TRY(job.check_sides(static_cast<uint64_t>(features.width),
                      static_cast<uint64_t>(features.height)));
  return features.has_animation != 0 ? decode_animated(job) : decode_still(job, features);
}

}  // namespace deepinfer::image
