#include "foreign/write/torch/torch_archive_writer.h"

#include <libdeflate.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tensor/box.h"

namespace cairn {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kLocalBytes = 30, kExtraBytes = 4;
// Lengths and checksum follow a record's bytes (bit 3), and its name is UTF-8 (bit 11).
constexpr uint64_t kFlags = 0x0808;

// Appends the lowest `bytes` bytes of a number, at most 8, the lowest first.
void AppendNumber(uint64_t value, int bytes, std::string& text) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
}

void AppendZeros(size_t bytes, std::string& text) { text.append(bytes, '\0'); }

// Returns torch's storage class for a dtype; empty for newer dtypes, which have none.
std::string_view StorageClass(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "BoolStorage";
    case DType::kUint8:
      return "ByteStorage";
    case DType::kInt8:
      return "CharStorage";
    case DType::kInt16:
      return "ShortStorage";
    case DType::kInt32:
      return "IntStorage";
    case DType::kInt64:
      return "LongStorage";
    case DType::kFloat16:
      return "HalfStorage";
    case DType::kBfloat16:
      return "BFloat16Storage";
    case DType::kFloat32:
      return "FloatStorage";
    case DType::kFloat64:
      return "DoubleStorage";
    case DType::kComplex64:
      return "ComplexFloatStorage";
    case DType::kComplex128:
      return "ComplexDoubleStorage";
    default:
      return "";
  }
}

using Records = std::vector<TorchArchiveRecord>;

// Appends a record's header, which it pads so that the record's bytes are aligned. `at` is the offset of the begin of
// `text` in the archive.
void BeginRecord(std::string name, uint64_t bytes, uint64_t at, std::string& text, Records& records) {
  const uint64_t offset = at + text.size();
  const std::string path = absl::StrCat("archive/", name);
  const uint64_t padding = (kAlignment - (offset + kLocalBytes + path.size() + kExtraBytes) % kAlignment) % kAlignment;
  text += "PK\x03\x04";
  AppendZeros(2, text);
  AppendNumber(kFlags, 2, text);
  AppendZeros(18, text);  // no compression, no time; checksum and lengths follow the bytes
  AppendNumber(path.size(), 2, text);
  AppendNumber(kExtraBytes + padding, 2, text);
  absl::StrAppend(&text, path, "FB");
  AppendNumber(padding, 2, text);
  text.append(padding, 'Z');
  records.push_back({path, offset, bytes, 0});
}

void EndRecord(const TorchArchiveRecord& record, std::string& text) {
  text += "PK\x07\x08";
  AppendNumber(record.crc32, 4, text);
  AppendNumber(record.bytes, 4, text);
  AppendNumber(record.bytes, 4, text);
}

void AddRecord(std::string name, std::string_view content, uint64_t at, std::string& text, Records& records) {
  BeginRecord(std::move(name), content.size(), at, text, records);
  records.back().crc32 = libdeflate_crc32(0, content.data(), content.size());
  text += content;
  EndRecord(records.back(), text);
}

void AddDirectory(const Records& records, uint64_t at, std::string& text) {
  const uint64_t begin = at + text.size();
  for (const TorchArchiveRecord& record : records) {
    text += "PK\x01\x02";
    AppendZeros(4, text);
    AppendNumber(kFlags, 2, text);
    AppendZeros(6, text);
    AppendNumber(record.crc32, 4, text);
    AppendNumber(record.bytes, 4, text);
    AppendNumber(record.bytes, 4, text);
    AppendNumber(record.path.size(), 2, text);
    AppendZeros(12, text);
    AppendNumber(record.offset, 4, text);
    text += record.path;
  }
  const uint64_t end = at + text.size();
  text += "PK\x05\x06";
  AppendZeros(4, text);
  AppendNumber(records.size(), 2, text);
  AppendNumber(records.size(), 2, text);
  AppendNumber(end - begin, 4, text);
  AppendNumber(begin, 4, text);
  AppendZeros(2, text);
}

}  // namespace

void WriteTorchTensor(DType dtype, std::span<const int64_t> shape, std::string_view storage, PickleWriter& pickle) {
  // A tensor of a newer dtype has a storage of bytes.
  const std::string_view storage_class = StorageClass(dtype);
  const int64_t elements = *ElementCount(shape);
  pickle.Global("torch._utils", storage_class.empty() ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  pickle.Mark();
  pickle.Mark();
  pickle.Text("storage");
  if (storage_class.empty()) {
    pickle.Global("torch.storage", "UntypedStorage");
  } else {
    pickle.Global("torch", storage_class);
  }
  pickle.Text(storage);
  pickle.Text("cpu");
  pickle.Int(storage_class.empty() ? elements * BytesOf(dtype) : elements);
  pickle.Tuple();
  pickle.PersistentId();
  pickle.Int(0);  // the offset of the tensor in the storage
  pickle.IntTuple(shape);
  Shape strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<int64_t>(shape[d], 1);
  pickle.IntTuple(strides);
  pickle.Bool(false);                           // requires_grad
  pickle.Global("collections", "OrderedDict");  // the hooks
  pickle.EmptyTuple();
  pickle.Reduce();
  if (storage_class.empty()) pickle.Global("torch", NameOf(dtype));
  pickle.Tuple();
  pickle.Reduce();
}

TorchTensorArchive::TorchTensorArchive(DType dtype, std::span<const int64_t> shape) {
  const int64_t elements = *ElementCount(shape);
  data_bytes_ = static_cast<uint64_t>(elements * BytesOf(dtype));
  PickleWriter pickle;
  WriteTorchTensor(dtype, shape, "0", pickle);
  AddRecord("data.pkl", std::move(pickle).Finish(), 0, head_, records_);
  AddRecord(".format_version", "1", 0, head_, records_);
  AddRecord(".storage_alignment", absl::StrCat(kAlignment), 0, head_, records_);
  AddRecord("byteorder", "little", 0, head_, records_);
  BeginRecord("data/0", data_bytes_, 0, head_, records_);
}

std::string TorchTensorArchive::Tail(uint32_t crc32) const {
  std::string text;
  Records records = records_;
  records.back().crc32 = crc32;
  EndRecord(records.back(), text);
  const uint64_t at = head_.size() + data_bytes_;
  AddRecord("version", "3\n", at, text, records);
  AddDirectory(records, at, text);
  return text;
}

std::string TorchValueArchive(std::string_view pickle, std::span<const std::string_view> storages) {
  std::string text;
  Records records;
  AddRecord("data.pkl", pickle, 0, text, records);
  AddRecord(".format_version", "1", 0, text, records);
  AddRecord(".storage_alignment", absl::StrCat(kAlignment), 0, text, records);
  AddRecord("byteorder", "little", 0, text, records);
  for (size_t i = 0; i < storages.size(); ++i) AddRecord(absl::StrCat("data/", i), storages[i], 0, text, records);
  AddRecord("version", "3\n", 0, text, records);
  AddDirectory(records, 0, text);
  return text;
}

}  // namespace cairn
