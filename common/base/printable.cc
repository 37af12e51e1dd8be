#include "common/base/printable.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Returns the bytes of the character that `text` begins with; 0 if it is not printable, or not well-formed.
size_t PrintableBytes(std::string_view text) {
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

}  // namespace

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

std::string_view CutText(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

}  // namespace cairn
