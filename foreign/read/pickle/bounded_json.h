// Parses untrusted JSON.
#ifndef CAIRN_FOREIGN_READ_PICKLE_BOUNDED_JSON_H_
#define CAIRN_FOREIGN_READ_PICKLE_BOUNDED_JSON_H_

#include <nlohmann/json.hpp>
#include <string_view>

namespace cairn {

// Returns a discarded value if the text is no JSON, or is nested deeper than 100 levels: code that compares, copies or
// prints a value recurses once for each level, so a text of a few hundred thousand brackets would overflow the stack.
nlohmann::json ParseBoundedJson(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PICKLE_BOUNDED_JSON_H_
