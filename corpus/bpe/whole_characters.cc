#include "corpus/bpe/whole_characters.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "corpus/unicode/class_table.h"

namespace cairn::corpus {
namespace {

constexpr size_t kMostBytes = 4;  // of a character

uint8_t ByteAt(absl::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }

// The lowest ranks of merges that join a part of a character with a neighbour, by that part and the neighbour's byte.
class Joints {
 public:
  void Add(absl::string_view part, uint8_t neighbour, uint32_t rank) {
    auto& ranks = of_[KeyOf(part)];
    const auto known = std::find_if(ranks.begin(), ranks.end(), [&](const auto& r) { return r.first == neighbour; });
    if (known == ranks.end()) {
      ranks.emplace_back(neighbour, rank);
    } else {
      known->second = std::min(known->second, rank);
    }
  }
  // Adds the neighbours with which the part merges by a rank up to `most`.
  void Collect(absl::string_view part, uint32_t most, std::array<uint64_t, 4>& neighbours) const {
    const auto found = of_.find(KeyOf(part));
    if (found == of_.end()) return;
    for (const auto& [byte, rank] : found->second) {
      if (rank <= most) neighbours[byte / 64] |= uint64_t{1} << byte % 64;
    }
  }

 private:
  static uint32_t KeyOf(absl::string_view part) {
    uint32_t key = 1;
    for (const char c : part) key = key << 8 | static_cast<uint8_t>(c);
    return key;
  }

  absl::flat_hash_map<uint32_t, std::vector<std::pair<uint8_t, uint32_t>>> of_;
};

// Merges the bytes of a character alone. Returns the greatest rank if they become one token, and its id.
std::optional<std::pair<uint32_t, uint32_t>> MergeAlone(absl::string_view bytes, const MergeTable& table,
                                                        std::span<const uint32_t, 256> byte_ids) {
  uint32_t ids[kMostBytes];
  size_t count = bytes.size();
  for (size_t i = 0; i < count; ++i) ids[i] = byte_ids[ByteAt(bytes, i)];
  uint64_t most = 0;
  for (; count > 1; --count) {
    uint64_t least = MergeTable::kNone;
    size_t at = 0;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (const uint64_t merge = table.Find(ids[i], ids[i + 1]); merge < least) {
        least = merge;
        at = i;
      }
    }
    if (least == MergeTable::kNone) return std::nullopt;
    most = std::max(most, least >> table.id_bits());
    ids[at] = static_cast<uint32_t>(least) & table.no_id();
    std::copy(ids + at + 2, ids + count, ids + at + 1);
  }
  return std::pair(static_cast<uint32_t>(most), ids[0]);
}

}  // namespace

WholeCharacters::WholeCharacters(std::span<const absl::string_view> bytes_of, std::span<const MergeTable::Merge> merges,
                                 const MergeTable& table, std::span<const uint32_t, 256> byte_ids) {
  std::vector<uint32_t> least_rank(bytes_of.size(), kNone);  // of the merges of a token with another one
  Joints before, behind;
  for (const MergeTable::Merge& merge : merges) {
    if (std::max({merge.left, merge.right, merge.result}) >= bytes_of.size()) return;
    const absl::string_view left = bytes_of[merge.left], right = bytes_of[merge.right], all = bytes_of[merge.result];
    if (left.empty() || right.empty() || all.size() != left.size() + right.size() ||
        all.substr(0, left.size()) != left || all.substr(left.size()) != right) {
      return;
    }
    least_rank[merge.left] = std::min(least_rank[merge.left], merge.rank);
    least_rank[merge.right] = std::min(least_rank[merge.right], merge.rank);
    size_t tail = 0;  // bytes that can be the end of a character that stands before
    while (tail < all.size() && IsUtf8Continuation(ByteAt(all, tail))) ++tail;
    if (tail > 0 && tail < kMostBytes && tail < all.size()) {
      behind.Add(all.substr(0, tail), ByteAt(all, tail), merge.rank);
    }
    size_t head = all.size() - 1;  // where the begin of a character can stand that goes on behind
    while (head > 0 && IsUtf8Continuation(ByteAt(all, head))) --head;
    if (head > 0 && ByteAt(all, head) >= 0xC0 && all.size() - head < kMostBytes) {
      before.Add(all.substr(head), ByteAt(all, head - 1), merge.rank);
    }
  }
  absl::flat_hash_map<Bytes, uint16_t> numbers;
  const auto number_of = [&](const Bytes& set) {
    const auto [known, is_new] = numbers.try_emplace(set, static_cast<uint16_t>(sets_.size()));
    if (is_new) sets_.push_back(set);
    return known->second;
  };
  for (uint32_t id = 0; id < bytes_of.size(); ++id) {
    const absl::string_view bytes = bytes_of[id];
    if (bytes.size() < 2 || bytes.size() > kMostBytes) continue;
    const auto* const p = reinterpret_cast<const uint8_t*>(bytes.data());
    const Character character = DecodeCharacter(p, p + bytes.size());
    if (character.length != bytes.size() || character.code_point >= kCodePoints) continue;
    const auto made = MergeAlone(bytes, table, byte_ids);
    if (!made.has_value() || made->second != id || least_rank[id] <= made->first) continue;
    Bytes not_after = {}, not_before = {0, 0, ~uint64_t{0}, 0};  // a byte that goes on makes it another character
    for (size_t i = 1; i < bytes.size(); ++i) {
      before.Collect(bytes.substr(0, i), made->first, not_after);
      behind.Collect(bytes.substr(i), made->first, not_before);
    }
    if (sets_.size() + 2 > size_t{1} << 16) break;
    if (entries_.empty()) entries_.resize(kCodePoints);
    entries_[character.code_point] = {id, number_of(not_after), number_of(not_before)};
  }
  std::copy(byte_ids.begin(), byte_ids.end(), byte_ids_.begin());
}

inline const WholeCharacters::Entry* WholeCharacters::EntryOf(const uint8_t* p, size_t left, size_t& length) const {
  const uint32_t lead = *p;
  size_t code = 0;
  if (lead >= 0xE0 && lead < 0xF0) [[likely]] {
    length = 3;
    if (left < 3 || !IsUtf8Continuation(p[1]) || !IsUtf8Continuation(p[2])) return nullptr;
    code = (lead & 0xF) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    return code < 0x800 ? nullptr : &entries_[code];
  }
  if (lead >= 0xC2 && lead < 0xE0) {
    length = 2;
    if (left < 2 || !IsUtf8Continuation(p[1])) return nullptr;
    return &entries_[(lead & 0x1F) << 6 | (p[1] & 0x3Fu)];
  }
  if (lead != 0xF0 || left < 4) return nullptr;
  length = 4;
  if (!IsUtf8Continuation(p[1]) || !IsUtf8Continuation(p[2]) || !IsUtf8Continuation(p[3])) return nullptr;
  code = (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
  return code < 0x10000 || code >= kCodePoints ? nullptr : &entries_[code];
}

void WholeCharacters::Start(std::string_view word, std::vector<uint32_t>& ids) const {
  const auto* const begin = reinterpret_cast<const uint8_t*>(word.data());
  const uint8_t* const end = begin + word.size();
  const size_t before = ids.size();
  ids.resize(before + word.size());
  uint32_t* to = ids.data() + before;
  for (const uint8_t* p = begin; p < end;) {
    if (*p >= 0x80) {
      size_t length = 1;
      const Entry* const entry = EntryOf(p, static_cast<size_t>(end - p), length);
      if (entry != nullptr && entry->id != kNone && (p == begin || !Has(sets_[entry->not_after], p[-1])) &&
          (p + length == end || !Has(sets_[entry->not_before], p[length]))) {
        *to++ = entry->id;
        p += length;
        continue;
      }
    }
    *to++ = byte_ids_[*p++];
  }
  ids.resize(static_cast<size_t>(to - ids.data()));
}

}  // namespace cairn::corpus
