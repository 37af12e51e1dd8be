#include "corpus/unicode/repaired_utf8.h"

#include "corpus/unicode/class_table.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

// Returns how many bytes at `text`, which do not begin a character of valid UTF-8, Python replaces by one U+FFFD: the
// longest beginning of a character, or one byte (Unicode Standard, section 3.9).
size_t InvalidBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const size_t wanted = lead >= 0xC2 && lead < 0xE0   ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 1;
  size_t count = 1;
  while (count < wanted && count < text.size() && IsUtf8Continuation(byte(count))) {
    if (count == 1) {
      const unsigned second = byte(1);
      const bool fits = !(lead == 0xE0 && second < 0xA0) && !(lead == 0xED && second >= 0xA0) &&
                        !(lead == 0xF0 && second < 0x90) && !(lead == 0xF4 && second >= 0x90);
      if (!fits) break;
    }
    ++count;
  }
  return count;
}

}  // namespace

std::string RepairedUtf8(std::string_view text, size_t bad) {
  std::string result;
  size_t done = 0;
  while (bad != std::string_view::npos) {
    result.append(text.substr(done, bad - done));
    AppendUtf8(0xFFFD, result);
    done = bad + InvalidBytes(text.substr(bad));
    const size_t next = FindInvalidUtf8(text.substr(done));
    bad = next == std::string_view::npos ? next : done + next;
  }
  result.append(text.substr(done));
  return result;
}

}  // namespace cairn::corpus
