#include "foreign/read/source/named_tensors.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/format/stored_item.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMostPieces = size_t{1} << 16;
// The most pieces of all tensors beyond the first of each. The strides of a tensor take a few bytes in a file, but each
// piece takes memory.
constexpr size_t kMostFurtherPieces = size_t{1} << 22;

}  // namespace

absl::Status NamedTensors::CheckNew(const std::string& name) const {
  CAIRN_RETURN_IF_ERROR(CheckName(name));
  if (!Has(name)) return absl::OkStatus();
  return MakeError(Reason::kNameCollision, absl::StrCat("two tensors or values are named '", name, "'"),
                   {{"tensor", name}});
}

absl::Status NamedTensors::TooManyReads(const std::string& name, std::string_view problem) const {
  return MakeError(Reason::kUnsupported, absl::StrCat("'", name, "' ", std::string(problem)),
                   {{"tensor", name}, {"next", "Save x.contiguous() of each tensor, and read that file."}});
}

absl::Status NamedTensors::Add(const std::string& name, DType dtype, const Shape& shape) {
  CAIRN_RETURN_IF_ERROR(CheckNew(name));
  tensors_[name] = {dtype, shape, {}};
  return absl::OkStatus();
}

void NamedTensors::AddBox(const std::string& name, Box box, uint32_t file, uint64_t offset) {
  tensors_.at(name).pieces.push_back({std::move(box), file, offset});
}

absl::Status NamedTensors::AddWhole(const std::string& name, const StridedTensor& tensor, uint32_t file) {
  CAIRN_RETURN_IF_ERROR(CheckNew(name));
  if (ElementCount(tensor.shape) != 0) {
    const auto [place, fresh] =
        places_.try_emplace({file, tensor.offset, tensor.dtype, tensor.shape, tensor.strides}, name);
    if (!fresh) return AddAlias(name, place->second);
  }
  const auto pieces = tensor.Pieces(kMostPieces, /*may_share=*/true);
  if (!pieces) {
    return TooManyReads(name, absl::StrCat("is stored with strides ", ShapeToString(tensor.strides),
                                           ", which would take more than ", kMostPieces, " reads"));
  }
  if (!pieces->empty()) further_pieces_ += pieces->size() - 1;
  if (further_pieces_ > kMostFurtherPieces) {
    return TooManyReads(name, absl::StrCat("and others are stored with strides that would take more than ",
                                           kMostFurtherPieces, " reads"));
  }
  Tensor& added = tensors_[name] = {tensor.dtype, tensor.shape, {}};
  for (const StridedTensor::Piece& piece : *pieces) added.pieces.push_back({piece.box, file, piece.offset});
  return absl::OkStatus();
}

absl::Status NamedTensors::AddAlias(const std::string& name, const std::string& target) {
  CAIRN_RETURN_IF_ERROR(CheckNew(name));
  const auto other = aliases_.find(target);
  aliases_[name] = other == aliases_.end() ? target : other->second;
  return absl::OkStatus();
}

absl::Status NamedTensors::AddValue(const std::string& name, uint32_t file, uint64_t bytes) {
  CAIRN_RETURN_IF_ERROR(CheckNew(name));
  values_[name] = {file, bytes};
  return absl::OkStatus();
}

void NamedTensors::MoveTo(ForeignManifest& manifest) && {
  manifest.AllowSharedBytes();
  for (const auto& [name, tensor] : tensors_) {
    const uint32_t number = manifest.AddTensor(name, tensor.dtype, tensor.shape);
    for (const Piece& piece : tensor.pieces) {
      manifest.AddPiece(number, piece.box.offset, piece.box.shape, piece.file, piece.offset);
    }
  }
  for (const auto& [name, value] : values_) manifest.AddValue(name, value.first, 0, value.second);
  for (const auto& [name, target] : aliases_) manifest.AddAlias(name, target);
}

}  // namespace cairn
