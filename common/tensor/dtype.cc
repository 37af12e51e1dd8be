#include "common/tensor/dtype.h"

#include <iterator>

namespace cairn {
namespace {

constexpr DTypeInfo kTable[] = {
    {DType::kBool, "bool", 1, "BOOL"},
    {DType::kUint8, "uint8", 1, "U8"},
    {DType::kInt8, "int8", 1, "I8"},
    {DType::kUint16, "uint16", 2, "U16"},
    {DType::kInt16, "int16", 2, "I16"},
    {DType::kUint32, "uint32", 4, "U32"},
    {DType::kInt32, "int32", 4, "I32"},
    {DType::kUint64, "uint64", 8, "U64"},
    {DType::kInt64, "int64", 8, "I64"},
    {DType::kFloat16, "float16", 2, "F16"},
    {DType::kBfloat16, "bfloat16", 2, "BF16"},
    {DType::kFloat32, "float32", 4, "F32"},
    {DType::kFloat64, "float64", 8, "F64"},
    {DType::kComplex32, "complex32", 4, "U8"},
    {DType::kComplex64, "complex64", 8, "C64"},
    {DType::kComplex128, "complex128", 16, "U8"},
    {DType::kFloat8E4m3fn, "float8_e4m3fn", 1, "F8_E4M3"},
    {DType::kFloat8E5m2, "float8_e5m2", 1, "F8_E5M2"},
    {DType::kFloat8E4m3fnuz, "float8_e4m3fnuz", 1, "U8"},
    {DType::kFloat8E5m2fnuz, "float8_e5m2fnuz", 1, "U8"},
    {DType::kFloat8E8m0fnu, "float8_e8m0fnu", 1, "U8"},
    {DType::kFloat4E2m1fnX2, "float4_e2m1fn_x2", 1, "U8"},
};

}  // namespace

std::span<const DTypeInfo> DTypeTable() { return kTable; }

const DTypeInfo& InfoOf(DType dtype) { return kTable[static_cast<size_t>(dtype) - 1]; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeInfo& info : kTable) {
    if (info.name == name) return info.dtype;
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromNumber(int number) {
  if (number < 1 || number > static_cast<int>(std::size(kTable))) return std::nullopt;
  return static_cast<DType>(number);
}

}  // namespace cairn
