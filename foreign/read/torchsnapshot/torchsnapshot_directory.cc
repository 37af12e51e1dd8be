#include "foreign/read/torchsnapshot/torchsnapshot_directory.h"

#include <simdjson.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/digest.h"
#include "common/format/stored_item.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/tiling.h"
#include "foreign/read/pickle/bounded_json.h"
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/source/foreign_manifest.h"
#include "foreign/read/torch/torch_file.h"

namespace cairn {
namespace {

constexpr uint64_t kMostMetadataBytes = uint64_t{1} << 30;
// A transposed chunk is cut into pieces, at most this many.
constexpr size_t kMostPieces = size_t{1} << 16;

struct Entry {
  int rank = 0;
  nlohmann::json json;
  uint64_t offset = 0;  // of its text in the metadata
  uint64_t bytes = 0;

  std::string type() const { return json.value("type", ""); }
  bool replicated() const { return json.value("replicated", nlohmann::json()) == nlohmann::json(true); }
};

bool IsContainer(const std::string& type) { return type == "dict" || type == "OrderedDict" || type == "list"; }
bool IsPrimitive(const std::string& type) {
  return type == "int" || type == "str" || type == "bool" || type == "bytes" || type == "float";
}
bool IsTensor(const std::string& type) {
  return type == "Tensor" || type == "ShardedTensor" || type == "ChunkedTensor";
}

std::optional<Shape> ShapeOf(const nlohmann::json& json) {
  if (!json.is_array()) return std::nullopt;
  Shape shape;
  for (const nlohmann::json& each : json) {
    if (!each.is_number_integer() || (each.is_number_unsigned() && each.get<uint64_t>() > INT64_MAX) ||
        each.get<int64_t>() < 0) {
      return std::nullopt;
    }
    shape.push_back(each.get<int64_t>());
  }
  return shape;
}

const nlohmann::json& Member(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

std::string TextOf(const nlohmann::json& json) { return json.is_string() ? json.get<std::string>() : ""; }

class Importer {
 public:
  Importer(const std::string& directory, const std::string& what) : directory_(directory), what_(what) {}

  absl::Status ReadMetadata(std::string_view text);
  absl::StatusOr<Manifest> Read(const ForeignFile& metadata, std::string_view digest) &&;

 private:
  // The entries that become one tensor or value.
  struct Item {
    std::string name;
    std::vector<const Entry*> entries;
  };
  struct Part {
    Shape offset;
    Shape shape;
    const nlohmann::json* tensor;
  };

  absl::Status Bad(std::string_view problem, std::string_view name = "") const {
    ErrorMetadata metadata = {{"file", what_}};
    if (!name.empty()) metadata.emplace_back("tensor", std::string(name));
    return MakeError(Reason::kBadForeignFile, absl::StrCat(what_, " ", std::string(problem)), metadata);
  }
  absl::Status Unsupported(std::string_view problem, std::string_view name) const {
    return MakeError(Reason::kUnsupported, absl::StrCat(what_, ": '", std::string(name), "' ", std::string(problem)),
                     {{"file", what_}, {"tensor", std::string(name)}});
  }

  absl::Status AddEntry(std::string_view path, std::string_view raw, uint64_t offset);
  absl::StatusOr<std::vector<Item>> Items() const;
  absl::StatusOr<const ForeignFile*> Open(const nlohmann::json& location, const std::string& name);
  absl::Status AddTensor(const Item& item);
  absl::StatusOr<std::vector<Part>> PartsOf(const Item& item, Shape& global_shape) const;
  absl::Status AddPart(uint32_t tensor, const Part& part, DType dtype, const std::string& name);

  const std::string& directory_;
  const std::string& what_;
  std::map<std::string, std::vector<Entry>> by_name_;
  std::map<std::string, std::pair<ForeignFile, uint32_t>> files_;  // by location; with the number in the manifest
  ForeignManifest manifest_ = ForeignManifest("cairn import torchsnapshot 1");
};

absl::Status Importer::ReadMetadata(std::string_view text) {
  const simdjson::padded_string padded(text);
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  simdjson::ondemand::object root, entries;
  if (parser.iterate(padded).get(document) != simdjson::SUCCESS ||
      document.get_object().get(root) != simdjson::SUCCESS ||
      root.find_field_unordered("manifest").get_object().get(entries) != simdjson::SUCCESS) {
    return Bad("is no metadata of torchsnapshot");
  }
  for (auto field : entries) {
    std::string_view key, raw;
    simdjson::ondemand::object value;
    if (field.unescaped_key().get(key) != simdjson::SUCCESS) return Bad("is damaged");
    const std::string path(key);
    if (field.value().get_object().get(value) != simdjson::SUCCESS || value.raw_json().get(raw) != simdjson::SUCCESS) {
      return Bad(absl::StrCat("has a damaged entry '", path, "'"));
    }
    CAIRN_RETURN_IF_ERROR(AddEntry(path, raw, static_cast<uint64_t>(raw.data() - padded.data())));
  }
  for (auto& [name, same] : by_name_) {
    std::sort(same.begin(), same.end(), [](const Entry& a, const Entry& b) { return a.rank < b.rank; });
    const auto twice =
        std::adjacent_find(same.begin(), same.end(), [](const Entry& a, const Entry& b) { return a.rank == b.rank; });
    if (twice != same.end()) return Bad(absl::StrCat("has two entries of '", name, "' of rank ", twice->rank), name);
  }
  return absl::OkStatus();
}

absl::Status Importer::AddEntry(std::string_view path, std::string_view raw, uint64_t offset) {
  Entry entry;
  const size_t slash = path.find('/');
  const std::string_view rank = path.substr(0, slash);
  if (slash == std::string_view::npos || !absl::SimpleAtoi(absl::string_view(rank.data(), rank.size()), &entry.rank) ||
      entry.rank < 0) {
    return Bad(absl::StrCat("has an entry '", std::string(path), "' of no rank"));
  }
  // Slashes within the parts of a path are written as %2F.
  std::string name = absl::StrReplaceAll(absl::StrReplaceAll(std::string(path.substr(slash + 1)), {{"/", "."}}),
                                         {{"%2F", "/"}, {"%25", "%"}});
  entry.json = ParseBoundedJson(raw);
  if (!entry.json.is_object() || !Member(entry.json, "type").is_string()) {
    return Bad(absl::StrCat("has a damaged entry '", std::string(path), "'"));
  }
  if (IsContainer(entry.type())) return absl::OkStatus();
  entry.offset = offset;
  entry.bytes = raw.size();
  by_name_[std::move(name)].push_back(std::move(entry));
  return absl::OkStatus();
}

// Groups the entries of the ranks that belong to one tensor or value.
absl::StatusOr<std::vector<Importer::Item>> Importer::Items() const {
  std::vector<Item> items;
  for (const auto& [name, entries] : by_name_) {
    const auto all = [&entries = entries](auto&& fits) { return std::all_of(entries.begin(), entries.end(), fits); };
    const Entry& first = entries[0];
    if (all([](const Entry& entry) { return entry.type() == "ShardedTensor"; })) {
      Item& item = items.emplace_back(Item{name, {}});
      for (const Entry& entry : entries) item.entries.push_back(&entry);
    } else if (all([](const Entry& entry) { return entry.replicated(); }) ||
               all([&](const Entry& entry) { return entry.json == first.json; })) {
      items.push_back({name, {&first}});
    } else {
      for (const Entry& entry : entries) items.push_back({absl::StrCat(name, ".rank", entry.rank), {&entry}});
    }
  }
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.name < b.name; });
  for (size_t i = 0; i < items.size(); ++i) {
    CAIRN_RETURN_IF_ERROR(Annotate(CheckName(items[i].name), what_));
    if (i > 0 && items[i - 1].name == items[i].name) {
      return MakeError(Reason::kNameCollision, absl::StrCat(what_, ": two entries have the name '", items[i].name, "'"),
                       {{"file", what_}, {"names", items[i].name}});
    }
  }
  return items;
}

absl::StatusOr<const ForeignFile*> Importer::Open(const nlohmann::json& location, const std::string& name) {
  const std::string path = TextOf(location);
  if (!IsPathBelow(path)) {
    return MakeError(Reason::kPathEscape,
                     absl::StrCat(what_, ": '", path, "', where '", name, "' lies, is no path below the directory"),
                     {{"file", path}, {"tensor", name}, {"next", std::string(kOutsideAction)}});
  }
  if (const auto found = files_.find(path); found != files_.end()) return &found->second.first;
  CAIRN_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::OpenBelow(directory_, path));
  const uint32_t number = manifest_.AddFile(file);
  file.Close();  // there may be more files than a process can have open
  return &files_.try_emplace(path, std::move(file), number).first->second.first;
}

absl::StatusOr<std::vector<Importer::Part>> Importer::PartsOf(const Item& item, Shape& global_shape) const {
  std::vector<Part> parts;
  const std::string type = item.entries[0]->type();
  if (type == "Tensor") {
    const auto shape = ShapeOf(Member(item.entries[0]->json, "shape"));
    if (!shape) return Bad(absl::StrCat("gives '", item.name, "' no shape"), item.name);
    global_shape = *shape;
    parts.push_back({Shape(shape->size(), 0), *shape, &item.entries[0]->json});
    return parts;
  }
  const bool chunked = type == "ChunkedTensor";
  for (const Entry* entry : item.entries) {
    for (const nlohmann::json& part : Member(entry->json, chunked ? "chunks" : "shards")) {
      const auto offset = ShapeOf(Member(part, "offsets")), shape = ShapeOf(Member(part, "sizes"));
      if (!offset || !shape || offset->size() != shape->size()) {
        return Bad(absl::StrCat("gives '", item.name, "' a part without offsets or sizes"), item.name);
      }
      parts.push_back({*offset, *shape, &Member(part, "tensor")});
    }
  }
  if (parts.empty()) return Bad(absl::StrCat("gives '", item.name, "' no part"), item.name);
  // A shard that several ranks hold is listed by each of them.
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::tie(a.offset, a.shape) < std::tie(b.offset, b.shape);
  });
  parts.erase(std::unique(parts.begin(), parts.end(),
                          [](const Part& a, const Part& b) { return a.offset == b.offset && a.shape == b.shape; }),
              parts.end());
  if (chunked) {
    const auto shape = ShapeOf(Member(item.entries[0]->json, "shape"));
    if (!shape) return Bad(absl::StrCat("gives '", item.name, "' no shape"), item.name);
    global_shape = *shape;
  } else {
    // The metadata do not have the shape. So a missing shard at the end cannot be noticed.
    global_shape.assign(parts[0].offset.size(), 0);
    for (const Part& part : parts) {
      for (size_t d = 0; d < global_shape.size() && d < part.offset.size(); ++d) {
        int64_t end = 0;
        if (__builtin_add_overflow(part.offset[d], part.shape[d], &end)) end = INT64_MAX;
        global_shape[d] = std::max(global_shape[d], end);
      }
    }
  }
  return parts;
}

absl::Status Importer::AddTensor(const Item& item) {
  Shape global_shape;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Part> parts, PartsOf(item, global_shape));
  const std::string named = TextOf(Member(*parts[0].tensor, "dtype"));
  static constexpr std::string_view kTorch = "torch.";
  const auto dtype =
      named.starts_with(kTorch) ? DTypeFromName(std::string_view(named).substr(kTorch.size())) : std::nullopt;
  if (!dtype) return Unsupported(absl::StrCat("has the dtype '", named, "', which Cairn does not know"), item.name);
  const auto elements = ElementCount(global_shape);
  if (!elements || *elements > INT64_MAX / BytesOf(*dtype)) {
    return Bad(absl::StrCat("gives '", item.name, "' the shape ", ShapeToString(global_shape)), item.name);
  }
  std::vector<int64_t> dims;
  size_t boxes_there = 0;
  for (const Part& part : parts) {
    if (!Contains(global_shape, {part.offset, part.shape})) {
      return Bad(absl::StrCat("gives '", item.name, "' a part outside of its shape ", ShapeToString(global_shape)),
                 item.name);
    }
    if (ElementCount(part.shape) == 0) continue;
    dims.insert(dims.end(), part.offset.begin(), part.offset.end());
    dims.insert(dims.end(), part.shape.begin(), part.shape.end());
    ++boxes_there;
  }
  std::vector<PackedBox> boxes;
  boxes.reserve(boxes_there);
  for (size_t b = 0; b < boxes_there; ++b) boxes.push_back(dims.data() + 2 * global_shape.size() * b);
  if (*elements == 0 ? !boxes.empty() : !TilesExactly(global_shape, boxes)) {
    return Bad(absl::StrCat("has parts of '", item.name, "' that do not make up its shape ",
                            ShapeToString(global_shape), " exactly"),
               item.name);
  }
  const uint32_t tensor = manifest_.AddTensor(item.name, *dtype, global_shape);
  for (const Part& part : parts) {
    if (TextOf(Member(*part.tensor, "dtype")) != named) {
      return Bad(absl::StrCat("gives '", item.name, "' parts of several dtypes"), item.name);
    }
    if (ElementCount(part.shape) != 0) CAIRN_RETURN_IF_ERROR(AddPart(tensor, part, *dtype, item.name));
  }
  return absl::OkStatus();
}

absl::Status Importer::AddPart(uint32_t tensor, const Part& part, DType dtype, const std::string& name) {
  const auto stored = ShapeOf(Member(*part.tensor, "shape"));
  if (stored != part.shape) return Bad(absl::StrCat("gives a part of '", name, "' two shapes"), name);
  CAIRN_ASSIGN_OR_RETURN(const ForeignFile* const file, Open(Member(*part.tensor, "location"), name));
  const uint32_t number = files_.at(TextOf(Member(*part.tensor, "location"))).second;
  uint64_t begin = 0, end = file->bytes();
  if (const nlohmann::json& range = Member(*part.tensor, "byte_range"); !range.is_null()) {
    const auto edges = ShapeOf(range);
    if (!edges || edges->size() != 2 || (*edges)[0] > (*edges)[1]) {
      return Bad(absl::StrCat("gives '", name, "' a damaged range of its file"), name);
    }
    begin = static_cast<uint64_t>((*edges)[0]);
    end = static_cast<uint64_t>((*edges)[1]);
  }
  const std::string serializer = TextOf(Member(*part.tensor, "serializer"));
  const std::string what = absl::StrCat(file->path(), " at ", begin, " ('", name, "')");
  if (serializer == "buffer_protocol") {
    const auto bytes = static_cast<uint64_t>(*ElementCount(part.shape) * BytesOf(dtype));
    if (end - begin != bytes) {
      return MakeError(Reason::kBadForeignFile,
                       absl::StrCat(what, " has ", end - begin, " bytes, not the ", bytes, " of ",
                                    std::string(NameOf(dtype)), ShapeToString(part.shape)),
                       {{"file", file->path()}, {"tensor", name}});
    }
    manifest_.AddPiece(tensor, part.offset, part.shape, number, begin);
    return absl::OkStatus();
  }
  if (serializer != "torch_save") return Unsupported(absl::StrCat("is stored by '", serializer, "'"), name);
  if (end > file->bytes()) {
    return MakeError(Reason::kFileTruncated,
                     absl::StrCat(file->path(), " has ", file->bytes(), " bytes, but '", name, "' ends at ", end),
                     {{"file", file->path()}, {"tensor", name}});
  }
  CAIRN_ASSIGN_OR_RETURN(const ForeignFile again, ForeignFile::Open(file->path()));
  const auto read = [&](uint64_t offset, uint64_t bytes) { return again.Read(begin + offset, bytes); };
  CAIRN_ASSIGN_OR_RETURN(const TorchFile archive, TorchFile::Open(end - begin, read, what));
  CAIRN_ASSIGN_OR_RETURN(const auto found, archive.Tensor(archive.document().root()));
  const auto pieces =
      found && found->dtype == dtype && found->shape == part.shape ? found->Pieces(kMostPieces) : std::nullopt;
  if (!pieces) {
    return MakeError(Reason::kBadForeignFile,
                     absl::StrCat(what, " is no tensor ", std::string(NameOf(dtype)), ShapeToString(part.shape)),
                     {{"file", file->path()}, {"tensor", name}});
  }
  for (const StridedTensor::Piece& piece : *pieces) {
    Shape offset = piece.box.offset;
    for (size_t d = 0; d < offset.size(); ++d) offset[d] += part.offset[d];
    manifest_.AddPiece(tensor, offset, piece.box.shape, number, begin + piece.offset);
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> Importer::Read(const ForeignFile& metadata, std::string_view digest) && {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Item> items, Items());
  manifest_.AddDigest(digest);
  const uint32_t metadata_number = manifest_.AddFile(metadata);
  for (const Item& item : items) {
    const Entry& entry = *item.entries[0];
    const std::string type = entry.type();
    if (IsTensor(type)) {
      CAIRN_RETURN_IF_ERROR(AddTensor(item));
    } else if (IsPrimitive(type)) {
      manifest_.AddValue(item.name, metadata_number, entry.offset, entry.bytes);
    } else if (type == "object") {
      if (TextOf(Member(entry.json, "serializer")) != "torch_save") {
        return Unsupported("is stored by another way than torch.save", item.name);
      }
      CAIRN_ASSIGN_OR_RETURN(const ForeignFile* const file, Open(Member(entry.json, "location"), item.name));
      manifest_.AddValue(item.name, files_.at(TextOf(Member(entry.json, "location"))).second, 0, file->bytes());
    } else {
      return Unsupported(absl::StrCat("is a '", type, "', which Cairn does not know"), item.name);
    }
  }
  return std::move(manifest_).Finish();
}

}  // namespace

absl::StatusOr<Manifest> ReadTorchsnapshotDirectory(const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const ForeignFile file,
                         ForeignFile::OpenWhole(directory, kTorchsnapshotMetadataName, kMostMetadataBytes));
  CAIRN_ASSIGN_OR_RETURN(const std::string text, file.Read(0, file.bytes()));
  if (!text.starts_with('{')) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat(file.path(), " is no JSON: a version of torchsnapshot before 0.1.0 wrote it"),
                     {{"file", file.path()}, {"next", "Load the snapshot by torchsnapshot 0.1.0, and take it again."}});
  }
  Importer importer(directory, file.path());
  CAIRN_RETURN_IF_ERROR(importer.ReadMetadata(text));
  return std::move(importer).Read(file, Digest(text));
}

}  // namespace cairn
