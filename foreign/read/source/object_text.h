// The form in which Cairn stores values that are no tensors: one byte for the kind, then JSON as Python's json.dumps
// writes it, without blanks (python/cairn/_state/objects.py).
#ifndef CAIRN_FOREIGN_READ_SOURCE_OBJECT_TEXT_H_
#define CAIRN_FOREIGN_READ_SOURCE_OBJECT_TEXT_H_

#include <string>
#include <string_view>

namespace cairn {

// The first byte of an object.
inline constexpr char kObjectRawBytes = 0, kObjectJson = 1, kObjectTaggedJson = 2, kObjectTaggedJsonOfClasses = 3;

// Returns a number as Python's repr does: the shortest text that reads as the same float, never as an int.
std::string ObjectFloat(double number);
// Appends a quoted string, with the escapes that Python writes. `text` is UTF-8.
void AppendObjectString(std::string_view text, std::string& json);

// Returns an object's bytes in canonical form: numbers as ObjectFloat writes them, control characters in strings as
// AppendObjectString does, no blanks. Objects with equal canonical bytes have equal values, whichever program wrote
// them. Raw bytes, and bytes that are no JSON, are returned unchanged.
std::string CanonicalObject(std::string_view bytes);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_OBJECT_TEXT_H_
