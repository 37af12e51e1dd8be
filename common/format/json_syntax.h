// Tells people where a text stops being JSON. For parsers whose own errors name no line.
#ifndef CAIRN_COMMON_FORMAT_JSON_SYNTAX_H_
#define CAIRN_COMMON_FORMAT_JSON_SYNTAX_H_

#include <optional>
#include <string>
#include <string_view>

namespace cairn {

// Returns the first place where `text` breaks the grammar of RFC 8259, for example "line 3, column 1: unexpected '}';
// expected ..."; nothing if the text is JSON. Lines and columns count from one, columns in bytes. The answer is always
// short and printable ASCII. Takes time linear in the text; its stack does not grow with the nesting.
std::optional<std::string> JsonSyntaxError(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_JSON_SYNTAX_H_
