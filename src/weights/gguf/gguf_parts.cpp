#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "weights/checkpoint_files.h"
#include "weights/gguf/gguf.h"
#include "weights/gguf/metadata.h"

namespace deepinfer::weights {
namespace {

constexpr uint64_t kPartLimit = 99999;  // five digits in the name

struct SplitKeys {
  uint64_t number = 0;  // counted from 0
  uint64_t count = 1;
  std::optional<uint64_t> tensors;  // of all parts together
};

struct Part {
  MappedFile file;
  GgufHead head;
};

Result<Part> open_part(const std::string& path) {
  Part part;
  part.file = TRY(MappedFile::open(path));
  part.head = TRY(parse_gguf(part.file.bytes(), part.file.bytes().size(), path));
  return part;
}

Result<SplitKeys> read_split(const Part& part) {
  const MetadataReader reader(part.head.metadata, part.file.path());
  SplitKeys split;
  split.number = TRY(reader.integer_or("split.no", 0, kPartLimit - 1, 0));
  split.count = TRY(reader.integer_or("split.count", 0, kPartLimit, 0));
  if (split.count == 0) split.count = 1;  // a file that was never split
  if (reader.has("split.tensors.count")) {
    split.tensors = TRY(reader.integer_or("split.tensors.count", 0, uint64_t{1} << 32, 0));
  }
  if (split.number >= split.count) {
    return Error::corrupt(part.file.path(),
                          fmt::format("split.no is {}, split.count {}", split.number, split.count));
  }
  return split;
}

// "model-00001-of-00003.gguf" without what follows "model"; fails when the name is not such.
Result<std::string> stem_of(const std::string& path, const SplitKeys& split) {
  const std::string ending = fmt::format("-{:05}-of-{:05}.gguf", split.number + 1, split.count);
  if (!path.ends_with(ending)) {
    return Error::corrupt(path, fmt::format("says it is part {} of {}, its name does not end in {}",
                                            split.number + 1, split.count, ending));
  }
  return path.substr(0, path.size() - ending.size());
}

std::string part_path(const std::string& stem, uint64_t number, uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, number + 1, count);
}

void add_part(CheckpointFiles& parts, Part part) {
  parts.files.push_back(std::move(part.file));
  parts.tables.push_back(std::move(part.head.tensors));
}

Result<void> add_other_parts(CheckpointFiles& parts, const std::string& stem,
                             const SplitKeys& first) {
  for (uint64_t number = 1; number < first.count; ++number) {
    const std::string path = part_path(stem, number, first.count);
    Result<Part> part = open_part(path);
    if (!part.ok()) {
      Error error = std::move(part).error();
      if (error.kind == ErrorKind::not_found) {
        error.what += fmt::format("; it is part {} of {}", number + 1, first.count);
      }
      return error;
    }
    const SplitKeys split = TRY(read_split(part.value()));
    if (split.number != number || split.count != first.count) {
      return Error::corrupt(
          path, fmt::format("says it is part {} of {}, expected part {} of {}", split.number + 1,
                            split.count, number + 1, first.count));
    }
    add_part(parts, std::move(part).value());
  }
  return {};
}

}  // namespace

Result<CheckpointFiles> open_gguf_parts(const std::string& path) {
  Part first = TRY(open_part(path));
  const SplitKeys split = TRY(read_split(first));
  CheckpointFiles parts;
  parts.container = Container::gguf;
  std::string stem;
  if (split.count > 1) {
    stem = TRY(stem_of(path, split));
    if (split.number != 0) {
      return Error::invalid(path, fmt::format("is part {} of {}", split.number + 1, split.count),
                            fmt::format("name the first, {}", part_path(stem, 0, split.count)));
    }
  }
  parts.metadata = std::move(first.head.metadata);
  add_part(parts, std::move(first));
  TRY(add_other_parts(parts, stem, split));
  uint64_t tensors = 0;
  for (const auto& table : parts.tables) tensors += table.size();
  if (split.tensors && *split.tensors != tensors) {
    return Error::corrupt(path, fmt::format("split.tensors.count is {}, the {} parts have {}",
                                            *split.tensors, split.count, tensors));
  }
  return parts;
}

}  // namespace deepinfer::weights
