#include "foreign/read/torch/torch_file.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr uint64_t kMostPickleBytes = uint64_t{1} << 30;
// The archive of one tensor has at most about this many bytes around the tensor, so one read at each end usually gets
// all of them.
constexpr uint64_t kWindow = 2048;
constexpr int kMostWrappers = 8;
constexpr size_t kMostBits = 1000;  // of a tensor; torch has two

struct StorageType {
  std::string_view name;
  DType dtype;
};
// Storages with a dtype of their own; all others are untyped.
constexpr StorageType kStorageTypes[] = {
    {"FloatStorage", DType::kFloat32},
    {"DoubleStorage", DType::kFloat64},
    {"HalfStorage", DType::kFloat16},
    {"BFloat16Storage", DType::kBfloat16},
    {"LongStorage", DType::kInt64},
    {"IntStorage", DType::kInt32},
    {"ShortStorage", DType::kInt16},
    {"CharStorage", DType::kInt8},
    {"ByteStorage", DType::kUint8},
    {"BoolStorage", DType::kBool},
    {"ComplexFloatStorage", DType::kComplex64},
    {"ComplexDoubleStorage", DType::kComplex128},
};

// Reads the two ends of an archive at once and keeps them.
class Windows {
 public:
  Windows(uint64_t bytes, const ReadRange& read) : bytes_(bytes), window_(std::min(kWindow, bytes)), read_(read) {}

  absl::StatusOr<std::string> Read(uint64_t offset, uint64_t bytes) {
    if (offset + bytes <= window_) return Part(head_, 0, offset, bytes);
    if (offset >= bytes_ - window_) return Part(tail_, bytes_ - window_, offset, bytes);
    return read_(offset, bytes);
  }

 private:
  absl::StatusOr<std::string> Part(std::string& kept, uint64_t begin, uint64_t offset, uint64_t bytes) {
    if (kept.empty()) {
      CAIRN_ASSIGN_OR_RETURN(kept, read_(begin, window_));
    }
    return kept.substr(offset - begin, bytes);
  }

  const uint64_t bytes_, window_;
  const ReadRange& read_;
  std::string head_, tail_;
};

}  // namespace

std::optional<DType> TorchDtype(const PickleDocument& document, PickleValue value) {
  const auto global = document.Global(value);
  if (!global || !global->starts_with("torch.")) return std::nullopt;
  return DTypeFromName(std::string_view(*global).substr(6));
}

bool ReadTorchSize(const PickleDocument& document, PickleValue value, Shape& shape) {
  shape.clear();
  bool valid = value.kind() == PickleKind::kTuple && document.Size(value) <= 64;
  if (!valid) return false;
  document.ForEach(value, [&](PickleValue each) {
    const auto size = document.Int(each);
    valid = valid && size.has_value();
    if (valid) shape.push_back(*size);
  });
  return valid;
}

std::optional<Shape> TorchSize(const PickleDocument& document, PickleValue value) {
  Shape shape;
  return ReadTorchSize(document, value, shape) ? std::optional(std::move(shape)) : std::nullopt;
}

absl::Status TorchFile::Bad(std::string_view problem) const {
  return MakeError(Reason::kBadForeignFile, absl::StrCat(what_, ": ", std::string(problem)), {{"file", what_}});
}

absl::StatusOr<TorchFile> TorchFile::Open(uint64_t bytes, const ReadRange& read, std::string what) {
  TorchFile file;
  file.what_ = std::move(what);
  Windows windows(bytes, read);
  const ReadRange windowed = [&](uint64_t offset, uint64_t length) { return windows.Read(offset, length); };
  CAIRN_ASSIGN_OR_RETURN(const ZipArchive archive, ZipArchive::Open(bytes, windowed, file.what_));
  if (const ZipRecord* order = archive.Find("byteorder"); order != nullptr && order->bytes <= 16) {
    CAIRN_ASSIGN_OR_RETURN(const std::string text, windowed(order->offset, order->bytes));
    if (text != "little") {
      return MakeError(Reason::kUnsupported, absl::StrCat(file.what_, ": its byte order is '", text, "', not 'little'"),
                       {{"file", file.what_}});
    }
  }
  const ZipRecord* pickle = archive.Find("data.pkl");
  if (pickle == nullptr || pickle->bytes > kMostPickleBytes) return file.Bad("has no data.pkl as torch.save writes it");
  CAIRN_ASSIGN_OR_RETURN(std::string text, windowed(pickle->offset, pickle->bytes));
  file.pickle_ = std::make_unique<std::string>(std::move(text));
  PickleLimits limits;
  limits.memory_bytes = std::max(limits.memory_bytes, 8 * pickle->bytes);
  CAIRN_ASSIGN_OR_RETURN(PickleDocument document, ReadPickle(*file.pickle_, file.what_, limits));
  file.document_ = std::make_unique<PickleDocument>(std::move(document));
  for (const ZipRecord& record : archive.records()) {
    if (record.name.starts_with("data/")) file.storages_.try_emplace(record.name.substr(5), record);
  }
  return file;
}

absl::StatusOr<std::optional<StridedTensor>> TorchFile::Tensor(PickleValue value) const {
  for (int wrappers = 0; wrappers < kMostWrappers; ++wrappers) {
    const PickleObject* object = document_->Object(value);
    if (object == nullptr) return std::nullopt;
    PickleValue callable = object->callable;
    std::vector<PickleValue> arguments = document_->Elements(object->arguments, 16);
    // A tensor with attributes, which are left out: (function that rebuilds it, class, arguments, attributes).
    if (document_->IsGlobal(callable, "torch._tensor", "_rebuild_from_type_v2") && arguments.size() == 4 &&
        (document_->IsGlobal(arguments[1], "torch", "Tensor") ||
         document_->IsGlobal(arguments[1], "torch.nn.parameter", "Parameter"))) {
      callable = arguments[0];
      arguments = document_->Elements(arguments[2], 16);
    }
    if (document_->IsGlobal(callable, "torch._utils", "_rebuild_tensor_v2")) return Rebuilt(arguments, false);
    if (document_->IsGlobal(callable, "torch._utils", "_rebuild_tensor_v3")) return Rebuilt(arguments, true);
    if (arguments.empty() || (!document_->IsGlobal(callable, "torch._utils", "_rebuild_parameter") &&
                              !document_->IsGlobal(callable, "torch._utils", "_rebuild_parameter_with_state"))) {
      return std::nullopt;
    }
    value = arguments[0];
  }
  return Bad("has parameters of parameters");
}

absl::StatusOr<StridedTensor> TorchFile::Rebuilt(std::span<const PickleValue> arguments, bool names_dtype) const {
  if (arguments.size() < (names_dtype ? 7u : 4u)) return Bad("has a tensor without its description");
  const auto persistent = document_->Persistent(arguments[0]);
  const auto first = document_->Int(arguments[1]);
  const auto size = TorchSize(*document_, arguments[2]);
  const auto strides = TorchSize(*document_, arguments[3]);
  if (!persistent || !first || *first < 0 || !size || !strides || strides->size() != size->size()) {
    return Bad("has a tensor whose description is not torch's");
  }
  // The metadata say if the elements still have to be conjugated or negated.
  const size_t metadata = names_dtype ? 7 : 6;
  if (arguments.size() > metadata && arguments[metadata].kind() == PickleKind::kDict) {
    // Without a limit, many tensors of a small file could refer to one large dict.
    if (document_->Size(arguments[metadata]) > kMostBits) {
      return Bad(absl::StrCat("has a tensor with more than ", kMostBits, " bits of its own"));
    }
    for (const std::string_view bit : {"conj", "neg"}) {
      const auto set = document_->Find(arguments[metadata], bit);
      if (!set || document_->Bool(*set) == false) continue;
      return MakeError(Reason::kUnsupported,
                       absl::StrCat(what_, ": a tensor has torch's ", std::string(bit),
                                    " bit, so its elements are not those that are stored"),
                       {{"file", what_}, {"next", "Save it as x.resolve_conj().resolve_neg()."}});
    }
  }
  const std::vector<PickleValue> storage = document_->Elements(*persistent, 5);
  const auto key = storage.size() == 5 ? document_->Text(storage[2]) : std::nullopt;
  if (!key || document_->Text(storage[0]) != "storage") return Bad("has a tensor without a storage");
  StridedTensor tensor;
  if (names_dtype) {
    const auto dtype = TorchDtype(*document_, arguments[6]);
    if (!dtype) {
      return MakeError(Reason::kUnsupported,
                       absl::StrCat(what_, ": a tensor has the dtype ", document_->Describe(arguments[6])),
                       {{"file", what_}});
    }
    tensor.dtype = *dtype;
  } else {
    for (const StorageType& type : kStorageTypes) {
      if (document_->IsGlobal(storage[1], "torch", type.name)) tensor.dtype = type.dtype;
    }
    if (tensor.dtype == DType::kUnspecified) {
      return MakeError(Reason::kUnsupported,
                       absl::StrCat(what_, ": a tensor has a storage of ", document_->Describe(storage[1])),
                       {{"file", what_}});
    }
  }
  const auto record = storages_.find(std::string(*key));
  if (record == storages_.end()) return Bad(absl::StrCat("lacks the storage '", std::string(*key), "'"));
  tensor.shape = *size;
  tensor.strides = *strides;
  const auto elements = ElementCount(tensor.shape);
  if (!elements) return Bad(absl::StrCat("has a tensor of the shape ", ShapeToString(tensor.shape)));
  const auto width = static_cast<uint64_t>(BytesOf(tensor.dtype));
  const uint64_t room = record->second.bytes / width;
  // The last element's position must be inside. No product can overflow while it stays below the storage's length.
  uint64_t last = static_cast<uint64_t>(*first);
  for (size_t axis = 0; *elements > 0 && axis < tensor.shape.size(); ++axis) {
    const int64_t step = tensor.strides[axis];
    const auto steps = static_cast<uint64_t>(tensor.shape[axis] - 1);
    if (steps == 0) continue;
    if (step < 0 || static_cast<uint64_t>(step) > room / steps) return Bad("has a tensor that leaves its storage");
    last += static_cast<uint64_t>(step) * steps;
    if (last >= room) return Bad("has a tensor that leaves its storage");
  }
  if (*elements > 0 && last >= room) return Bad("has a tensor that leaves its storage");
  tensor.offset = record->second.offset + static_cast<uint64_t>(*first) * width;
  return tensor;
}

}  // namespace cairn
