#include "base/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace deepinfer {
namespace {

class OptionsTest : public testing::Test {
 protected:
  void SetUp() override {
    table_.add("threads", &threads_, "threads", {.least = 1, .most = 1024});
    table_.add("max-rows", &rows_, "rows");
    table_.add("temperature", &temperature_, "temperature", {.least = 0});
    table_.add("isa", &isa_, "ISA", {.choices = {"auto", "avx2"}});
    table_.add("json", &json_, "JSON lines");
    table_.add("stop", &stop_, "stop strings");
    table_.add("server.port", &port_, "port", {.least = 0, .most = 65535});
  }
  std::string toml_error(std::string_view text) {
    const Result<void> loaded = table_.load_toml(text, "c.toml");
    EXPECT_FALSE(loaded.ok()) << text;
    return loaded.ok() ? "" : loaded.error().text();
  }
  Result<void> environment(std::vector<std::string_view> entries) {
    return table_.load_environment(entries);
  }

  size_t threads_ = 2;
  int64_t rows_ = 8;
  double temperature_ = 1.0;
  std::string isa_ = "auto";
  bool json_ = false;
  std::vector<std::string> stop_;
  int64_t port_ = 8000;
  OptionTable table_;
};

TEST_F(OptionsTest, ReadsEveryTypeFromAFile) {
  ASSERT_TRUE(table_
                  .load_toml("threads = 4\nmax_rows = -3\ntemperature = 1\nisa = 'avx2'\n"
                             "json = true\nstop = ['a', 'b']\n[server]\nport = 81\n",
                             "c.toml")
                  .ok());
  EXPECT_EQ(threads_, 4u);
  EXPECT_EQ(rows_, -3);
  EXPECT_EQ(temperature_, 1.0);
  EXPECT_EQ(isa_, "avx2");
  EXPECT_TRUE(json_);
  EXPECT_EQ(stop_, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(port_, 81);
  EXPECT_EQ(table_.source("threads"), OptionTable::Source::file);
}

TEST_F(OptionsTest, CommandLineOverEnvironmentOverFileInAnyOrder) {
  ASSERT_TRUE(table_.set("threads", "7").ok());
  ASSERT_TRUE(environment({"DEEPINFER_THREADS=5", "DEEPINFER_MAX_ROWS=50"}).ok());
  ASSERT_TRUE(table_.load_toml("threads = 3\nmax-rows = 30\ntemperature = 0.3", "c.toml").ok());
  EXPECT_EQ(threads_, 7u);
  EXPECT_EQ(rows_, 50);
  EXPECT_EQ(temperature_, 0.3);
  EXPECT_EQ(table_.source("threads"), OptionTable::Source::command_line);
  EXPECT_EQ(table_.source("max-rows"), OptionTable::Source::environment);
  EXPECT_EQ(table_.source("isa"), OptionTable::Source::none);
}

TEST_F(OptionsTest, TheProcessEnvironmentIsRead) {
  ::setenv("DEEPINFER_SERVER_PORT", "99", 1);
  ASSERT_TRUE(table_.load_environment().ok());
  ::unsetenv("DEEPINFER_SERVER_PORT");
  EXPECT_EQ(port_, 99);
}

TEST_F(OptionsTest, EnvironmentOfOthersIsLeftAlone) {
  EXPECT_TRUE(environment({"DEEPINFER_THREADSX=no", "DEEPINFER_HF_MODEL_DIR=/m", "THREADS=0",
                           "DEEPINFER_THREADS", "="})
                  .ok());
  EXPECT_EQ(threads_, 2u);
}

TEST_F(OptionsTest, UnknownKeysAreNamedWithTheirLine) {
  EXPECT_EQ(toml_error("json = true\nthread = 4\n"), "c.toml:2: unknown option \"thread\"");
  EXPECT_EQ(toml_error("[server]\nhost = 'x'\n"), "c.toml:2: unknown option \"server.host\"");
  EXPECT_EQ(table_.set("thread", "4").error().text(), "--thread: unknown option");
}

TEST_F(OptionsTest, WrongTypesNameWantedAndFound) {
  EXPECT_EQ(toml_error("threads = 'x'"),
            "c.toml:1: threads: expected a whole number, not negative from 1 up to 1024, "
            "found \"x\"");
  EXPECT_EQ(toml_error("json = 1"), "c.toml:1: json: expected true or false, found 1");
  EXPECT_EQ(toml_error("isa = 'sse'"), "c.toml:1: isa: expected one of auto, avx2, found \"sse\"");
  EXPECT_EQ(toml_error("max-rows = 1.5"), "c.toml:1: max-rows: expected a whole number, found 1.5");
  EXPECT_EQ(toml_error("stop = [1, 2]"),
            "c.toml:1: stop: expected a list of texts, found a list with other items than texts");
  EXPECT_EQ(toml_error("threads = 1979-05-27"),
            "c.toml:1: threads: expected a whole number, not negative from 1 up to 1024, "
            "found a date or time");
  EXPECT_EQ(toml_error("[threads]\na = 1"),
            "c.toml:1: threads: expected a whole number, not negative from 1 up to 1024, "
            "found a table");
}

TEST_F(OptionsTest, RangesHold) {
  EXPECT_FALSE(table_.set("threads", "0").ok());
  EXPECT_FALSE(table_.set("threads", "10000").ok());
  EXPECT_FALSE(table_.set("threads", "-1").ok());
  EXPECT_FALSE(table_.set("threads", "99999999999999999999").ok());
  EXPECT_FALSE(table_.set("temperature", "-0.1").ok());
  EXPECT_FALSE(table_.set("temperature", "nan").ok());
  EXPECT_FALSE(table_.set("temperature", "inf").ok());
  EXPECT_EQ(threads_, 2u) << "a refused value changes nothing";
  EXPECT_NE(environment({"DEEPINFER_THREADS=many"}).error().text().find("DEEPINFER_THREADS: "),
            std::string::npos);
  for (std::string_view text : {"", " 4", "4 ", "4x", "0x4", "4.0"}) {
    EXPECT_FALSE(table_.set("threads", text).ok()) << text;
  }
}

TEST_F(OptionsTest, AnOverruledFileIsStillChecked) {
  ASSERT_TRUE(table_.set("threads", "7").ok());
  toml_error("threads = 0");
}

TEST_F(OptionsTest, TextsForBoolsAndLists) {
  for (const char* yes : {"true", "1", "on", "yes"}) {
    json_ = false;
    ASSERT_TRUE(table_.set("json", yes).ok());
    EXPECT_TRUE(json_);
  }
  ASSERT_TRUE(table_.set("json", "off").ok());
  EXPECT_FALSE(json_);
  EXPECT_FALSE(table_.set("json", "maybe").ok());
  ASSERT_TRUE(table_.set("stop", "a,,b").ok());
  EXPECT_EQ(stop_, (std::vector<std::string>{"a", "", "b"}));
  ASSERT_TRUE(table_.set("stop", "").ok());
  EXPECT_TRUE(stop_.empty());
}

TEST_F(OptionsTest, UnreadableTomlNamesTheLine) {
  const std::string error = toml_error("json = true\nthreads = = 4\n");
  EXPECT_EQ(error.compare(0, 25, "c.toml:2: is not TOML: Er"), 0) << error;
  toml_error("threads = 4\nthreads = 5\n");
  toml_error(std::string_view("a\0b", 3));
  toml_error("\xff\xfe");
  toml_error(std::string(100'000, '['));
  toml_error("stop = " + std::string(100'000, '['));
}

TEST_F(OptionsTest, FilesThatCannotBeReadAreNamed) {
  EXPECT_EQ(table_.load_file("/no/such.toml").error().kind, ErrorKind::not_found);
  EXPECT_EQ(table_.load_file("/proc/self").error().kind, ErrorKind::io);
  EXPECT_EQ(table_.load_file("/dev/zero").error().kind, ErrorKind::exhausted);
  const std::string path = testing::TempDir() + "deepinfer_options_" + std::to_string(::getpid());
  std::ofstream(path) << "threads = 9\n";
  EXPECT_TRUE(table_.load_file(path).ok());
  EXPECT_EQ(threads_, 9u);
  std::filesystem::remove(path);
}

TEST_F(OptionsTest, ANameTwiceIsABug) {
  EXPECT_DEATH(table_.add("json", &json_, "again"), "exists");
}

TEST(Options, BytesTakeUnits) {
  size_t memory = 0;
  OptionTable table;
  table.add("memory", &memory, "how much", {.bytes = true});
  const struct {
    const char* text;
    size_t bytes;
  } cases[] = {{"12", 12},       {"8GB", 8'000'000'000},      {"512MiB", 536'870'912},
               {"1.5 kB", 1500}, {"2TiB", 2'199'023'255'552}, {"0B", 0}};
  for (const auto& one : cases) {
    ASSERT_TRUE(table.set("memory", one.text).ok()) << one.text;
    EXPECT_EQ(memory, one.bytes) << one.text;
  }
  for (const char* wrong : {"GB", "8 giga", "-1GB", "1e30GB", "8GBs"}) {
    const Result<void> result = table.set("memory", wrong);
    ASSERT_FALSE(result.ok()) << wrong;
    EXPECT_NE(result.error().text().find("such as 8GB"), std::string::npos);
  }
}

}  // namespace
}  // namespace deepinfer
