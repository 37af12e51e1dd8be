// Reads the header of any safetensors file, such as Hugging Face's: names, dtypes, shapes, positions.
//
// The format stands in the README of huggingface/safetensors, under "Format".
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
  // Relative to where the data begins.
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Returns the length of the header, its first 8 bytes included, from these 8 bytes of a file. DATA_LOSS
// (BAD_SAFETENSORS): it is more than the format or the file allows.
absl::StatusOr<uint64_t> PlainHeaderBytesFrom(std::string_view first_8_bytes, uint64_t file_bytes);

struct PlainHeader {
  std::vector<PlainTensor> tensors;  // by position
  // What the writer says beside the tensors, in the order of the header.
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Reads the header of a file, which is untrusted; its length bounds the memory. DATA_LOSS (BAD_SAFETENSORS): it is no
// header, a length does not fit its shape, there is a gap or overlap, or no tensor of Cairn's can have such a name;
// (FILE_TRUNCATED): the tensors end elsewhere than the file. UNIMPLEMENTED (UNSUPPORTED): this version does not know a
// dtype.
absl::StatusOr<PlainHeader> ParsePlainHeader(std::string_view header, uint64_t file_bytes);

// Returns the header of a file that holds `tensors` in this order without gaps, padded with blanks to a multiple of 64
// bytes. It does not look at begin and end. The metadata is {"format": "pt"}, because transformers refuses a file
// without it.
std::string RenderPlainHeader(std::span<const PlainTensor> tensors);

// Returns the name that stands in a header; empty for dtypes that have none.
std::string_view PlainDtypeName(DType dtype);

// Returns whether a file can have a tensor of this dtype and shape. Headers count four-bit elements one by one and not
// in pairs, so they have no scalar of a pair.
bool CanBePlain(DType dtype, const Shape& shape);

// Returns whether earlier releases of safetensors than 0.8 refuse a whole file for a tensor of this dtype.
bool IsRecentPlainDtype(DType dtype);

// Holds a model.safetensors.index.json: {"metadata": {"total_size"}, "weight_map": {tensor: file}}.
struct PlainIndex {
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor, file; by tensor
  uint64_t total_size = 0;
};
inline constexpr std::string_view kPlainIndexName = "model.safetensors.index.json";
std::string RenderPlainIndex(const PlainIndex& index);
// DATA_LOSS (BAD_SAFETENSORS): it is no such file, names a tensor twice, or has a file name with a slash.
absl::StatusOr<PlainIndex> ParsePlainIndex(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_PLAIN_HEADER_H_
