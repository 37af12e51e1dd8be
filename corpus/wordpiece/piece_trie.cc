#include "corpus/wordpiece/piece_trie.h"

#include <utility>

namespace cairn::corpus {
namespace {

constexpr size_t kFirstEdges = 1024;  // a power of two
constexpr uint64_t kSpread = 0x9E3779B97F4A7C15;

uint64_t KeyOf(uint32_t node, unsigned char byte) { return (uint64_t{node} << 8 | byte) + 1; }

}  // namespace

PieceTrie::PieceTrie() : edges_(kFirstEdges), ids_(1, kNone) {}

size_t PieceTrie::PlaceOf(uint64_t key) const {
  const size_t mask = edges_.size() - 1;
  size_t place = (key * kSpread >> 32) & mask;
  while (edges_[place].key != 0 && edges_[place].key != key) place = (place + 1) & mask;
  return place;
}

uint32_t PieceTrie::Child(uint32_t node, unsigned char byte) const {
  const Edge& edge = edges_[PlaceOf(KeyOf(node, byte))];
  return edge.key == 0 ? kNone : edge.child;
}

void PieceTrie::Grow() {
  std::vector<Edge> old(edges_.size() * 2);
  old.swap(edges_);
  for (const Edge& edge : old) {
    if (edge.key != 0) edges_[PlaceOf(edge.key)] = edge;
  }
}

void PieceTrie::Add(std::string_view piece, uint32_t id) {
  if (piece.empty()) return;
  uint32_t node = 0;
  for (const char c : piece) {
    const uint64_t key = KeyOf(node, static_cast<unsigned char>(c));
    size_t place = PlaceOf(key);
    if (edges_[place].key == 0) {
      if (++edge_count_ * 2 > edges_.size()) {
        Grow();
        place = PlaceOf(key);
      }
      edges_[place] = {key, static_cast<uint32_t>(ids_.size())};
      ids_.push_back(kNone);
    }
    node = edges_[place].child;
  }
  ids_[node] = id;
}

PieceTrie::Match PieceTrie::Longest(std::string_view text) const {
  Match best;
  ForEachPrefix(text, [&](size_t length, uint32_t id) { best = {length, id}; });
  return best;
}

}  // namespace cairn::corpus
