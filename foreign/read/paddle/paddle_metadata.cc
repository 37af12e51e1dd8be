#include "foreign/read/paddle/paddle_metadata.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/tiling.h"
#include "foreign/read/pickle/pickle.h"
#include "foreign/read/source/described_files.h"

namespace cairn {
namespace {

constexpr size_t kMostDims = 64;

class MetadataReader {
 public:
  MetadataReader(const PickleDocument& document, const std::string& what) : document_(document), what_(what) {}

  absl::StatusOr<PaddleMetadata> Read() {
    const auto described = document_.Find(document_.root(), "state_dict_metadata");
    const auto stored = document_.Find(document_.root(), "storage_metadata");
    if (!described || !stored || described->kind() != PickleKind::kDict || stored->kind() != PickleKind::kDict) {
      return Bad("is no Metadata of Paddle's FlexCheckpoint");
    }
    CAIRN_RETURN_IF_ERROR(ReadPlaces(*stored));
    CAIRN_RETURN_IF_ERROR(ReadTensors(*described));
    std::sort(metadata_.shards.begin(), metadata_.shards.end(), [](const PaddleShard& a, const PaddleShard& b) {
      return std::tie(a.file, a.tensor) < std::tie(b.file, b.tensor);
    });
    metadata_.files = std::move(file_numbers_).TakeNames();
    return std::move(metadata_);
  }

 private:
  // The fields that distinguish the shards of a tensor.
  struct Part {
    Shape offset;
    std::optional<Shape> shape;  // versions before 3.2 do not write it into a LocalTensorIndex
    std::optional<FlatRange> flat;
  };

  absl::Status Bad(std::string_view problem, std::string_view tensor = "") const {
    return BadMetadata(what_, problem, tensor);
  }

  std::optional<Shape> Numbers(std::optional<PickleValue> value) const;
  std::optional<Part> PartOf(PickleValue object) const;
  static std::string KeyOf(std::string_view tensor, const Part& part, bool with_shape);
  absl::Status ReadPlaces(PickleValue stored);
  absl::Status ReadTensors(PickleValue described);
  absl::Status ReadTensor(std::string_view name, PickleValue shards);
  absl::Status AddShards(std::vector<Part>& parts);
  absl::Status CheckTiling(size_t first_shard) const;

  const PickleDocument& document_;
  const std::string& what_;
  PaddleMetadata metadata_;
  absl::flat_hash_map<std::string, uint32_t> places_;  // the file of each shard
  FileNumbers file_numbers_ = FileNumbers(document_, what_);
};

std::optional<Shape> MetadataReader::Numbers(std::optional<PickleValue> value) const {
  if (!value || (value->kind() != PickleKind::kTuple && value->kind() != PickleKind::kList)) return std::nullopt;
  if (document_.Size(*value) > kMostDims) return std::nullopt;
  Shape numbers;
  bool valid = true;
  document_.ForEach(*value, [&](PickleValue each) {
    const auto number = document_.Int(each);
    valid = valid && number && *number >= 0;
    numbers.push_back(number.value_or(0));
  });
  return valid ? std::optional(std::move(numbers)) : std::nullopt;
}

// Reads the fields that LocalTensorMetadata and LocalTensorIndex both have.
std::optional<MetadataReader::Part> MetadataReader::PartOf(PickleValue object) const {
  Part part;
  const auto offset = Numbers(document_.Find(object, "global_offset"));
  if (!offset) return std::nullopt;
  part.offset = *offset;
  part.shape = Numbers(document_.Find(object, "local_shape"));
  if (part.shape && part.shape->size() != part.offset.size()) return std::nullopt;
  const auto flattened = document_.Find(object, "is_flattened");
  if (!flattened || document_.Bool(*flattened) != true) return part;
  const auto range = Numbers(document_.Find(object, "flattened_range"));
  if (!range || range->size() != 2 || (*range)[0] > (*range)[1]) return std::nullopt;
  part.flat = FlatRange{(*range)[0], (*range)[1]};
  return part;
}

std::string MetadataReader::KeyOf(std::string_view tensor, const Part& part, bool with_shape) {
  std::string key = absl::StrCat(std::string(tensor), std::string(1, '\0'));
  const auto add = [&](int64_t number) { key.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (const int64_t number : part.offset) add(number);
  add(part.flat ? part.flat->begin : -1);
  add(part.flat ? part.flat->end : -1);
  if (with_shape && part.shape) {
    for (const int64_t number : *part.shape) add(number);
  }
  return key;
}

absl::Status MetadataReader::ReadPlaces(PickleValue stored) {
  absl::Status status;
  places_.reserve(document_.Size(stored));
  document_.ForEachPair(stored, [&](PickleValue index, PickleValue path) {
    if (!status.ok()) return;
    const auto key = document_.Find(index, "tensor_key");
    const auto tensor = key ? document_.Text(*key) : std::nullopt;
    const auto part = PartOf(index);
    if (!tensor || !part) {
      status = Bad(absl::StrCat("gives the place of a shard as ", document_.Describe(index)));
      return;
    }
    const auto file = file_numbers_.Of(path);
    if (!file.ok()) {
      status = file.status();
      return;
    }
    // Several files may have copies of a shard. One is enough.
    places_.try_emplace(KeyOf(*tensor, *part, true), *file);
  });
  return status;
}

absl::Status MetadataReader::ReadTensors(PickleValue described) {
  CAIRN_ASSIGN_OR_RETURN(const auto by_name, ReadByName(document_, described, what_));
  for (const auto& [name, shards] : by_name) CAIRN_RETURN_IF_ERROR(ReadTensor(name, shards));
  return absl::OkStatus();
}

absl::Status MetadataReader::ReadTensor(std::string_view name, PickleValue shards) {
  PaddleTensor tensor;
  tensor.name = name;
  std::vector<Part> parts;
  std::optional<std::string_view> dtype;
  std::optional<Shape> shape;
  bool valid = shards.kind() == PickleKind::kList && document_.Size(shards) > 0;
  bool said = true;  // whether the shards give the shape of the whole tensor
  document_.ForEach(shards, [&](PickleValue shard) {
    const auto type = document_.Find(shard, "dtype");
    const auto text = type ? document_.Text(*type) : std::nullopt;
    const auto whole = Numbers(document_.Find(shard, "global_shape"));
    auto part = PartOf(shard);
    if (!text || !part || !part->shape || (dtype && *dtype != *text) ||
        (!parts.empty() && (whole.has_value() != said || (whole && whole != shape)))) {
      valid = false;
      return;
    }
    dtype = text;
    said = whole.has_value();
    shape = whole;
    parts.push_back(*std::move(part));
  });
  if (!valid || parts.empty()) return Bad(absl::StrCat("does not describe '", tensor.name, "' as a tensor"), name);
  constexpr std::string_view kPrefix = "paddle.";
  if (dtype->starts_with(kPrefix)) dtype->remove_prefix(kPrefix.size());
  const auto known = DTypeFromName(*dtype);
  if (!known) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat(what_, ": '", tensor.name, "' has the dtype '", std::string(*dtype),
                                  "', which Cairn does not know"),
                     {{"file", what_}, {"tensor", tensor.name}});
  }
  tensor.dtype = *known;
  if (!shape) {
    // Versions before 3.2 did not write the shape. It is the smallest shape that contains all shards.
    shape = Shape(parts[0].offset.size(), 0);
    for (const Part& part : parts) {
      if (part.offset.size() != shape->size()) return Bad(absl::StrCat("gives '", tensor.name, "' two ranks"), name);
      for (size_t d = 0; d < shape->size(); ++d) {
        if (part.offset[d] > INT64_MAX - (*part.shape)[d]) return Bad("has an offset that is too large", name);
        (*shape)[d] = std::max((*shape)[d], part.offset[d] + (*part.shape)[d]);
      }
    }
  }
  tensor.global_shape = *shape;
  const auto elements = ElementCount(tensor.global_shape);
  if (!elements || *elements > INT64_MAX / BytesOf(tensor.dtype)) {
    return Bad(absl::StrCat("gives '", tensor.name, "' the shape ", ShapeToString(tensor.global_shape)), name);
  }
  metadata_.tensors.push_back(std::move(tensor));
  return AddShards(parts);
}

// Adds the shards of the last tensor.
absl::Status MetadataReader::AddShards(std::vector<Part>& parts) {
  const PaddleTensor& tensor = metadata_.tensors.back();
  const auto order = [](const Part& part) {
    return std::tuple(part.offset, *part.shape, part.flat ? part.flat->begin : -1, part.flat ? part.flat->end : -1);
  };
  std::sort(parts.begin(), parts.end(), [&](const Part& a, const Part& b) { return order(a) < order(b); });
  const size_t first = metadata_.shards.size();
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (i > 0 && order(parts[i - 1]) == order(part)) continue;  // several ranks had it
    const Box box = {part.offset, *part.shape};
    const auto elements = ElementCount(*part.shape);
    if (!Contains(tensor.global_shape, box) || !elements || (part.flat && part.flat->end > *elements)) {
      return Bad(
          absl::StrCat("gives '", tensor.name, "' a part outside of its shape ", ShapeToString(tensor.global_shape)),
          tensor.name);
    }
    auto place = places_.find(KeyOf(tensor.name, part, true));
    if (place == places_.end()) place = places_.find(KeyOf(tensor.name, part, false));
    if (place == places_.end()) {
      return Bad(absl::StrCat("does not say where the part ", ToString(box), " of '", tensor.name, "' lies"),
                 tensor.name);
    }
    PaddleShard& shard = metadata_.shards.emplace_back();
    shard.tensor = static_cast<uint32_t>(metadata_.tensors.size() - 1);
    shard.file = place->second;
    shard.dims = metadata_.dims.size();
    shard.flat = part.flat;
    metadata_.dims.insert(metadata_.dims.end(), part.offset.begin(), part.offset.end());
    metadata_.dims.insert(metadata_.dims.end(), part.shape->begin(), part.shape->end());
  }
  return CheckTiling(first);
}

// Checks that the shards from `first` on make up the last tensor.
absl::Status MetadataReader::CheckTiling(size_t first) const {
  const PaddleTensor& tensor = metadata_.tensors.back();
  std::vector<int64_t> dims;
  std::vector<Box> flat;
  size_t count = 0;
  const auto add = [&](std::span<const int64_t> begin, const Box& box) {
    if (ElementCount(box.shape) == 0) return;
    for (size_t d = 0; d < begin.size(); ++d) dims.push_back(begin[d] + box.offset[d]);
    dims.insert(dims.end(), box.shape.begin(), box.shape.end());
    ++count;
  };
  for (size_t s = first; s < metadata_.shards.size(); ++s) {
    const PaddleShard& shard = metadata_.shards[s];
    const Box box = metadata_.box_of(shard);
    if (!shard.flat) {
      add(box.offset, WholeBox(box.shape));
      continue;
    }
    flat.clear();
    AppendBoxes(box.shape, *shard.flat, flat);
    for (const Box& part : flat) add(box.offset, part);
  }
  std::vector<PackedBox> boxes;
  boxes.reserve(count);
  for (size_t b = 0; b < count; ++b) boxes.push_back(dims.data() + 2 * tensor.global_shape.size() * b);
  if (ElementCount(tensor.global_shape) == 0 ? !boxes.empty() : !TilesExactly(tensor.global_shape, boxes)) {
    return Bad(absl::StrCat("has parts of '", tensor.name, "' that do not make up its shape ",
                            ShapeToString(tensor.global_shape), " exactly"),
               tensor.name);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PaddleMetadata> ReadPaddleMetadata(std::string_view bytes, const std::string& what,
                                                  const ReleasePickle& release) {
  CAIRN_ASSIGN_OR_RETURN(const PickleDocument document, ReadPickledMetadata(bytes, what, release));
  return MetadataReader(document, what).Read();
}

}  // namespace cairn
