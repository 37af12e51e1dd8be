// Parses plain statements: those that result from the macros.
//
//   statement = name {"," name} "->" name {"," name} {"," attribute "=" (number | string)}
#ifndef CAIRN_MAPPING_PARSER_H_
#define CAIRN_MAPPING_PARSER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "common/tensor/box.h"
#include "mapping/diagnostics.h"
#include "mapping/program.h"

namespace cairn::aoa {

struct Attribute {
  Symbol key;
  bool is_string;
  Symbol value;
};

struct Statement {
  LineId line;
  uint32_t left_count;   // their tokens: 0, 2, 4 ...
  uint32_t right_first;  // token index of the first name right of the arrow; the others follow at every second index
  uint32_t right_count;
  absl::InlinedVector<Attribute, 2> attributes;

  Symbol Left(const Program& program, uint32_t i) const { return program.TokenAt(line, 2 * i).symbol; }
  Symbol Right(const Program& program, uint32_t i) const { return program.TokenAt(line, right_first + 2 * i).symbol; }
};

// Returns nothing after an error, which it adds to the diagnostics.
std::optional<Statement> ParseStatement(const Program& program, LineId line, Diagnostics& diagnostics);

// Reads non-negative integers like "[2, 0, 1]". Returns nothing if the text is anything else.
std::optional<Shape> ParseList(std::string_view text);
// Reads digits with a value below 2^63.
std::optional<int64_t> ParseNumber(std::string_view digits);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_PARSER_H_
