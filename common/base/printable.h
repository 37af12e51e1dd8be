// Text of anybody, such as names in files of others, as people may be shown it: control characters of a terminal would
// move its cursor, colour it or worse, and a text of Protocol Buffers that is no UTF-8 is refused by its receiver.
#ifndef CAIRN_COMMON_BASE_PRINTABLE_H_
#define CAIRN_COMMON_BASE_PRINTABLE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace cairn {

// Returns whether all of it is well-formed UTF-8 (Unicode 15, table 3-7) without control characters (U+0000 to U+001F,
// U+007F to U+009F). Names are such text.
bool IsPlainText(std::string_view text);

// Returns whether it is plain text that looks in a terminal like what it says: without the characters that break lines
// and that turn the direction of what follows (U+2028 to U+202E, U+2066 to U+2069).
bool IsPrintable(std::string_view text);

// Returns the text with each byte of what is not printable as "\xNN". The control characters in `kept` stay.
std::string Printable(std::string_view text, std::string_view kept = "");

// Returns JSON that says the same and is printable: what is not becomes "\u0000". New lines between its parts stay.
std::string PrintableJson(std::string_view json);

// Returns the text, or so many bytes of it at most, cut where a character ends, so that the text stays valid UTF-8.
std::string_view CutText(std::string_view text, size_t bytes);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_PRINTABLE_H_
