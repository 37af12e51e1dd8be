// The header of any safetensors file, such as Hugging Face's: names, dtypes, shapes, positions.
//
// Format: huggingface/safetensors README, "Format".
#ifndef CAIRN_COMMON_FORMAT_PLAIN_HEADER_H_
#define CAIRN_COMMON_FORMAT_PLAIN_HEADER_H_

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
  // Relative to the begin of the data.
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Length of the header by the first 8 bytes of a file, the 8 included.
// DATA_LOSS (BAD_SAFETENSORS): more than the format or the file allows.
absl::StatusOr<uint64_t> PlainHeaderBytesFrom(std::string_view first_8_bytes, uint64_t file_bytes);

// The tensors of a file by position. `header` is untrusted; memory is bounded by its length.
// DATA_LOSS (BAD_SAFETENSORS): not a header, a length that does not fit the shape, a gap or overlap, a name that no
// tensor of Cairn's can have; (FILE_TRUNCATED): the tensors end elsewhere than the file. UNIMPLEMENTED (UNSUPPORTED): a
// dtype that this version does not know.
absl::StatusOr<std::vector<PlainTensor>> ParsePlainHeader(std::string_view header, uint64_t file_bytes);

// The header of a file that holds `tensors` in this order without gaps, padded with blanks to a multiple of 64 bytes;
// begin and end are not looked at. metadata is {"format": "pt"}, without which transformers refuses a file.
std::string RenderPlainHeader(std::span<const PlainTensor> tensors);

// The name that stands in a header; empty for dtypes that have none.
std::string_view PlainDtypeName(DType dtype);

// model.safetensors.index.json: {"metadata": {"total_size"}, "weight_map": {tensor: file}}.
struct PlainIndex {
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor, file; by tensor
  uint64_t total_size = 0;
};
inline constexpr std::string_view kPlainIndexName = "model.safetensors.index.json";
std::string RenderPlainIndex(const PlainIndex& index);
// DATA_LOSS (BAD_SAFETENSORS): not such a file, a tensor twice, a file name with a slash.
absl::StatusOr<PlainIndex> ParsePlainIndex(std::string_view text);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_PLAIN_HEADER_H_
