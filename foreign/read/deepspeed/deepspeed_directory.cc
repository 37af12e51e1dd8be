#include "foreign/read/deepspeed/deepspeed_directory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/deepspeed/deepspeed_files.h"
#include "foreign/read/deepspeed/deepspeed_parts.h"
#include "foreign/read/deepspeed/deepspeed_slices.h"
#include "foreign/read/deepspeed/deepspeed_states.h"
#include "foreign/read/deepspeed/parallel_rules.h"
#include "foreign/read/deepspeed/universal_parameters.h"
#include "foreign/read/deepspeed/zero_partition.h"
#include "foreign/read/source/described_files.h"
#include "foreign/read/source/foreign_file.h"
#include "foreign/read/source/foreign_manifest.h"
#include "foreign/read/source/named_tensors.h"

namespace cairn {
namespace {

constexpr char kLatest[] = "latest";
constexpr char kParameters[] = "zero";                      // the directory of a universal checkpoint's parameters
constexpr std::string_view kTiedModules = "tied_modules.";  // the prefix of names of shared weights in a pipeline
constexpr uint64_t kMostLatestBytes = 4096;
constexpr size_t kMostPieces = size_t{1} << 18;             // of one tensor
constexpr uint64_t kCompareBytes = uint64_t{1} << 20;       // at once
constexpr uint64_t kMostComparedBytes = uint64_t{1} << 30;  // of the buffers of a checkpoint
constexpr char kConvert[] =
    "Make a universal checkpoint of it (python -m deepspeed.checkpoint.ds_to_universal), and import that.";

using Entries = std::vector<ForeignEntry>;

// Returns the entries of a directory; none if it does not exist. A link to a directory counts as a directory, so that
// no file is left out; opening a file checks where the link leads.
absl::StatusOr<Entries> List(const std::string& directory) {
  const absl::StatusOr<std::string> real = ResolvePath(directory);
  auto entries = real.ok() ? ListForeign(*real) : real.status();
  if (HasReason(entries.status(), Reason::kFileMissing)) return Entries();
  return entries;
}

std::string StateName(const std::string& key, const std::string& weight) {
  return absl::StrCat("optimizer.", key, ".", weight);
}

class DirectoryReader {
 public:
  // Both must outlive it.
  DirectoryReader(const DeepSpeedFiles& names, const DeepSpeedParts& read)
      : names_(names), read_(read), manifest_("cairn import deepspeed 1") {}

  absl::StatusOr<Manifest> Read() {
    for (const std::optional<ForeignFile>& file : read_.files) manifest_.AddFile(*file);
    if (names_.is_universal) {
      CAIRN_RETURN_IF_ERROR(AddParameters());
    } else {
      CAIRN_RETURN_IF_ERROR(AddTrained());
    }
    CAIRN_RETURN_IF_ERROR(AddFrozen());
    CAIRN_RETURN_IF_ERROR(AddRest());
    CAIRN_RETURN_IF_ERROR(AddLayers());
    std::move(tensors_).MoveTo(manifest_);
    return std::move(manifest_).Finish();
  }

 private:
  // The tensor that one slice has under a name.
  struct Copy {
    StridedTensor tensor;
    uint32_t file = 0;
  };

  absl::Status Bad(uint32_t file, const std::string& problem) const {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(read_.files[file]->path(), ": ", problem),
                     {{"file", read_.files[file]->path()}});
  }
  absl::Status InDirectory(const absl::Status& status) const { return read_.InDirectory(status); }
  const DeepSpeedPart& Part(size_t stage, size_t slice) const { return read_.Part(stage, slice); }
  absl::StatusOr<MergedShape> MergeParameter(const std::string& name,
                                             std::span<const StoredSlice* const> slices) const {
    return read_.MergeParameter(name, slices);
  }

  // Adds the trained weights and their states, from the optimizers of all parts.
  absl::Status AddTrained();
  absl::Status AddTrainedOfStage(size_t stage);
  // Adds a tensor whose slices make up `merged`.
  absl::Status AddMerged(const std::string& name, const MergedShape& merged,
                         std::span<const StoredSlice* const> slices);
  // Adds the parameters of a universal checkpoint.
  absl::Status AddParameters();
  absl::Status AddFrozen();
  // Adds second names, buffers, and all other tensors of the model that were not added yet.
  absl::Status AddRest();
  // Adds the same from the files of a pipeline's layers.
  absl::Status AddLayers();
  // Adds a tensor of which each slice has a copy or a part. Buffers must be equal in all slices; else the checkpoint is
  // refused.
  absl::Status AddCopies(const std::string& name, const std::vector<Copy>& copies, bool is_buffer);
  absl::StatusOr<bool> AreEqual(const StoredSlice& a, const StoredSlice& b);

  const DeepSpeedFiles& names_;
  const DeepSpeedParts& read_;
  uint64_t compared_bytes_ = 0;

  ForeignManifest manifest_;
  NamedTensors tensors_;
};

absl::Status DirectoryReader::AddTrained() {
  for (size_t stage = 0; stage < read_.stages(); ++stage) CAIRN_RETURN_IF_ERROR(AddTrainedOfStage(stage));
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddTrainedOfStage(size_t stage) {
  std::vector<std::map<std::string, TrainedSlice>> parts;
  for (size_t slice = 0; slice < read_.slices; ++slice) {
    CAIRN_ASSIGN_OR_RETURN(auto trained, TrainedSlices(Part(stage, slice), read_.directory));
    if (slice > 0 && trained.size() != parts[0].size()) {
      return Bad(Part(stage, slice).models[0].file, "has other weights than the file of the first slice");
    }
    parts.push_back(std::move(trained));
  }
  for (const auto& [name, first] : parts[0]) {
    std::vector<const TrainedSlice*> trained;
    std::vector<const StoredSlice*> slices;
    for (size_t slice = 0; slice < read_.slices; ++slice) {
      const auto found = parts[slice].find(name);
      if (found == parts[slice].end()) {
        return Bad(Part(stage, slice).models[0].file, absl::StrCat("lacks '", name, "', which the first slice has"));
      }
      trained.push_back(&found->second);
      slices.push_back(&found->second.weight);
    }
    if (tensors_.Has(name)) {
      // Stages that share a weight keep copies of it, which DeepSpeed keeps equal.
      if (name.starts_with(kTiedModules) || (read_.rules && read_.rules->IsPipelineReplicated(name))) continue;
      return Bad(Part(stage, 0).models[0].file, absl::StrCat("has '", name, "', and so has an earlier stage"));
    }
    const auto merged = MergeParameter(name, slices);
    if (!merged.ok()) return InDirectory(merged.status());
    CAIRN_RETURN_IF_ERROR(AddMerged(name, *merged, slices));
    for (const auto& [key, number] : first.numbers) {
      CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.AddWhole(StateName(key, name), number.tensor, number.file)));
    }
    for (const auto& [key, state] : first.states) {
      for (size_t slice = 0; slice < read_.slices; ++slice) {
        const auto found = trained[slice]->states.find(key);
        if (found == trained[slice]->states.end()) {
          return Bad(Part(stage, slice).optimizers[0].file, absl::StrCat("lacks '", key, "' of '", name, "'"));
        }
        slices[slice] = &found->second;
      }
      CAIRN_RETURN_IF_ERROR(AddMerged(StateName(key, name), *merged, slices));
    }
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddMerged(const std::string& name, const MergedShape& merged,
                                        std::span<const StoredSlice* const> slices) {
  const DType dtype = slices[0]->dtype;
  CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.Add(name, dtype, merged.shape)));
  const auto width = static_cast<uint64_t>(BytesOf(dtype));
  std::vector<BoxAt> boxes;
  size_t count = 0;
  for (size_t slice = 0; slice < slices.size(); ++slice) {
    for (const StoredSlice::Piece& piece : slices[slice]->pieces) {
      if (slices[slice]->dtype != dtype) {
        return Bad(piece.file, absl::StrCat("has '", name, "' in another dtype than the first slice"));
      }
      boxes.clear();
      if (!AppendMerged(merged, static_cast<uint32_t>(slice), {piece.box, 0}, kMostPieces - count, boxes)) {
        return InDirectory(MakeError(
            Reason::kUnsupported,
            absl::StrCat("'", name, "' lies in more than ", kMostPieces, " pieces, which would take too many reads"),
            {{"tensor", name}, {"next", kConvert}}));
      }
      count += boxes.size();
      for (BoxAt& each : boxes) {
        tensors_.AddBox(name, std::move(each.box), piece.file,
                        piece.offset + static_cast<uint64_t>(each.offset) * width);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddParameters() {
  CAIRN_RETURN_IF_ERROR(CheckUniversalParameters(names_, read_));
  absl::flat_hash_map<std::string, Shape> shapes;
  for (const DeepSpeedPart& part : read_.parts) {
    for (const ZeroGroup& group : part.models[0].content.groups) {
      for (const ZeroGroup::Parameter& parameter : group.parameters) shapes[parameter.name] = parameter.shape;
    }
  }
  for (size_t i = 0; i < names_.parameters.size(); ++i) {
    const auto [weight, key] = ParseUniversalPath(names_.parameters[i]);
    const std::string name = weight.empty() ? key : key == "fp32" ? weight : StateName(key, weight);
    std::optional<StridedTensor> tensor = read_.parameters[i];
    const uint32_t file = read_.first_parameter + static_cast<uint32_t>(i);
    if (!tensor) {
      CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.AddValue(name, file, read_.files[file]->bytes())));
      continue;
    }
    // Stage 3 stores them flat.
    const auto shape = shapes.find(weight);
    if (shape == shapes.end() && read_.slices > 1 && read_.parts[0].models[0].content.module.contains(weight)) {
      // If the weight is not trained, DeepSpeed writes only one slice here. The models' files have all slices.
      continue;
    }
    if (read_.parts.size() == 1 && shape != shapes.end() && tensor->IsFlat() &&
        ElementCount(shape->second) == tensor->shape[0]) {
      tensor->shape = shape->second;
      tensor->strides = RowMajorStrides(tensor->shape);
    }
    CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.AddWhole(name, *tensor, file)));
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddFrozen() {
  for (size_t stage = 0; stage < read_.stages(); ++stage) {
    std::vector<std::map<std::string, StoredSlice>> parts;
    for (size_t slice = 0; slice < read_.slices; ++slice) {
      CAIRN_ASSIGN_OR_RETURN(auto frozen, FrozenSlices(Part(stage, slice), read_.directory));
      parts.push_back(std::move(frozen));
    }
    for (const auto& [name, first] : parts[0]) {
      if (tensors_.Has(name)) continue;
      std::vector<const StoredSlice*> slices;
      for (size_t slice = 0; slice < read_.slices; ++slice) {
        const auto found = parts[slice].find(name);
        if (found == parts[slice].end()) {
          return Bad(Part(stage, slice).models[0].file, absl::StrCat("lacks '", name, "', which the first slice has"));
        }
        slices.push_back(&found->second);
      }
      const auto merged = MergeParameter(name, slices);
      if (!merged.ok()) return InDirectory(merged.status());
      CAIRN_RETURN_IF_ERROR(AddMerged(name, *merged, slices));
    }
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddRest() {
  if (read_.parts.empty()) return absl::OkStatus();
  for (const auto& [name, target] : read_.parts[0].models[0].content.shared) {
    if (!tensors_.Has(target) || tensors_.Has(name)) continue;
    CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.AddAlias(name, target)));
  }
  for (size_t stage = 0; stage < read_.stages(); ++stage) {
    const DeepSpeedRead<DeepSpeedModel>& first = Part(stage, 0).models[0];
    // Stage 3 writes one file for each rank, in which the weights are empty.
    const bool partitioned =
        first.content.module.empty() || read_.file_names[first.file].find("zero_pp_rank_") != std::string::npos;
    for (const auto& [name, tensor] : first.content.module) {
      if (tensors_.Has(name) || (partitioned && ElementCount(tensor.shape) == 0)) continue;
      std::vector<Copy> copies;
      for (size_t slice = 0; slice < read_.slices; ++slice) {
        const DeepSpeedRead<DeepSpeedModel>& model = Part(stage, slice).models[0];
        const auto found = model.content.module.find(name);
        if (found == model.content.module.end()) {
          return Bad(model.file, absl::StrCat("lacks '", name, "', which the first slice has"));
        }
        copies.push_back({found->second, model.file});
      }
      CAIRN_RETURN_IF_ERROR(AddCopies(name, copies, first.content.buffers.contains(name)));
    }
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddLayers() {
  std::set<std::string> buffers, ties;
  for (const DeepSpeedPart& part : read_.parts) {
    buffers.insert(part.models[0].content.buffers.begin(), part.models[0].content.buffers.end());
    for (const ZeroGroup& group : part.models[0].content.groups) {
      for (const ZeroGroup::Parameter& each : group.parameters) {
        if (!each.name.starts_with(kTiedModules)) continue;
        const size_t dot = each.name.find('.', kTiedModules.size());
        if (dot != std::string::npos) ties.insert(each.name.substr(0, dot + 1));
      }
    }
  }
  for (size_t begin = 0; begin < read_.layers.size(); begin += read_.slices) {
    const DeepSpeedFiles::Layer& layer = names_.layers[begin];
    for (size_t slice = 0; slice < read_.slices; ++slice) {
      if (begin + slice < read_.layers.size() && names_.layers[begin + slice].index == layer.index &&
          names_.layers[begin + slice].slice == slice) {
        continue;
      }
      return InDirectory(MakeError(Reason::kFileMissing, absl::StrCat("there is no slice ", slice, " of layer ",
                                                                      layer.index, " beside ", layer.name)));
    }
    // Tensors of a layer get the layer's number as a prefix. A layer with shared weights has the name under which they
    // are shared instead.
    const DeepSpeedLayer& first = read_.layers[begin].content;
    std::string prefix = absl::StrCat(layer.index, ".");
    const auto knows = [&](const std::string& path) {
      return std::any_of(first.begin(), first.end(),
                         [&](const auto& entry) { return tensors_.Has(path + entry.first); });
    };
    if (!knows(prefix)) {
      const auto tie = std::find_if(ties.begin(), ties.end(), knows);
      if (tie != ties.end()) prefix = *tie;
    }
    for (const auto& [local, tensor] : first) {
      const std::string name = prefix + local;
      if (tensors_.Has(name)) continue;
      std::vector<Copy> copies;
      for (size_t slice = 0; slice < read_.slices; ++slice) {
        const auto& each = read_.layers[begin + slice];
        const auto found = each.content.find(local);
        if (found == each.content.end()) {
          return Bad(each.file, absl::StrCat("lacks '", local, "', which the first slice has"));
        }
        copies.push_back({found->second, each.file});
      }
      CAIRN_RETURN_IF_ERROR(AddCopies(name, copies, buffers.contains(name)));
    }
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddCopies(const std::string& name, const std::vector<Copy>& copies, bool is_buffer) {
  if (copies.size() == 1 && (is_buffer || !read_.rules)) {
    return InDirectory(tensors_.AddWhole(name, copies[0].tensor, copies[0].file));
  }
  std::vector<StoredSlice> slices;
  std::vector<const StoredSlice*> pointers;
  for (const Copy& copy : copies) {
    auto slice = WholeSlice(name, copy.tensor, copy.file);
    if (!slice.ok()) return InDirectory(slice.status());
    slices.push_back(*std::move(slice));
  }
  pointers.reserve(slices.size());
  for (const StoredSlice& slice : slices) pointers.push_back(&slice);
  if (!is_buffer) {
    const auto merged = MergeParameter(name, pointers);
    if (!merged.ok()) return InDirectory(merged.status());
    return AddMerged(name, *merged, pointers);
  }
  for (size_t slice = 1; slice < slices.size(); ++slice) {
    CAIRN_ASSIGN_OR_RETURN(const bool equal, AreEqual(slices[0], slices[slice]));
    if (!equal) {
      return InDirectory(MakeError(Reason::kUnsupported,
                                   absl::StrCat("the buffer '", name, "' differs between slices 0 and ", slice,
                                                " of the model, and the files do not say how to join them"),
                                   {{"tensor", name}, {"next", kConvert}}));
    }
  }
  return InDirectory(tensors_.AddWhole(name, copies[0].tensor, copies[0].file));
}

absl::StatusOr<bool> DirectoryReader::AreEqual(const StoredSlice& a, const StoredSlice& b) {
  if (a.dtype != b.dtype || a.shape != b.shape || a.pieces.size() != b.pieces.size()) return false;
  const auto width = static_cast<uint64_t>(BytesOf(a.dtype));
  for (size_t i = 0; i < a.pieces.size(); ++i) {
    const StoredSlice::Piece &one = a.pieces[i], &other = b.pieces[i];
    if (one.box != other.box) return false;
    CAIRN_ASSIGN_OR_RETURN(const ForeignFile one_file,
                           ForeignFile::OpenBelow(read_.directory, read_.file_names[one.file]));
    CAIRN_ASSIGN_OR_RETURN(const ForeignFile other_file,
                           ForeignFile::OpenBelow(read_.directory, read_.file_names[other.file]));
    const uint64_t bytes = static_cast<uint64_t>(one.box.size()) * width;
    compared_bytes_ += bytes;
    if (compared_bytes_ > kMostComparedBytes) {
      return MakeError(
          Reason::kUnsupported,
          absl::StrCat(read_.directory, " has more than ", kMostComparedBytes, " bytes of buffers to compare"),
          {{"file", read_.directory}, {"next", kConvert}});
    }
    for (uint64_t done = 0; done < bytes;) {
      const uint64_t count = std::min(bytes - done, kCompareBytes);
      CAIRN_ASSIGN_OR_RETURN(const std::string ours, one_file.Read(one.offset + done, count));
      CAIRN_ASSIGN_OR_RETURN(const std::string theirs, other_file.Read(other.offset + done, count));
      if (ours != theirs) return false;
      done += count;
    }
  }
  return true;
}

absl::StatusOr<std::vector<std::string>> FindParameters(const std::string& directory) {
  std::vector<std::string> found;
  CAIRN_ASSIGN_OR_RETURN(const Entries weights, List(absl::StrCat(directory, "/", kParameters)));
  for (const ForeignEntry& weight : weights) {
    const std::string path = absl::StrCat(kParameters, "/", weight.name);
    if (!weight.directory) {
      if (weight.name.ends_with(".pt")) found.push_back(path);
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(const Entries keys, List(absl::StrCat(directory, "/", path)));
    for (const ForeignEntry& key : keys) {
      if (!key.directory && key.name.ends_with(".pt")) found.push_back(absl::StrCat(path, "/", key.name));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool HoldsDeepSpeed(const Entries& entries) {
  return std::any_of(entries.begin(), entries.end(),
                     [](const ForeignEntry& entry) { return !entry.directory && IsDeepSpeedName(entry.name); });
}

}  // namespace

absl::StatusOr<std::string> FindDeepSpeedCheckpoint(const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const Entries entries, List(directory));
  if (HoldsDeepSpeed(entries)) return directory;
  const auto has = [&](const std::function<bool(const std::string&)>& is_meant) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const ForeignEntry& entry) { return !entry.directory && is_meant(entry.name); });
  };
  if (!has([](const std::string& name) { return name == kLatest; }) ||
      has([](const std::string& name) { return name.ends_with(".safetensors"); })) {
    return "";
  }
  CAIRN_ASSIGN_OR_RETURN(const ForeignFile file, ForeignFile::OpenBelow(directory, kLatest));
  if (file.bytes() > kMostLatestBytes) return "";
  CAIRN_ASSIGN_OR_RETURN(std::string tag, file.Read(0, file.bytes()));
  while (!tag.empty() && (tag.back() == '\n' || tag.back() == ' ')) tag.pop_back();
  const auto escapes = [&](std::string_view how) {
    return MakeError(
        Reason::kPathEscape, absl::StrCat(file.path(), " names '", tag, "', ", std::string(how)),
        {{"file", file.path()}, {"next", "Correct that file, or give the directory of the checkpoint itself."}});
  };
  if (!IsPathBelow(tag)) return escapes("no path below the directory");
  CAIRN_ASSIGN_OR_RETURN(std::string below, ResolvePath(absl::StrCat(directory, "/", tag)));
  if (!below.starts_with(directory + "/")) return escapes("a link out of the directory");
  CAIRN_RETURN_IF_ERROR(KindOf(below).status());
  CAIRN_ASSIGN_OR_RETURN(const Entries inside, List(below));
  return HoldsDeepSpeed(inside) ? below : "";
}

absl::StatusOr<Manifest> ReadDeepSpeedDirectory(const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const Entries entries, List(directory));
  std::vector<std::string> names;
  bool is_universal = false;
  for (const ForeignEntry& entry : entries) {
    if (!entry.directory) names.push_back(entry.name);
    is_universal = is_universal || (entry.directory && entry.name == kParameters);
  }
  CAIRN_ASSIGN_OR_RETURN(DeepSpeedFiles files, DeepSpeedFilesAmong(names, is_universal, directory));
  if (is_universal) {
    CAIRN_ASSIGN_OR_RETURN(files.parameters, FindParameters(directory));
  }
  CAIRN_ASSIGN_OR_RETURN(const DeepSpeedParts read, DeepSpeedParts::Read(directory, files));
  return DirectoryReader(files, read).Read();
}

}  // namespace cairn
