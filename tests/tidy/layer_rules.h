// The ladder of docs/layers.txt: which folder of src may include which.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace deepinfer::tidy {

struct Layers {
  std::map<std::string, std::set<std::string>> may_include;  // folder -> folders, besides its own
  std::set<std::pair<std::string, std::string>> one_header;  // folder -> "other/header.h"
  std::vector<std::string> errors;                           // findings in the file itself
};

// Parses `folder: a b c` and `folder -> other/header.h` lines; '#' starts a comment. A folder may
// list only folders of earlier lines, so that the ladder has no cycle.
Layers parse_layers(const SourceFile& file);

// Every quoted include of a file in src that the ladder does not allow, and every folder of src
// that it does not know. A *_test.cpp may also include headers of tests/.
std::vector<std::string> layer_findings(const Layers& layers, const std::vector<SourceFile>& files);

}  // namespace deepinfer::tidy
