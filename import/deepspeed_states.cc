#include "import/deepspeed_states.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// As many as no checkpoint has. A small pickle can hold one dict many times over.
constexpr size_t kMostGroups = 100'000;
constexpr size_t kMostEntries = 2'000'000;
constexpr uint64_t kMostRanks = 1'000'000;

class Reader {
 public:
  explicit Reader(const TorchFile& file) : file_(file), document_(file.document()) {}

  absl::StatusOr<DeepSpeedModel> ReadModel();
  absl::StatusOr<DeepSpeedOptimizer> ReadOptimizer();

 private:
  absl::Status Bad(const std::string& problem) const {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(file_.what(), ": ", problem), {{"file", file_.what()}});
  }
  // The value under a key of a dict that must have it.
  absl::StatusOr<PickleValue> Need(PickleValue dict, std::string_view key) const {
    const auto found = document_.Find(dict, key);
    if (found.has_value()) return *found;
    return Bad(absl::StrCat("lacks '", std::string(key), "', which DeepSpeed writes"));
  }
  absl::Status Count() {
    return ++entries_ > kMostEntries ? Bad(absl::StrCat("has more than ", kMostEntries, " entries")) : absl::OkStatus();
  }

  // Calls `visit` for each pair with a text as key, until it fails.
  template <typename Visit>
  absl::Status ForEachNamed(PickleValue dict, Visit visit) {
    absl::Status status;
    document_.ForEachPair(dict, [&](PickleValue key, PickleValue value) {
      if (!status.ok()) return;
      status = Count();
      const auto name = document_.Text(key);
      if (status.ok() && name.has_value()) status = visit(std::string(*name), value);
    });
    return status;
  }
  // Calls `visit` for each name and shape of a dict.
  template <typename Visit>
  absl::Status ForEachShape(PickleValue dict, Visit visit) {
    return ForEachNamed(dict, [&](std::string name, PickleValue value) {
      auto shape = TorchSize(document_, value);
      if (!shape) return Bad(absl::StrCat("gives '", name, "' a shape that is none"));
      visit(std::move(name), *std::move(shape));
      return absl::OkStatus();
    });
  }
  // The tensors of a dict; other values are left out.
  absl::StatusOr<std::map<std::string, StridedTensor>> TensorsOf(PickleValue dict);
  // A flat tensor, whose elements lie one behind the other.
  absl::StatusOr<StridedTensor> FlatTensor(PickleValue value, size_t group) const;
  // Returns how many ranks there are. The file has one number, or one for each group.
  uint64_t RanksOf(PickleValue value) const;
  // Reads what the optimizer keeps for each group: {"state": {0: {...}, 1: {...}}}, or a list of such dicts.
  absl::Status ReadStates(PickleValue value, DeepSpeedOptimizer& optimizer);

  const TorchFile& file_;
  const PickleDocument& document_;
  size_t entries_ = 0;
};

absl::StatusOr<std::map<std::string, StridedTensor>> Reader::TensorsOf(PickleValue dict) {
  std::map<std::string, StridedTensor> tensors;
  CAIRN_RETURN_IF_ERROR(ForEachNamed(dict, [&](std::string name, PickleValue value) {
    const auto tensor = file_.Tensor(value);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("'", name, "'"), {{"tensor", name}});
    if (tensor->has_value()) tensors.insert_or_assign(std::move(name), **tensor);
    return absl::OkStatus();
  }));
  return tensors;
}

absl::StatusOr<StridedTensor> Reader::FlatTensor(PickleValue value, size_t group) const {
  CAIRN_ASSIGN_OR_RETURN(const std::optional<StridedTensor> tensor, file_.Tensor(value));
  if (tensor && tensor->IsFlat()) return *tensor;
  return Bad(absl::StrCat("has no flat tensor of the weights of group ", group));
}

uint64_t Reader::RanksOf(PickleValue value) const {
  uint64_t ranks = 0;
  const auto count = [&](PickleValue each) {
    const auto number = document_.Int(each);
    if (number && *number > 0) ranks = std::max(ranks, std::min(kMostRanks, static_cast<uint64_t>(*number)));
  };
  count(value);
  if (value.kind() == PickleKind::kList) document_.ForEach(value, count);
  return ranks;
}

absl::Status Reader::ReadStates(PickleValue value, DeepSpeedOptimizer& optimizer) {
  absl::Status status;
  const auto take = [&](std::optional<int64_t> group, PickleValue states) {
    if (!status.ok() || !group || *group < 0 || static_cast<size_t>(*group) >= optimizer.states.size()) return;
    auto tensors = TensorsOf(states);
    if (!tensors.ok()) {
      status = tensors.status();
    } else {
      optimizer.states[static_cast<size_t>(*group)] = *std::move(tensors);
    }
  };
  if (value.kind() == PickleKind::kList) {
    int64_t group = 0;
    document_.ForEach(value, [&](PickleValue each) { take(group++, each); });
  } else if (const auto states = document_.Find(value, "state"); states.has_value()) {
    document_.ForEachPair(*states, [&](PickleValue key, PickleValue each) { take(document_.Int(key), each); });
  }
  return status;
}

absl::StatusOr<DeepSpeedModel> Reader::ReadModel() {
  const PickleValue root = document_.root();
  DeepSpeedModel model;
  CAIRN_ASSIGN_OR_RETURN(const PickleValue module, Need(root, "module"));
  CAIRN_ASSIGN_OR_RETURN(model.module, TensorsOf(module));
  if (const auto shapes = document_.Find(root, "param_shapes"); shapes.has_value()) {
    for (const PickleValue of_group : document_.Elements(*shapes, kMostGroups)) {
      ZeroGroup& group = model.groups.emplace_back();
      CAIRN_RETURN_IF_ERROR(ForEachShape(of_group, [&](std::string name, Shape shape) {
        group.parameters.push_back({std::move(name), std::move(shape)});
      }));
    }
  }
  if (const auto shapes = document_.Find(root, "frozen_param_shapes"); shapes.has_value()) {
    CAIRN_RETURN_IF_ERROR(ForEachShape(*shapes, [&](std::string name, Shape shape) {
      model.frozen_shapes.insert_or_assign(std::move(name), std::move(shape));
    }));
  }
  if (const auto frozen = document_.Find(root, "frozen_param_fragments"); frozen.has_value()) {
    CAIRN_ASSIGN_OR_RETURN(model.frozen, TensorsOf(*frozen));
  }
  if (const auto shared = document_.Find(root, "shared_params"); shared.has_value()) {
    CAIRN_RETURN_IF_ERROR(ForEachNamed(*shared, [&](std::string name, PickleValue value) {
      if (const auto target = document_.Text(value)) model.shared.emplace_back(std::move(name), std::string(*target));
      return absl::OkStatus();
    }));
  }
  return model;
}

absl::StatusOr<DeepSpeedOptimizer> Reader::ReadOptimizer() {
  CAIRN_ASSIGN_OR_RETURN(const PickleValue root, Need(document_.root(), "optimizer_state_dict"));
  DeepSpeedOptimizer optimizer;
  auto weights = document_.Find(root, "fp32_flat_groups");
  optimizer.by_parameter = weights.has_value();
  if (!weights.has_value()) weights = document_.Find(root, "single_partition_of_fp32_groups");
  if (!weights.has_value()) {
    return MakeError(Reason::kUnsupported, absl::StrCat(file_.what(), ": its optimizer's state is not one of ZeRO"),
                     {{"file", file_.what()}});
  }
  for (const PickleValue value : document_.Elements(*weights, kMostGroups)) {
    CAIRN_ASSIGN_OR_RETURN(StridedTensor flat, FlatTensor(value, optimizer.weights.size()));
    optimizer.weights.push_back(std::move(flat));
  }
  optimizer.states.resize(optimizer.weights.size());
  const auto states = document_.Find(root, optimizer.by_parameter ? "optimizer_state_dict" : "base_optimizer_state");
  if (states.has_value()) CAIRN_RETURN_IF_ERROR(ReadStates(*states, optimizer));
  if (const auto ranks = document_.Find(root, "partition_count")) optimizer.ranks = RanksOf(*ranks);
  if (const auto paddings = document_.Find(root, "param_alignment_paddings")) {
    for (const PickleValue group : document_.Elements(*paddings, kMostGroups)) {
      std::vector<int64_t>& added = optimizer.paddings.emplace_back();
      for (const PickleValue each : document_.Elements(group, kMostEntries)) {
        CAIRN_RETURN_IF_ERROR(Count());
        added.push_back(document_.Int(each).value_or(-1));
      }
    }
  }
  return optimizer;
}

}  // namespace

absl::StatusOr<DeepSpeedModel> ReadDeepSpeedModel(const TorchFile& file) { return Reader(file).ReadModel(); }

absl::StatusOr<DeepSpeedOptimizer> ReadDeepSpeedOptimizer(const TorchFile& file) {
  return Reader(file).ReadOptimizer();
}

}  // namespace cairn
