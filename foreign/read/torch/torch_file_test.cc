#include "foreign/read/torch/torch_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "foreign/read/testing/pickle_writer.h"
#include "foreign/read/testing/zip_writer.h"

namespace cairn {
namespace {

using pickle_writer::Bool;
using pickle_writer::Call;
using pickle_writer::Dict;
using pickle_writer::Global;
using pickle_writer::Int;
using pickle_writer::Ints;
using pickle_writer::None;
using pickle_writer::Persistent;
using pickle_writer::Pickle;
using pickle_writer::Text;
using pickle_writer::Tuple;

// Returns a call of torch._utils._rebuild_tensor_v2 of a storage of the archive.
std::string Tensor(const std::string& type, const std::string& key, int64_t first, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides) {
  const std::string storage =
      Persistent(Tuple({Text("storage"), Global("torch", type), Text(key), Text("cpu"), Int(100)}));
  return Call(Global("torch._utils", "_rebuild_tensor_v2"),
              {storage, Int(first), Ints(shape), Ints(strides), Bool(false), Dict({})});
}

// Makes archives of a value, with a storage "0" of 400 bytes.
class TorchFileTest : public testing::Test {
 protected:
  absl::StatusOr<TorchFile> Open(const std::string& value, const std::string& byte_order = "little") {
    bytes_ = WriteZip({{"data.pkl", Pickle(value)}, {"byteorder", byte_order}, {"data/0", storage_}}, {.padding = 30});
    const ReadRange read = [this](uint64_t offset, uint64_t length) -> absl::StatusOr<std::string> {
      EXPECT_LE(length, bytes_.size());
      EXPECT_LE(offset, bytes_.size() - length);
      return bytes_.substr(offset, length);
    };
    return TorchFile::Open(bytes_.size(), read, "file");
  }
  // The tensor that is the root of the archive's value.
  absl::StatusOr<std::optional<StridedTensor>> Read(const std::string& value) {
    const auto file = Open(value);
    if (!file.ok()) return file.status();
    return file->Tensor(file->document().root());
  }
  Reason ReasonOfReading(const std::string& value) {
    const auto tensor = Read(value);
    EXPECT_FALSE(tensor.ok());
    return ReasonOf(tensor.status()).value_or(Reason::kInternal);
  }

  const std::string storage_ = std::string(200, 'a') + std::string(200, 'b');
  std::string bytes_;
};

TEST_F(TorchFileTest, Tensor_OfAStorage_SaysWhereItsElementsLie) {
  const auto tensor = Read(Tensor("FloatStorage", "0", 50, {5, 10}, {10, 1}));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  ASSERT_TRUE(tensor->has_value());
  EXPECT_EQ((*tensor)->dtype, DType::kFloat32);
  EXPECT_EQ((*tensor)->shape, (Shape{5, 10}));
  EXPECT_EQ((*tensor)->strides, (Shape{10, 1}));
  EXPECT_EQ(bytes_.substr((*tensor)->offset, 200), std::string(200, 'b'));
}

TEST_F(TorchFileTest, Tensor_AParameter_IsItsTensor) {
  const auto tensor = Read(Call(Global("torch._utils", "_rebuild_parameter"),
                                {Tensor("BFloat16Storage", "0", 0, {200}, {1}), Bool(true), Dict({})}));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  ASSERT_TRUE(tensor->has_value());
  EXPECT_EQ((*tensor)->dtype, DType::kBfloat16);
}

// A tensor with attributes of its own, or one of a class that torch.save knows nothing of.
std::string TypedTensor(const std::string& module, const std::string& type) {
  const std::string storage =
      Persistent(Tuple({Text("storage"), Global("torch", "FloatStorage"), Text("0"), Text("cpu"), Int(100)}));
  return Call(Global("torch._tensor", "_rebuild_from_type_v2"),
              {Global("torch._utils", "_rebuild_tensor_v2"), Global(module, type),
               Tuple({storage, Int(3), Ints({2, 5}), Ints({5, 1}), Bool(false), Dict({})}),
               Dict({{Text("ds_id"), Text("0_1")}})});
}

TEST_F(TorchFileTest, Tensor_WithAttributes_IsATensor) {
  for (const std::string& value : {TypedTensor("torch", "Tensor"), TypedTensor("torch.nn.parameter", "Parameter")}) {
    const auto tensor = Read(value);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    ASSERT_TRUE(tensor->has_value());
    EXPECT_EQ((*tensor)->shape, Shape({2, 5}));
  }
}

TEST_F(TorchFileTest, Tensor_AnotherValue_IsNone) {
  for (const std::string& value :
       {Int(7), Text("text"), Call(Global("m", "f"), {}), TypedTensor("torchao", "QuantizedTensor")}) {
    const auto tensor = Read(value);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_FALSE(tensor->has_value());
  }
}

TEST_F(TorchFileTest, Tensor_ThatLeavesItsStorage_IsRefused) {
  EXPECT_TRUE(Read(Tensor("FloatStorage", "0", 0, {100}, {1})).ok());
  EXPECT_EQ(ReasonOfReading(Tensor("FloatStorage", "0", 0, {101}, {1})), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading(Tensor("FloatStorage", "0", 1, {100}, {1})), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading(Tensor("FloatStorage", "0", -1, {10}, {1})), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading(Tensor("FloatStorage", "0", 0, {2, 2}, {99, 2})), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading(Tensor("FloatStorage", "0", 0, {2}, {-1})), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading(Tensor("FloatStorage", "0", 0, {3, 3}, {INT64_MAX, INT64_MAX})), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading(Tensor("FloatStorage", "0", INT64_MAX, {1}, {1})), Reason::kBadForeignFile);
}

TEST_F(TorchFileTest, Tensor_ThatContradictsItself_IsRefused) {
  EXPECT_EQ(ReasonOfReading(Tensor("FloatStorage", "7", 0, {1}, {1})), Reason::kBadForeignFile) << "no such storage";
  EXPECT_EQ(ReasonOfReading(Tensor("FloatStorage", "0", 0, {1, 1}, {1})), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading(Tensor("FloatStorage", "0", 0, {-1}, {1})), Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading(Call(Global("torch._utils", "_rebuild_tensor_v2"), {Int(1), Int(2)})),
            Reason::kBadForeignFile);
}

// Its elements are those of the storage, conjugated or negated: to read them as they are would be silently wrong.
TEST_F(TorchFileTest, Tensor_WithABitThatChangesItsElements_IsUnsupported) {
  const std::string storage =
      Persistent(Tuple({Text("storage"), Global("torch", "FloatStorage"), Text("0"), Text("cpu"), Int(100)}));
  const auto tensor = [&](const std::string& metadata) {
    return Call(Global("torch._utils", "_rebuild_tensor_v2"),
                {storage, Int(0), Ints({2}), Ints({1}), Bool(false), Dict({}), metadata});
  };
  for (const char* const bit : {"conj", "neg"}) {
    EXPECT_EQ(ReasonOfReading(tensor(Dict({{Text(bit), Bool(true)}}))), Reason::kUnsupported) << bit;
    EXPECT_TRUE(Read(tensor(Dict({{Text(bit), Bool(false)}}))).ok()) << bit;
  }
  EXPECT_TRUE(Read(tensor(None())).ok());
  EXPECT_TRUE(Read(tensor(Dict({}))).ok());
  std::vector<std::pair<std::string, std::string>> bits(1001, {Text("neg"), Bool(false)});
  EXPECT_EQ(ReasonOfReading(tensor(Dict(bits))), Reason::kBadForeignFile) << "many tensors can name one large dict";
  const std::string untyped =
      Persistent(Tuple({Text("storage"), Global("torch", "UntypedStorage"), Text("0"), Text("cpu"), Int(400)}));
  EXPECT_EQ(ReasonOfReading(Call(Global("torch._utils", "_rebuild_tensor_v3"),
                                 {untyped, Int(0), Ints({2}), Ints({1}), Bool(false), Dict({}),
                                  Global("torch", "uint16"), Dict({{Text("neg"), Bool(true)}})})),
            Reason::kUnsupported);
}

TEST_F(TorchFileTest, Tensor_OfAnUnknownStorage_IsUnsupported) {
  EXPECT_EQ(ReasonOfReading(Tensor("QInt8Storage", "0", 0, {1}, {1})), Reason::kUnsupported);
}

TEST_F(TorchFileTest, Tensor_ParametersOfParameters_EndSomewhere) {
  std::string value = Tensor("FloatStorage", "0", 0, {1}, {1});
  for (int i = 0; i < 100; ++i) value = Call(Global("torch._utils", "_rebuild_parameter"), {value});
  EXPECT_EQ(ReasonOfReading(value), Reason::kBadForeignFile);
}

TEST_F(TorchFileTest, Open_TheOtherByteOrder_IsUnsupported) {
  EXPECT_TRUE(HasReason(Open(None(), "big").status(), Reason::kUnsupported));
}

TEST_F(TorchFileTest, Open_AnArchiveOfSomethingElse_IsRefused) {
  const std::string bytes = WriteZip({{"letter.txt", "hello"}});
  const ReadRange read = [&](uint64_t offset, uint64_t length) { return bytes.substr(offset, length); };
  EXPECT_TRUE(HasReason(TorchFile::Open(bytes.size(), read, "file").status(), Reason::kBadForeignFile));
}

// Cuts the tensor into pieces, and compares each element's place with the definition of strides.
void ExpectPiecesAreTheTensor(const StridedTensor& tensor, bool may_share = false) {
  const auto pieces = tensor.Pieces(1'000'000, may_share);
  ASSERT_TRUE(pieces.has_value());
  std::map<Shape, uint64_t> places;
  for (const StridedTensor::Piece& piece : *pieces) {
    uint64_t place = piece.offset;
    Shape at(tensor.shape.size(), 0);
    for (int64_t i = 0; i < piece.box.size(); ++i) {
      Shape index = piece.box.offset;
      for (size_t axis = 0; axis < at.size(); ++axis) index[axis] += at[axis];
      EXPECT_TRUE(places.emplace(index, place).second) << "an element is in two pieces";
      place += 4;
      for (size_t axis = at.size(); axis-- > 0;) {
        if (++at[axis] < piece.box.shape[axis]) break;
        at[axis] = 0;
      }
    }
  }
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= size;
  EXPECT_EQ(places.size(), static_cast<size_t>(elements));
  for (const auto& [index, place] : places) {
    uint64_t expected = tensor.offset;
    for (size_t axis = 0; axis < index.size(); ++axis) {
      expected += 4 * static_cast<uint64_t>(index[axis] * tensor.strides[axis]);
    }
    EXPECT_EQ(place, expected);
  }
}

TEST(StridedTensorTest, Pieces_AnyOrderOfAxesWithGaps_AreTheTensor) {
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    const size_t ndim = random() % 5;
    StridedTensor tensor{.dtype = DType::kFloat32, .shape = Shape(ndim), .strides = Shape(ndim), .offset = 1000};
    std::vector<size_t> order(ndim);
    for (size_t axis = 0; axis < ndim; ++axis) order[axis] = axis;
    std::shuffle(order.begin(), order.end(), random);
    int64_t stride = 1;
    for (const size_t axis : order) {
      tensor.shape[axis] = static_cast<int64_t>(random() % 5);
      tensor.strides[axis] = stride;
      stride *= std::max<int64_t>(1, tensor.shape[axis]);
      if (random() % 4 == 0) stride += static_cast<int64_t>(random() % 3);
    }
    ExpectPiecesAreTheTensor(tensor);
  }
}

TEST(StridedTensorTest, Pieces_AContiguousTensor_IsOne) {
  const StridedTensor tensor{.dtype = DType::kFloat32, .shape = {3, 1, 4}, .strides = {4, 99, 1}, .offset = 8};
  ASSERT_TRUE(tensor.Pieces(1).has_value());
  EXPECT_EQ(tensor.Pieces(1)->size(), 1);
}

TEST(StridedTensorTest, Pieces_ElementsShareMemory_AreNoneUnlessTheyMay) {
  EXPECT_EQ((StridedTensor{.dtype = DType::kFloat32, .shape = {3}, .strides = {0}}.Pieces(100)), std::nullopt);
  EXPECT_EQ((StridedTensor{.dtype = DType::kFloat32, .shape = {3, 3}, .strides = {2, 1}}.Pieces(100)), std::nullopt);
  for (const Shape& strides : {Shape{0, 0, 0}, Shape{0, 4, 1}, Shape{1, 0, 2}, Shape{2, 1, 1}}) {
    ExpectPiecesAreTheTensor({.dtype = DType::kFloat32, .shape = {3, 2, 4}, .strides = strides, .offset = 8}, true);
  }
}

TEST(StridedTensorTest, Pieces_MoreThanAsked_AreNone) {
  const StridedTensor transposed{.dtype = DType::kFloat32, .shape = {10, 10}, .strides = {1, 10}};
  EXPECT_EQ(transposed.Pieces(9), std::nullopt);
  EXPECT_TRUE(transposed.Pieces(100).has_value());
}

}  // namespace
}  // namespace cairn
