#include <fmt/format.h>
#include <simdjson.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "weights/checkpoint_files.h"
#include "weights/safetensors/safetensors.h"

namespace deepinfer::weights {
namespace {

constexpr size_t kSideFileLimit = size_t{256} << 20;
constexpr size_t kIndexLimit = size_t{100} << 20;
constexpr std::array<const char*, 5> kSideFiles = {"config.json", "tokenizer.json",
                                                   "tokenizer_config.json",
                                                   "generation_config.json", "engram.json"};

// Tensor name -> file name, and the other way round in the order of the file names.
struct ShardIndex {
  std::map<std::string, std::string, std::less<>> file_of_tensor;
  std::map<std::string, size_t, std::less<>> files;  // file name -> position in the checkpoint
};

bool exists(const std::string& path) {
  std::error_code failure;
  return std::filesystem::exists(path, failure);
}

Result<void> add_index_line(ShardIndex& index, std::string_view name,
                            const simdjson::dom::element& value, const std::string& source) {
  std::string_view file;
  if (value.get(file) != simdjson::SUCCESS) {
    return Error::corrupt(tensor_thing(source, name), "the file it lies in is not a string");
  }
  if (file.empty() || file.find('/') != file.npos || file.find('\0') != file.npos || file == "." ||
      file == "..") {
    return Error::corrupt(
        tensor_thing(source, name),
        fmt::format("lies in \"{}\", expected the plain name of a file", printable(file)));
  }
  if (!index.file_of_tensor.emplace(std::string(name), std::string(file)).second) {
    return Error::corrupt(tensor_thing(source, name), "is listed twice");
  }
  index.files.emplace(std::string(file), 0);
  return {};
}

Result<ShardIndex> read_index(const std::string& path) {
  const std::string text = TRY(read_file(path, kIndexLimit));
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const simdjson::error_code failure = parser.parse(text.data(), text.size()).get(root);
  if (failure != simdjson::SUCCESS) {
    return Error::corrupt(path, fmt::format("is not JSON: {}", simdjson::error_message(failure)));
  }
  simdjson::dom::object map;
  if (root["weight_map"].get(map) != simdjson::SUCCESS) {
    return Error::corrupt(path, "has no object weight_map");
  }
  ShardIndex index;
  for (const auto& [name, value] : map) TRY(add_index_line(index, name, value, path));
  if (index.files.empty()) return Error::corrupt(path, "weight_map lists no tensor");
  size_t position = 0;
  for (auto& [file, place] : index.files) place = position++;
  return index;
}

Result<void> add_file(CheckpointFiles& parts, const std::string& path) {
  MappedFile file = TRY(MappedFile::open(path));
  parts.tables.push_back(TRY(parse_safetensors(file.bytes(), file.bytes().size(), path)));
  parts.files.push_back(std::move(file));
  return {};
}

// The index and the shards list the same tensors in the same files.
Result<void> check_index(const ShardIndex& index, const CheckpointFiles& parts,
                         const std::string& source) {
  std::map<std::string_view, size_t> place;
  for (size_t file = 0; file < parts.tables.size(); ++file) {
    const std::string& path = parts.files[file].path();
    for (const TableEntry& entry : parts.tables[file]) {
      const auto [other, added] = place.emplace(entry.name, file);
      if (!added) {
        return Error::corrupt(tensor_thing(path, entry.name),
                              fmt::format("is also in {}", parts.files[other->second].path()));
      }
      if (index.file_of_tensor.find(entry.name) == index.file_of_tensor.end()) {
        return Error::corrupt(tensor_thing(path, entry.name),
                              fmt::format("is not listed in {}", source));
      }
    }
  }
  for (const auto& [name, file] : index.file_of_tensor) {
    const auto found = place.find(name);
    if (found == place.end()) {
      return Error::corrupt(
          tensor_thing(source, name),
          fmt::format("is listed for {}, which does not have it", printable(file)));
    }
    if (found->second != index.files.find(file)->second) {
      return Error::corrupt(tensor_thing(source, name),
                            fmt::format("is listed for {}, it lies in {}", printable(file),
                                        parts.files[found->second].path()));
    }
  }
  return {};
}

Result<void> add_shards(CheckpointFiles& parts, const std::string& prefix,
                        const std::string& index_path) {
  const ShardIndex index = TRY(read_index(index_path));
  for (const auto& [file, place] : index.files) {
    if (!exists(prefix + file)) {
      return Error::not_found(prefix + printable(file),
                              fmt::format("is listed in {} and is not there", index_path));
    }
    TRY(add_file(parts, prefix + file));
  }
  return check_index(index, parts, index_path);
}

}  // namespace

std::span<const char* const> side_file_names() { return kSideFiles; }

Result<void> read_side_files(const std::string& directory, CheckpointFiles& parts) {
  const std::string prefix = directory.ends_with('/') ? directory : directory + "/";
  for (const char* name : kSideFiles) {
    if (!exists(prefix + name)) continue;
    parts.side_files.emplace(name, TRY(read_file(prefix + name, kSideFileLimit)));
  }
  return {};
}

Result<CheckpointFiles> open_safetensors_directory(const std::string& directory) {
  const std::string prefix = directory.ends_with('/') ? directory : directory + "/";
  if (!exists(prefix + "config.json")) {
    return Error::not_found(directory, "is a directory without config.json",
                            "a model is a directory with config.json and safetensors, or a .gguf "
                            "file");
  }
  CheckpointFiles parts;
  parts.container = Container::safetensors;
  TRY(read_side_files(directory, parts));
  const std::string single = prefix + "model.safetensors";
  const std::string index = prefix + "model.safetensors.index.json";
  if (exists(single)) {
    TRY(add_file(parts, single));
  } else if (exists(index)) {
    TRY(add_shards(parts, prefix, index));
  } else {
    return Error::not_found(directory,
                            "has neither model.safetensors nor model.safetensors.index.json");
  }
  return parts;
}

}  // namespace deepinfer::weights
