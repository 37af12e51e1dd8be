#include "foreign/read/deepspeed/deepspeed_parts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/dtype.h"
#include "foreign/read/deepspeed/deepspeed_ranks.h"
#include "foreign/read/source/described_files.h"
#include "foreign/read/torch/torch_file.h"

namespace cairn {
namespace {

constexpr char kSayPatterns[] =
    "Save it with 'universal_checkpoint_info' in the client state, as Megatron-DeepSpeed does: its patterns say along "
    "which dimension each weight is cut.";
constexpr char kConvert[] =
    "Make a universal checkpoint of it (python -m deepspeed.checkpoint.ds_to_universal), and import that.";

absl::StatusOr<TorchFile> OpenTorch(const ForeignFile& file) {
  const ReadRange read = [&](uint64_t offset, uint64_t bytes) { return file.Read(offset, bytes); };
  return TorchFile::Open(file.bytes(), read, file.path());
}

template <typename Number>
double NumberIn(const std::string& bytes) {
  Number number{};
  std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof number));
  return static_cast<double>(number);
}

// Reads the number of steps of each group, if it is a tensor of one element.
absl::Status ReadSteps(const ForeignFile& file, DeepSpeedOptimizer& optimizer) {
  for (size_t group = 0; group < optimizer.states.size(); ++group) {
    const auto step = optimizer.states[group].find("step");
    if (step == optimizer.states[group].end() || !step->second.shape.empty()) continue;
    const DType dtype = step->second.dtype;
    CAIRN_ASSIGN_OR_RETURN(const std::string bytes,
                           file.Read(step->second.offset, static_cast<uint64_t>(BytesOf(dtype))));
    if (dtype == DType::kFloat32) optimizer.steps[group] = NumberIn<float>(bytes);
    if (dtype == DType::kFloat64) optimizer.steps[group] = NumberIn<double>(bytes);
    if (dtype == DType::kInt64) optimizer.steps[group] = NumberIn<int64_t>(bytes);
    if (dtype == DType::kInt32) optimizer.steps[group] = NumberIn<int32_t>(bytes);
  }
  return absl::OkStatus();
}

absl::Status Bad(const std::string& path, const std::string& problem) {
  return MakeError(Reason::kBadForeignFile, absl::StrCat(path, ": ", problem), {{"file", path}});
}

}  // namespace

absl::StatusOr<DeepSpeedParts> DeepSpeedParts::Read(const std::string& directory, const DeepSpeedFiles& names) {
  DeepSpeedParts read;
  read.directory = directory;
  // The function that reads one kind of file.
  using FileReader = std::function<absl::Status(const ForeignFile&, const TorchFile&)>;
  std::vector<FileReader> readers;
  const auto add = [&](const std::string& name, FileReader reader) {
    readers.push_back(std::move(reader));
    read.file_names.push_back(name);
    return static_cast<uint32_t>(read.file_names.size() - 1);
  };
  const auto into = [&](auto& one, const std::string& name, auto parse) {
    one.path = absl::StrCat(directory, "/", name);
    one.file = add(name, [&one, parse](const ForeignFile& file, const TorchFile& torch) -> absl::Status {
      CAIRN_ASSIGN_OR_RETURN(one.content, parse(torch));
      if constexpr (std::is_same_v<decltype(one.content), DeepSpeedOptimizer>) {
        CAIRN_RETURN_IF_ERROR(ReadSteps(file, one.content));
      }
      return absl::OkStatus();
    });
  };
  read.parts.resize(names.parts.size());
  for (size_t i = 0; i < read.parts.size(); ++i) {
    const DeepSpeedFiles::Part& part = names.parts[i];
    read.parts[i].models.resize(part.models.size());
    read.parts[i].optimizers.resize(part.optimizers.size());
    for (size_t rank = 0; rank < part.models.size(); ++rank) {
      into(read.parts[i].models[rank], part.models[rank], ReadDeepSpeedModel);
    }
    for (size_t rank = 0; rank < part.optimizers.size(); ++rank) {
      into(read.parts[i].optimizers[rank], part.optimizers[rank], ReadDeepSpeedOptimizer);
    }
  }
  read.layers.resize(names.layers.size());
  for (size_t i = 0; i < read.layers.size(); ++i) into(read.layers[i], names.layers[i].name, ReadDeepSpeedLayer);
  read.parameters.resize(names.parameters.size());
  read.first_parameter = static_cast<uint32_t>(read.file_names.size());
  for (size_t i = 0; i < read.parameters.size(); ++i) {
    add(names.parameters[i], [&read, i](const ForeignFile&, const TorchFile& file) -> absl::Status {
      // The value is {"param": tensor, ...}, or a tensor or number alone.
      PickleValue value = file.document().root();
      if (const auto parameter = file.document().Find(value, "param"); parameter.has_value()) value = *parameter;
      CAIRN_ASSIGN_OR_RETURN(read.parameters[i], file.Tensor(value));
      return absl::OkStatus();
    });
  }
  read.files.resize(readers.size());
  const absl::Status status = ReadEachFile(readers.size(), [&](size_t number) -> absl::Status {
    CAIRN_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::OpenBelow(directory, read.file_names[number]));
    {
      CAIRN_ASSIGN_OR_RETURN(const TorchFile torch, OpenTorch(file));
      CAIRN_RETURN_IF_ERROR(readers[number](file, torch));
    }
    file.Close();
    read.files[number] = std::move(file);
    return absl::OkStatus();
  });
  CAIRN_RETURN_IF_ERROR(status);
  CAIRN_RETURN_IF_ERROR(read.LearnParallelism(names));
  CAIRN_RETURN_IF_ERROR(CheckRanks(read.parts, read.slices));
  if (!names.is_universal) CAIRN_RETURN_IF_ERROR(read.CheckLayers(names));
  return read;
}

absl::Status DeepSpeedParts::InDirectory(const absl::Status& status) const {
  return status.ok() ? status : Annotate(status, directory, {{"file", directory}});
}

absl::Status DeepSpeedParts::LearnParallelism(const DeepSpeedFiles& names) {
  if (parts.empty()) return absl::OkStatus();
  DeepSpeedModel& first = parts[0].models[0].content;
  for (const DeepSpeedPart& part : parts) {
    for (const auto& model : part.models) {
      if (model.content.stages != first.stages || model.content.slices != first.slices) {
        return Bad(model.path, "says another number of parts of the model than the file of part 0");
      }
      if (model.content.has_experts && !names.is_universal) {
        return MakeError(Reason::kUnsupported, absl::StrCat(model.path, " is of a model with experts"),
                         {{"file", model.path}, {"next", kConvert}});
      }
    }
  }
  if (first.stages != 0 && first.slices != 0) {
    slices = first.slices;
    if (first.stages > parts.size() || first.stages * first.slices != parts.size()) {
      return Bad(parts[0].models[0].path,
                 absl::StrCat("is one of ", first.stages, " stages and ", first.slices,
                              " slices of a model, and there are files of ", parts.size(), " parts"));
    }
  } else if (first.parts > parts.size()) {
    return Bad(parts[0].models[0].path,
               absl::StrCat("is one of ", first.parts, " parts of a model, and there are files of ", parts.size()));
  }
  if (parts.size() == 1) return absl::OkStatus();
  if (first.stages != 0 && first.slices != 0) {
    // The files say it.
  } else if (!names.layers.empty()) {
    // In versions before 0.19 only the names of the files say it: a pipeline has one file for each layer and slice.
    for (const DeepSpeedFiles::Layer& layer : names.layers) slices = std::max(slices, size_t{layer.slice} + 1);
    if (parts.size() % slices != 0) {
      return InDirectory(MakeError(Reason::kFileMissing, absl::StrCat("there are ", slices, " slices of layers, and ",
                                                                      parts.size(), " parts of the model (mp_rank)")));
    }
  } else {
    slices = parts.size();
  }
  if (first.parallel) {
    auto made = ParallelRules::Create(*std::exchange(first.parallel, std::nullopt));
    if (!made.ok()) return Annotate(made.status(), parts[0].models[0].path);
    rules = *std::move(made);
  } else if (slices > 1 && !names.is_universal) {
    std::vector<std::string> weights;
    for (const ZeroGroup& group : first.groups) {
      for (const ZeroGroup::Parameter& each : group.parameters) weights.push_back(absl::StrCat("'", each.name, "'"));
    }
    const size_t shown = std::min<size_t>(weights.size(), 3);
    return MakeError(
        Reason::kUnsupported,
        absl::StrCat(directory, " holds a model in ", slices,
                     " tensor-parallel slices, and does not say how they make up ",
                     absl::StrJoin(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     weights.size() > shown ? absl::StrCat(" and ", weights.size() - shown, " more weights") : ""),
        {{"file", directory}, {"next", kSayPatterns}});
  }
  return absl::OkStatus();
}

absl::Status DeepSpeedParts::CheckLayers(const DeepSpeedFiles& names) const {
  std::set<uint32_t> known;
  for (const DeepSpeedFiles::Layer& layer : names.layers) known.insert(layer.index);
  absl::Status status;
  const auto check = [&](const std::string& name, const std::string& path) {
    // Tensors of a layer have its number as a prefix.
    const size_t digits = name.find_first_not_of("0123456789");
    uint32_t index = 0;
    if (!status.ok() || digits == std::string::npos || name[digits] != '.' ||
        !absl::SimpleAtoi(name.substr(0, digits), &index) || known.contains(index)) {
      return;
    }
    status = MakeError(Reason::kFileMissing,
                       absl::StrCat(directory, " has no file of layer ", index, ", and ", path, " names '", name, "'"),
                       {{"file", directory}, {"tensor", name}});
  };
  for (const DeepSpeedPart& part : parts) {
    const DeepSpeedRead<DeepSpeedModel>& model = part.models[0];
    if (!model.content.module.empty()) continue;
    for (const ZeroGroup& group : model.content.groups) {
      for (const ZeroGroup::Parameter& parameter : group.parameters) check(parameter.name, model.path);
    }
    for (const auto& [name, shape] : model.content.frozen_shapes) check(name, model.path);
    for (const std::string& name : model.content.buffers) check(name, model.path);
  }
  return status;
}

absl::StatusOr<MergedShape> DeepSpeedParts::MergeParameter(const std::string& name,
                                                           std::span<const StoredSlice* const> merged) const {
  std::vector<Shape> shapes;
  for (const StoredSlice* slice : merged) shapes.push_back(slice->shape);
  if (rules) return rules->Merge(name, shapes);
  if (shapes.size() == 1) return MergeReplicas(name, shapes);
  return MakeError(Reason::kUnsupported,
                   absl::StrCat("nothing says how ", shapes.size(), " slices make up '", name, "'"),
                   {{"tensor", name}, {"next", kSayPatterns}});
}

}  // namespace cairn
