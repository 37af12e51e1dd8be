#include "planner/save/header_lengths.h"

#include <algorithm>
#include <bit>
#include <span>

#include "common/format/stored_item.h"

namespace cairn {
namespace {

// Counts decimal digits (Hacker's Delight, 11-4: from the binary length, with one comparison).
uint64_t Digits(uint64_t number) {
  static constexpr uint64_t kPowers[] = {0,
                                         10,
                                         100,
                                         1000,
                                         10000,
                                         100000,
                                         1000000,
                                         10000000,
                                         100000000,
                                         1000000000,
                                         10000000000,
                                         100000000000,
                                         1000000000000,
                                         10000000000000,
                                         100000000000000,
                                         1000000000000000,
                                         10000000000000000,
                                         100000000000000000,
                                         1000000000000000000,
                                         10000000000000000000u};
  const auto guess = static_cast<uint64_t>(std::bit_width(number | 1)) * 1233 >> 12;
  return guess + (number >= kPowers[guess]);
}

// Returns the length of "1,2,3" without brackets.
uint64_t Numbers(const int64_t* numbers, size_t count) {
  uint64_t length = count == 0 ? 0 : count - 1;
  for (size_t i = 0; i < count; ++i) length += Digits(static_cast<uint64_t>(numbers[i]));
  return length;
}

// Returns the length of a JSON text within a JSON string, which is escaped twice; Plain returns its length in plain
// JSON.
uint64_t Nested(uint64_t bytes, uint64_t escapes) { return 4 + bytes + 3 * escapes; }
uint64_t Plain(uint64_t bytes, uint64_t escapes) { return 2 + bytes + escapes; }
constexpr uint64_t Key(uint64_t bytes) { return 4 + bytes + 1; }

}  // namespace

HeaderLengths::HeaderLengths(const LayoutSet& set) : set_(set) {
  for (const LayoutSet::Tensor& tensor : set.tensors()) {
    const auto escapes = static_cast<uint64_t>(
        std::count_if(tensor.name.begin(), tensor.name.end(), [](char c) { return c == '"' || c == '\\'; }));
    const DTypeInfo& info = InfoOf(tensor.dtype);
    // Besides name and offsets, DCP_SHARDING_INFO has ":{", the key, "[]" and "}".
    uint64_t fixed = 2 + Key(13) + 2 + 1;
    // "cairn" has ":{", dtype, global shape, checksum, "}".
    fixed += 2 + Key(5) + 4 + info.name.size() + 1 + Key(12) + 2 +
             Numbers(tensor.global_shape.data(), tensor.global_shape.size()) + 1 + Key(6) + 12 + 1;
    // The entry has `:{"dtype":"`, `","shape":[]`, `,"data_offsets":[0,]`, "}".
    fixed += 11 + info.safetensors.size() + 12 + 20 + 1;
    tensors_.push_back({tensor.name.size(), escapes, fixed + 3});
  }
}

uint64_t HeaderLengths::Of(uint32_t shard) const {
  const uint32_t tensor = set_.TensorOf(shard);
  const OfTensor& known = tensors_[tensor];
  const size_t ndim = set_.NdimOf(shard);
  const int64_t* dims = set_.DimsOf(shard);
  const uint64_t bytes = set_.BytesOf(shard);
  const DTypeInfo& info = InfoOf(set_.tensors()[tensor].dtype);
  const bool as_bytes = info.bytes > 1 && info.safetensors == "U8";
  uint64_t length = known.fixed + Digits(bytes);
  uint64_t name = known.name;
  const uint64_t offset = Numbers(dims, ndim);
  if (!set_.IsFlat(shard)) {
    length += offset;
    if (ndim == 0) {
      length += as_bytes ? Digits(static_cast<uint64_t>(info.bytes)) : 0;
    } else {
      length += Numbers(dims + ndim, ndim - 1) + (ndim > 1 ? 1 : 0);
      length += Digits(static_cast<uint64_t>(dims[2 * ndim - 1]) * (as_bytes ? static_cast<uint64_t>(info.bytes) : 1));
    }
  } else {
    const uint64_t shape = Numbers(dims + ndim, ndim);
    const uint64_t range = Numbers(dims + 2 * ndim, 2);
    // A flat piece is named "#flat:offset:shape:begin-end".
    name += 6 + offset + 1 + shape + 1 + range;
    length += 1;  // saved_offsets is [0]
    length += Digits(static_cast<uint64_t>(dims[2 * ndim + 1] - dims[2 * ndim]) *
                     (as_bytes ? static_cast<uint64_t>(info.bytes) : 1));
    length += 1 + Key(6) + Nested(known.name, known.escapes) + 1 + Key(6) + 2 + offset + 1 + Key(5) + 2 + shape + 1 +
              Key(10) + 2 + range;
  }
  length += 2 * Nested(name, known.escapes) + Plain(name, known.escapes);
  const uint64_t blocks = ChecksumBlockCount(bytes);
  if (blocks > 1) length += 1 + Key(6) + 4 + 8 * blocks;
  return length;
}

}  // namespace cairn
