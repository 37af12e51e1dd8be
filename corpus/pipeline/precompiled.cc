#include "corpus/pipeline/precompiled.h"

#include <algorithm>

#include "common/status/reason.h"
#include "corpus/unicode/class_table.h"
#include "corpus/unicode/graphemes.h"
#include "corpus/unicode/utf8.h"

namespace cairn::corpus {
namespace {

constexpr size_t kMaxGrapheme = 5;
constexpr size_t kMaxReplacement = 4096;  // published maps have at most a few dozen bytes

// A unit of the trie has a label, and where its children are. Or it has a value, and then belongs to a leaf.
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t LabelOf(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
bool HasLeaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t ValueOf(uint32_t unit) { return unit & ~(1u << 31); }

}  // namespace

absl::StatusOr<CharacterMap> CharacterMap::Parse(std::string_view bytes) {
  CharacterMap map;
  if (bytes.empty()) return map;
  const auto u32 = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << 8 * i;
    return value;
  };
  if (bytes.size() < 4 || u32(0) > bytes.size() - 4 || u32(0) % 4 != 0) {
    return MakeError(Reason::kBadTokenizer, "the precompiled character map is cut off");
  }
  const size_t end = 4 + u32(0);
  for (size_t at = 4; at < end; at += 4) map.units_.push_back(u32(at));
  map.texts_ = bytes.substr(end);
  for (size_t at = 0; at < map.texts_.size();) {
    const size_t text_end = std::min(map.texts_.find('\0', at), map.texts_.size());
    if (text_end - at > kMaxReplacement) {
      return MakeError(Reason::kBadTokenizer, "the precompiled character map has a replacement of more than 4 KiB");
    }
    at = text_end + 1;
  }
  if (FindInvalidUtf8(map.texts_) != std::string_view::npos) {
    return MakeError(Reason::kBadTokenizer, "the precompiled character map has a replacement that is not UTF-8");
  }
  return map;
}

std::optional<CharacterMap::Replacement> CharacterMap::Find(std::string_view text, bool longest) const {
  std::optional<Replacement> found;
  if (units_.empty()) return found;
  size_t node = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || LabelOf(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    if (node >= units_.size()) break;
    const size_t begin = ValueOf(units_[node]);
    if (begin > texts_.size()) break;
    const size_t end = texts_.find('\0', begin);
    found = Replacement{i + 1, std::string_view(texts_).substr(begin, end == std::string::npos ? end : end - begin)};
    // A replacement that begins inside a character is none.
    if (!found->text.empty() && IsUtf8Continuation(static_cast<uint8_t>(found->text[0]))) found.reset();
    if (found && !longest) break;
  }
  return found;
}

std::string ReplaceGraphemes(const CharacterMap& map, std::string_view text, size_t limit) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0, end = 0; at < text.size() && result.size() <= limit; at = end) {
    end = GraphemeEnd(text, at);
    const std::string_view grapheme = text.substr(at, end - at);
    if (grapheme.size() <= kMaxGrapheme) {
      if (const auto whole = map.Shortest(grapheme)) {
        result.append(whole->text);
        continue;
      }
    }
    for (size_t from = 0, to = 0; from < grapheme.size(); from = to) {
      NextScalar(grapheme, to);
      const std::string_view character = grapheme.substr(from, to - from);
      const auto part = map.Shortest(character);
      result.append(part ? part->text : character);
    }
  }
  return result;
}

}  // namespace cairn::corpus
