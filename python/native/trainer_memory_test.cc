#include "python/native/trainer_memory.h"

#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/crc32c.h"
#include "gtest/gtest.h"

namespace {

struct Request {
  std::vector<CairnCopy> copies;
  std::vector<int64_t> dimensions;

  void Add(const std::string& source, int64_t source_offset, std::string& target, int64_t target_offset,
           int64_t element_bytes, const std::vector<int64_t>& extent, const std::vector<int64_t>& source_stride,
           const std::vector<int64_t>& target_stride) {
    copies.push_back({source.data(), static_cast<int64_t>(source.size()), source_offset, target.data(),
                      static_cast<int64_t>(target.size()), target_offset, element_bytes,
                      static_cast<int64_t>(extent.size()), static_cast<int64_t>(dimensions.size()), 0});
    for (const auto* part : {&extent, &source_stride, &target_stride}) {
      dimensions.insert(dimensions.end(), part->begin(), part->end());
    }
  }
  int64_t Run(int64_t threads, const void* base = nullptr, uint64_t* written = nullptr) {
    return cairn_copy(copies.data(), static_cast<int64_t>(copies.size()), dimensions.data(), threads, base, written);
  }
};

std::string Noise(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// The oracle copies element by element, as the contract says it.
void Naive(const std::string& source, int64_t source_offset, std::string& target, int64_t target_offset,
           int64_t element_bytes, const std::vector<int64_t>& extent, const std::vector<int64_t>& source_stride,
           const std::vector<int64_t>& target_stride) {
  std::vector<int64_t> index(extent.size(), 0);
  for (int64_t e : extent) {
    if (e == 0) return;
  }
  while (true) {
    int64_t s = source_offset;
    int64_t t = target_offset;
    for (size_t d = 0; d < extent.size(); ++d) {
      s += index[d] * source_stride[d];
      t += index[d] * target_stride[d];
    }
    target.replace(static_cast<size_t>(t), static_cast<size_t>(element_bytes), source, static_cast<size_t>(s),
                   static_cast<size_t>(element_bytes));
    size_t d = extent.size();
    while (d > 0 && ++index[d - 1] == extent[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

TEST(CopyTest, Copy_RandomBoxes_EqualElementByElement) {
  std::mt19937 random(7);
  auto pick = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  for (int round = 0; round < 300; ++round) {
    const int64_t rank = pick(0, 4);
    const int64_t element = int64_t{1} << pick(0, 4);
    std::vector<int64_t> whole, extent, begin, source_stride(rank), target_stride(rank);
    for (int64_t d = 0; d < rank; ++d) {
      whole.push_back(pick(1, 9));
      extent.push_back(pick(0, whole.back()));
      begin.push_back(pick(0, whole.back() - extent.back()));
    }
    // The source is a box in row-major order. The target is a box whose dimensions lie in memory in a random order.
    std::vector<size_t> order(static_cast<size_t>(rank));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    int64_t source_size = element, target_size = element, offset = 0;
    for (int64_t d = rank - 1; d >= 0; --d) {
      source_stride[d] = source_size;
      source_size *= whole[d];
    }
    for (size_t d : order) {
      target_stride[d] = target_size;
      target_size *= std::max<int64_t>(extent[d], 1);
    }
    for (int64_t d = 0; d < rank; ++d) offset += begin[d] * source_stride[d];
    const std::string source = Noise(static_cast<size_t>(source_size), 11);
    std::string expected(static_cast<size_t>(target_size), '-');
    std::string actual = expected;
    Naive(source, offset, expected, 0, element, extent, source_stride, target_stride);
    Request request;
    request.Add(source, offset, actual, 0, element, extent, source_stride, target_stride);
    ASSERT_EQ(request.Run(3), -1);
    ASSERT_EQ(actual, expected) << "round " << round;
  }
}

TEST(CopyTest, Copy_LargeOnes_AreSplitBetweenThreadsWithoutLoss) {
  const std::string source = Noise(33 << 20, 3);
  std::string rows(source.size(), '\0');
  std::string whole(source.size(), '\0');
  Request request;
  request.Add(source, 0, whole, 0, static_cast<int64_t>(source.size()), {}, {}, {});
  // Every second row is copied first, then the others, so both sides are strided.
  const int64_t row = 4096;
  const int64_t pairs = static_cast<int64_t>(source.size()) / (2 * row);
  request.Add(source, 0, rows, 0, row, {pairs}, {2 * row}, {row});
  request.Add(source, row, rows, pairs * row, row, {pairs}, {2 * row}, {row});
  ASSERT_EQ(request.Run(4), -1);
  EXPECT_EQ(whole, source);
  for (int64_t i = 0; i < 2 * pairs; ++i) {
    const int64_t from = i < pairs ? 2 * i : 2 * (i - pairs) + 1;
    ASSERT_EQ(std::memcmp(rows.data() + i * row, source.data() + from * row, row), 0);
  }
}

// Another thread sees a target's bytes, in whatever order the threads copy, as soon as the word says that they are
// there.
TEST(CopyTest, Copy_ThatSaysHowFarItIs_IsNeverAheadOfTheBytes) {
  constexpr int64_t kRows = 3000, kColumns = 1000;
  const std::string flat = Noise(20'000'001, 3), rows = Noise(4 * kRows * kColumns, 4), small = Noise(10, 5);
  std::string expected(8, '\0');
  expected += flat;
  for (int64_t c = 0; c < kColumns; ++c) {  // transposed
    for (int64_t r = 0; r < kRows; ++r) expected.append(rows, static_cast<size_t>(4 * (r * kColumns + c)), 4);
  }
  expected += small;
  for (int round = 0; round < 3; ++round) {
    std::string target(expected.size(), '\0');
    Request request;
    request.Add(flat, 0, target, 8, static_cast<int64_t>(flat.size()), {}, {}, {});
    request.Add(rows, 0, target, 8 + static_cast<int64_t>(flat.size()), 4, {kColumns, kRows}, {4, 4 * kColumns},
                {4 * kRows, 4});
    request.Add(small, 0, target, static_cast<int64_t>(target.size() - 10), 10, {}, {}, {});
    uint64_t written = 0;
    std::thread other([&] {
      for (uint64_t seen = 0; seen < target.size();) {
        const uint64_t now = __atomic_load_n(&written, __ATOMIC_SEQ_CST);
        ASSERT_GE(now, seen);
        ASSERT_EQ(std::memcmp(target.data() + seen, expected.data() + seen, now - seen), 0) << seen << ".." << now;
        seen = now;
      }
    });
    EXPECT_EQ(request.Run(4, target.data(), &written), -1);
    EXPECT_EQ(written, target.size());
    other.join();
  }
}

TEST(CopyTest, Copy_OutsideItsBuffers_IsRefusedAndCopiesNothing) {
  const std::string source = Noise(64, 5);
  for (const auto& [source_offset, target_offset, bytes] :
       {std::tuple<int64_t, int64_t, int64_t>{0, 0, 65}, {1, 0, 64}, {0, -1, 8}, {-8, 0, 8}, {0, 60, 8}}) {
    std::string target(64, '-');
    Request request;
    request.Add(source, 0, target, 0, 4, {}, {}, {});
    request.Add(source, source_offset, target, target_offset, bytes, {}, {}, {});
    EXPECT_EQ(request.Run(1), 1);
    EXPECT_EQ(target, std::string(64, '-'));
  }
  std::string target(64, '-');
  Request overflow;
  overflow.Add(source, 0, target, 0, 1, {INT64_MAX, 2}, {INT64_MAX, 1}, {0, 0});
  EXPECT_EQ(overflow.Run(1), 0);
  Request negative;
  negative.Add(source, 4, target, 0, 4, {3}, {-4}, {4});
  EXPECT_EQ(negative.Run(1), 0);
}

// These are numbers of cairn.v1.DType.
constexpr int64_t kBfloat16 = 11, kFloat32 = 12, kInt32 = 7;

TEST(CopyTest, Copy_CastAndTransposedBySeveralThreads_EqualsElementByElement) {
  constexpr int64_t kRows = 1500, kColumns = 1300;
  std::string source(kRows * kColumns * 4, '\0'), target(kRows * kColumns * 2, '\0');
  for (int64_t i = 0; i < kRows * kColumns; ++i) {
    const float value = static_cast<float>(i % 251) / 8;  // bfloat16 holds it exactly
    std::memcpy(source.data() + 4 * i, &value, 4);
  }
  Request request;
  request.Add(source, 0, target, 0, 4, {kRows, kColumns}, {4 * kColumns, 4}, {2, 2 * kRows});
  request.copies[0].casts = 2;
  request.dimensions.insert(request.dimensions.end(), {kFloat32, kBfloat16});
  ASSERT_EQ(request.Run(4), -1);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kColumns; ++c) {
      uint16_t wanted, got;
      std::memcpy(&wanted, source.data() + 4 * (r * kColumns + c) + 2, 2);
      std::memcpy(&got, target.data() + 2 * (c * kRows + r), 2);
      ASSERT_EQ(got, wanted) << r << ", " << c;
    }
  }
}

TEST(CopyTest, Copy_ImpossibleCasts_AreRefused) {
  const std::string source(64, '1');
  const auto result = [&](int64_t element_bytes, std::vector<int64_t> casts, int64_t target_bytes) {
    std::string target(static_cast<size_t>(target_bytes), '-');
    Request request;
    request.Add(source, 0, target, 0, element_bytes, {8}, {element_bytes}, {4});
    request.copies[0].casts = static_cast<int64_t>(casts.size());
    request.dimensions.insert(request.dimensions.end(), casts.begin(), casts.end());
    return request.Run(1);
  };
  EXPECT_EQ(result(2, {kBfloat16, kFloat32}, 32), -1);
  EXPECT_EQ(result(2, {kBfloat16, kFloat32}, 31), 0);  // the target is counted in its own elements
  EXPECT_EQ(result(4, {kBfloat16, kFloat32}, 32), 0);
  EXPECT_EQ(result(2, {kBfloat16}, 32), 0);
  EXPECT_EQ(result(4, {kInt32, kFloat32}, 32), 0);
  EXPECT_EQ(result(2, {kBfloat16, 1 << 20}, 32), 0);
}

TEST(ChecksumTest, Checksum_StridedSource_IsThatOfItsPackedBytes) {
  const std::string source = Noise(1 << 20, 9);
  std::string packed(1 << 18, '\0');
  Request request;  // copies a quarter, transposed
  request.Add(source, 128, packed, 0, 4, {256, 256}, {4, 2048}, {1024, 4});
  ASSERT_EQ(request.Run(1), -1);
  uint32_t checksum = 0;
  ASSERT_EQ(cairn_checksum(request.copies.data(), 1, request.dimensions.data(), 1, &checksum), -1);
  EXPECT_EQ(checksum, cairn::Crc32c(packed.data(), packed.size()));
}

TEST(ControlWordTest, StoreThenLoad_TwoWords_StoresOneAndAnswersTheOther) {
  uint64_t words[2] = {0, 42};
  EXPECT_EQ(cairn_store_then_load(&words[0], 7, &words[1]), 42u);
  EXPECT_EQ(words[0], 7u);
}

}  // namespace
