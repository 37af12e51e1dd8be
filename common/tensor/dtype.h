// Lists element types. A dtype's name is torch's name without "torch.".
#ifndef CAIRN_COMMON_TENSOR_DTYPE_H_
#define CAIRN_COMMON_TENSOR_DTYPE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace cairn {

// The numbers are those of cairn.v1.DType on the wire and on disk: never change one.
enum class DType : uint8_t {
  kUnspecified = 0,
  kBool = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kUint32 = 6,
  kInt32 = 7,
  kUint64 = 8,
  kInt64 = 9,
  kFloat16 = 10,
  kBfloat16 = 11,
  kFloat32 = 12,
  kFloat64 = 13,
  kComplex32 = 14,
  kComplex64 = 15,
  kComplex128 = 16,
  kFloat8E4m3fn = 17,
  kFloat8E5m2 = 18,
  kFloat8E4m3fnuz = 19,
  kFloat8E5m2fnuz = 20,
  kFloat8E8m0fnu = 21,
  kFloat4E2m1fnX2 = 22,  // two 4-bit elements per byte; shapes count bytes, as in torch
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // "bfloat16"
  int bytes;              // of one element
  // The dtype's name in a safetensors header. It is "U8" for a dtype that torch's reader does not know. Then the last
  // dimension of the shape is multiplied by `bytes`, and the metadata holds the true dtype.
  std::string_view safetensors;
};

// Returns all dtypes but kUnspecified.
std::span<const DTypeInfo> DTypeTable();
// `dtype` must not be kUnspecified.
const DTypeInfo& InfoOf(DType dtype);
inline int BytesOf(DType dtype) { return InfoOf(dtype).bytes; }
inline std::string_view NameOf(DType dtype) { return InfoOf(dtype).name; }
std::optional<DType> DTypeFromName(std::string_view name);
// Finds a dtype by its number on the wire; nothing for kUnspecified and unknown numbers.
std::optional<DType> DTypeFromNumber(int number);

}  // namespace cairn

#endif  // CAIRN_COMMON_TENSOR_DTYPE_H_
