#pragma once

// JSON schemas of tools and formats: are they schemas at all, and their strict form.
//
// Threads: pure functions.

#include <string>

#include "recipe/json_tree.h"
#include "recipe/refusal.h"

namespace deepinfer::recipe {

// Whether the value is a JSON schema (draft 2020-12 unless its $schema names an older one): every
// keyword has its type, patterns compile, references resolve inside of it. Nothing is fetched.
// The error says what is wrong and where: "properties.x.type: \"foo\" is no type".
Result<void> check_json_schema(const Json& schema);

// The strict form: what models that are held to a schema get. Only a small language is accepted,
// unknown keywords are left out, every object lists all its properties as required and has no
// others. may_be_empty: the top may be an object without properties, as parameters are. The error
// says what is wrong and where.
Result<Json> strict_schema(const Json& schema, bool may_be_empty);

}  // namespace deepinfer::recipe
