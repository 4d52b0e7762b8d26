// The tree against docs/layers.txt, and the rules themselves against trees that break them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/tidy/layer_rules.h"
#include "tests/tidy/source_tree.h"

namespace deepinfer::tidy {
namespace {

Layers sample_layers() {
  return parse_layers(make_file("docs/layers.txt",
                                "# a ladder\nbase:\ntensor: base\nmodels: base tensor  # the top\n"
                                "tensor -> models/shape.h\n"));
}

TEST(Layering, TreeIncludesOnlyWhatTheLadderAllows) {
  const std::filesystem::path root = DEEPINFER_SOURCE_DIR;
  std::ifstream stream(root / "docs/layers.txt");
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const Layers layers = parse_layers(make_file("docs/layers.txt", text));
  EXPECT_FALSE(layers.may_include.empty());
  const std::vector<SourceFile> files = read_source_tree(root);
  EXPECT_FALSE(files.empty());
  const std::vector<std::string> findings = layer_findings(layers, files);
  EXPECT_TRUE(findings.empty()) << joined(findings);
}

TEST(Layering, AllowsOwnFolderListedFoldersAndSingleHeaders) {
  const std::vector<SourceFile> files = {
      make_file("src/models/a.cpp", "#include \"models/a.h\"\n#include \"tensor/t.h\"\n"),
      make_file("src/tensor/t.cpp", "#include <base>\n#include \"models/shape.h\"\n"),
      make_file("tests/x.cpp", "#include \"anything/x.h\"\n"),
      make_file("src/base/b_test.cpp", "#include \"tests/golden_file.h\"\n"),
  };
  EXPECT_EQ(joined(layer_findings(sample_layers(), files)), "");
}

TEST(Layering, FindsTheWrongWayInclude) {
  const std::vector<SourceFile> files = {
      make_file("src/base/a_test.cpp", "\n  #  include \"tensor/t.h\"  // why\n")};
  EXPECT_EQ(joined(layer_findings(sample_layers(), files)),
            "src/base/a_test.cpp:2: base may not include tensor/t.h\n");
}

TEST(Layering, FindsAnIncludeOfTestsInTheProgram) {
  const std::vector<SourceFile> files = {
      make_file("src/models/m.cpp", "#include \"tests/golden_file.h\"\n")};
  EXPECT_EQ(joined(layer_findings(sample_layers(), files)),
            "src/models/m.cpp:1: models may not include tests/golden_file.h\n");
}

TEST(Layering, FindsTheOtherHeaderOfASingleHeaderAllowance) {
  const std::vector<SourceFile> files = {
      make_file("src/tensor/t.cpp", "#include \"models/other.h\"\n")};
  EXPECT_EQ(joined(layer_findings(sample_layers(), files)),
            "src/tensor/t.cpp:1: tensor may not include models/other.h\n");
}

TEST(Layering, FindsAnIncludeOfAnUnknownFolder) {
  const std::vector<SourceFile> files = {
      make_file("src/tensor/t.cpp", "#include \"nowhere/n.h\"\n#include \"beside.h\"\n")};
  EXPECT_EQ(joined(layer_findings(sample_layers(), files)),
            "src/tensor/t.cpp:1: tensor may not include nowhere/n.h\n"
            "src/tensor/t.cpp:2: tensor may not include beside.h\n");
}

TEST(Layering, FindsAFolderThatTheFileDoesNotList) {
  const std::vector<SourceFile> files = {make_file("src/extra/e.h", "#include \"base/b.h\"\n"),
                                         make_file("src/extra/f.h", "")};
  EXPECT_EQ(joined(layer_findings(sample_layers(), files)),
            "src/extra/e.h:1: folder extra is not in docs/layers.txt\n");
}

TEST(Layering, FindsCyclesRepetitionsAndNonsenseInTheFile) {
  const Layers layers =
      parse_layers(make_file("docs/layers.txt", "a: b\nb: a\na:\nc depends on b\n"));
  EXPECT_EQ(joined(layers.errors),
            "docs/layers.txt:1: b is not on an earlier line\n"
            "docs/layers.txt:3: a has two lines\n"
            "docs/layers.txt:4: neither 'folder: a b c' nor 'folder -> other/header.h'\n");
}

}  // namespace
}  // namespace deepinfer::tidy
