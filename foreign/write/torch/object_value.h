// Reads the bytes in which Cairn stores a value that is no tensor, for exports.
#ifndef CAIRN_FOREIGN_WRITE_TORCH_OBJECT_VALUE_H_
#define CAIRN_FOREIGN_WRITE_TORCH_OBJECT_VALUE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/box.h"
#include "foreign/write/torch/pickle_writer.h"

namespace cairn {

struct ObjectValue {
  enum class Kind {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,
    kList,
    kTuple,
    kDict,
    kArray,   // of numpy
    kTensor,  // of torch
    kOpaque,  // only a description of it is stored, or its bytes come from a serializer of the user
  };

  Kind kind = Kind::kNone;
  bool boolean = false;
  double number = 0;
  // The digits of a kInt, the text of a kText, the bytes of a kBytes, kArray or kTensor, or the description of a
  // kOpaque.
  std::string text;
  // The elements of a list or tuple; keys and values of a dict, in turn.
  std::vector<ObjectValue> items;
  std::string dtype;  // of an array, as numpy says it: "<f8"; of a tensor, as torch does: "bfloat16"
  Shape shape;        // of an array or tensor

  bool operator==(const ObjectValue&) const = default;
};

// Reads an object's bytes, in the form that python/cairn/_state/objects.py describes; `name` is for errors. DATA_LOSS
// (CHECKSUM_MISMATCH): they are not of that form. UNIMPLEMENTED (FORMAT_TOO_NEW): a later version has made them.
absl::StatusOr<ObjectValue> ReadObjectValue(std::string_view bytes, std::string_view name);

// Returns the value itself or a part of it that is opaque; null if there is none.
const ObjectValue* FindOpaque(const ObjectValue& value);

// Adds the opcodes that push the value, which must have no opaque part. Views of the bytes of its tensors are appended
// to `storages`; the value must outlive them.
void WriteValue(const ObjectValue& value, PickleWriter& pickle, std::vector<std::string_view>& storages);

// Returns the file that torch.save would write for the value, which must have no opaque part and take less than 2 GiB.
std::string TorchArchiveOf(const ObjectValue& value);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_TORCH_OBJECT_VALUE_H_
