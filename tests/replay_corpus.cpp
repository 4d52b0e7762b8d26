// Replays a seed corpus through a fuzz target, for builds without libFuzzer:
//   fuzz_<name> FOLDER    runs LLVMFuzzerTestOneInput once on each file of FOLDER.
// Exit code 0 when every file was replayed; a missing or empty folder is a failure, because a test
// that replays nothing cannot fail.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::vector<std::uint8_t> read_bytes(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

int replay(const std::filesystem::path& folder) {
  std::error_code error;
  std::size_t count = 0;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (!it->is_regular_file()) continue;
    // The name first: when the target crashes, the last line tells on which file.
    std::printf("%s\n", it->path().c_str());
    std::fflush(stdout);
    const std::vector<std::uint8_t> bytes = read_bytes(it->path());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    ++count;
  }
  if (error || count == 0) {
    std::fprintf(stderr, "error: corpus %s: %s\n", folder.c_str(),
                 error ? error.message().c_str() : "no files in it");
    return 1;
  }
  std::printf("%zu files replayed\n", count);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  return replay(argv[1]);
}
