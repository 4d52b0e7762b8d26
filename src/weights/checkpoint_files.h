#pragma once

// What a checkpoint is made of before its tensors are put in one list: mapped files, a table each,
// metadata, texts beside them. Internal to the folder.
//
// Threads: plain values.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "weights/checkpoint.h"
#include "weights/tensor_table.h"

namespace deepinfer::weights {

struct CheckpointFiles {
  Container container = Container::safetensors;
  std::vector<MappedFile> files;
  std::vector<std::vector<TableEntry>> tables;  // one per file
  std::map<std::string, MetadataValue, std::less<>> metadata;
  std::map<std::string, std::string, std::less<>> side_files;  // file name -> text
};

// config.json beside model.safetensors, or beside model.safetensors.index.json and its shards.
Result<CheckpointFiles> open_safetensors_directory(const std::string& directory);

// A GGUF file, or the first part of a split one (split.no, split.count, split.tensors.count; parts
// are named <stem>-00001-of-00003.gguf).
Result<CheckpointFiles> open_gguf_parts(const std::string& path);

// A directory that `deepinfer pack` wrote (weights/packed/packed.h).
Result<CheckpointFiles> open_packed_directory(const std::string& directory);

// config.json and its companions, as far as they are there.
Result<void> read_side_files(const std::string& directory, CheckpointFiles& parts);
// The names of those files.
std::span<const char* const> side_file_names();

}  // namespace deepinfer::weights
