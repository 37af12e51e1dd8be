// Makes untrusted text, such as names in other people's files, safe to show. Control characters could move a terminal's
// cursor or change its settings. A protobuf string that is not UTF-8 is refused by its receiver.
#ifndef CAIRN_COMMON_BASE_PRINTABLE_H_
#define CAIRN_COMMON_BASE_PRINTABLE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace cairn {

// Returns whether all of it is well-formed UTF-8 (Unicode 15, table 3-7) without control characters (U+0000 to U+001F,
// U+007F to U+009F). Names are such text.
bool IsPlainText(std::string_view text);

// Returns whether the text is plain text that a terminal shows as it is: it has no character that breaks a line or that
// changes the direction of the text behind it (U+2028 to U+202E, U+2066 to U+2069).
bool IsPrintable(std::string_view text);

// Returns the text with each byte of an unprintable character as "\xNN". The control characters in `kept` stay.
std::string Printable(std::string_view text, std::string_view kept = "");

// Returns equal JSON that is printable: a character that is not printable becomes an escape such as "\u0000". Newlines
// between the JSON's values stay.
std::string PrintableJson(std::string_view json);

// Returns at most the first `bytes` bytes of the text. It cuts between characters, so the text stays valid UTF-8.
std::string_view CutText(std::string_view text, size_t bytes);

}  // namespace cairn

#endif  // CAIRN_COMMON_BASE_PRINTABLE_H_
