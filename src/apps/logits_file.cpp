#include "apps/logits_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/json_writer.h"

namespace deepinfer::apps {
namespace {

std::string part_of(const std::string& path) { return path + ".part"; }

// u64 length, then JSON padded to a multiple of 8.
std::string header_text(const std::vector<size_t>& positions, size_t vocabulary) {
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  uint64_t offset = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    json.key("logits." + std::to_string(i));
    json.begin_object();
    json.member("dtype", "F32");
    json.key("shape");
    json.begin_array();
    json.value(positions[i]);
    json.value(vocabulary);
    json.end_array();
    json.key("data_offsets");
    json.begin_array();
    json.value(offset);
    offset += positions[i] * vocabulary * sizeof(float);
    json.value(offset);
    json.end_array();
    json.end_object();
  }
  json.end_object();
  while (text.size() % 8 != 0) text += ' ';
  const uint64_t length = text.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + text;
}

}  // namespace

Result<LogitsFile> LogitsFile::create(const std::string& path, const std::vector<size_t>& positions,
                                      size_t vocabulary) {
  std::FILE* file = std::fopen(part_of(path).c_str(), "wbe");
  if (file == nullptr) return Error::io(path, std::strerror(errno));
  const std::string header = header_text(positions, vocabulary);
  std::fwrite(header.data(), 1, header.size(), file);
  return LogitsFile(path, file);
}

LogitsFile::~LogitsFile() {
  if (file_ != nullptr) unlink(part_of(path_).c_str());
}

void LogitsFile::add_row(std::span<const float> logits) {
  std::fwrite(logits.data(), sizeof(float), logits.size(), file_.get());
}

Result<void> LogitsFile::finish() {
  const bool failed = std::ferror(file_.get()) != 0 || std::fflush(file_.get()) != 0 ||
                      fsync(fileno(file_.get())) != 0 ||
                      std::rename(part_of(path_).c_str(), path_.c_str()) != 0;
  if (failed) return Error::io(path_, std::strerror(errno), "is the disk full?");
  file_.reset();
  return {};
}

}  // namespace deepinfer::apps
