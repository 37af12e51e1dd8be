// Makes UTF-8 of any bytes, as Python's errors="replace" does.
#ifndef CAIRN_CORPUS_UNICODE_REPAIRED_UTF8_H_
#define CAIRN_CORPUS_UNICODE_REPAIRED_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace cairn::corpus {

// Returns `text` with U+FFFD for what is not UTF-8; `bad` is its first such byte (FindInvalidUtf8).
std::string RepairedUtf8(std::string_view text, size_t bad);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_UNICODE_REPAIRED_UTF8_H_
