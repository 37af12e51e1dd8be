#include "import/deepspeed_directory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/file/posix.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "import/deepspeed_files.h"
#include "import/deepspeed_states.h"
#include "import/described_files.h"
#include "import/foreign_file.h"
#include "import/foreign_manifest.h"
#include "import/named_tensors.h"
#include "import/torch_file.h"
#include "import/zero_partition.h"

namespace cairn {
namespace {

constexpr char kLatest[] = "latest";
constexpr char kParameters[] = "zero";  // the directory of a universal checkpoint's parameters
constexpr uint64_t kMostLatestBytes = 4096;

using Entries = std::vector<PosixStorage::Entry>;

// The entries of a directory; none if it is not there.
absl::StatusOr<Entries> List(const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const auto root, PosixStorage::Open("/", false));
  auto entries = root->List(directory.substr(1));
  if (HasReason(entries.status(), Reason::kFileMissing)) return Entries();
  return entries;
}

absl::StatusOr<TorchFile> OpenTorch(const ForeignFile& file) {
  const ReadRange read = [&](uint64_t offset, uint64_t bytes) { return file.Read(offset, bytes); };
  return TorchFile::Open(file.bytes(), read, file.path());
}

std::string StateName(const std::string& key, const std::string& weight) {
  return absl::StrCat("optimizer.", key, ".", weight);
}

class DirectoryReader {
 public:
  DirectoryReader(const std::string& directory, const DeepSpeedFiles& names)
      : directory_(directory), names_(names), manifest_("cairn import deepspeed 1") {}

  absl::StatusOr<Manifest> Read() {
    CAIRN_RETURN_IF_ERROR(ReadFiles());
    for (const std::optional<ForeignFile>& file : files_) manifest_.AddFile(*file);
    if (names_.is_universal) {
      CAIRN_RETURN_IF_ERROR(AddParameters());
    } else {
      CAIRN_RETURN_IF_ERROR(AddPartitioned());
    }
    CAIRN_RETURN_IF_ERROR(AddFrozen());
    CAIRN_RETURN_IF_ERROR(AddRest());
    std::move(tensors_).MoveTo(manifest_);
    return std::move(manifest_).Finish();
  }

 private:
  // Numbers of files: those of the models' states, then of the optimizers', then of the parameters.
  uint32_t OptimizerFile(size_t rank) const { return static_cast<uint32_t>(names_.models.size() + rank); }
  uint32_t ParameterFile(size_t number) const {
    return static_cast<uint32_t>(names_.models.size() + names_.optimizers.size() + number);
  }
  absl::Status Bad(uint32_t file, const std::string& problem) const {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(files_[file]->path(), ": ", problem),
                     {{"file", files_[file]->path()}});
  }
  absl::Status InDirectory(const absl::Status& status) const {
    return status.ok() ? status : Annotate(status, directory_, {{"file", directory_}});
  }

  // Reads what is not tensors' bytes, by several threads.
  absl::Status ReadFiles();
  absl::Status ReadOne(size_t number, const TorchFile& file);

  // Adds what the ranks' optimizers hold: the trained weights, and their states.
  absl::Status AddPartitioned();
  absl::Status CheckOptimizers() const;
  absl::Status AddState(const std::string& key, const ZeroParameter& parameter);
  // Adds a tensor whose fragments lie in flat tensors of the ranks, whose files follow one another from `first_file`
  // on.
  absl::Status AddParts(const std::string& name, const ZeroParameter& parameter, uint32_t first_file,
                        const std::function<const StridedTensor*(const ZeroFragment&)>& tensor_of);
  // Adds the parameters of a universal checkpoint.
  absl::Status AddParameters();
  // Adds the weights that are not trained.
  absl::Status AddFrozen();
  // Adds second names, buffers, and what else of the model has no name yet.
  absl::Status AddRest();

  const std::string& directory_;
  const DeepSpeedFiles& names_;
  std::vector<std::optional<ForeignFile>> files_;
  // The models are by rank, and those of parameters by their names' positions. Nothing stands for a value that is no
  // tensor.
  std::vector<DeepSpeedModel> models_;
  std::vector<DeepSpeedOptimizer> optimizers_;
  std::vector<std::optional<StridedTensor>> parameters_;

  ForeignManifest manifest_;
  NamedTensors tensors_;
};

absl::Status DirectoryReader::ReadFiles() {
  models_.resize(names_.models.size());
  optimizers_.resize(names_.optimizers.size());
  parameters_.resize(names_.parameters.size());
  std::vector<std::string> all = names_.models;
  all.insert(all.end(), names_.optimizers.begin(), names_.optimizers.end());
  all.insert(all.end(), names_.parameters.begin(), names_.parameters.end());
  files_.resize(all.size());
  return ReadEachFile(all.size(), [&](size_t number) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::OpenBelow(directory_, all[number]));
    {
      CAIRN_ASSIGN_OR_RETURN(const TorchFile torch, OpenTorch(file));
      CAIRN_RETURN_IF_ERROR(ReadOne(number, torch));
    }
    file.Close();
    files_[number] = std::move(file);
    return absl::OkStatus();
  });
}

absl::Status DirectoryReader::ReadOne(size_t number, const TorchFile& file) {
  if (number < models_.size()) {
    CAIRN_ASSIGN_OR_RETURN(models_[number], ReadDeepSpeedModel(file));
    return absl::OkStatus();
  }
  number -= models_.size();
  if (number < optimizers_.size()) {
    CAIRN_ASSIGN_OR_RETURN(optimizers_[number], ReadDeepSpeedOptimizer(file));
    return absl::OkStatus();
  }
  // The value is {"param": tensor, ...}, or a tensor or number alone.
  PickleValue value = file.document().root();
  if (const auto parameter = file.document().Find(value, "param"); parameter.has_value()) value = *parameter;
  CAIRN_ASSIGN_OR_RETURN(parameters_[number - optimizers_.size()], file.Tensor(value));
  return absl::OkStatus();
}

absl::Status DirectoryReader::CheckOptimizers() const {
  const DeepSpeedOptimizer& first = optimizers_[0];
  for (size_t rank = 0; rank < optimizers_.size(); ++rank) {
    const DeepSpeedOptimizer& each = optimizers_[rank];
    const uint32_t file = OptimizerFile(rank);
    if (each.by_parameter != first.by_parameter) return Bad(file, "is of another stage of ZeRO than that of rank 0");
    if (each.ranks != 0 && each.ranks != optimizers_.size()) {
      return Bad(file, absl::StrCat("says that it is one of ", each.ranks, ", and there are ", optimizers_.size()));
    }
    for (size_t group = 0; group < each.weights.size(); ++group) {
      if (group < first.weights.size() && each.weights[group].dtype != first.weights[group].dtype) {
        return Bad(file, absl::StrCat("has the weights of group ", group, " in another dtype than that of rank 0"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddPartitioned() {
  CAIRN_RETURN_IF_ERROR(CheckOptimizers());
  const DeepSpeedOptimizer& first = optimizers_[0];
  std::vector<ZeroGroup> groups = models_[0].groups;
  if (groups.empty()) return Bad(0, "lacks 'param_shapes', by which the weights in flat tensors are told apart");
  for (size_t group = 0; group < std::min(groups.size(), first.paddings.size()); ++group) {
    auto& parameters = groups[group].parameters;
    for (size_t i = 0; i < std::min(parameters.size(), first.paddings[group].size()); ++i) {
      parameters[i].padding = first.paddings[group][i];
    }
  }
  ZeroLengths lengths;
  for (const DeepSpeedOptimizer& each : optimizers_) {
    std::vector<int64_t>& row = lengths.emplace_back();
    for (const StridedTensor& flat : each.weights) row.push_back(flat.shape[0]);
  }
  const auto parameters = first.by_parameter ? PartitionParameters(groups, lengths) : PartitionVectors(groups, lengths);
  if (!parameters.ok()) return InDirectory(parameters.status());
  for (const ZeroParameter& parameter : *parameters) {
    CAIRN_RETURN_IF_ERROR(AddParts(parameter.name, parameter, OptimizerFile(0), [&](const ZeroFragment& fragment) {
      return &optimizers_[fragment.rank].weights[fragment.group];
    }));
    if (parameter.fragments.empty()) continue;
    const ZeroFragment& begin = parameter.fragments[0];
    for (const auto& [key, state] : optimizers_[begin.rank].states[begin.group]) {
      CAIRN_RETURN_IF_ERROR(AddState(key, parameter));
    }
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddState(const std::string& key, const ZeroParameter& parameter) {
  const ZeroFragment& begin = parameter.fragments[0];
  const StridedTensor& first = optimizers_[begin.rank].states[begin.group].at(key);
  const std::string name = StateName(key, parameter.name);
  // The optimizer's step, for example, is one number for all of the group.
  if (!first.IsFlat()) return InDirectory(tensors_.AddWhole(name, first, OptimizerFile(begin.rank)));
  return AddParts(name, parameter, OptimizerFile(0), [&](const ZeroFragment& fragment) -> const StridedTensor* {
    const auto& states = optimizers_[fragment.rank].states[fragment.group];
    const auto state = states.find(key);
    return state == states.end() ? nullptr : &state->second;
  });
}

absl::Status DirectoryReader::AddParts(const std::string& name, const ZeroParameter& parameter, uint32_t first_file,
                                       const std::function<const StridedTensor*(const ZeroFragment&)>& tensor_of) {
  const StridedTensor* first = parameter.fragments.empty() ? nullptr : tensor_of(parameter.fragments[0]);
  const DType dtype = first != nullptr ? first->dtype : DType::kFloat32;
  CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.Add(name, dtype, parameter.shape)));
  for (const ZeroFragment& fragment : parameter.fragments) {
    const StridedTensor* flat = tensor_of(fragment);
    if (flat == nullptr || !flat->IsFlat() || flat->dtype != dtype ||
        flat->shape[0] < fragment.begin + fragment.range.size()) {
      return Bad(first_file + fragment.rank, absl::StrCat("lacks elements of '", name, "' that belong to this rank"));
    }
    const auto width = static_cast<uint64_t>(BytesOf(dtype));
    tensors_.AddRange(name, fragment.range, first_file + fragment.rank,
                      flat->offset + static_cast<uint64_t>(fragment.begin) * width);
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddParameters() {
  absl::flat_hash_map<std::string, Shape> shapes;
  if (!models_.empty()) {
    for (const ZeroGroup& group : models_[0].groups) {
      for (const ZeroGroup::Parameter& parameter : group.parameters) shapes[parameter.name] = parameter.shape;
    }
  }
  for (size_t i = 0; i < names_.parameters.size(); ++i) {
    // The path is "zero/WEIGHT/KEY.pt", or "zero/KEY.pt" for all weights.
    const std::string& path = names_.parameters[i];
    const size_t begin = path.find('/') + 1, slash = path.rfind('/');
    const std::string weight = slash < begin ? "" : path.substr(begin, slash - begin);
    const size_t key_begin = std::max(begin, slash + 1);
    const std::string key = path.substr(key_begin, path.size() - key_begin - std::string_view(".pt").size());
    const std::string name = weight.empty() ? key : key == "fp32" ? weight : StateName(key, weight);
    std::optional<StridedTensor>& tensor = parameters_[i];
    if (!tensor) {
      const uint32_t file = ParameterFile(i);
      CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.AddValue(name, file, files_[file]->bytes())));
      continue;
    }
    // Stage 3 leaves them flat.
    const auto shape = shapes.find(weight);
    if (shape != shapes.end() && tensor->IsFlat() && ElementCount(shape->second) == tensor->shape[0]) {
      tensor->shape = shape->second;
      tensor->strides = RowMajorStrides(tensor->shape);
    }
    CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.AddWhole(name, *tensor, ParameterFile(i))));
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddFrozen() {
  if (models_.empty()) return absl::OkStatus();
  for (const auto& [name, whole] : models_[0].frozen) {
    if (tensors_.Has(name)) continue;
    const auto shape = models_[0].frozen_shapes.find(name);
    if (models_.size() == 1 && (shape == models_[0].frozen_shapes.end() || shape->second == whole.shape)) {
      CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.AddWhole(name, whole, 0)));
      continue;
    }
    if (shape == models_[0].frozen_shapes.end()) return Bad(0, absl::StrCat("does not say the shape of '", name, "'"));
    ZeroLengths lengths;
    for (size_t rank = 0; rank < models_.size(); ++rank) {
      const auto part = models_[rank].frozen.find(name);
      if (part == models_[rank].frozen.end() || !part->second.IsFlat()) {
        return Bad(static_cast<uint32_t>(rank), absl::StrCat("lacks its part of '", name, "'"));
      }
      lengths.push_back({part->second.shape[0]});
    }
    if (ElementCount(shape->second) == 0) {
      CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.Add(name, whole.dtype, shape->second)));
      continue;
    }
    const std::vector<ZeroGroup> group = {{{{name, shape->second}}}};
    const auto parameters = PartitionParameters(group, lengths);
    if (!parameters.ok()) return InDirectory(parameters.status());
    CAIRN_RETURN_IF_ERROR(AddParts(name, (*parameters)[0], 0, [&](const ZeroFragment& fragment) {
      return &models_[fragment.rank].frozen.at(name);
    }));
  }
  return absl::OkStatus();
}

absl::Status DirectoryReader::AddRest() {
  if (models_.empty()) return absl::OkStatus();
  const DeepSpeedModel& model = models_[0];
  for (const auto& [name, target] : model.shared) {
    if (!tensors_.Has(target) || tensors_.Has(name)) continue;
    CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.AddAlias(name, target)));
  }
  // Stage 3 writes each rank's states, in which the weights are empty.
  const bool partitioned = model.module.empty() || names_.models[0].find("zero_pp_rank_") != std::string::npos;
  for (const auto& [name, tensor] : model.module) {
    if (tensors_.Has(name) || (partitioned && ElementCount(tensor.shape) == 0)) continue;
    CAIRN_RETURN_IF_ERROR(InDirectory(tensors_.AddWhole(name, tensor, 0)));
  }
  return absl::OkStatus();
}

// Finds the files of a universal checkpoint's parameters.
absl::StatusOr<std::vector<std::string>> FindParameters(const std::string& directory) {
  std::vector<std::string> found;
  CAIRN_ASSIGN_OR_RETURN(const Entries weights, List(absl::StrCat(directory, "/", kParameters)));
  for (const PosixStorage::Entry& weight : weights) {
    const std::string path = absl::StrCat(kParameters, "/", weight.name);
    if (!weight.directory) {
      if (weight.name.ends_with(".pt")) found.push_back(path);
      continue;
    }
    CAIRN_ASSIGN_OR_RETURN(const Entries keys, List(absl::StrCat(directory, "/", path)));
    for (const PosixStorage::Entry& key : keys) {
      if (!key.directory && key.name.ends_with(".pt")) found.push_back(absl::StrCat(path, "/", key.name));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool HoldsDeepSpeed(const Entries& entries) {
  return std::any_of(entries.begin(), entries.end(),
                     [](const PosixStorage::Entry& entry) { return !entry.directory && IsDeepSpeedName(entry.name); });
}

}  // namespace

absl::StatusOr<std::string> FindDeepSpeedCheckpoint(const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const Entries entries, List(directory));
  if (HoldsDeepSpeed(entries)) return directory;
  const auto has = [&](const std::function<bool(const std::string&)>& is_meant) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const PosixStorage::Entry& entry) { return !entry.directory && is_meant(entry.name); });
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
  CAIRN_ASSIGN_OR_RETURN(const Entries inside, List(below));
  return HoldsDeepSpeed(inside) ? below : "";
}

absl::StatusOr<Manifest> ReadDeepSpeedDirectory(const std::string& directory) {
  CAIRN_ASSIGN_OR_RETURN(const Entries entries, List(directory));
  std::vector<std::string> names;
  bool is_universal = false;
  for (const PosixStorage::Entry& entry : entries) {
    if (!entry.directory) names.push_back(entry.name);
    is_universal = is_universal || (entry.directory && entry.name == kParameters);
  }
  CAIRN_ASSIGN_OR_RETURN(DeepSpeedFiles files, DeepSpeedFilesAmong(names, is_universal, directory));
  if (is_universal) {
    CAIRN_ASSIGN_OR_RETURN(files.parameters, FindParameters(directory));
  }
  return DirectoryReader(directory, files).Read();
}

}  // namespace cairn
