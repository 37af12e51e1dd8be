// Compares FindCommonRun with an oracle that lists the elements of both pieces.
#include "planner/load/common_run.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "planner/load/overlap.h"

namespace cairn {
namespace {

using Random = std::mt19937_64;

int64_t Below(Random& random, int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }

Piece RandomPiece(Random& random, const Shape& global) {
  Piece piece;
  for (const int64_t size : global) {
    // Whole axes are as frequent as parts of them.
    const bool whole = Below(random, 2) == 0;
    const int64_t begin = whole ? 0 : Below(random, size), length = whole ? size : 1 + Below(random, size - begin);
    piece.box.offset.push_back(begin);
    piece.box.shape.push_back(length);
  }
  return piece;
}

void CutFlat(Random& random, Piece& piece) {
  const int64_t begin = Below(random, piece.box.size());
  piece.flat = {begin, begin + 1 + Below(random, piece.box.size() - begin)};
}

// Returns the elements of a piece in the order in which they are stored, as numbers in the tensor.
std::vector<int64_t> ElementsOf(const Piece& piece, const Shape& global) {
  std::vector<int64_t> elements;
  const FlatRange range = piece.flat.value_or(FlatRange{0, piece.box.size()});
  for (int64_t flat = range.begin; flat < range.end; ++flat) {
    int64_t rest = flat, element = 0, scale = 1;
    for (size_t d = global.size(); d-- > 0;) {
      element += (piece.box.offset[d] + rest % piece.box.shape[d]) * scale;
      rest /= piece.box.shape[d];
      scale *= global[d];
    }
    elements.push_back(element);
  }
  return elements;
}

std::vector<int64_t> Pack(const Piece& piece) {
  std::vector<int64_t> dims(piece.box.offset.begin(), piece.box.offset.end());
  dims.insert(dims.end(), piece.box.shape.begin(), piece.box.shape.end());
  if (piece.flat) dims.insert(dims.end(), {piece.flat->begin, piece.flat->end});
  return dims;
}

TEST(CommonRunTest, FindCommonRun_RandomPieces_AgreesWithTheirElements) {
  int runs = 0, scattered = 0, none = 0;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Shape global;
    for (int64_t ndim = Below(random, 4); ndim > 0; --ndim) global.push_back(1 + Below(random, 5));
    Piece source = RandomPiece(random, global), target = RandomPiece(random, global);
    if (Below(random, 3) == 0) target = source;
    if (Below(random, 3) == 0) CutFlat(random, source);
    if (Below(random, 3) == 0) CutFlat(random, target);
    const std::vector<int64_t> a = Pack(source), b = Pack(target);
    const auto run =
        FindCommonRun({a.data(), source.flat.has_value()}, {b.data(), target.flat.has_value()}, global.size());

    const std::vector<int64_t> from = ElementsOf(source, global), to = ElementsOf(target, global);
    std::map<int64_t, int64_t> places;  // in the target, by element
    for (size_t i = 0; i < to.size(); ++i) places[to[i]] = static_cast<int64_t>(i);
    std::vector<std::pair<int64_t, int64_t>> common;  // places in both
    for (size_t i = 0; i < from.size(); ++i) {
      if (const auto at = places.find(from[i]); at != places.end()) {
        common.emplace_back(static_cast<int64_t>(i), at->second);
      }
    }
    bool one_run = true;
    for (size_t i = 1; i < common.size(); ++i) {
      one_run &= common[i].first == common[i - 1].first + 1 && common[i].second == common[i - 1].second + 1;
    }
    const bool boxes = !source.flat && !target.flat;
    if (!boxes && source.box != target.box) {
      EXPECT_FALSE(run.has_value());
    } else {
      ASSERT_EQ(run.has_value(), one_run);
    }
    if (!run) {
      ++scattered;
      continue;
    }
    ASSERT_EQ(run->size, static_cast<int64_t>(common.size()));
    ++(common.empty() ? none : runs);
    if (common.empty()) continue;
    EXPECT_EQ(run->source_begin, common[0].first);
    EXPECT_EQ(run->target_begin, common[0].second);
  }
  EXPECT_GT(runs, 1000);
  EXPECT_GT(scattered, 1000);
  EXPECT_GT(none, 500);
}

}  // namespace
}  // namespace cairn
