#include "gpu/copy/transfer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

namespace cairn {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Executes a copy in both directions: simulates the copy engine on host memory, and does the host's part.
void Play(const DeviceCopy& copy, int64_t most_bytes, std::vector<std::byte>& device, uint64_t base) {
  for (DevicePart& part : PartsOf(copy, most_bytes)) {
    ASSERT_LE(part.bytes, most_bytes);
    std::vector<std::byte> packed(static_cast<size_t>(part.bytes));
    const auto move = [&] {
      for (const DeviceRows& rows : part.rows) {
        for (int64_t row = 0; row < rows.rows; ++row) {
          const uint64_t at = rows.device - base + static_cast<uint64_t>(row * rows.pitch);
          ASSERT_LE(at + static_cast<uint64_t>(rows.row_bytes), device.size());
          ASSERT_GE(rows.pitch, rows.row_bytes);
          std::byte* there = packed.data() + rows.packed_offset + row * rows.row_bytes;
          if (copy.to_host) std::memcpy(there, device.data() + at, static_cast<size_t>(rows.row_bytes));
          if (!copy.to_host) std::memcpy(device.data() + at, there, static_cast<size_t>(rows.row_bytes));
        }
      }
    };
    if (copy.to_host) {
      move();
      if (part.direct) {
        std::memcpy(part.host.target, packed.data(), packed.size());
        continue;
      }
      part.host.source = packed.data();
    } else {
      part.host.target = packed.data();
    }
    part.host.Simplify();
    Execute(part.host);
    if (!copy.to_host) move();
  }
}

int64_t RowsOf(const std::vector<DevicePart>& parts) {
  int64_t count = 0;
  for (const DevicePart& part : parts) count += static_cast<int64_t>(part.rows.size());
  return count;
}

TEST(TransferTest, PartsOf_AContiguousArray_IsOneDirectRow) {
  std::byte host[64];
  const DeviceCopy copy = {.device = 4096,
                           .copy = {.target = host, .element_bytes = 4, .dimensions = {{4, 16, 16}, {4, 4, 4}}}};
  const std::vector<DevicePart> parts = PartsOf(copy, kNoLimit);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_TRUE(parts[0].direct);
  ASSERT_EQ(parts[0].rows.size(), 1u);
  EXPECT_EQ(parts[0].rows[0].row_bytes, 64);
  EXPECT_EQ(parts[0].rows[0].device, 4096u);
}

TEST(TransferTest, PartsOf_ATransposedArray_ReadsTheDevicesMemoryInOneRow) {
  std::byte host[96];
  const DeviceCopy copy = {.copy = {.target = host, .element_bytes = 4, .dimensions = {{4, 4, 24}, {6, 16, 4}}}};
  const std::vector<DevicePart> parts = PartsOf(copy, kNoLimit);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_FALSE(parts[0].direct);
  EXPECT_EQ(RowsOf(parts), 1);
  EXPECT_EQ(parts[0].bytes, 96);
}

TEST(TransferTest, PartsOf_SomeColumns_IsOneCopyOfRows) {
  std::byte host[32];
  const DeviceCopy copy = {.copy = {.target = host, .element_bytes = 4, .dimensions = {{4, 400, 8}, {2, 4, 4}}}};
  const std::vector<DevicePart> parts = PartsOf(copy, kNoLimit);
  ASSERT_EQ(RowsOf(parts), 1);
  EXPECT_TRUE(parts[0].direct);
  EXPECT_EQ(parts[0].rows[0].rows, 4);
  EXPECT_EQ(parts[0].rows[0].pitch, 400);
}

TEST(TransferTest, PartsOf_NoElements_IsNothing) {
  const DeviceCopy copy = {.copy = {.element_bytes = 4, .dimensions = {{0, 4, 4}}}};
  EXPECT_TRUE(PartsOf(copy, kNoLimit).empty());
}

// Random strided arrays, both ways, compared with one TiledCopy that knows of no device.
TEST(TransferTest, PartsOf_RandomArrays_MoveTheSameBytesAsOneCopy) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
    const int64_t element = int64_t{1} << upto(5);
    std::vector<TiledCopy::Dimension> dimensions(static_cast<size_t>(upto(4)));
    // The device has the axes in any order, with gaps; the host has them packed in theirs.
    std::vector<size_t> order(dimensions.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    const bool to_host = upto(2) == 0;
    int64_t span = element, packed = element;
    for (TiledCopy::Dimension& d : dimensions) d.extent = 1 + upto(6);
    for (const size_t i : order) {
      const bool repeats = to_host && upto(8) == 0;
      const int64_t stride = repeats ? 0 : span + (upto(3) == 0 ? element * upto(5) : 0);
      (to_host ? dimensions[i].source_stride : dimensions[i].target_stride) = stride;
      span = std::max(span, stride * dimensions[i].extent);
    }
    for (size_t i = dimensions.size(); i-- > 0;) {
      (to_host ? dimensions[i].target_stride : dimensions[i].source_stride) = packed;
      packed *= dimensions[i].extent;
    }
    std::vector<std::byte> device(static_cast<size_t>(span)), host(static_cast<size_t>(packed));
    for (std::byte& byte : device) byte = static_cast<std::byte>(random());
    for (std::byte& byte : host) byte = static_cast<std::byte>(random());
    std::vector<std::byte> expected_device = device, expected_host = host;
    TiledCopy whole = {.source = to_host ? device.data() : host.data(),
                       .target = to_host ? expected_host.data() : expected_device.data(),
                       .element_bytes = element,
                       .dimensions = dimensions};
    whole.Simplify();
    Execute(whole);
    constexpr uint64_t kBase = 1 << 20;
    DeviceCopy copy = {
        .to_host = to_host, .device = kBase, .copy = {.element_bytes = element, .dimensions = dimensions}};
    if (to_host) copy.copy.target = host.data();
    if (!to_host) copy.copy.source = host.data();
    const int64_t limit = upto(3) == 0 ? kNoLimit : 16 + upto(100);
    Play(copy, limit == kNoLimit ? int64_t{1} << 40 : limit, device, kBase);
    EXPECT_EQ(device, expected_device);
    EXPECT_EQ(host, expected_host);
  }
}

TEST(TransferTest, PartsOf_ACastOnTheWay_PacksElementsOfTheDevicesType) {
  const float source[6] = {1, 2, 3, 4, 5, 6};
  std::vector<std::byte> device(6 * sizeof(double));
  const DeviceCopy copy = {.to_host = false,
                           .device = 0,
                           .copy = {.source = reinterpret_cast<const std::byte*>(source),
                                    .element_bytes = 4,
                                    .dimensions = {{6, 4, 8}},
                                    .casts = {DType::kFloat32, DType::kFloat64}}};
  Play(copy, 16, device, 0);
  double result[6];
  std::memcpy(result, device.data(), sizeof result);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(result[i], i + 1);
}

}  // namespace
}  // namespace cairn
