#pragma once

// Checkpoint: a model on disk as named tensors over mapped files, whatever the container.
//
//   Checkpoint ckpt = TRY(Checkpoint::open("dir-or-file.gguf"));
//   const TensorView* t = ckpt.find("model.layers.0.self_attn.q_proj.weight");
//
// open() takes a directory (config.json beside model.safetensors, or beside shards named by
// model.safetensors.index.json; or what `deepinfer pack` wrote) or a .gguf file (version 2 or 3;
// the first part of a split file). Every size and offset of every table is checked against the file
// before it is used, and nothing is allocated from a number that was not checked. Tensors keep the
// file's own names; names of a family are turned into our roles in weights/<family>_names.h.
//
// Ownership: views stay valid while the Checkpoint lives (it is movable, views survive a move).
// Threads: reading is safe from any thread.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace deepinfer::weights {

enum class Container { safetensors, gguf };

// One value of GGUF metadata. Arrays of numbers are widened to one of three vectors.
struct MetadataValue
    : std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<int64_t>,
                   std::vector<double>, std::vector<std::string>, std::vector<bool>> {
  using variant::variant;
};

struct NamedTensor {
  std::string name;
  TensorView view;
  size_t file = 0;           // index into files()
  uint64_t file_offset = 0;  // of the first byte, in that file
  uint64_t bytes = 0;        // in that file; panels take more than view.bytes()
};

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& path);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  Container container() const;
  const std::string& path() const;
  const std::vector<std::string>& files() const;

  const std::vector<NamedTensor>& tensors() const;  // sorted by name
  uint64_t weight_bytes() const;                    // of all tensors, in the files
  const TensorView* find(std::string_view name) const;
  const NamedTensor* find_tensor(std::string_view name) const;
  // Where a byte of a tensor's data lies on disk; requires that it is one.
  struct Place {
    size_t file = 0;  // index into files()
    uint64_t offset = 0;
    std::optional<uint64_t> checksum;  // XXH3-64 of the tensor that begins here, where it is known
  };
  Place locate(const std::byte* data) const;
  // Tells the kernel that single rows of the tensor will be read in the mapping (an embedding):
  // without it a fault may read megabytes around a row, which is what disks are set up for.
  void expect_single_rows(const TensorView& tensor) const;

  // GGUF metadata; empty for safetensors.
  const std::map<std::string, MetadataValue, std::less<>>& metadata() const;
  // Text of config.json / tokenizer.json / tokenizer_config.json / generation_config.json beside
  // the safetensors; nullopt when there is none, or for GGUF.
  std::optional<std::string> side_file(std::string_view name) const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer::weights
