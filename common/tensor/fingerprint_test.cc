#include "common/tensor/fingerprint.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "common/base/crc64.h"
#include "common/tensor/box.h"
#include "common/tensor/flat_range.h"

namespace cairn {
namespace {

using Random = std::mt19937_64;

int64_t Between(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

struct Tensor {
  Shape shape;
  int element_bytes = 1;
  std::string bytes;
};

Tensor MakeTensor(Random& random) {
  constexpr int kElementBytes[] = {1, 2, 4, 8, 16};
  Tensor tensor;
  tensor.element_bytes = kElementBytes[Between(random, 0, 4)];
  int64_t elements = 1;
  for (int64_t axis = Between(random, 0, 4); axis > 0; --axis) {
    tensor.shape.push_back(Between(random, 1, 9));
    elements *= tensor.shape.back();
  }
  tensor.bytes.resize(static_cast<size_t>(elements * tensor.element_bytes));
  for (char& c : tensor.bytes) c = static_cast<char>(random());
  return tensor;
}

uint64_t WholeFingerprint(const Tensor& tensor) {
  return Crc64FromRemainder(ExtendRemainder64(0, tensor.bytes.data(), tensor.bytes.size()), tensor.bytes.size());
}

// Returns the bytes of a box in row-major order, copied element by element.
std::string BytesOf(const Tensor& tensor, const Box& box) {
  const Shape strides = RowMajorStrides(tensor.shape);
  const Shape within = RowMajorStrides(box.shape);
  std::string bytes;
  for (int64_t element = 0; element < box.size(); ++element) {
    int64_t at = 0;
    for (size_t axis = 0; axis < box.ndim(); ++axis) {
      at += (box.offset[axis] + element / within[axis] % box.shape[axis]) * strides[axis];
    }
    bytes +=
        tensor.bytes.substr(static_cast<size_t>(at * tensor.element_bytes), static_cast<size_t>(tensor.element_bytes));
  }
  return bytes;
}

// Cuts a box into random ones.
void Cut(Random& random, const Box& box, int depth, std::vector<Box>& boxes) {
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < box.ndim(); ++axis) {
    if (box.shape[axis] > 1) axes.push_back(axis);
  }
  if (depth == 0 || axes.empty()) {
    boxes.push_back(box);
    return;
  }
  const size_t axis = axes[static_cast<size_t>(Between(random, 0, static_cast<int64_t>(axes.size()) - 1))];
  Box low = box, high = box;
  low.shape[axis] = Between(random, 1, box.shape[axis] - 1);
  high.offset[axis] += low.shape[axis];
  high.shape[axis] -= low.shape[axis];
  Cut(random, low, depth - 1, boxes);
  Cut(random, high, depth - 1, boxes);
}

uint64_t PartOf(Random& random, const Tensor& tensor, const Box& box, FlatRange range) {
  FingerprintPart part(tensor.shape, box, range, tensor.element_bytes);
  const std::string bytes = BytesOf(tensor, box)
                                .substr(static_cast<size_t>(range.begin * tensor.element_bytes),
                                        static_cast<size_t>(range.size() * tensor.element_bytes));
  for (size_t at = 0; at < bytes.size();) {
    const auto piece = static_cast<size_t>(Between(random, 1, 50));
    if (Between(random, 0, 1) == 0) {
      part.Add(bytes.data() + at, std::min(piece, bytes.size() - at));
      at += piece;
      continue;
    }
    const uint64_t size = std::min(uint64_t{piece}, part.NextRunBytes());
    part.AddRemainder(ExtendRemainder64(0, bytes.data() + at, size), size);
    at += size;
  }
  return part.Value();
}

TEST(FingerprintTest, Parts_OfEveryTiling_MakeTheFingerprintOfTheWhole) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed);
    const Tensor tensor = MakeTensor(random);
    std::vector<Box> boxes;
    Cut(random, WholeBox(tensor.shape), static_cast<int>(Between(random, 0, 4)), boxes);
    uint64_t parts = 0;
    for (const Box& box : boxes) {
      const int64_t cut = Between(random, 0, box.size());  // a flat piece may be empty
      parts ^= PartOf(random, tensor, box, {0, cut}) ^ PartOf(random, tensor, box, {cut, box.size()});
    }
    EXPECT_EQ(FingerprintFromParts(parts, tensor.bytes.size()), WholeFingerprint(tensor))
        << "seed " << seed << ", shape " << ShapeToString(tensor.shape) << ", " << boxes.size() << " boxes";
  }
}

TEST(FingerprintTest, Part_OfManyShortRuns_UsesATable) {
  Random random(7);
  Tensor tensor;
  tensor.shape = {3, 500, 7};
  tensor.element_bytes = 2;
  tensor.bytes.resize(3 * 500 * 7 * 2);
  for (char& c : tensor.bytes) c = static_cast<char>(random());
  const Box left = {{0, 0, 0}, {3, 500, 4}}, right = {{0, 0, 4}, {3, 500, 3}};
  const uint64_t parts =
      PartOf(random, tensor, left, {0, left.size()}) ^ PartOf(random, tensor, right, {0, right.size()});
  EXPECT_EQ(FingerprintFromParts(parts, tensor.bytes.size()), WholeFingerprint(tensor));
}

TEST(FingerprintTest, Fingerprint_OfChangedBytes_IsAnother) {
  Random random(5);
  Tensor tensor;
  tensor.shape = {4, 8};
  tensor.element_bytes = 4;
  tensor.bytes.assign(128, '\0');
  const uint64_t zeros = WholeFingerprint(tensor);
  EXPECT_NE(zeros, FingerprintFromParts(0, 64)) << "fewer zeros";
  for (size_t bit = 0; bit < 8 * tensor.bytes.size(); ++bit) {
    Tensor changed = tensor;
    changed.bytes[bit / 8] = static_cast<char>(1 << (bit % 8));
    EXPECT_NE(WholeFingerprint(changed), zeros) << bit;
  }
}

TEST(FingerprintTest, EmptyTensor_HasTheFingerprintOfNoBytes) {
  const FingerprintPart part(Shape{0, 3}, WholeBox(Shape{0, 3}), {0, 0}, 4);
  EXPECT_EQ(FingerprintFromParts(part.Value(), 0), 0u);
}

TEST(FingerprintTest, FingerprintText_HasSixteenDigits) { EXPECT_EQ(FingerprintText(0xabc), "0000000000000abc"); }

}  // namespace
}  // namespace cairn
