#include "tests/tidy/source_tree.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace deepinfer::tidy {
namespace {

namespace fs = std::filesystem;

bool is_text(const fs::path& path) {
  const std::string name = path.filename().string();
  static constexpr std::array<std::string_view, 10> kExtensions = {
      ".h", ".cpp", ".inc", ".cu", ".py", ".sh", ".cmake", ".md", ".S", ".txt"};
  return std::find(kExtensions.begin(), kExtensions.end(), path.extension().string()) !=
         kExtensions.end();
}

void read_folder(const fs::path& root, const std::string& top, std::vector<SourceFile>& files) {
  std::error_code error;
  for (fs::recursive_directory_iterator it(root / top, error), end; !error && it != end;
       it.increment(error)) {
    const std::string path = it->path().lexically_relative(root).generic_string();
    if (it->is_directory() && (path == "tests/golden" || path == "tests/corpus")) {
      it.disable_recursion_pending();
    }
    if (!it->is_regular_file() || !is_text(it->path())) continue;
    std::ifstream stream(it->path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream),
                           std::istreambuf_iterator<char>()};
    files.push_back(make_file(path, text));
  }
}

}  // namespace

std::vector<SourceFile> read_source_tree(const fs::path& root) {
  std::vector<SourceFile> files;
  for (const char* top : {"src", "tests", "bench", "tools", "cmake", "examples", "docs"}) {
    read_folder(root, top, files);
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

SourceFile make_file(std::string path, std::string_view text) {
  SourceFile file{std::move(path), {}};
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    file.lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return file;
}

std::vector<Include> quoted_includes(const SourceFile& file) {
  std::vector<Include> includes;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    std::string_view line = file.lines[i];
    const auto skip_blanks = [&line] {
      line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    };
    skip_blanks();
    if (!line.starts_with('#')) continue;
    line.remove_prefix(1);
    skip_blanks();
    if (!line.starts_with("include")) continue;
    line.remove_prefix(std::string_view("include").size());
    skip_blanks();
    if (!line.starts_with('"')) continue;
    line.remove_prefix(1);
    includes.push_back({i + 1, std::string(line.substr(0, line.find('"')))});
  }
  return includes;
}

std::string ladder_folder(std::string_view path) {
  static constexpr std::string_view kTop = "src/";
  if (!path.starts_with(kTop)) return "";
  path.remove_prefix(kTop.size());
  const std::size_t slash = path.find('/');
  return slash == std::string_view::npos ? "" : std::string(path.substr(0, slash));
}

bool is_header(std::string_view path) { return path.ends_with(".h"); }

bool is_cpp(std::string_view path) {
  return is_header(path) || path.ends_with(".cpp") || path.ends_with(".inc") ||
         path.ends_with(".cu");
}

std::string finding(const SourceFile& file, std::size_t line, std::string_view text) {
  return file.path + ":" + std::to_string(line) + ": " + std::string(text);
}

std::string joined(const std::vector<std::string>& findings) {
  std::string text;
  for (const std::string& one : findings) text += one + "\n";
  return text;
}

}  // namespace deepinfer::tidy
