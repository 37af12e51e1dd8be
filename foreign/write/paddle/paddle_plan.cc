#include "foreign/write/paddle/paddle_plan.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "foreign/write/torch/pickle_writer.h"

namespace cairn {
namespace {

constexpr int kProtocol = 4;  // that of paddle.save
constexpr std::string_view kModule = "paddle.distributed.flex_checkpoint.dcp.metadata";

// Returns numpy's name of the dtype that Paddle writes a dtype as; empty if Paddle has none.
std::string_view NumpyName(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "b1";
    case DType::kUint8:
      return "u1";
    case DType::kInt8:
      return "i1";
    case DType::kInt16:
      return "i2";
    case DType::kInt32:
      return "i4";
    case DType::kInt64:
      return "i8";
    case DType::kFloat16:
      return "f2";
    case DType::kBfloat16:
      return "u2";  // numpy has no bfloat16, and Paddle no uint16
    case DType::kFloat32:
      return "f4";
    case DType::kFloat64:
      return "f8";
    case DType::kComplex64:
      return "c8";
    case DType::kComplex128:
      return "c16";
    default:
      return "";
  }
}

// Writes an array of numpy up to its bytes.
void BeginArray(const PlainTensor& tensor, PickleWriter& writer) {
  // numpy before 2 and numpy 2 both find the function under this name.
  writer.Global("numpy.core.multiarray", "_reconstruct");
  writer.Mark();
  writer.Global("numpy", "ndarray");
  writer.IntTuple(std::vector<int64_t>{0});
  writer.Bytes("b");
  writer.Tuple();
  writer.Reduce();
  writer.Mark();
  writer.Int(1);  // the version of what follows
  writer.IntTuple(tensor.shape);
  const bool bytewise = BytesOf(tensor.dtype) == 1;
  writer.Global("numpy", "dtype");
  writer.Mark();
  writer.Text(NumpyName(tensor.dtype));
  writer.Bool(false);
  writer.Bool(true);
  writer.Tuple();
  writer.Reduce();
  writer.Mark();
  writer.Int(3);  // again a version
  writer.Text(bytewise ? "|" : "<");
  for (int i = 0; i < 3; ++i) writer.None();
  writer.Int(-1);
  writer.Int(-1);
  writer.Int(0);
  writer.Tuple();
  writer.Build();
  writer.Bool(false);  // row-major
}

void EndArray(PickleWriter& writer) {
  writer.Tuple();
  writer.Build();
}

// Writes the dict of names and arrays around the tensors of a file.
void WriteAround(const std::vector<WholeTensor>& tensors, ExportFile& file) {
  PickleWriter writer(kProtocol);
  writer.EmptyDict();
  writer.Mark();
  for (ExportPiece& piece : file.pieces) {
    const PlainTensor& tensor = tensors[piece.tensor].plain;
    if (&piece != &file.pieces.front()) EndArray(writer);
    writer.Text(tensor.name);
    BeginArray(tensor, writer);
    piece.before = writer.TakeBefore(static_cast<uint64_t>(*ElementCount(tensor.shape)) *
                                     static_cast<uint64_t>(BytesOf(tensor.dtype)));
  }
  EndArray(writer);
  writer.SetItems();
  file.after = std::move(writer).Finish();
}

// Writes an object of a class of Paddle's metadata; the caller then writes its attributes and calls EndObject.
void BeginObject(std::string_view name, PickleWriter& writer) {
  writer.Global(kModule, name);
  writer.EmptyTuple();
  writer.NewObject();
  writer.EmptyDict();
  writer.Mark();
}

void EndObject(PickleWriter& writer) {
  writer.SetItems();
  writer.Build();
}

void IntTuple(std::string_view name, const Shape& values, PickleWriter& writer) {
  writer.Text(name);
  writer.IntTuple(values);
}

// The tensor is one part, which is whole.
void WholePart(PickleWriter& writer) {
  writer.Text("is_flattened");
  writer.Bool(false);
  writer.Text("flattened_range");
  writer.None();
}

std::string Metadata(const ExportPlan& plan) {
  PickleWriter writer(kProtocol);
  BeginObject("Metadata", writer);
  writer.Text("state_dict_metadata");
  writer.EmptyDict();
  writer.Mark();
  for (const WholeTensor& tensor : plan.tensors) {
    const Shape& shape = tensor.plain.shape;
    writer.Text(tensor.plain.name);
    writer.EmptyList();
    writer.Mark();
    BeginObject("LocalTensorMetadata", writer);
    IntTuple("global_offset", Shape(shape.size(), 0), writer);
    IntTuple("local_shape", shape, writer);
    writer.Text("dtype");
    writer.Text(NameOf(tensor.plain.dtype));
    IntTuple("global_shape", shape, writer);
    WholePart(writer);
    EndObject(writer);
    writer.AppendItems();
  }
  writer.SetItems();
  writer.Text("storage_metadata");
  writer.EmptyDict();
  writer.Mark();
  for (const ExportFile& file : plan.files) {
    for (const ExportPiece& piece : file.pieces) {
      const PlainTensor& tensor = plan.tensors[piece.tensor].plain;
      BeginObject("LocalTensorIndex", writer);
      writer.Text("tensor_key");
      writer.Text(tensor.name);
      IntTuple("global_offset", Shape(tensor.shape.size(), 0), writer);
      WholePart(writer);
      writer.Text("replica_id");
      writer.None();
      IntTuple("local_shape", tensor.shape, writer);
      EndObject(writer);
      writer.Text(file.name);
    }
  }
  writer.SetItems();
  // The path of each name in the user's dict; here each name is a key of that dict.
  writer.Text("flat_mapping");
  writer.EmptyDict();
  writer.Mark();
  for (const WholeTensor& tensor : plan.tensors) {
    writer.Text(tensor.plain.name);
    writer.Mark();
    writer.Text(tensor.plain.name);
    writer.Tuple();
  }
  writer.SetItems();
  EndObject(writer);
  return std::move(writer).Finish();
}

}  // namespace

absl::StatusOr<ExportPlan> MakePaddleExportPlan(const Manifest& manifest, const ExportOptions& options) {
  const ExportFormat format = {"Paddle", [](DType dtype, const Shape&) { return !NumpyName(dtype).empty(); },
                               [](DType) { return false; }};
  CAIRN_ASSIGN_OR_RETURN(ExportPlan plan, DealOut(manifest, options, format));
  for (size_t number = 0; number < plan.files.size(); ++number) {
    plan.files[number].name = absl::StrCat(number, "_0.distcp");
    WriteAround(plan.tensors, plan.files[number]);
  }
  plan.index_name = "0.metadata";
  plan.index = Metadata(plan);
  return plan;
}

}  // namespace cairn
