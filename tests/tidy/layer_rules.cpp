#include "tests/tidy/layer_rules.h"

#include <cstddef>
#include <sstream>

namespace deepinfer::tidy {
namespace {

void parse_line(const SourceFile& file, std::size_t number, Layers& layers) {
  const std::string text = file.lines[number - 1].substr(0, file.lines[number - 1].find('#'));
  std::istringstream words(text);
  std::string folder;
  std::string word;
  if (!(words >> folder)) return;
  if (folder.ends_with(':')) {
    folder.pop_back();
    std::set<std::string> allowed;
    while (words >> word) {
      if (!layers.may_include.contains(word)) {
        layers.errors.push_back(finding(file, number, word + " is not on an earlier line"));
      }
      allowed.insert(word);
    }
    if (!layers.may_include.emplace(folder, std::move(allowed)).second) {
      layers.errors.push_back(finding(file, number, folder + " has two lines"));
    }
    return;
  }
  std::string header;
  std::string rest;
  if (words >> word >> header && word == "->" && !(words >> rest)) {
    layers.one_header.emplace(folder, header);
    return;
  }
  layers.errors.push_back(
      finding(file, number, "neither 'folder: a b c' nor 'folder -> other/header.h'"));
}

}  // namespace

Layers parse_layers(const SourceFile& file) {
  Layers layers;
  for (std::size_t i = 0; i < file.lines.size(); ++i) parse_line(file, i + 1, layers);
  return layers;
}

std::vector<std::string> layer_findings(const Layers& layers,
                                        const std::vector<SourceFile>& files) {
  std::vector<std::string> findings = layers.errors;
  std::set<std::string> unknown;
  for (const SourceFile& file : files) {
    const std::string folder = ladder_folder(file.path);
    if (folder.empty() || !is_cpp(file.path)) continue;
    const auto allowed = layers.may_include.find(folder);
    if (allowed == layers.may_include.end()) {
      if (unknown.insert(folder).second) {
        findings.push_back(finding(file, 1, "folder " + folder + " is not in docs/layers.txt"));
      }
      continue;
    }
    for (const Include& include : quoted_includes(file)) {
      // What tests of several folders share lies in tests/.
      const bool test = file.path.ends_with("_test.cpp") || file.path.ends_with("_test.h");
      if (test && include.path.starts_with("tests/")) continue;
      const std::string other = include.path.substr(0, include.path.find('/'));
      if (other == folder || allowed->second.contains(other) ||
          layers.one_header.contains({folder, include.path})) {
        continue;
      }
      findings.push_back(finding(file, include.line, folder + " may not include " + include.path));
    }
  }
  return findings;
}

}  // namespace deepinfer::tidy
