// Writes the descriptions by which Megatron finds a dataset's files in its cache, and the names made of them.
#ifndef CAIRN_CORPUS_SAMPLER_DESCRIPTION_H_
#define CAIRN_CORPUS_SAMPLER_DESCRIPTION_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cairn::corpus {

// Returns json.dumps(value, indent=4) of Python: a float has the fewest digits that tell it from its neighbours, a
// character outside of ASCII is escaped, and so is a byte that is no UTF-8, as Python reads it from a command line.
std::string PythonJson(const nlohmann::ordered_json& value);

// Returns the MD5 of the description as Megatron has it in the names of files: 32 lower-case hexadecimal digits.
std::string DescriptionHash(std::string_view description);

// Reads a tokenizer's `unique_identifiers` from a JSON file: the object itself, or a description.txt of Megatron's
// cache, which has it as "tokenizer". INPUT_UNREADABLE. BAD_TOKENIZER: the file has neither, is larger than 64 KiB, or
// nests deeper than 32 levels.
absl::StatusOr<nlohmann::ordered_json> ReadTokenizerIdentifiers(const std::string& path);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SAMPLER_DESCRIPTION_H_
