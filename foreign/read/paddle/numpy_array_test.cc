#include "foreign/read/paddle/numpy_array.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/status/reason.h"
#include "foreign/read/pickle/pickle.h"
#include "foreign/read/pickle/pickle_outline.h"
#include "foreign/read/testing/pickle_writer.h"

namespace cairn {
namespace {

using pickle_writer::Bool;
using pickle_writer::Call;
using pickle_writer::Global;
using pickle_writer::Int;
using pickle_writer::Ints;
using pickle_writer::List;
using pickle_writer::LittleEndian;
using pickle_writer::None;
using pickle_writer::Pickle;
using pickle_writer::Text;
using pickle_writer::Tuple;

std::string Bytes(const std::string& bytes) { return "B" + LittleEndian(bytes.size(), 4) + bytes; }

std::string Dtype(const std::string& name, const std::string& order = "<") {
  return Call(Global("numpy", "dtype"), {Text(name), Bool(false), Bool(true)}) +
         Tuple({Int(3), Text(order), None(), None(), None(), Int(-1), Int(-1), Int(0)}) + "b";
}

// As protocols 2 to 4 write an array.
std::string Array(const std::string& dtype, const std::vector<int64_t>& shape, const std::string& elements,
                  bool column_major = false, const std::string& module = "numpy._core.multiarray") {
  return Call(Global(module, "_reconstruct"), {Global("numpy", "ndarray"), Ints({0}), Bytes("b")}) +
         Tuple({Int(1), Ints(shape), dtype, Bool(column_major), elements}) + "b";
}

class NumpyArrayTest : public testing::Test {
 protected:
  absl::StatusOr<std::optional<StridedTensor>> Read(const std::string& value) {
    file_ = Pickle(value);
    const ReadRange read = [&](uint64_t offset, uint64_t bytes) { return file_.substr(offset, bytes); };
    outline_ = *OutlinePickle(file_.size(), read, "file", 1 << 20);
    const auto document = ReadPickle(outline_, "file", {});
    EXPECT_TRUE(document.ok()) << document.status();
    return NumpyArray(*document, document->root(), "file");
  }
  void ExpectRefused(const std::string& value, Reason reason, const std::string& said) {
    const absl::Status status = Read(value).status();
    EXPECT_EQ(ReasonOf(status), reason) << status;
    EXPECT_NE(status.message().find(said), absl::string_view::npos) << status;
  }

  std::string file_, outline_;
};

TEST_F(NumpyArrayTest, Array_OfEitherForm_LiesWhereItsBytesAre) {
  const std::string elements = "123456789012345678901234";
  for (const std::string& value :
       {Array(Dtype("f4"), {2, 3}, Bytes(elements)),
        Array(Dtype("f4"), {2, 3}, Bytes(elements), false, "numpy.core.multiarray"),
        Call(Global("numpy._core.numeric", "_frombuffer"), {Bytes(elements), Dtype("f4"), Ints({2, 3}), Text("C")}),
        Call(Global("numpy.core.numeric", "_frombuffer"), {Bytes(elements), Dtype("f4"), Ints({2, 3}), Text("C")})}) {
    const auto array = Read(value);
    ASSERT_TRUE(array.ok() && array->has_value()) << array.status();
    EXPECT_EQ((*array)->dtype, DType::kFloat32);
    EXPECT_EQ((*array)->shape, (Shape{2, 3}));
    EXPECT_EQ((*array)->strides, (Shape{3, 1}));
    EXPECT_EQ(file_.substr((*array)->offset, elements.size()), elements);
  }
}

TEST_F(NumpyArrayTest, Array_ColumnMajor_HasTheirStrides) {
  for (const std::string& value : {Array(Dtype("u1"), {2, 3, 4}, Bytes(std::string(24, 'x')), true),
                                   Call(Global("numpy._core.numeric", "_frombuffer"),
                                        {Bytes(std::string(24, 'x')), Dtype("u1"), Ints({2, 3, 4}), Text("F")})}) {
    const auto array = Read(value);
    ASSERT_TRUE(array.ok() && array->has_value()) << array.status();
    EXPECT_EQ((*array)->strides, (Shape{1, 2, 6}));
  }
}

TEST_F(NumpyArrayTest, Array_ScalarOrEmpty_IsRead) {
  const auto scalar = Read(Array(Dtype("i8"), {}, Bytes("12345678")));
  ASSERT_TRUE(scalar.ok() && scalar->has_value()) << scalar.status();
  EXPECT_TRUE((*scalar)->shape.empty());
  const auto empty = Read(Array(Dtype("i8"), {3, 0}, Bytes("")));
  ASSERT_TRUE(empty.ok() && empty->has_value()) << empty.status();
  EXPECT_EQ((*empty)->shape, (Shape{3, 0}));
}

TEST_F(NumpyArrayTest, Value_OfAnotherKind_IsNoArray) {
  for (const std::string& value :
       {Int(3), Text("x"), Tuple({}), Bytes("abc"), Call(Global("os", "system"), {Text("true")}), Dtype("f4")}) {
    const auto array = Read(value);
    EXPECT_TRUE(array.ok() && !array->has_value()) << array.status();
  }
}

TEST_F(NumpyArrayTest, Array_ContradictsItself_IsRefused) {
  ExpectRefused(Array(Dtype("f4"), {2, 3}, Bytes(std::string(23, 'x'))), Reason::kBadForeignFile, "of 23 bytes");
  ExpectRefused(Array(Dtype("f4"), {2, 3}, Bytes(std::string(28, 'x'))), Reason::kBadForeignFile, "of 28 bytes");
  ExpectRefused(Array(Dtype("f4"), {-1, 3}, Bytes("")), Reason::kBadForeignFile, "shape");
  ExpectRefused(Array(Dtype("u1"), {int64_t{1} << 40, int64_t{1} << 40}, Bytes("x")), Reason::kBadForeignFile, "shape");
  ExpectRefused(Array(Dtype("u1"), std::vector<int64_t>(65, 1), Bytes("x")), Reason::kBadForeignFile, "shape");
  ExpectRefused(Array(Text("f4"), {1}, Bytes("1234")), Reason::kBadForeignFile, "without a dtype");
  ExpectRefused(Call(Global("numpy._core.multiarray", "_reconstruct"), {}), Reason::kBadForeignFile, "its state");
  ExpectRefused(Call(Global("numpy._core.numeric", "_frombuffer"), {Int(1)}), Reason::kBadForeignFile, "description");
}

TEST_F(NumpyArrayTest, Array_OfWhatCairnLacks_IsRefusedByName) {
  ExpectRefused(Array(Dtype("O8", "|"), {1}, List({Int(1)})), Reason::kUnsupported, "'O8'");
  ExpectRefused(Array(Dtype("f16"), {1}, Bytes(std::string(16, 'x'))), Reason::kUnsupported, "'f16'");
  ExpectRefused(Array(Dtype("f4", ">"), {1}, Bytes("1234")), Reason::kUnsupported, "big-endian");
  // Protocol 2 writes bytes as a text.
  const std::string text = Call(Global("_codecs", "encode"), {Text("1234"), Text("latin1")});
  ExpectRefused(Array(Dtype("f4"), {1}, text), Reason::kUnsupported, "protocol 4");
}

}  // namespace
}  // namespace cairn
