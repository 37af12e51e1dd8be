// Says to people where a text stops being JSON. Readers whose own errors name no line ask here when they have failed.
#ifndef CAIRN_COMMON_FORMAT_JSON_SYNTAX_H_
#define CAIRN_COMMON_FORMAT_JSON_SYNTAX_H_

#include <optional>
#include <string>
#include <string_view>

namespace cairn {

// Returns as "line 3, column 1: unexpected '}'; expected ..." the first place at which `text` breaks the grammar of
// RFC 8259, lines and columns (bytes) counted from one; nothing if it is JSON. The answer is printable ASCII and short,
// whatever the text holds. Takes time linear in the text and no stack that grows with its nesting.
std::optional<std::string> JsonSyntaxError(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_JSON_SYNTAX_H_
