#include "common/base/printable.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Returns the length of the first character of `text`; 0 if it is a control character or not well-formed UTF-8.
size_t PlainBytes(std::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto within = [&](size_t i, unsigned low, unsigned high) { return at(i) >= low && at(i) <= high; };
  const unsigned lead = at(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  if (lead >= 0xc2 && lead <= 0xdf) return within(1, lead == 0xc2 ? 0xa0 : 0x80, 0xbf) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const bool well_formed = within(1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf) && within(2, 0x80, 0xbf);
    return well_formed ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const bool well_formed = within(1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf) &&
                             within(2, 0x80, 0xbf) && within(3, 0x80, 0xbf);
    return well_formed ? 4 : 0;
  }
  return 0;
}

// Does the same, and also returns 0 for a character that is not printable (see IsPrintable).
size_t PrintableBytes(std::string_view text) {
  const size_t bytes = PlainBytes(text);
  if (bytes == 3 && text.starts_with("\xe2\x80") && text[2] >= '\xa8' && text[2] <= '\xae') return 0;
  if (bytes == 3 && text.starts_with("\xe2\x81") && text[2] >= '\xa6' && text[2] <= '\xa9') return 0;
  return bytes;
}

}  // namespace

bool IsPlainText(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = PlainBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

bool IsPrintable(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = PrintableBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string Printable(std::string_view text, std::string_view kept) {
  std::string printable;
  printable.reserve(text.size());
  while (!text.empty()) {
    size_t bytes = PrintableBytes(text);
    if (bytes == 0 && kept.find(text.front()) != std::string_view::npos) bytes = 1;
    if (bytes == 0) {
      absl::StrAppend(&printable, "\\x", absl::Hex(static_cast<unsigned char>(text.front()), absl::kZeroPad2));
      bytes = 1;
    } else {
      printable.append(text.substr(0, bytes));
    }
    text.remove_prefix(bytes);
  }
  return printable;
}

std::string PrintableJson(std::string_view json) {
  std::string printable;
  printable.reserve(json.size());
  while (!json.empty()) {
    size_t bytes = json.front() == '\n' ? 1 : PrintableBytes(json);
    if (bytes > 0) {
      printable.append(json.substr(0, bytes));
    } else {
      // A control character has one or two bytes, one that changes the direction three. Other bytes are no UTF-8.
      const auto at = [&](size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(json[i])); };
      const bool control = json.front() == '\xc2' && json.size() > 1 && at(1) >= 0x80 && at(1) < 0xa0;
      bytes = control ? 2 : std::max<size_t>(PlainBytes(json), 1);
      const unsigned code = bytes == 3   ? (at(0) & 0xf) << 12 | (at(1) & 0x3f) << 6 | (at(2) & 0x3f)
                            : bytes == 2 ? (at(0) & 0x1f) << 6 | (at(1) & 0x3f)
                                         : at(0);
      absl::StrAppend(&printable, "\\u", absl::Hex(code, absl::kZeroPad4));
    }
    json.remove_prefix(bytes);
  }
  return printable;
}

std::string_view CutText(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

}  // namespace cairn
