#include "common/format/item_summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/crc64.h"
#include "common/format/stored_item.h"
#include "common/tensor/fingerprint.h"

namespace cairn {
namespace {

using Random = std::mt19937_64;

int64_t Between(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

struct File {
  std::vector<StoredItem> items;
  std::string data;
};

// Items of odd lengths, so that the elements of later ones begin anywhere. The values are small whole numbers, whose
// sums are exact in any order.
File MakeFile(Random& random) {
  File file;
  for (int64_t i = Between(random, 1, 6); i > 0; --i) {
    StoredItem item;
    item.name = "t";
    item.object = Between(random, 0, 4) == 0;
    const DType dtypes[] = {DType::kUint8, DType::kBfloat16, DType::kFloat32, DType::kFloat64, DType::kComplex128};
    item.dtype = item.object ? DType::kUint8 : dtypes[Between(random, 0, 4)];
    for (int64_t axis = Between(random, item.object ? 1 : 0, item.object ? 1 : 3); axis > 0; --axis) {
      const int64_t size = Between(random, 1, 12);
      item.global_shape.push_back(size);
      item.box.offset.push_back(item.object ? 0 : Between(random, 0, size - 1));
      item.box.shape.push_back(item.object ? size : Between(random, 1, size - item.box.offset.back()));
    }
    if (!item.object && Between(random, 0, 2) == 0) {
      const int64_t begin = Between(random, 0, item.box.size() - 1);
      item.flat = FlatRange{begin, Between(random, begin + 1, item.box.size())};
    }
    for (uint64_t bytes = 0; bytes < item.bytes(); bytes += static_cast<uint64_t>(BytesOf(item.dtype))) {
      const auto value = static_cast<float>(Between(random, -9, 9));
      const auto wide = static_cast<double>(value);
      switch (item.dtype) {
        case DType::kUint8:
          file.data += static_cast<char>(Between(random, 0, 255));
          break;
        case DType::kBfloat16:
          file.data.append(reinterpret_cast<const char*>(&value) + 2, 2);
          break;
        case DType::kFloat32:
          file.data.append(reinterpret_cast<const char*>(&value), 4);
          break;
        case DType::kFloat64:
          file.data.append(reinterpret_cast<const char*>(&wide), 8);
          break;
        default:
          file.data.append(reinterpret_cast<const char*>(&wide), 8).append(8, '\0');
      }
    }
    file.items.push_back(std::move(item));
  }
  return file;
}

std::vector<const StoredItem*> Pointers(const File& file) {
  std::vector<const StoredItem*> items;
  for (const StoredItem& item : file.items) items.push_back(&item);
  return items;
}

// Computes the summaries element by element.
std::vector<TensorSummary> Slowly(const File& file) {
  std::vector<TensorSummary> summaries;
  size_t at = 0;
  for (const StoredItem& item : file.items) {
    TensorSummary summary;
    const auto element = static_cast<size_t>(BytesOf(item.dtype));
    const Shape strides = RowMajorStrides(item.global_shape), within = RowMajorStrides(item.box.shape);
    uint64_t total = element;
    for (const int64_t size : item.global_shape) total *= static_cast<uint64_t>(size);
    StatisticsOf statistics(item.dtype);
    const FlatRange range = item.flat.value_or(FlatRange{0, item.box.size()});
    for (int64_t i = range.begin; i < range.end; ++i, at += element) {
      if (item.object) continue;
      uint64_t position = 0;
      for (size_t axis = 0; axis < strides.size(); ++axis) {
        position +=
            static_cast<uint64_t>((item.box.offset[axis] + i / within[axis] % item.box.shape[axis]) * strides[axis]);
      }
      const uint64_t remainder = ExtendRemainder64(0, file.data.data() + at, element);
      summary.fingerprint_parts ^= AppendZeros64(remainder, total - (position + 1) * element);
      if (HasStatistics(item.dtype)) statistics.Add(position, file.data.data() + at, 1);
    }
    if (HasStatistics(item.dtype)) summary.statistics = statistics.value();
    summaries.push_back(summary);
  }
  return summaries;
}

TEST(ItemSummaryTest, PiecesOfAnyLengthInAnyOrder) {
  Random random(1);
  for (int trial = 0; trial < 400; ++trial) {
    const File file = MakeFile(random);
    const ItemSummarizer summarizer(Pointers(file));
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    const int64_t longest = Between(random, 1, 60);
    const std::string padded = file.data + std::string(40, '\1');  // behind the last item
    for (uint64_t at = 0; at < padded.size();) {
      const auto size = std::min<uint64_t>(static_cast<uint64_t>(Between(random, 1, longest)), padded.size() - at);
      ranges.emplace_back(at, size);
      at += size;
    }
    std::vector<size_t> order(ranges.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::vector<ItemSummarizer::Fragment>> pieces(ranges.size());
    for (const size_t i : order) {
      // A copy of its own, so that reading beyond a piece is found by the address sanitizer.
      const std::vector<char> bytes(padded.begin() + static_cast<int64_t>(ranges[i].first),
                                    padded.begin() + static_cast<int64_t>(ranges[i].first + ranges[i].second));
      pieces[i] = summarizer.Touch(ranges[i].first, bytes.data(), bytes.size());
    }
    EXPECT_EQ(summarizer.Combine(pieces), Slowly(file)) << "trial " << trial;
  }
}

}  // namespace
}  // namespace cairn
