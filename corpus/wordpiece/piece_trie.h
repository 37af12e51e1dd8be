// Holds the vocabulary of WordPiece as a byte trie, which finds the longest entry that begins a text in one walk.
//
// All edges are in one open-addressing table with the key (node, byte). That is compact for the sparse nodes of a
// vocabulary, and takes one probe per byte.
#ifndef CAIRN_CORPUS_WORDPIECE_PIECE_TRIE_H_
#define CAIRN_CORPUS_WORDPIECE_PIECE_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace cairn::corpus {

// Thread-safe once it is filled.
class PieceTrie {
 public:
  PieceTrie();

  // Ignores empty pieces; of equal ones the last counts. All pieces may have at most 2^32 - 2 bytes together.
  void Add(std::string_view piece, uint32_t id);

  struct Match {
    size_t length = 0;  // in bytes; 0: no piece begins `text`
    uint32_t id = 0;
  };
  Match Longest(std::string_view text) const;

  // Calls visit(length, id) for each piece that begins `text`, the shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit&& visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = Child(node, static_cast<unsigned char>(text[i]));
      if (node == kNone) return;
      if (ids_[node] != kNone) visit(i + 1, ids_[node]);
    }
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Edge {
    uint64_t key = 0;  // (node << 8 | byte) + 1; 0 for a free place
    uint32_t child = 0;
  };

  size_t PlaceOf(uint64_t key) const;
  uint32_t Child(uint32_t node, unsigned char byte) const;
  void Grow();

  std::vector<Edge> edges_;
  size_t edge_count_ = 0;
  std::vector<uint32_t> ids_;  // by node; kNone: no piece ends here
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_WORDPIECE_PIECE_TRIE_H_
