#pragma once

// Unicode normalization form C, as some tokenizers (Qwen2) want it before the pre-tokenizer.
// Tables of utf8proc; linear in the text, also for long runs of combining marks.
//
// Threads: any.

#include <string>
#include <string_view>

namespace deepinfer::text {

// Whether no character of the text (valid UTF-8) can change under NFC: then to_nfc() gives the same
// text. The first call builds a table (about 20 ms).
bool is_surely_nfc(std::string_view text);

// The text in NFC.
std::string to_nfc(std::string_view text);

}  // namespace deepinfer::text
