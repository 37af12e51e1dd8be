#include "foreign/read/deepspeed/deepspeed_states.h"

#include <algorithm>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// More groups than any checkpoint has. Without a limit, a small pickle could contain one dict very many times.
constexpr size_t kMostGroups = 100'000;
constexpr size_t kMostEntries = 2'000'000;
// A pickle can also recall a long text many times. All kept texts together have at most kMostGrowth bytes for each byte
// of the pickle, or kMostSmall bytes if that is more.
constexpr uint64_t kMostGrowth = 64, kMostSmall = uint64_t{16} << 20;
constexpr size_t kMostAttributes = 1000;  // of sub-parameters, which have three
constexpr uint64_t kMostRanks = 1'000'000;

class Reader {
 public:
  explicit Reader(const TorchFile& file) : file_(file), document_(file.document()) {}

  absl::StatusOr<DeepSpeedModel> ReadModel();
  absl::StatusOr<DeepSpeedOptimizer> ReadOptimizer();
  absl::StatusOr<DeepSpeedLayer> ReadLayer() { return TensorsOf(document_.root()); }

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
  // Counts an entry that keeps a text.
  absl::Status Count(std::string_view text) {
    text_bytes_ += text.size();
    if (text_bytes_ > kMostSmall + kMostGrowth * document_.consumed()) return Bad("has the same long texts too often");
    return Count();
  }

  // Calls `visit` for each pair with a text as key, until it fails.
  template <typename Visit>
  absl::Status ForEachNamed(PickleValue dict, Visit visit) {
    absl::Status status;
    document_.ForEachPair(dict, [&](PickleValue key, PickleValue value) {
      if (!status.ok()) return;
      const auto name = document_.Text(key);
      status = Count(name.value_or(""));
      if (status.ok() && name.has_value()) status = visit(std::string(*name), value);
    });
    return status;
  }
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
  // Returns a flat tensor: one axis, contiguous elements.
  absl::StatusOr<StridedTensor> FlatTensor(PickleValue value, size_t group) const;
  // Returns the number of ranks. The file has one number, or one for each group.
  uint64_t RanksOf(PickleValue value) const;
  // Reads the optimizer's states of each group: {"state": {0: {...}, 1: {...}}}, or a list of such dicts.
  absl::Status ReadStates(PickleValue value, DeepSpeedOptimizer& optimizer);

  absl::StatusOr<ParallelInfo> ReadParallelInfo(PickleValue info);
  // The texts of a list or tuple under a key of a dict; none if the key is not there.
  absl::StatusOr<std::vector<std::string>> TextsOf(PickleValue dict, std::string_view key);
  // The integers of a list or tuple; nothing for another value.
  std::optional<std::vector<int64_t>> IntsOf(PickleValue value);
  absl::StatusOr<ParallelInfo::SubParameters> ReadSubParameters(PickleValue value);

  const TorchFile& file_;
  const PickleDocument& document_;
  size_t entries_ = 0;
  uint64_t text_bytes_ = 0;
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
      const auto step = document_.Find(states, "step");
      const auto number = step ? document_.Int(*step) : std::nullopt;
      if (number) optimizer.steps[static_cast<size_t>(*group)] = static_cast<double>(*number);
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

absl::StatusOr<std::vector<std::string>> Reader::TextsOf(PickleValue dict, std::string_view key) {
  std::vector<std::string> texts;
  const auto list = document_.Find(dict, key);
  if (!list || list->kind() == PickleKind::kNone) return texts;
  for (const PickleValue each : document_.Elements(*list, kMostEntries)) {
    const auto text = document_.Text(each);
    CAIRN_RETURN_IF_ERROR(Count(text.value_or("")));
    if (!text) return Bad(absl::StrCat("has no list of patterns in '", std::string(key), "'"));
    texts.emplace_back(*text);
  }
  return texts;
}

std::optional<std::vector<int64_t>> Reader::IntsOf(PickleValue value) {
  if (value.kind() != PickleKind::kTuple && value.kind() != PickleKind::kList) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const PickleValue each : document_.Elements(value, kMostEntries)) {
    const auto number = document_.Int(each);
    if (!number || !Count().ok()) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

// `value` is a dict, or an object of DeepSpeed with the same fields.
absl::StatusOr<ParallelInfo::SubParameters> Reader::ReadSubParameters(PickleValue value) {
  ParallelInfo::SubParameters sub;
  if (document_.Size(value) > kMostAttributes) return Bad("has invalid sub-parameters");
  CAIRN_ASSIGN_OR_RETURN(sub.patterns, TextsOf(value, "patterns"));
  const auto shape = document_.Find(value, "shape"), dimension = document_.Find(value, "partition_dim");
  const auto number = dimension ? document_.Int(*dimension) : std::nullopt;
  if (!shape || !number) return Bad("has sub-parameters without a shape or 'partition_dim'");
  sub.dimension = *number;
  for (const PickleValue each : document_.Elements(*shape, kMostEntries)) {
    CAIRN_RETURN_IF_ERROR(Count());
    if (const auto length = document_.Int(each)) {
      sub.shape.push_back(*length);
      continue;
    }
    auto sizes = IntsOf(each);
    if (!sizes || sizes->empty()) return Bad("has sub-parameters without a valid shape");
    if (static_cast<int64_t>(sub.shape.size()) == sub.dimension) {
      sub.sizes = *std::move(sizes);
      sub.shape.push_back(0);
      continue;
    }
    int64_t sum = 0;
    for (const int64_t size : *sizes) {
      if (size < 0 || size > INT64_MAX - sum) return Bad("has sub-parameters without a valid shape");
      sum += size;
    }
    sub.shape.push_back(sum);
  }
  return sub;
}

absl::StatusOr<ParallelInfo> Reader::ReadParallelInfo(PickleValue info) {
  ParallelInfo parallel;
  CAIRN_ASSIGN_OR_RETURN(parallel.vocabulary_patterns, TextsOf(info, "vocabulary_parameter_patterns"));
  CAIRN_ASSIGN_OR_RETURN(parallel.pipeline_replicated, TextsOf(info, "pipeline_replicated_parameter_patterns"));
  CAIRN_ASSIGN_OR_RETURN(parallel.replicated, TextsOf(info, "tp_replicated_parameter_patterns"));
  CAIRN_ASSIGN_OR_RETURN(parallel.averaged, TextsOf(info, "parameter_to_average_patterns"));
  CAIRN_ASSIGN_OR_RETURN(parallel.by_column, TextsOf(info, "parameter_with_row_parallelism_patterns"));
  CAIRN_ASSIGN_OR_RETURN(parallel.two_halves, TextsOf(info, "parameter_with_2_sub_params_cat_dim_0"));
  if (const auto version = document_.Find(info, "universal_checkpoint_version")) {
    const auto whole = document_.Int(*version);
    parallel.version = whole ? static_cast<double>(*whole) : document_.Float(*version).value_or(0);
  }
  if (const auto rows = document_.Find(info, "original_vocab_size")) {
    parallel.vocabulary = document_.Int(*rows).value_or(0);
  }
  if (const auto subs = document_.Find(info, "parameter_with_sub_params")) {
    for (const PickleValue each : document_.Elements(*subs, kMostEntries)) {
      CAIRN_RETURN_IF_ERROR(Count());
      CAIRN_ASSIGN_OR_RETURN(auto sub, ReadSubParameters(each));
      parallel.sub_parameters.push_back(std::move(sub));
    }
  }
  if (const auto widths = document_.Find(info, "sub_param_shard_widths")) {
    CAIRN_RETURN_IF_ERROR(ForEachNamed(*widths, [&](const std::string& pattern, PickleValue value) -> absl::Status {
      auto& rows = parallel.widths[pattern];
      for (const PickleValue each : document_.Elements(value, kMostEntries)) {
        auto row = IntsOf(each);
        if (!row) return Bad(absl::StrCat("has no widths of the sub-parameters of '", pattern, "'"));
        rows.push_back(*std::move(row));
      }
      return absl::OkStatus();
    }));
  }
  if (const auto unsupported = document_.Find(info, "autotp_unsupported_parameter_patterns")) {
    CAIRN_RETURN_IF_ERROR(ForEachNamed(*unsupported, [&](std::string pattern, PickleValue value) {
      const std::string_view why = document_.Text(value).value_or("DeepSpeed cannot either");
      parallel.unsupported[std::move(pattern)] = std::string(why);
      return Count(why);
    }));
  }
  return parallel;
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
      const auto target = document_.Text(value);
      if (target) model.shared.emplace_back(std::move(name), std::string(*target));
      return Count(target.value_or(""));
    }));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> buffers, TextsOf(root, "buffer_names"));
  model.buffers.insert(buffers.begin(), buffers.end());
  if (const auto dimensions = document_.Find(root, "checkpoint_parallel_dimensions"); dimensions.has_value()) {
    const auto degree = [&](std::string_view key) {
      const auto found = document_.Find(*dimensions, key);
      return found ? RanksOf(*found) : 0;
    };
    model.stages = degree("pp_degree");
    model.slices = degree("tp_degree");
  }
  if (const auto parts = document_.Find(root, "mp_world_size")) model.parts = RanksOf(*parts);
  if (const auto steps = document_.Find(root, "global_steps")) model.steps = document_.Int(*steps);
  if (const auto info = document_.Find(root, "universal_checkpoint_info");
      info.has_value() && info->kind() == PickleKind::kDict) {
    CAIRN_ASSIGN_OR_RETURN(ParallelInfo parallel, ReadParallelInfo(*info));
    if (parallel.HasPatterns()) model.parallel = std::move(parallel);
  }
  if (const auto experts = document_.Find(root, "ds_autoep_layers")) model.has_experts = document_.Size(*experts) > 0;
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
  optimizer.steps.resize(optimizer.weights.size());
  if (const auto stage = document_.Find(root, "zero_stage")) {
    // It is a number, or an enumeration made of one.
    optimizer.stage = document_.Int(*stage);
    PickleValue argument;
    if (const PickleObject* made = document_.Object(*stage);
        made != nullptr && document_.CopyElements(made->arguments, std::span(&argument, 1)) == 1) {
      optimizer.stage = document_.Int(argument);
    }
  }
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

absl::StatusOr<DeepSpeedLayer> ReadDeepSpeedLayer(const TorchFile& file) { return Reader(file).ReadLayer(); }

absl::StatusOr<DeepSpeedOptimizer> ReadDeepSpeedOptimizer(const TorchFile& file) {
  return Reader(file).ReadOptimizer();
}

}  // namespace cairn
