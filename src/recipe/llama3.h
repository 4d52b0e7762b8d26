#pragma once

// Llama 3 Instruct, 3.1, 3.2, 3.3.
//   <|begin_of_text|>, then <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|> for each
//   message (content without surrounding blanks), then the assistant's header.
// From 3.1 on there is always a system message, which opens with the knowledge and date lines. The
// date is the template's own default, 26 Jul 2024, so that a prompt's ids do not change overnight.
// Source: chat templates of the published models.

#include "recipe/layout.h"

namespace deepinfer::recipe {

Layout llama3_layout(const LayoutEvidence& evidence);

}  // namespace deepinfer::recipe
