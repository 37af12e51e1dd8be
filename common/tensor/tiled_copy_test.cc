#include "common/tensor/tiled_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace cairn {
namespace {

using Bytes = std::vector<std::byte>;

// Copies one element after the other.
void Oracle(const TiledCopy& copy) {
  std::vector<int64_t> index(copy.dimensions.size(), 0);
  for (const auto& d : copy.dimensions) {
    if (d.extent == 0) return;
  }
  while (true) {
    const std::byte* from = copy.source;
    std::byte* to = copy.target;
    for (size_t d = 0; d < index.size(); ++d) {
      from += index[d] * copy.dimensions[d].source_stride;
      to += index[d] * copy.dimensions[d].target_stride;
    }
    if (copy.is_cast()) {
      CastElements(copy.casts, from, to, 1);
    } else {
      std::memcpy(to, from, static_cast<size_t>(copy.element_bytes));
    }
    size_t d = index.size();
    while (d > 0 && ++index[d - 1] == copy.dimensions[d - 1].extent) index[--d] = 0;
    if (d == 0) return;
  }
}

// Copies a box of a source tensor to a box of a target tensor whose axes are permuted.
TEST(TiledCopyTest, Execute_RandomPermutationsAndCasts_EqualElementByElement) {
  constexpr DType kFloats[] = {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64};
  std::mt19937_64 random(11);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 500; ++round) {
    const size_t ndim = static_cast<size_t>(below(5));
    TiledCopy copy;
    if (round % 2 == 0) {
      const DType from = kFloats[below(4)];
      const DType casts[] = {kFloats[below(4)], kFloats[below(4)]};
      copy.casts = SimplifyCasts(from, std::span(casts, static_cast<size_t>(1 + below(2))));
      copy.element_bytes = BytesOf(from);
    } else {
      constexpr int64_t kSizes[] = {1, 2, 4, 8, 16, 3, 24};
      copy.element_bytes = kSizes[below(7)];
    }
    std::vector<int64_t> extent(ndim), source_shape(ndim), target_shape(ndim);
    std::vector<size_t> order(ndim);  // axes of the target, from the outermost
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    const int64_t most = ndim <= 2 ? 200 : ndim == 3 ? 40 : 12;
    for (size_t d = 0; d < ndim; ++d) {
      extent[d] = below(20) == 0 ? below(2) : 1 + below(most);
      source_shape[d] = extent[d] + below(3);
      target_shape[d] = extent[d] + below(3);
    }
    int64_t source_size = copy.element_bytes, target_size = copy.target_element_bytes();
    copy.dimensions.resize(ndim);
    for (size_t d = ndim; d-- > 0;) {
      copy.dimensions[d] = {extent[d], source_size, 0};
      source_size *= source_shape[d];
    }
    for (size_t k = ndim; k-- > 0;) {
      copy.dimensions[order[k]].target_stride = target_size;
      target_size *= target_shape[order[k]];
    }
    const auto shift = static_cast<size_t>(below(9));
    Bytes source(static_cast<size_t>(source_size) + shift), target(static_cast<size_t>(target_size) + shift);
    for (std::byte& byte : source) byte = static_cast<std::byte>(random());
    Bytes wanted = target;
    copy.source = source.data() + shift;
    copy.target = wanted.data() + shift;
    Oracle(copy);
    copy.target = target.data() + shift;
    copy.Simplify();
    Execute(copy);
    ASSERT_EQ(target, wanted) << "round " << round;
  }
}

// Large targets are written past the caches, in whole lines, wherever their rows begin.
TEST(TiledCopyTest, Execute_LargeTargetsAtAnyAlignment_EqualElementByElement) {
  struct Case {
    int64_t element_bytes;
    CastChain casts;
  };
  using enum DType;
  const std::vector<Case> cases = {{1, {}},
                                   {2, {}},
                                   {4, {}},
                                   {8, {}},
                                   {4, {kFloat32, kFloat16}},
                                   {8, {kFloat64, kBfloat16}},
                                   {2, {kBfloat16, kFloat32}},
                                   {2, {kFloat16, kFloat64}},
                                   {2, {kFloat16, kBfloat16}},
                                   {4, {kFloat32, kBfloat16, kFloat32}}};
  std::mt19937_64 random(5);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (size_t round = 0; round < 3 * cases.size(); ++round) {
    const Case& c = cases[round % cases.size()];
    TiledCopy copy;
    copy.element_bytes = c.element_bytes;
    copy.casts = c.casts;
    const int64_t width = copy.target_element_bytes();
    // The rows are whole lines; or whole lines with an odd number of bytes between them; or of any length. None is a
    // multiple of a tile.
    const auto kind = round / cases.size();
    const int64_t inner = kind < 2 ? 64 / width * (1200 * width / 64 + 1) : 600 + static_cast<int64_t>(below(600));
    const int64_t target_stride = inner * width + (kind == 0 ? 0 : static_cast<int64_t>(below(3)));
    const int64_t across = (int64_t{4} << 20) / (inner * width) + 3;
    const int64_t source_stride = (across + 5) * c.element_bytes + static_cast<int64_t>(below(2));
    copy.dimensions = {{across, c.element_bytes, target_stride}, {inner, source_stride, width}};
    Bytes source(static_cast<size_t>(inner * source_stride) + 64);
    for (size_t i = 0; i + 8 <= source.size(); i += 8) {
      const uint64_t bits = random();
      std::memcpy(source.data() + i, &bits, 8);
    }
    const auto size = static_cast<size_t>(across * target_stride);
    Bytes memory(size + 192, std::byte{7}), wanted = memory;
    const size_t skew = 64 + (kind == 0 ? 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64 : below(64));
    copy.source = source.data() + below(64);
    copy.target = wanted.data() + skew;
    Oracle(copy);
    copy.target = memory.data() + skew;
    copy.Simplify();
    Execute(copy);
    // The bytes between and around the rows are not touched either.
    ASSERT_TRUE(memory == wanted) << c.element_bytes << " to " << width << ", round " << round;
  }
}

TEST(TiledCopyTest, Execute_NegativeStrides_AreFollowed) {
  const std::vector<float> source = {1, 2, 3, 4, 5, 6};
  std::vector<float> target(6);
  TiledCopy copy;
  copy.source = reinterpret_cast<const std::byte*>(source.data() + 5);
  copy.target = reinterpret_cast<std::byte*>(target.data());
  copy.element_bytes = 4;
  copy.dimensions = {{6, -4, 4}};
  copy.Simplify();
  Execute(copy);
  EXPECT_EQ(target, (std::vector<float>{6, 5, 4, 3, 2, 1}));
}

TEST(TiledCopyTest, Simplify_ContiguousOnBothSides_IsMerged) {
  TiledCopy copy;
  copy.element_bytes = 2;
  copy.dimensions = {{3, 40, 40}, {4, 10, 10}, {5, 2, 2}};
  copy.Simplify();
  EXPECT_TRUE(copy.dimensions.empty());
  EXPECT_EQ(copy.element_bytes, 120);

  TiledCopy cast;
  cast.element_bytes = 2;
  cast.casts = {DType::kBfloat16, DType::kFloat32};
  cast.dimensions = {{3, 40, 80}, {4, 10, 20}, {5, 2, 4}};
  cast.Simplify();
  ASSERT_EQ(cast.dimensions.size(), 1u);
  EXPECT_EQ(cast.dimensions[0].extent, 60);
  EXPECT_EQ(cast.element_bytes, 2);
}

}  // namespace
}  // namespace cairn
