#include "foreign/read/dcp/dcp_metadata.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/tiling.h"
#include "foreign/read/pickle/pickle.h"
#include "foreign/read/source/described_files.h"
#include "foreign/read/torch/torch_file.h"

namespace cairn {
namespace {

// The objects of DCP have a few attributes. Without a limit, a small file could refer many times to one object with
// very many attributes.
constexpr size_t kMostAttributes = 1000;

// Finds attributes of many objects of one class. All objects of a class recall the same text for a key, so most keys
// are recognised without comparing letters.
class Attributes {
 public:
  Attributes(const PickleDocument& document, std::span<const std::string_view> names)
      : document_(document), names_(names.begin(), names.end()), known_(names.size()), values_(names.size()) {}

  // Returns the attributes in the order of the names; nothing for those that the object lacks.
  const std::vector<std::optional<PickleValue>>& Of(PickleValue object) {
    std::fill(values_.begin(), values_.end(), std::nullopt);
    const PickleObject* record = document_.Object(object);
    if (record == nullptr || document_.Size(record->state) > kMostAttributes) return values_;
    document_.ForEachPair(record->state, [&](PickleValue key, PickleValue value) {
      for (size_t i = 0; i < names_.size(); ++i) {
        if (key == known_[i] || document_.Text(key) == names_[i]) {
          known_[i] = key;
          values_[i] = value;
          return;
        }
      }
    });
    return values_;
  }

 private:
  const PickleDocument& document_;
  const std::vector<std::string_view> names_;
  std::vector<PickleValue> known_;
  std::vector<std::optional<PickleValue>> values_;
};

class MetadataReader {
 public:
  MetadataReader(const PickleDocument& document, const std::string& what, uint64_t bytes)
      : document_(document), what_(what), bytes_(bytes) {}

  absl::StatusOr<DcpMetadata> Read() {
    const auto described = document_.Find(document_.root(), "state_dict_metadata");
    const auto stored = document_.Find(document_.root(), "storage_data");
    if (!described || !stored || described->kind() != PickleKind::kDict || stored->kind() != PickleKind::kDict) {
      return Bad("is no Metadata of torch.distributed.checkpoint");
    }
    CAIRN_RETURN_IF_ERROR(ReadNames(*described));
    CAIRN_RETURN_IF_ERROR(ReadEntries(*stored));
    metadata_.files = std::move(file_numbers_).TakeNames();
    CAIRN_RETURN_IF_ERROR(MatchChunks());
    FindAliases();
    CAIRN_RETURN_IF_ERROR(CheckRanges());
    return std::move(metadata_);
  }

 private:
  struct Described {
    uint32_t number = 0;  // of the tensor or value
    bool is_tensor = false;
    PickleValue chunks;
  };

  absl::Status Bad(std::string_view problem, std::string_view tensor = "") const {
    return BadMetadata(what_, problem, tensor);
  }

  absl::Status ReadNames(PickleValue described);
  absl::Status ReadTensor(std::string_view name, PickleValue value);
  absl::Status ReadEntries(PickleValue stored);
  absl::Status ReadEntry(PickleValue index, PickleValue info);
  absl::Status MatchChunks();
  void FindAliases();
  absl::Status CheckRanges();
  bool AppendDims(PickleValue size, size_t ndim);

  const PickleDocument& document_;
  const std::string& what_;
  const uint64_t bytes_;  // of the file
  DcpMetadata metadata_;
  absl::flat_hash_map<std::string_view, Described> by_name_;
  // The tensor or value of the last entry. Entries of one tensor mostly follow each other, and recall the same text.
  PickleValue last_name_;
  Described last_described_;
  std::vector<PickleValue> chunks_;  // of each tensor: the list of its chunks
  FileNumbers file_numbers_ = FileNumbers(document_, what_);
  static constexpr std::string_view kIndexNames[] = {"fqn", "offset"};
  static constexpr std::string_view kInfoNames[] = {"relative_path", "offset", "length", "transform_descriptors"};
  Attributes index_ = Attributes(document_, kIndexNames);
  Attributes info_ = Attributes(document_, kInfoNames);
};

absl::Status MetadataReader::ReadNames(PickleValue described) {
  CAIRN_ASSIGN_OR_RETURN(const auto names, ReadByName(document_, described, what_));
  by_name_.reserve(names.size());
  for (const auto& [name, value] : names) {
    const PickleObject* object = document_.Object(value);
    if (object == nullptr)
      return Bad(absl::StrCat("describes '", std::string(name), "' by ", document_.Describe(value)), name);
    if (const auto type = document_.Global(object->callable); type && type->ends_with(".BytesStorageMetadata")) {
      by_name_[name] = {static_cast<uint32_t>(metadata_.values.size()), false, PickleValue()};
      metadata_.values.emplace_back(name);
    } else {
      CAIRN_RETURN_IF_ERROR(ReadTensor(name, value));
    }
  }
  return absl::OkStatus();
}

absl::Status MetadataReader::ReadTensor(std::string_view name, PickleValue value) {
  const auto size = document_.Find(value, "size");
  const auto chunks = document_.Find(value, "chunks");
  const auto properties = document_.Find(value, "properties");
  const auto shape = size ? TorchSize(document_, *size) : std::nullopt;
  const PickleObject* about = properties ? document_.Object(*properties) : nullptr;
  if (!shape || !chunks || chunks->kind() != PickleKind::kList || about == nullptr) {
    return Bad(absl::StrCat("describes '", std::string(name), "' by ", document_.Describe(value), ", not as a tensor"),
               name);
  }
  // TensorProperties is pickled as a tuple, whose first element is the dtype.
  const std::vector<PickleValue> first = document_.Elements(about->state, 1);
  const auto dtype = about->state.kind() == PickleKind::kTuple && !first.empty() ? std::optional(first[0])
                                                                                 : document_.Find(*properties, "dtype");
  DcpTensor& tensor = metadata_.tensors.emplace_back();
  tensor.name = name;
  tensor.global_shape = *shape;
  const auto known = dtype ? TorchDtype(document_, *dtype) : std::nullopt;
  if (!known) {
    return MakeError(
        Reason::kUnsupported,
        absl::StrCat(what_, ": '", std::string(name), "' has the dtype ",
                     dtype ? document_.Describe(*dtype) : "that is not said", ", which Cairn does not know"),
        {{"file", what_}, {"tensor", std::string(name)}});
  }
  tensor.dtype = *known;
  const auto elements = ElementCount(tensor.global_shape);
  if (!elements || *elements > INT64_MAX / BytesOf(tensor.dtype)) {
    return Bad(absl::StrCat("gives '", std::string(name), "' the shape ", ShapeToString(tensor.global_shape)), name);
  }
  by_name_[name] = {static_cast<uint32_t>(metadata_.tensors.size() - 1), true, *chunks};
  chunks_.push_back(*chunks);
  return absl::OkStatus();
}

absl::Status MetadataReader::ReadEntries(PickleValue stored) {
  metadata_.entries.reserve(document_.Size(stored));
  absl::Status status;
  document_.ForEachPair(stored, [&](PickleValue index, PickleValue info) {
    if (status.ok()) status = ReadEntry(index, info);
  });
  return status;
}

absl::Status MetadataReader::ReadEntry(PickleValue index, PickleValue info) {
  const auto& key = index_.Of(index);
  const auto& place = info_.Of(info);
  const auto fqn = key[0] ? document_.Text(*key[0]) : std::nullopt;
  const int64_t offset = place[1] ? document_.Int(*place[1]).value_or(-1) : -1;
  const int64_t bytes = place[2] ? document_.Int(*place[2]).value_or(-1) : -1;
  if (!fqn || !place[0] || offset < 0 || bytes < 0) {
    return Bad(absl::StrCat("gives the place of a value as ", document_.Describe(info)));
  }
  if (place[3] && place[3]->kind() != PickleKind::kNone && document_.Size(*place[3]) > 0) {
    return MakeError(
        Reason::kUnsupported,
        absl::StrCat(what_, ": '", std::string(*fqn), "' was written through an extension, such as a compression"),
        {{"file", what_}, {"tensor", std::string(*fqn)}});
  }
  if (*key[0] != last_name_) {
    const auto found = by_name_.find(*fqn);
    if (found == by_name_.end())
      return Bad(absl::StrCat("stores '", std::string(*fqn), "', which it does not describe"), *fqn);
    last_name_ = *key[0];
    last_described_ = found->second;
  }
  DcpEntry entry;
  entry.offset = static_cast<uint64_t>(offset);
  entry.bytes = static_cast<uint64_t>(bytes);
  CAIRN_ASSIGN_OR_RETURN(entry.file, file_numbers_.Of(*place[0]));
  if (last_described_.is_tensor) {
    entry.tensor = last_described_.number;
    entry.dims = metadata_.dims.size();
    const size_t ndim = metadata_.tensors[entry.tensor].global_shape.size();
    if (!key[1] || !AppendDims(*key[1], ndim))
      return Bad(absl::StrCat("gives a chunk of '", std::string(*fqn), "' no offset"), *fqn);
    metadata_.dims.resize(metadata_.dims.size() + ndim, -1);
  } else {
    entry.value = last_described_.number;
  }
  metadata_.entries.push_back(entry);
  return absl::OkStatus();
}

// Appends a tuple of `ndim` numbers from 0 to the dims.
bool MetadataReader::AppendDims(PickleValue size, size_t ndim) {
  if (size.kind() != PickleKind::kTuple || document_.Size(size) != ndim) return false;
  bool valid = true;
  document_.ForEach(size, [&](PickleValue each) {
    const auto number = document_.Int(each);
    valid = valid && number && *number >= 0;
    metadata_.dims.push_back(number.value_or(0));
  });
  return valid;
}

// Gives each entry the sizes of the chunk at its offset, and checks that the chunks tile their tensors.
absl::Status MetadataReader::MatchChunks() {
  std::vector<std::vector<uint32_t>> entries_of(metadata_.tensors.size());
  std::vector<bool> stored(metadata_.values.size(), false);
  for (uint32_t e = 0; e < metadata_.entries.size(); ++e) {
    const DcpEntry& entry = metadata_.entries[e];
    if (entry.tensor != DcpEntry::kNoTensor) {
      entries_of[entry.tensor].push_back(e);
    } else if (stored[entry.value]) {
      return Bad(absl::StrCat("stores '", metadata_.values[entry.value], "' twice"), metadata_.values[entry.value]);
    } else {
      stored[entry.value] = true;
    }
  }
  for (size_t v = 0; v < stored.size(); ++v) {
    if (!stored[v])
      return Bad(absl::StrCat("does not say where '", metadata_.values[v], "' lies"), metadata_.values[v]);
  }
  static constexpr std::string_view kChunkNames[] = {"offsets", "sizes"};
  Attributes attributes(document_, kChunkNames);
  Box box;
  uint64_t seen = 0;
  for (size_t t = 0; t < metadata_.tensors.size(); ++t) {
    const DcpTensor& tensor = metadata_.tensors[t];
    const size_t ndim = tensor.global_shape.size();
    std::vector<uint32_t>& entries = entries_of[t];
    int64_t* const dims = metadata_.dims.data();
    const auto before = [&](const int64_t* a, const int64_t* b) {
      return std::lexicographical_compare(a, a + ndim, b, b + ndim);
    };
    const auto dims_of = [&](uint32_t e) { return dims + metadata_.entries[e].dims; };
    const auto by_offset = [&](uint32_t a, uint32_t b) { return before(dims_of(a), dims_of(b)); };
    if (!std::is_sorted(entries.begin(), entries.end(), by_offset))
      std::sort(entries.begin(), entries.end(), by_offset);
    auto next = entries.begin();  // chunks are mostly listed in the order of their offsets
    absl::Status status;
    // Each chunk takes some bytes of the file, unless tensors share one list of chunks, which torch never writes.
    seen += document_.Size(chunks_[t]);
    if (seen > bytes_) return Bad("gives several tensors the same chunks", tensor.name);
    document_.ForEach(chunks_[t], [&](PickleValue chunk) {
      if (!status.ok()) return;
      const auto& parts = attributes.Of(chunk);
      if (!parts[0] || !parts[1] || !ReadTorchSize(document_, *parts[0], box.offset) ||
          !ReadTorchSize(document_, *parts[1], box.shape) || !Contains(tensor.global_shape, box)) {
        status = Bad(
            absl::StrCat("gives '", tensor.name, "' a chunk outside of its shape ", ShapeToString(tensor.global_shape)),
            tensor.name);
        return;
      }
      // A chunk that several ranks hold is listed once for each rank; an empty chunk may have the offset of another
      // chunk.
      const int64_t* const offset = box.offset.data();
      const bool empty = ElementCount(box.shape) == 0;
      const auto is_at = [&](uint32_t e) { return std::equal(offset, offset + ndim, dims_of(e)); };
      auto at = next;
      if (at == entries.end() || !is_at(*at) || (at != entries.begin() && is_at(at[-1]))) {
        at = std::lower_bound(entries.begin(), entries.end(), offset,
                              [&](uint32_t e, const int64_t* wanted) { return before(dims_of(e), wanted); });
      }
      if (at == entries.end() || before(offset, dims_of(*at))) {
        if (empty) return;
        status = Bad(absl::StrCat("does not say where the chunk ", ToString(box), " of '", tensor.name, "' lies"),
                     tensor.name);
        return;
      }
      next = at + 1;
      int64_t* const known = dims_of(*at) + ndim;
      if (ndim > 0 && known[0] >= 0 && empty) return;
      std::copy(box.shape.begin(), box.shape.end(), known);
    });
    CAIRN_RETURN_IF_ERROR(status);
    std::vector<PackedBox> boxes;
    for (const uint32_t e : entries) {
      const auto shape = metadata_.shape_of(metadata_.entries[e]);
      if (std::find(shape.begin(), shape.end(), -1) != shape.end()) {
        return Bad(absl::StrCat("stores a chunk of '", tensor.name, "' that it does not describe"), tensor.name);
      }
      if (ElementCount(shape) != 0) boxes.push_back(dims + metadata_.entries[e].dims);
    }
    const auto elements = ElementCount(tensor.global_shape);
    if (elements == 0 ? !boxes.empty() : !TilesExactly(tensor.global_shape, boxes)) {
      return Bad(absl::StrCat("has chunks of '", tensor.name, "' that do not make up its shape ",
                              ShapeToString(tensor.global_shape), " exactly"),
                 tensor.name);
    }
  }
  return absl::OkStatus();
}

// Sorts entries by file, offset and tensor. Those of one file mostly come in the order of their offsets.
void SortEntries(size_t files, std::vector<DcpEntry>& entries) {
  std::vector<size_t> end = FirstOfEachFile(entries, files);  // of each file: where the next entry goes
  std::vector<DcpEntry> sorted(entries.size());
  for (const DcpEntry& entry : entries) sorted[end[entry.file]++] = entry;
  entries = std::move(sorted);
  const auto before = [](const DcpEntry& a, const DcpEntry& b) {
    return std::tie(a.offset, a.tensor) < std::tie(b.offset, b.tensor);
  };
  for (size_t file = 0, begin = 0; file < files; begin = end[file++]) {
    const auto first = entries.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = entries.begin() + static_cast<std::ptrdiff_t>(end[file]);
    if (!std::is_sorted(first, last, before)) std::sort(first, last, before);
  }
}

// Removes the tensors whose chunks are all also chunks of one other tensor: this is how Cairn's export writes tied
// weights.
void MetadataReader::FindAliases() {
  std::vector<DcpEntry>& entries = metadata_.entries;
  SortEntries(metadata_.files.size(), entries);
  std::vector<uint32_t> first(metadata_.tensors.size(), DcpEntry::kNoTensor);
  std::vector<int64_t> others(metadata_.tensors.size(), 0);  // chunks that are not shared with `first`
  for (const DcpEntry& entry : entries) {
    if (entry.tensor != DcpEntry::kNoTensor) ++others[entry.tensor];
  }
  bool found = false;
  for (size_t begin = 0, end = 0; begin < entries.size(); begin = end) {
    const DcpEntry& one = entries[begin];
    const auto same_range = [&](const DcpEntry& other) {
      return std::tie(other.file, other.offset, other.bytes) == std::tie(one.file, one.offset, one.bytes);
    };
    for (end = begin + 1; end < entries.size() && same_range(entries[end]); ++end) {
      const DcpEntry& other = entries[end];
      if (one.tensor == DcpEntry::kNoTensor || other.tensor == DcpEntry::kNoTensor) continue;
      const DcpTensor &a = metadata_.tensors[one.tensor], &b = metadata_.tensors[other.tensor];
      if (first[other.tensor] == DcpEntry::kNoTensor) first[other.tensor] = one.tensor;
      const size_t ndim = a.global_shape.size();
      const int64_t* const dims = metadata_.dims.data();
      const bool same = first[other.tensor] == one.tensor && one.tensor != other.tensor && a.dtype == b.dtype &&
                        a.global_shape == b.global_shape &&
                        std::equal(dims + one.dims, dims + one.dims + 2 * ndim, dims + other.dims);
      if (same && --others[other.tensor] == 0) found = true;
    }
  }
  if (!found) return;
  std::vector<uint32_t> numbers(metadata_.tensors.size());
  std::vector<DcpTensor> kept;
  for (size_t t = 0; t < metadata_.tensors.size(); ++t) {
    if (first[t] != DcpEntry::kNoTensor && others[t] == 0) {
      metadata_.aliases.emplace_back(metadata_.tensors[t].name, metadata_.tensors[first[t]].name);
      numbers[t] = DcpEntry::kNoTensor;
    } else {
      numbers[t] = static_cast<uint32_t>(kept.size());
      kept.push_back(metadata_.tensors[t]);
    }
  }
  std::erase_if(entries, [&](const DcpEntry& entry) {
    return entry.tensor != DcpEntry::kNoTensor && numbers[entry.tensor] == DcpEntry::kNoTensor;
  });
  for (DcpEntry& entry : entries) {
    if (entry.tensor != DcpEntry::kNoTensor) entry.tensor = numbers[entry.tensor];
  }
  metadata_.tensors = std::move(kept);
}

// Ranges must not overlap, because agents read each byte for one item only. Files of torch never overlap.
absl::Status MetadataReader::CheckRanges() {
  const std::vector<DcpEntry>& entries = metadata_.entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    const DcpEntry& entry = entries[i];
    const bool overlaps =
        i > 0 && entries[i - 1].file == entry.file && entries[i - 1].offset + entries[i - 1].bytes > entry.offset;
    if (overlaps || entry.bytes > INT64_MAX - entry.offset) {
      return Bad(absl::StrCat("has entries that overlap at ", entry.offset, " of ", metadata_.files[entry.file]));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DcpMetadata> ReadDcpMetadata(std::string_view bytes, const std::string& what,
                                            const ReleasePickle& release) {
  CAIRN_ASSIGN_OR_RETURN(const PickleDocument document, ReadPickledMetadata(bytes, what, release));
  return MetadataReader(document, what, bytes.size()).Read();
}

}  // namespace cairn
