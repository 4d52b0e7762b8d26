// The project's own text files as the layering and style rules see them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer::tidy {

struct SourceFile {
  std::string path;                // from the project's root, with '/'
  std::vector<std::string> lines;  // without their ends
};

// One `#include "path"` of a file; system includes in <> are not listed.
struct Include {
  std::size_t line;  // from 1
  std::string path;  // as written
};

// Reads src, tests, bench, tools, cmake, examples and docs (sources, scripts and Markdown; no data,
// goldens or corpora), sorted by path. An unreadable folder counts as empty.
std::vector<SourceFile> read_source_tree(const std::filesystem::path& root);

// A file from its text, for the tests of the rules.
SourceFile make_file(std::string path, std::string_view text);

std::vector<Include> quoted_includes(const SourceFile& file);

// "src/base/file.h" is in ladder folder "base"; "" for a file that is not below a folder of src.
std::string ladder_folder(std::string_view path);

bool is_header(std::string_view path);  // .h
bool is_cpp(std::string_view path);     // .h, .cpp, .inc, .cu

// "path:line: text", the form of every finding.
std::string finding(const SourceFile& file, std::size_t line, std::string_view text);

// One finding a line, "" when there are none: what a test compares with "".
std::string joined(const std::vector<std::string>& findings);

}  // namespace deepinfer::tidy
