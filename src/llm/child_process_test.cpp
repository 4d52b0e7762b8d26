#include "llm/child_process.h"

#include <gtest/gtest.h>

namespace deepinfer::llm {
namespace {

TEST(ChildProcess, CollectsBothStreamsAndTheExitCode) {
  const Result<ChildResult> run =
      run_child({.argv = {"/bin/sh", "-c", "echo out; echo err >&2; exit 3"},
                 .environment = {},
                 .still_wanted = {}});
  ASSERT_TRUE(run.ok()) << run.error().text();
  EXPECT_EQ(run.value().output, "out\n");
  EXPECT_EQ(run.value().errors, "err\n");
  EXPECT_EQ(run.value().exit_code, 3);
}

TEST(ChildProcess, MissingProgramIsNotFound) {
  const Result<ChildResult> run =
      run_child({.argv = {"no-such-program-anywhere"}, .environment = {}, .still_wanted = {}});
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().kind, ErrorKind::not_found);
}

TEST(ChildProcess, EnvironmentReplacesAndArgumentsAreNotWordsOfAShell) {
  setenv("CHILD_TEST", "old", 1);
  const Result<ChildResult> run =
      run_child({.argv = {"/bin/sh", "-c", "echo \"$CHILD_TEST $1\"", "sh", "a; exit 9 $HOME"},
                 .environment = {"CHILD_TEST=new"},
                 .still_wanted = {}});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run.value().output, "new a; exit 9 $HOME\n");
}

TEST(ChildProcess, UnwantedChildIsEnded) {
  const Result<ChildResult> run = run_child(
      {.argv = {"/bin/sleep", "60"}, .environment = {}, .still_wanted = [] { return false; }});
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run.value().stopped);
  EXPECT_NE(run.value().exit_code, 0);
}

TEST(ChildProcess, OutputIsCutAtOneMebibyte) {
  const Result<ChildResult> run = run_child({.argv = {"/bin/sh", "-c", "head -c 3000000 /dev/zero"},
                                             .environment = {},
                                             .still_wanted = {}});
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run.value().exit_code, 0);
  EXPECT_EQ(run.value().output.size(), 1u << 20);
}

}  // namespace
}  // namespace deepinfer::llm
