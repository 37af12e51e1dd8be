#include "planner/load/mapped_match.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "mapping/state_key.h"
#include "planner/load/object_match.h"

namespace cairn {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

aoa::ShardDesc Describe(std::string_view key, const Box& box, const Shape& global_shape, DType dtype) {
  return {
      .key = key, .local_shape = box.shape, .global_shape = global_shape, .global_offset = box.offset, .dtype = dtype};
}

// Boxes come sorted; flat pieces of one box count as one.
void Append(std::string_view key, const Shape& global_shape, DType dtype, std::vector<Box> boxes,
            std::vector<aoa::ShardDesc>& descs) {
  if (boxes.empty()) boxes.push_back(WholeBox(global_shape));
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (i > 0 && boxes[i] == boxes[i - 1]) continue;
    descs.push_back(Describe(key, boxes[i], global_shape, dtype));
  }
}

std::vector<aoa::ShardDesc> DescribeTargets(const LayoutSet& targets) {
  std::vector<aoa::ShardDesc> descs;
  const auto append = [&](std::string_view name, uint32_t number) {
    const LayoutSet::Tensor& tensor = targets.tensors()[number];
    std::vector<Box> boxes;
    for (uint32_t shard : targets.ShardsOf(number)) boxes.push_back(targets.BoxOf(shard));
    Append(name, tensor.global_shape, tensor.dtype, std::move(boxes), descs);
  };
  for (uint32_t i = 0; i < targets.tensors().size(); ++i) append(targets.tensors()[i].name, i);
  for (const LayoutSet::Alias& alias : targets.aliases()) append(alias.name, alias.tensor);
  return descs;
}

std::vector<DType> CastsOf(std::span<const aoa::Step> steps) {
  std::vector<DType> casts;
  for (const aoa::Step& step : steps) {
    if (step.kind == aoa::Step::Kind::kCast) casts.push_back(step.dtype);
  }
  return casts;
}

std::string DtypeText(DType dtype) { return std::string(NameOf(dtype)); }

class Mapper {
 public:
  Mapper(const Manifest& source, const LayoutSet& targets, FaultList& faults)
      : source_(source), targets_(targets), faults_(faults), used_(source.tensors.size()) {
    for (uint32_t i = 0; i < source.tensors.size(); ++i) stored_.emplace(source.tensors[i].name, i);
    for (const auto& [name, target] : source.aliases) aliases_.emplace(name, target);
    for (const LayoutSet::Alias& alias : targets.aliases()) aliases_of_[alias.tensor].push_back(alias.name);
  }

  MappedMatch Map(const aoa::Config& config) {
    aoa::Config lenient = config;
    lenient.allow_missing = true;  // the caller of the load decides whether names may be missing
    const std::vector<aoa::ShardDesc> sources = DescribeSources(source_);
    const std::vector<aoa::ShardDesc> wanted = DescribeTargets(targets_);
    std::vector<aoa::MappingError> errors;
    size_t total = 0;
    const auto mapped = aoa::BuildMapping(lenient, sources, wanted, &errors, &total);
    MappedMatch result;
    if (!mapped.ok()) {
      if (errors.empty()) AddFault(mapped.status(), "", {});
      for (const aoa::MappingError& error : errors) {
        std::string message = error.message;
        if (error.statement) absl::StrAppend(&message, " (in '", *error.statement, "')");
        faults_.Add({error.reason, "", {}, {}, {}, std::move(message)});
      }
      for (size_t more = errors.size(); more < total; ++more) faults_.Add({Reason::kMappingSyntax, "", {}, {}, {}, ""});
      return result;
    }
    NameMatch& match = result.match;
    match.source_of.assign(targets_.tensors().size(), NameMatch::kNone);
    for (uint32_t i = 0; i < targets_.tensors().size(); ++i) MapTensor(*mapped, i, match);
    for (std::string& name : MissingObjects(source_, targets_)) match.missing.push_back(std::move(name));
    FindUnexpected(*mapped, match);
    std::sort(match.missing.begin(), match.missing.end());
    std::sort(match.unexpected.begin(), match.unexpected.end());
    aoa::MappingReport report = aoa::MakeReport(*mapped, std::span<const aoa::ShardDesc>(wanted));
    report.missing = match.missing;
    report.unexpected = match.unexpected;
    result.report = std::make_shared<const aoa::MappingReport>(std::move(report));
    return result;
  }

 private:
  uint32_t Stored(const std::string& name) const {
    std::string at = name;
    for (size_t steps = 0; steps <= aliases_.size(); ++steps) {
      if (const auto found = stored_.find(at); found != stored_.end()) return found->second;
      const auto next = aliases_.find(at);
      if (next == aliases_.end()) break;
      at = next->second;
    }
    return NameMatch::kNone;
  }

  void AddFault(const absl::Status& status, const std::string& name, std::vector<int> ranks) {
    faults_.Add(
        {ReasonOf(status).value_or(Reason::kInternal), name, std::move(ranks), {}, {}, std::string(status.message())});
  }

  // Returns the name of a target tensor that the mapping produces: its own name, or one of its aliases.
  std::string_view NameFor(const aoa::MappedState& mapped, uint32_t number) const {
    const std::string& own = targets_.tensors()[number].name;
    const auto gives = [&](std::string_view name) {
      const aoa::Output* output = mapped.FindOutput(aoa::SplitStateKey(name).weight);
      return output != nullptr && !output->missing;
    };
    const auto aliases = aliases_of_.find(number);
    if (gives(own) || aliases == aliases_of_.end()) return own;
    for (const std::string& alias : aliases->second) {
      if (gives(alias)) return alias;
    }
    return own;
  }

  void MapTensor(const aoa::MappedState& mapped, uint32_t number, NameMatch& match) {
    const LayoutSet::Tensor& tensor = targets_.tensors()[number];
    const std::string_view name = NameFor(mapped, number);
    const aoa::StateKey key = aoa::SplitStateKey(name);
    const aoa::Output* output = mapped.FindOutput(key.weight);
    if (output == nullptr || output->missing) {
      // A scalar state whose weight is on neither side is treated like other tensors.
      const uint32_t same = Stored(std::string(name));
      if (output == nullptr && key.kind == aoa::StateKind::kScalar && same != NameMatch::kNone &&
          source_.tensors[same].global_shape == tensor.global_shape && source_.tensors[same].dtype == tensor.dtype) {
        used_[same] = true;
        match.source_of[number] = same;
      } else {
        match.missing.push_back(tensor.name);
      }
      return;
    }
    if (output->added) return;
    std::vector<std::string> missing;
    auto links = AxisMapsOf(
        mapped, Describe(name, WholeBox(tensor.global_shape), tensor.global_shape, tensor.dtype), source_,
        [this](const std::string& stored) {
          const uint32_t found = Stored(stored);
          if (found != NameMatch::kNone) used_[found] = true;
          return found;
        },
        missing);
    if (!links.ok()) return AddFault(links.status(), tensor.name, targets_.RanksOf(targets_.ShardsOf(number)));
    if (!missing.empty()) {
      match.missing.push_back(tensor.name);
      return;
    }
    if (links->size() == 1) {
      const AxisMap& link = links->front();
      const ManifestTensor& stored = source_.tensors[link.source];
      if (link.straight() && !link.is_cast() && link.source_box() == WholeBox(stored.global_shape) &&
          link.target_box() == link.source_box()) {
        match.source_of[number] = link.source;
        return;
      }
    }
    for (AxisMap& link : *links) {
      link.target = number;
      match.links.push_back(std::move(link));
    }
  }

  void FindUnexpected(const aoa::MappedState& mapped, NameMatch& match) {
    absl::flat_hash_set<std::string> expected;
    for (std::string_view name : mapped.removed()) expected.insert(std::string(name));
    for (const LayoutSet::Alias& alias : targets_.aliases()) expected.insert(alias.name);
    for (uint32_t i = 0; i < source_.tensors.size(); ++i) {
      const std::string& name = source_.tensors[i].name;
      if (!used_[i] && !expected.contains(name) && !expected.contains(std::string(aoa::SplitStateKey(name).weight))) {
        match.unexpected.push_back(name);
      }
    }
  }

  const Manifest& source_;
  const LayoutSet& targets_;
  FaultList& faults_;
  std::vector<bool> used_;
  absl::flat_hash_map<std::string, uint32_t> stored_;
  std::map<std::string, std::string> aliases_;
  std::map<uint32_t, std::vector<std::string>> aliases_of_;  // by tensor of the target
};

// Returns the casts of one entry. The elements must arrive in the target's dtype.
absl::StatusOr<CastChain> CastsFor(const aoa::ShardDesc& wanted, const ManifestTensor& stored,
                                   const aoa::StepTable& table, aoa::ChainId steps) {
  const ErrorMetadata metadata = {{"tensor", std::string(wanted.key)}};
  const bool state = aoa::SplitStateKey(wanted.key).kind != aoa::StateKind::kWeight;
  // A state has a dtype of its own, so the casts of the weight are not applied to it.
  if (state && stored.dtype == wanted.dtype) return CastChain();
  const DType arrives = table.DtypeAfter(steps, stored.dtype);
  if (arrives != wanted.dtype) {
    return MakeError(state ? Reason::kDtypeMismatch : Reason::kMappingDtype,
                     absl::StrCat("'", stored.name, "' is ", DtypeText(stored.dtype),
                                  arrives == stored.dtype ? "" : absl::StrCat(", cast to ", DtypeText(arrives)),
                                  ", and '", View(wanted.key), "' is ", DtypeText(wanted.dtype)),
                     metadata);
  }
  const std::vector<DType> casts = CastsOf(table.steps(steps));
  for (DType dtype : casts) {
    if (dtype == stored.dtype || (IsCastable(dtype) && IsCastable(stored.dtype))) continue;
    return MakeError(Reason::kMappingDtype,
                     absl::StrCat("'", stored.name, "' is ", DtypeText(stored.dtype), ", which cannot be cast to ",
                                  DtypeText(dtype)),
                     metadata);
  }
  CastChain chain = SimplifyCasts(stored.dtype, casts);
  if (chain.size() == 1) chain.clear();
  return chain;
}

absl::Status Apply(std::span<const aoa::Step> steps, std::string_view key, AxisMap& link) {
  const auto fail = [&] {
    return MakeError(Reason::kMappingShape,
                     absl::StrCat("'", View(key), "': a box of shape ", ShapeToString(link.source_box().shape),
                                  " cannot be reshaped into one of shape ", ShapeToString(link.target_box().shape)),
                     {{"tensor", std::string(key)}});
  };
  for (const aoa::Step& step : steps) {
    switch (step.kind) {
      case aoa::Step::Kind::kPermute:
        link.Permute(step.axes);
        break;
      case aoa::Step::Kind::kReshape:
        if (!link.Reshape(step.canonical)) return fail();
        break;
      case aoa::Step::Kind::kFlatten:
        if (!link.Flatten()) return fail();
        break;
      case aoa::Step::Kind::kCast:
        break;
    }
  }
  return link.FitsTarget() ? absl::OkStatus() : fail();
}

}  // namespace

std::vector<aoa::ShardDesc> DescribeSources(const Manifest& manifest) {
  std::vector<aoa::ShardDesc> descs;
  descs.reserve(manifest.shards.size());
  absl::flat_hash_map<std::string_view, uint32_t> numbers;
  const auto append = [&](std::string_view name, const ManifestTensor& tensor) {
    std::vector<Box> boxes;
    for (uint32_t i = 0; i < tensor.shard_count; ++i) {
      boxes.push_back(manifest.box_of(manifest.shards[tensor.first_shard + i]));
    }
    Append(name, tensor.global_shape, tensor.dtype, std::move(boxes), descs);
  };
  for (uint32_t i = 0; i < manifest.tensors.size(); ++i) {
    append(manifest.tensors[i].name, manifest.tensors[i]);
    numbers.emplace(manifest.tensors[i].name, i);
  }
  for (const auto& [name, target] : manifest.aliases) {
    if (const auto found = numbers.find(target); found != numbers.end()) append(name, manifest.tensors[found->second]);
  }
  return descs;
}

absl::StatusOr<std::vector<AxisMap>> AxisMapsOf(const aoa::MappedState& mapped, const aoa::ShardDesc& wanted,
                                                const Manifest& source,
                                                const std::function<uint32_t(const std::string&)>& stored,
                                                std::vector<std::string>& missing) {
  std::vector<aoa::Entry> entries;
  if (absl::Status status = mapped.Resolve(wanted, entries); !status.ok()) return status;
  const bool scalar = aoa::SplitStateKey(wanted.key).kind == aoa::StateKind::kScalar;
  std::vector<AxisMap> links;
  for (const aoa::Entry& entry : entries) {
    std::string name = absl::StrCat(View(entry.source_key), View(entry.source_suffix));
    const uint32_t number = stored(name);
    if (number == NameMatch::kNone) {
      missing.push_back(std::move(name));
      continue;
    }
    const ManifestTensor& tensor = source.tensors[number];
    const Shape& expected = scalar ? wanted.global_shape : entry.source_shape;
    if (tensor.global_shape != expected) {
      return MakeError(Reason::kShapeMismatch,
                       absl::StrCat("'", tensor.name, "' has the global shape ", ShapeToString(tensor.global_shape),
                                    " in the checkpoint and not ", ShapeToString(expected), ", that of ",
                                    scalar ? "the target '" : "the weight of '", View(wanted.key), "'"),
                       {{"tensor", std::string(wanted.key)}});
    }
    AxisMap link(entry.source, entry.target);
    link.source = number;
    auto casts = CastsFor(wanted, tensor, mapped.variables().steps(), entry.chain);
    if (!casts.ok()) return casts.status();
    link.casts = *std::move(casts);
    if (entry.target.empty()) continue;
    if (absl::Status status = Apply(mapped.steps(entry), wanted.key, link); !status.ok()) return status;
    links.push_back(std::move(link));
  }
  return links;
}

MappedMatch MapNames(const Manifest& source, const LayoutSet& targets, const aoa::Config& mapping, FaultList& faults) {
  return Mapper(source, targets, faults).Map(mapping);
}

}  // namespace cairn
