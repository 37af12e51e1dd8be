// Reads the header of any safetensors file, such as Hugging Face's: names, dtypes, shapes, positions.
//
// Format: the README of huggingface/safetensors, under "Format".
#ifndef CAIRN_FOREIGN_READ_SOURCE_PLAIN_HEADER_H_
#define CAIRN_FOREIGN_READ_SOURCE_PLAIN_HEADER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"

namespace cairn {

struct PlainTensor {
  std::string name;
  DType dtype = DType::kUnspecified;
  Shape shape;
  // Bytes [begin, end), counted from the begin of the data.
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Returns the length of the header, its first 8 bytes included, from these 8 bytes of a file. DATA_LOSS
// (BAD_SAFETENSORS): the length is more than the format or the file allows.
absl::StatusOr<uint64_t> PlainHeaderBytesFrom(std::string_view first_8_bytes, uint64_t file_bytes);

struct PlainHeader {
  std::vector<PlainTensor> tensors;  // by position
  // The entries of "__metadata__", in the order of the header.
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Reads the header of a file, which is untrusted; its length bounds the memory. DATA_LOSS (BAD_SAFETENSORS): it is no
// header, a length does not fit its shape, tensors leave a gap or overlap, or Cairn does not allow a name;
// (FILE_TRUNCATED): the last tensor does not end at the end of the file. UNIMPLEMENTED (UNSUPPORTED): this version does
// not know a dtype.
absl::StatusOr<PlainHeader> ParsePlainHeader(std::string_view header, uint64_t file_bytes);

// Returns the header of a file that holds `tensors` in this order without gaps, padded with blanks to a multiple of 64
// bytes. It ignores `begin` and `end`. The metadata is {"format": "pt"}, because transformers refuses a file without
// it.
std::string RenderPlainHeader(std::span<const PlainTensor> tensors);

// Returns the name of a dtype in headers; empty if it has none.
std::string_view PlainDtypeName(DType dtype);

// Returns whether a file can have a tensor of this dtype and shape. Headers count four-bit elements one by one, while
// Cairn counts pairs; so a file cannot have a scalar of such a dtype.
bool CanBePlain(DType dtype, const Shape& shape);

// Returns whether releases of safetensors before 0.8 refuse a whole file because of a tensor of this dtype.
bool IsRecentPlainDtype(DType dtype);

// Holds a model.safetensors.index.json: {"metadata": {"total_size"}, "weight_map": {tensor: file}}.
struct PlainIndex {
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor, file; by tensor
  uint64_t total_size = 0;
};
inline constexpr std::string_view kPlainIndexName = "model.safetensors.index.json";
std::string RenderPlainIndex(const PlainIndex& index);
// DATA_LOSS (BAD_SAFETENSORS): it is not an index, names a tensor twice, or has a file name with a slash.
absl::StatusOr<PlainIndex> ParsePlainIndex(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_PLAIN_HEADER_H_
