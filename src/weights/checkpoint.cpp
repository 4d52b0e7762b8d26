#include "weights/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "weights/checkpoint_files.h"
#include "weights/packed/packed.h"

namespace deepinfer::weights {

struct Checkpoint::State {
  std::string path;
  CheckpointFiles parts;
  std::vector<std::string> files;
  std::vector<NamedTensor> tensors;                          // sorted by name
  std::unordered_map<const std::byte*, uint64_t> checksums;  // of packed tensors, by their data
};

namespace {

Result<CheckpointFiles> open_files(const std::string& path) {
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (status.type() == std::filesystem::file_type::not_found) {
    return Error::not_found(path, "there is no such file or directory");
  }
  if (failure) return Error::io(path, fmt::format("stat: {}", failure.message()));
  if (std::filesystem::is_directory(status)) {
    if (std::filesystem::exists(path + "/" + kPackedFile, failure)) {
      return open_packed_directory(path);
    }
    return open_safetensors_directory(path);
  }
  if (!std::filesystem::is_regular_file(status)) {
    return Error::invalid(path, "is neither a file nor a directory");
  }
  if (path.ends_with(".safetensors")) {
    return Error::invalid(path, "is one file of a model",
                          "name the directory that has config.json and this file");
  }
  return open_gguf_parts(path);
}

Result<std::vector<NamedTensor>> join_tables(const CheckpointFiles& parts) {
  std::vector<NamedTensor> tensors;
  for (size_t file = 0; file < parts.files.size(); ++file) {
    const std::span<const std::byte> bytes = parts.files[file].bytes();
    for (const TableEntry& entry : parts.tables[file]) {
      check(entry.begin <= bytes.size() && entry.bytes <= bytes.size() - entry.begin,
            "the parser let a tensor outside its file through");
      const TensorView view{entry.dtype, entry.shape, bytes.data() + entry.begin, entry.panels};
      tensors.push_back({entry.name, view, file, entry.begin, entry.bytes});
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return a.name != b.name ? a.name < b.name : a.file < b.file;
  });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].name != tensors[i].name) continue;
    return Error::corrupt(tensor_thing(parts.files[tensors[i].file].path(), tensors[i].name),
                          fmt::format("is also in {}", parts.files[tensors[i - 1].file].path()));
  }
  return tensors;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->parts = TRY(open_files(path));
  state->tensors = TRY(join_tables(state->parts));
  for (size_t file = 0; file < state->parts.files.size(); ++file) {
    for (const TableEntry& entry : state->parts.tables[file]) {
      if (!entry.checksum) continue;
      state->checksums[state->parts.files[file].bytes().data() + entry.begin] = *entry.checksum;
    }
  }
  state->parts.tables.clear();
  for (const MappedFile& file : state->parts.files) state->files.push_back(file.path());
  return Checkpoint(std::move(state));
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Container Checkpoint::container() const { return state_->parts.container; }
const std::string& Checkpoint::path() const { return state_->path; }
const std::vector<std::string>& Checkpoint::files() const { return state_->files; }
const std::vector<NamedTensor>& Checkpoint::tensors() const { return state_->tensors; }

uint64_t Checkpoint::weight_bytes() const {
  uint64_t bytes = 0;
  for (const NamedTensor& tensor : state_->tensors) bytes += tensor.bytes;
  return bytes;
}

const NamedTensor* Checkpoint::find_tensor(std::string_view name) const {
  const auto found = std::lower_bound(
      state_->tensors.begin(), state_->tensors.end(), name,
      [](const NamedTensor& tensor, std::string_view key) { return tensor.name < key; });
  if (found == state_->tensors.end() || found->name != name) return nullptr;
  return &*found;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const NamedTensor* found = find_tensor(name);
  return found == nullptr ? nullptr : &found->view;
}

Checkpoint::Place Checkpoint::locate(const std::byte* data) const {
  const std::vector<MappedFile>& files = state_->parts.files;
  for (size_t file = 0; file < files.size(); ++file) {
    const std::span<const std::byte> bytes = files[file].bytes();
    // Compared as integers: the pointers may be of different mappings.
    const auto at = reinterpret_cast<uintptr_t>(data);
    const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
    if (at < begin || at >= begin + bytes.size()) continue;
    const auto known = state_->checksums.find(data);
    if (known == state_->checksums.end()) return {file, at - begin, std::nullopt};
    return {file, at - begin, known->second};
  }
  check(false, "data of another checkpoint");
  return {};
}

void Checkpoint::expect_single_rows(const TensorView& tensor) const {
  const Place place = locate(tensor.data);
  state_->parts.files[place.file].advise_random(place.offset, tensor.bytes());
}

const std::map<std::string, MetadataValue, std::less<>>& Checkpoint::metadata() const {
  return state_->parts.metadata;
}

std::optional<std::string> Checkpoint::side_file(std::string_view name) const {
  const auto found = state_->parts.side_files.find(name);
  if (found == state_->parts.side_files.end()) return std::nullopt;
  return found->second;
}

}  // namespace deepinfer::weights
