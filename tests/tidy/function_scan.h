// A brace scanner that finds the functions of a C++ file and their lengths. It knows our own
// formatting and language use, not all of C++: macros that open a brace are not followed.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace deepinfer::tidy {

struct Function {
  std::size_t first_line;  // of its signature, from 1
  std::size_t line_count;  // signature to closing brace
  std::string signature;   // blanks collapsed
};

// The file's text with comments, preprocessor lines and the insides of string and character
// literals blanked; line ends stay where they were.
std::string code_only(const SourceFile& file);

// Functions with a body, in the order of their ends; a lambda counts to the function around it.
std::vector<Function> functions_of(const SourceFile& file);

}  // namespace deepinfer::tidy
