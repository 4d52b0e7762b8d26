#pragma once

// The "pre_tokenizer" and "normalizer" parts of tokenizer.json.
//
// Errors: `unsupported`, naming the type or setting that this program does not do.

#include <simdjson.h>

#include <string>
#include <variant>

#include "base/result.h"
#include "text/regex_splitter.h"
#include "text/split_rule.h"

namespace deepinfer::text {

// The hand-written rule for the sequences of expressions that have one, else their RegexSplitter.
Result<std::variant<SplitRule, RegexSplitter>> read_pre_tokenizer(simdjson::dom::element json,
                                                                  const std::string& source);

// Whether texts are normalized to NFC; false for no or an empty normalizer.
Result<bool> read_normalizer(simdjson::dom::element json, const std::string& source);

}  // namespace deepinfer::text
