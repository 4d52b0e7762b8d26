// Classes of ids: the folding rule by example, and the number of classes of DeepSeek's vocabulary.

#include "text/token_classes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/text_data.h"

namespace deepinfer::text {
namespace {

TEST(TokenClasses, FoldsCaseAccentsWidthAndSpace) {
  EXPECT_EQ(folded("Hello"), "hello");
  EXPECT_EQ(folded(" caf\u00e9"), "cafe");
  EXPECT_EQ(folded("\uff26\uff35\uff2c\uff2c"), "full");  // full width
  EXPECT_EQ(folded("e\u0301"), "e");                      // Mn
  EXPECT_EQ(folded("\u0915\u093e"), "\u0915");            // Mc
  EXPECT_EQ(folded("a\u20dd"), "a");                      // Me
  EXPECT_EQ(folded("a \t\r\nb"), "a b");
  EXPECT_EQ(folded("\n\n"), " ");
  EXPECT_EQ(folded("  "), " ");
  EXPECT_EQ(folded(" x "), "x");
  EXPECT_EQ(folded("\u00a0y\u3000"), "y");  // other white space becomes a space, and is stripped
  EXPECT_EQ(folded("\u0301"), "");
  EXPECT_EQ(folded("\ufb01"), "fi");  // a ligature
}

TEST(TokenClasses, DeepSeeksVocabulary) {
  const std::string path = fetched_path("deepseek-v4-tokenizer.json", "v4-tokenizer");
  const auto tokenizer = Tokenizer::from_json(read_text(path), path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().text();
  const std::vector<int32_t> classes = token_classes(tokenizer.value(), 129280);
  EXPECT_EQ(*std::max_element(classes.begin(), classes.end()) + 1, 99092);
  const auto class_of = [&](std::string_view bytes) {
    return classes[static_cast<size_t>(tokenizer.value().token_to_id(bytes).value())];
  };
  EXPECT_EQ(class_of("the"), class_of(" The"));
  EXPECT_NE(class_of("the"), class_of("they"));
}

}  // namespace
}  // namespace deepinfer::text
