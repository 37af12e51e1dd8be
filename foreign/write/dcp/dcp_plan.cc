#include "foreign/write/dcp/dcp_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/write/torch/pickle_writer.h"
#include "foreign/write/torch/torch_archive_writer.h"

namespace cairn {
namespace {

constexpr std::string_view kMetadataModule = "torch.distributed.checkpoint.metadata";
constexpr std::string_view kFileModule = "torch.distributed.checkpoint.filesystem";
// Entries begin at multiples of this, and so do the elements in them.
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kMostValueBytes = (uint64_t{1} << 31) - 1;

// A tensor, or a second name of one.
struct Name {
  std::string name;
  uint32_t tensor = 0;
};

// The place of one entry.
struct Place {
  uint32_t file = 0;
  uint32_t entry = 0;
};

// Calls `visit` with each chunk of a tensor and its first element.
template <typename Visit>
void ForEachChunk(const Shape& shape, uint64_t width, Visit&& visit) {
  const Box whole = WholeBox(shape);
  const auto elements = static_cast<uint64_t>(*ElementCount(shape));
  if (elements * width <= kDcpChunkBytes) return visit(whole, 0);
  // A chunk has one index along the axes before `axis`, several along `axis`, and all along the axes behind it.
  size_t axis = 0;
  uint64_t row = elements;
  while (row /= static_cast<uint64_t>(shape[axis]), row * width > kDcpChunkBytes) ++axis;
  const auto length = static_cast<uint64_t>(shape[axis]);
  const uint64_t most = std::max<uint64_t>(kDcpChunkBytes / (row * width), 1);
  // torch reads each chunk whole. The number of chunks is a power of two, so that up to as many ranks, if a power of
  // two too, read no chunk in common.
  const uint64_t chunks = std::bit_ceil((length + most - 1) / most);
  const auto rows = static_cast<int64_t>((length + chunks - 1) / chunks);
  Box box = whole;
  for (size_t d = 0; d < axis; ++d) box.shape[d] = 1;
  for (int64_t begin = 0; static_cast<uint64_t>(begin) < elements;) {
    box.shape[axis] = std::min(rows, shape[axis] - box.offset[axis]);
    visit(box, begin);
    begin += box.size();
    box.offset[axis] += box.shape[axis];
    for (size_t d = axis; d > 0 && box.offset[d] == shape[d]; --d) {
      box.offset[d] = 0;
      ++box.offset[d - 1];
    }
  }
}

// Writes the pickle of a torch.distributed.checkpoint.metadata.Metadata.
class MetadataWriter {
 public:
  MetadataWriter(const DcpExportPlan& plan, const std::vector<Name>& names, const std::vector<ExportedValue>& values)
      : plan_(plan), names_(names), values_(values), chunks_(plan.tensors.size()), values_at_(values.size()) {
    uint32_t value = 0;
    for (uint32_t f = 0; f < plan.files.size(); ++f) {
      for (uint32_t e = 0; e < plan.files[f].entries.size(); ++e) {
        const DcpExportEntry& entry = plan.files[f].entries[e];
        if (entry.tensor == DcpExportEntry::kNoTensor) {
          values_at_[value++] = {f, e};
        } else {
          chunks_[entry.tensor].push_back({f, e});
        }
      }
    }
  }

  std::string Write() && {
    BeginObject(kMetadataModule, "Metadata");
    pickle_.Text("state_dict_metadata");
    WriteDescriptions();
    pickle_.Text("planner_data");
    WritePaths();
    pickle_.Text("storage_data");
    WritePlaces();
    pickle_.Text("storage_meta");
    pickle_.None();
    pickle_.Text("version");
    pickle_.Text("1.0.0");
    EndObject();
    return std::move(pickle_).Finish();
  }

 private:
  void BeginObject(std::string_view module, std::string_view name) {
    pickle_.Global(module, name);
    pickle_.EmptyTuple();
    pickle_.NewObject();
    pickle_.EmptyDict();
    pickle_.Mark();
  }
  void EndObject() {
    pickle_.SetItems();
    pickle_.Build();
  }
  const DcpExportEntry& At(const Place& place) const { return plan_.files[place.file].entries[place.entry]; }

  void WriteDescriptions();
  void WriteProperties(DType dtype);
  void WritePaths();
  void WritePlaces();
  void WriteInfo(const Place& place);

  const DcpExportPlan& plan_;
  const std::vector<Name>& names_;
  const std::vector<ExportedValue>& values_;
  std::vector<std::vector<Place>> chunks_;  // of each tensor
  std::vector<Place> values_at_;
  PickleWriter pickle_;
};

void MetadataWriter::WriteDescriptions() {
  pickle_.EmptyDict();
  pickle_.Mark();
  for (const Name& name : names_) {
    const WholeTensor& tensor = plan_.tensors[name.tensor];
    pickle_.Text(name.name);
    BeginObject(kMetadataModule, "TensorStorageMetadata");
    pickle_.Text("properties");
    WriteProperties(tensor.plain.dtype);
    pickle_.Text("size");
    pickle_.TorchSize(tensor.plain.shape);
    pickle_.Text("chunks");
    pickle_.EmptyList();
    pickle_.Mark();
    for (const Place& place : chunks_[name.tensor]) {
      BeginObject(kMetadataModule, "ChunkStorageMetadata");
      pickle_.Text("offsets");
      pickle_.TorchSize(At(place).box.offset);
      pickle_.Text("sizes");
      pickle_.TorchSize(At(place).box.shape);
      EndObject();
    }
    pickle_.AppendItems();
    EndObject();
  }
  for (const ExportedValue& value : values_) {
    pickle_.Text(value.name);
    pickle_.Global(kMetadataModule, "BytesStorageMetadata");
    pickle_.EmptyTuple();
    pickle_.NewObject();
  }
  pickle_.SetItems();
}

// The pickled state of TensorProperties is a tuple of dtype, layout, requires_grad, memory format and pin_memory.
void MetadataWriter::WriteProperties(DType dtype) {
  const auto call = [this](std::string_view module, std::string_view name, const auto& argument) {
    pickle_.Global(module, name);
    pickle_.Mark();
    argument();
    pickle_.Tuple();
    pickle_.Reduce();
  };
  pickle_.Global(kMetadataModule, "TensorProperties");
  pickle_.EmptyTuple();
  pickle_.NewObject();
  pickle_.Mark();
  pickle_.Global("torch", NameOf(dtype));
  call("torch.serialization", "_get_layout", [this] { pickle_.Text("torch.strided"); });
  pickle_.Bool(false);
  call(kMetadataModule, "_MEM_FORMAT_ENCODING", [this] { pickle_.Int(0); });
  pickle_.Bool(false);
  pickle_.Tuple();
  pickle_.Build();
}

// Writes the keys from which PyTorch rebuilds a nested dict. A checkpoint does not say at which dots its names were
// joined.
void MetadataWriter::WritePaths() {
  pickle_.EmptyDict();
  pickle_.Mark();
  for (const Name& name : names_) {
    pickle_.Text(name.name);
    pickle_.Mark();
    pickle_.Text(name.name);
    pickle_.Tuple();
  }
  for (const ExportedValue& value : values_) {
    pickle_.Text(value.name);
    pickle_.Mark();
    for (const ObjectValue& key : value.path) {
      if (int64_t number = 0; key.kind == ObjectValue::Kind::kInt && absl::SimpleAtoi(key.text, &number)) {
        pickle_.Int(number);
      } else {
        pickle_.Text(key.text);
      }
    }
    pickle_.Tuple();
  }
  pickle_.SetItems();
}

void MetadataWriter::WritePlaces() {
  pickle_.EmptyDict();
  pickle_.Mark();
  for (const Name& name : names_) {
    for (size_t c = 0; c < chunks_[name.tensor].size(); ++c) {
      const Place& place = chunks_[name.tensor][c];
      BeginObject(kMetadataModule, "MetadataIndex");
      pickle_.Text("fqn");
      pickle_.Text(name.name);
      pickle_.Text("offset");
      pickle_.TorchSize(At(place).box.offset);
      pickle_.Text("index");
      pickle_.Int(static_cast<int64_t>(c));
      EndObject();
      WriteInfo(place);
    }
  }
  for (size_t v = 0; v < values_.size(); ++v) {
    BeginObject(kMetadataModule, "MetadataIndex");
    pickle_.Text("fqn");
    pickle_.Text(values_[v].name);
    pickle_.Text("index");
    pickle_.None();
    EndObject();
    WriteInfo(values_at_[v]);
  }
  pickle_.SetItems();
}

void MetadataWriter::WriteInfo(const Place& place) {
  BeginObject(kFileModule, "_StorageInfo");
  pickle_.Text("relative_path");
  pickle_.Text(plan_.files[place.file].name);
  pickle_.Text("offset");
  pickle_.Int(static_cast<int64_t>(At(place).offset));
  pickle_.Text("length");
  pickle_.Int(static_cast<int64_t>(At(place).bytes));
  EndObject();
}

// Appends an entry to the last file, or to a new one if that is full.
void AddEntry(DcpExportEntry entry, uint64_t most, DcpExportPlan& plan) {
  if (plan.files.empty() || (plan.files.back().bytes > 0 && plan.files.back().bytes + entry.bytes > most)) {
    const std::string name = absl::StrCat("__", plan.files.size(), "_0.distcp");
    plan.files.emplace_back().name = name;
  }
  DcpExportFile& file = plan.files.back();
  entry.offset = (file.bytes + kAlignment - 1) / kAlignment * kAlignment;
  file.bytes = entry.offset + entry.bytes;
  file.entries.push_back(std::move(entry));
}

absl::StatusOr<std::vector<Name>> NamesOf(const Manifest& manifest, const ExportOptions& options,
                                          const std::vector<WholeTensor>& tensors,
                                          const std::vector<ExportedValue>& values) {
  std::vector<Name> names;
  for (uint32_t i = 0; i < tensors.size(); ++i) names.push_back({tensors[i].plain.name, i});
  for (const auto& [name, target] : ChooseAliases(manifest, options.choice)) {
    const auto found = std::lower_bound(tensors.begin(), tensors.end(), target,
                                        [](const auto& tensor, const auto& text) { return tensor.plain.name < text; });
    if (found != tensors.end() && found->plain.name == target) {
      names.push_back({name, static_cast<uint32_t>(found - tensors.begin())});
    }
  }
  absl::flat_hash_set<std::string_view> taken;
  const auto check = [&](const std::string& name) {
    if (taken.insert(name).second) return absl::OkStatus();
    return MakeError(Reason::kNameCollision, absl::StrCat("two tensors or values would have the name '", name, "'"),
                     {{"names", name}, {"next", "Leave one of them out by --exclude."}});
  };
  for (const Name& name : names) CAIRN_RETURN_IF_ERROR(check(name.name));
  for (const ExportedValue& value : values) CAIRN_RETURN_IF_ERROR(check(value.name));
  return names;
}

}  // namespace

absl::StatusOr<DcpExportPlan> MakeDcpExportPlan(const Manifest& manifest, const ExportOptions& options,
                                                const std::vector<ExportedValue>& values) {
  DcpExportPlan plan;
  CAIRN_ASSIGN_OR_RETURN(plan.tensors, ChooseTensors(manifest, options.choice));
  if (plan.tensors.empty() && values.empty()) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("nothing to export: none of the ", manifest.tensors.size(), " tensors is left"),
                     {{"next", "Look at --include, --exclude and the mapping: they leave out every name."}});
  }
  std::sort(plan.tensors.begin(), plan.tensors.end(),
            [](const WholeTensor& a, const WholeTensor& b) { return a.plain.name < b.plain.name; });
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Name> names, NamesOf(manifest, options, plan.tensors, values));
  for (size_t i = plan.tensors.size(); i < names.size(); ++i) {
    plan.second_names.emplace_back(names[i].name, names[i].tensor);
  }
  plan.values = values.size();
  for (const ExportedValue& value : values) {
    DcpExportEntry entry;
    entry.value = TorchArchiveOf(value.value);
    entry.bytes = entry.value.size();
    if (entry.bytes > kMostValueBytes) {
      return MakeError(Reason::kUnsupported,
                       absl::StrCat("'", value.name, "' takes ", entry.bytes, " bytes, too many for a value"),
                       {{"object", value.name}, {"next", "Leave it out by --exclude."}});
    }
    AddEntry(std::move(entry), options.max_shard_bytes, plan);
  }
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const PlainTensor& tensor = plan.tensors[t].plain;
    const auto width = static_cast<uint64_t>(BytesOf(tensor.dtype));
    ForEachChunk(tensor.shape, width, [&](const Box& box, int64_t begin) {
      DcpExportEntry entry;
      entry.tensor = t;
      entry.box = box;
      entry.begin = begin;
      entry.bytes = TorchTensorArchive(tensor.dtype, box.shape).bytes();
      plan.total_bytes += static_cast<uint64_t>(box.size()) * width;
      AddEntry(std::move(entry), options.max_shard_bytes, plan);
    });
  }
  plan.metadata = MetadataWriter(plan, names, values).Write();
  return plan;
}

}  // namespace cairn
