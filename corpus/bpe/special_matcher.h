// Finds special tokens in text.
#ifndef CAIRN_CORPUS_BPE_SPECIAL_MATCHER_H_
#define CAIRN_CORPUS_BPE_SPECIAL_MATCHER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace cairn::corpus {

// Matches byte strings by a trie. It is immutable after construction; thread-safe.
class SpecialMatcher {
 public:
  struct Match {
    size_t begin = std::string_view::npos;
    size_t end = 0;
    uint32_t token = 0;  // the token's place in the given list

    bool found() const { return begin != std::string_view::npos; }
  };

  SpecialMatcher() = default;
  // Ignores empty strings; of equal ones, the last counts.
  explicit SpecialMatcher(const std::vector<std::string>& tokens);

  bool empty() const { return longest_ == 0; }
  size_t longest() const { return longest_; }

  // Returns the leftmost match that begins at or after `from`; of those that begin there, the longest.
  Match Find(std::string_view text, size_t from) const;
  // Returns the longest match that begins at `position`.
  Match FindAt(std::string_view text, size_t position) const;
  // Returns whether a token in `text` begins before `position` and ends behind it.
  bool Crosses(std::string_view text, size_t position) const;

 private:
  // Returns the end of the longest token at `position`, or 0 if there is none.
  size_t LongestAt(std::string_view text, size_t position, uint32_t* token) const;
  size_t NextCandidate(std::string_view text, size_t from) const;

  static constexpr uint32_t kNone = ~uint32_t{0};
  absl::flat_hash_map<uint64_t, uint32_t> child_;  // node << 8 | byte
  std::vector<uint32_t> token_of_{kNone};          // by node
  bool starts_[256] = {};
  int only_start_ = -1;  // the first byte of all tokens if it is the same, else -1
  size_t longest_ = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_SPECIAL_MATCHER_H_
