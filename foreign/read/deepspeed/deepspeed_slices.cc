#include "foreign/read/deepspeed/deepspeed_slices.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/flat_range.h"
#include "foreign/read/deepspeed/zero_partition.h"

namespace cairn {
namespace {

constexpr size_t kMostPieces = size_t{1} << 16;

template <typename Content>
absl::Status Bad(const DeepSpeedRead<Content>& read, const std::string& problem) {
  return MakeError(Reason::kBadForeignFile, absl::StrCat(read.path, ": ", problem), {{"file", read.path}});
}

absl::Status In(const std::string& where, const absl::Status& status) {
  return status.ok() ? status : Annotate(status, where, {{"file", where}});
}

absl::Status CheckOptimizers(const DeepSpeedPart& part) {
  const DeepSpeedOptimizer& first = part.optimizers[0].content;
  for (const auto& read : part.optimizers) {
    const DeepSpeedOptimizer& each = read.content;
    if (each.by_parameter != first.by_parameter) return Bad(read, "is of another stage of ZeRO than that of rank 0");
    if (each.ranks != 0 && each.ranks != part.optimizers.size()) {
      return Bad(read, absl::StrCat("says that it is one of ", each.ranks, ", and there are ", part.optimizers.size()));
    }
    for (size_t group = 0; group < each.weights.size(); ++group) {
      if (group < first.weights.size() && each.weights[group].dtype != first.weights[group].dtype) {
        return Bad(read, absl::StrCat("has the weights of group ", group, " in another dtype than that of rank 0"));
      }
    }
  }
  return absl::OkStatus();
}

// Joins a tensor from its fragments in the ranks' flat tensors.
template <typename Content>
absl::StatusOr<StoredSlice> Gather(
    const ZeroParameter& parameter, const std::vector<DeepSpeedRead<Content>>& ranks,
    const std::function<const StridedTensor*(const Content&, const ZeroFragment&)>& tensor_of) {
  StoredSlice slice;
  slice.shape = parameter.shape;
  std::vector<Box> boxes;
  for (const ZeroFragment& fragment : parameter.fragments) {
    const DeepSpeedRead<Content>& rank = ranks[fragment.rank];
    const StridedTensor* flat = tensor_of(rank.content, fragment);
    if (flat != nullptr && slice.pieces.empty()) slice.dtype = flat->dtype;
    if (flat == nullptr || !flat->IsFlat() || flat->dtype != slice.dtype ||
        flat->shape[0] < fragment.begin + fragment.range.size()) {
      return Bad(rank, absl::StrCat("lacks elements of '", parameter.name, "' that belong to this rank"));
    }
    const auto width = static_cast<uint64_t>(BytesOf(slice.dtype));
    uint64_t offset = flat->offset + static_cast<uint64_t>(fragment.begin) * width;
    boxes.clear();
    AppendBoxes(slice.shape, fragment.range, boxes);
    for (Box& box : boxes) {
      const uint64_t bytes = static_cast<uint64_t>(box.size()) * width;
      slice.pieces.push_back({std::move(box), rank.file, offset});
      offset += bytes;
    }
  }
  return slice;
}

// Adds the optimizers' state of one key for a parameter.
absl::Status AddState(const DeepSpeedPart& part, const ZeroParameter& parameter, const std::string& key,
                      TrainedSlice& slice) {
  const ZeroFragment& begin = parameter.fragments[0];
  const DeepSpeedRead<DeepSpeedOptimizer>& rank = part.optimizers[begin.rank];
  const StridedTensor& first = rank.content.states[begin.group].at(key);
  if (!first.IsFlat()) {
    slice.numbers[key] = {first, rank.file};
    return absl::OkStatus();
  }
  CAIRN_ASSIGN_OR_RETURN(slice.states[key],
                         Gather<DeepSpeedOptimizer>(parameter, part.optimizers,
                                                    [&](const DeepSpeedOptimizer& optimizer,
                                                        const ZeroFragment& fragment) -> const StridedTensor* {
                                                      const auto& states = optimizer.states[fragment.group];
                                                      const auto state = states.find(key);
                                                      return state == states.end() ? nullptr : &state->second;
                                                    }));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, TrainedSlice>> TrainedSlices(const DeepSpeedPart& part, const std::string& where) {
  CAIRN_RETURN_IF_ERROR(CheckOptimizers(part));
  const DeepSpeedOptimizer& first = part.optimizers[0].content;
  std::vector<ZeroGroup> groups = part.models[0].content.groups;
  if (groups.empty()) {
    return Bad(part.models[0], "lacks 'param_shapes', by which the weights in flat tensors are told apart");
  }
  for (size_t group = 0; group < std::min(groups.size(), first.paddings.size()); ++group) {
    auto& parameters = groups[group].parameters;
    for (size_t i = 0; i < std::min(parameters.size(), first.paddings[group].size()); ++i) {
      parameters[i].padding = first.paddings[group][i];
    }
  }
  ZeroLengths lengths;
  for (const auto& each : part.optimizers) {
    std::vector<int64_t>& row = lengths.emplace_back();
    for (const StridedTensor& flat : each.content.weights) row.push_back(flat.shape[0]);
  }
  const auto parameters = first.by_parameter ? PartitionParameters(groups, lengths) : PartitionVectors(groups, lengths);
  if (!parameters.ok()) return In(where, parameters.status());
  std::map<std::string, TrainedSlice> slices;
  for (const ZeroParameter& parameter : *parameters) {
    const auto [place, fresh] = slices.try_emplace(parameter.name);
    if (!fresh) {
      return In(where, MakeError(Reason::kNameCollision, absl::StrCat("two weights are named '", parameter.name, "'"),
                                 {{"tensor", parameter.name}}));
    }
    TrainedSlice& slice = place->second;
    CAIRN_ASSIGN_OR_RETURN(
        slice.weight, Gather<DeepSpeedOptimizer>(parameter, part.optimizers,
                                                 [](const DeepSpeedOptimizer& optimizer, const ZeroFragment& fragment) {
                                                   return &optimizer.weights[fragment.group];
                                                 }));
    if (parameter.fragments.empty()) continue;
    const ZeroFragment& begin = parameter.fragments[0];
    for (const auto& [key, state] : part.optimizers[begin.rank].content.states[begin.group]) {
      CAIRN_RETURN_IF_ERROR(AddState(part, parameter, key, slice));
    }
  }
  return slices;
}

absl::StatusOr<std::map<std::string, StoredSlice>> FrozenSlices(const DeepSpeedPart& part, const std::string& where) {
  std::map<std::string, StoredSlice> slices;
  if (part.models.empty()) return slices;
  const DeepSpeedRead<DeepSpeedModel>& first = part.models[0];
  for (const auto& [name, whole] : first.content.frozen) {
    const auto shape = first.content.frozen_shapes.find(name);
    const bool known = shape != first.content.frozen_shapes.end();
    if (part.models.size() == 1 && (!known || shape->second == whole.shape)) {
      auto slice = WholeSlice(name, whole, first.file);
      if (!slice.ok()) return In(where, slice.status());
      slices[name] = *std::move(slice);
      continue;
    }
    if (!known) return Bad(first, absl::StrCat("does not say the shape of '", name, "'"));
    ZeroLengths lengths;
    for (const auto& rank : part.models) {
      const auto fragment = rank.content.frozen.find(name);
      if (fragment == rank.content.frozen.end() || !fragment->second.IsFlat()) {
        return Bad(rank, absl::StrCat("lacks its part of '", name, "'"));
      }
      lengths.push_back({fragment->second.shape[0]});
    }
    if (ElementCount(shape->second) == 0) {
      slices[name] = {whole.dtype, shape->second, {}};
      continue;
    }
    const std::vector<ZeroGroup> group = {{{{name, shape->second}}}};
    const auto parameters = PartitionParameters(group, lengths);
    if (!parameters.ok()) return In(where, parameters.status());
    CAIRN_ASSIGN_OR_RETURN(slices[name], Gather<DeepSpeedModel>((*parameters)[0], part.models,
                                                                [&](const DeepSpeedModel& model, const ZeroFragment&) {
                                                                  return &model.frozen.at(name);
                                                                }));
  }
  return slices;
}

absl::StatusOr<StoredSlice> WholeSlice(const std::string& name, const StridedTensor& tensor, uint32_t file) {
  const auto pieces = tensor.Pieces(kMostPieces);
  if (!pieces) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat("'", name, "' is stored with strides ", ShapeToString(tensor.strides),
                                  ", which would take too many reads"),
                     {{"tensor", name}});
  }
  StoredSlice slice{tensor.dtype, tensor.shape, {}};
  for (const StridedTensor::Piece& piece : *pieces) slice.pieces.push_back({piece.box, file, piece.offset});
  return slice;
}

}  // namespace cairn
