// Fuzzes tokenizer.json. What is accepted must encode and give the text back.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

using namespace deepinfer;
using namespace deepinfer::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto made = Tokenizer::from_json(json, "input");
  if (!made.ok()) {
    check(!made.error().text().empty());
    return 0;
  }
  const Tokenizer& tokenizer = made.value();
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    if (!tokenizer.token_to_id({&byte, 1})) return 0;  // text may be left out
  }
  // No character that normalization changes: the text must come back.
  const std::string_view text =
      "Hello, I'm 1234 <|end|>  中文\n\n\t😀 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  for (const SpecialTokens special : {SpecialTokens::recognise, SpecialTokens::plain}) {
    const auto ids = tokenizer.encode(text, special);
    if (!ids.ok()) continue;  // an expression without end
    check(tokenizer.decode(ids.value(), SkipSpecial::no) == text, "decoded text differs");
    StreamDecoder decoder(tokenizer, SkipSpecial::yes);
    for (const int32_t id : ids.value()) {
      check(id >= 0 && static_cast<size_t>(id) < tokenizer.vocab_size(), "id out of range");
      (void)decoder.push(id);
    }
  }
  return 0;
}
