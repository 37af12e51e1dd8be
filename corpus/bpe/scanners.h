// Scans the published pre-tokenizers by hand-written code, which matches what their regular expressions match. Each
// expression is quoted beside its scanner.
#ifndef CAIRN_CORPUS_BPE_SCANNERS_H_
#define CAIRN_CORPUS_BPE_SCANNERS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cairn::corpus {

inline constexpr char kGpt2Pattern[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr char kGpt4Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// tiktoken's own spelling has possessive quantifiers and "$", which Hugging Face's engine reads differently.
inline constexpr char kCl100kPattern[] =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]|\s+(?!\S)|\s)";
inline constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr char kO200kPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr char kWhitespacePattern[] = R"(\S+|\s+)";

// Each writes the ends of the pre-tokens of `text` from `from` on and returns how many there are: ends.size(), or fewer
// if the text is done. `text` must be below 4 GiB.
size_t ScanGpt2(std::string_view text, size_t from, std::span<uint32_t> ends);
size_t ScanGpt4(std::string_view text, size_t from, std::span<uint32_t> ends);
size_t ScanCl100k(std::string_view text, size_t from, std::span<uint32_t> ends);
size_t ScanQwen2(std::string_view text, size_t from, std::span<uint32_t> ends);
size_t ScanO200k(std::string_view text, size_t from, std::span<uint32_t> ends);
size_t ScanWhitespace(std::string_view text, size_t from, std::span<uint32_t> ends);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_SCANNERS_H_
