#include "foreign/read/paddle/paddle_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/paddle/numpy_array.h"
#include "foreign/read/pickle/pickle.h"
#include "foreign/read/pickle/pickle_outline.h"
#include "foreign/read/source/tensor_tree.h"

namespace cairn {
namespace {

// The longest outline of a file. For comparison: with 100,000 arrays it takes 30 MB.
constexpr uint64_t kMostOutline = uint64_t{1} << 26;
constexpr uint64_t kMemoryPerByte = 6;

}  // namespace

absl::StatusOr<PaddleFile> PaddleFile::Open(const ForeignFile& file) {
  PaddleFile opened;
  opened.path_ = file.path();
  const ReadRange read = [&](uint64_t offset, uint64_t bytes) { return file.Read(offset, bytes); };
  CAIRN_ASSIGN_OR_RETURN(std::string outline, OutlinePickle(file.bytes(), read, file.path(), kMostOutline));
  opened.outline_ = std::make_unique<std::string>(std::move(outline));
  PickleLimits limits;
  limits.memory_bytes = std::max<uint64_t>(limits.memory_bytes, kMemoryPerByte * opened.outline_->size());
  CAIRN_ASSIGN_OR_RETURN(PickleDocument document, ReadPickle(*opened.outline_, file.path(), limits));
  opened.document_ = std::make_unique<PickleDocument>(std::move(document));
  return opened;
}

absl::StatusOr<std::optional<StridedTensor>> PaddleFile::Tensor(PickleValue value) const {
  // A tensor in Paddle's dynamic mode is pickled as a tuple of name and array.
  if (const PickleObject* pair = document_->Object(value, "builtins", "tuple"); pair != nullptr) {
    const std::vector<PickleValue> arguments = document_->Elements(pair->arguments, 1);
    const std::vector<PickleValue> parts =
        arguments.empty() ? std::vector<PickleValue>() : document_->Elements(arguments[0], 3);
    if (parts.size() != 2 || parts[0].kind() != PickleKind::kText) return std::nullopt;
    value = parts[1];
  }
  CAIRN_ASSIGN_OR_RETURN(std::optional<StridedTensor> tensor, NumpyArray(*document_, value, path_));
  if (tensor.has_value() && tensor->dtype == DType::kUint16) tensor->dtype = DType::kBfloat16;
  return tensor;
}

bool IsPickle(const std::string& path) {
  const auto file = ForeignFile::Open(path);
  if (!file.ok() || file->bytes() == 0) return false;
  const auto first = file->Read(0, 1);
  return first.ok() && *first == "\x80";
}

absl::StatusOr<Manifest> ReadPaddleFile(const std::string& path, std::vector<std::string>* left_out) {
  CAIRN_ASSIGN_OR_RETURN(const ForeignFile file, ForeignFile::Open(path));
  CAIRN_ASSIGN_OR_RETURN(const PaddleFile opened, PaddleFile::Open(file));
  if (opened.document().root().kind() == PickleKind::kWideInt) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat(path, " is no file of Paddle; it may be one of torch.save before PyTorch 1.6"),
                     {{"file", path}, {"next", "Load it by the library that wrote it, and save it anew."}});
  }
  return ReadTensorTree(
      "cairn import paddle.save 1", file, opened.document(), [&](PickleValue value) { return opened.Tensor(value); },
      left_out);
}

}  // namespace cairn
