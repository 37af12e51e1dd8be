#include "mapping/mapping.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "mapping/engine.h"
#include "mapping/macros.h"
#include "mapping/parser.h"
#include "mapping/suggestion.h"

namespace cairn::aoa {
namespace {

constexpr uint32_t kNoOutput = UINT32_MAX;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string DtypeText(DType dtype) { return dtype == DType::kUnspecified ? "unknown" : std::string(NameOf(dtype)); }

// "(slice(0, 1, 1), slice(0, 8, 1))"
std::string SliceText(std::span<const int64_t> offset, std::span<const int64_t> shape) {
  std::string text = "(";
  for (size_t i = 0; i < offset.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", "slice(", offset[i], ", ", offset[i] + shape[i], ", 1)");
  }
  return text += ')';
}

// Returns whether the box has an end in every dimension.
bool IsBox(const Box& box) {
  for (size_t i = 0; i < box.offset.size(); ++i) {
    int64_t end;
    if (box.offset[i] < 0 || box.shape[i] < 0 || __builtin_add_overflow(box.offset[i], box.shape[i], &end))
      return false;
  }
  return true;
}

// Refuses descriptions that no computation can use. The planner checks whether shards tile their tensor.
void CheckDescs(const KeySpace& side, std::span<const ShardDesc> shards, std::string_view name,
                Diagnostics& diagnostics) {
  const auto fail = [&](Reason reason, const ShardDesc& shard, std::string what) {
    diagnostics.Add(reason, kNoLine, Stage::kEngine,
                    absl::StrCat("the ", View(name), " tensor '", View(shard.key), "' ", what));
  };
  for (const ShardDesc& shard : shards) {
    const size_t n = shard.global_shape.size();
    if (shard.local_shape.size() != n || shard.global_offset.size() != n) {
      fail(Reason::kBadShape, shard,
           absl::StrCat("has local_shape ", ShapeToString(shard.local_shape), ", global_shape ",
                        ShapeToString(shard.global_shape), " and global_offset ", ShapeToString(shard.global_offset),
                        " of different numbers of dimensions"));
    } else if (n > kMaxDims) {
      fail(Reason::kBadShape, shard, absl::StrCat("has ", n, " dimensions, more than ", kMaxDims));
    } else if (!ElementCount(shard.global_shape).has_value()) {
      fail(Reason::kBadShape, shard,
           absl::StrCat("has the global shape ", ShapeToString(shard.global_shape),
                        ", negative or beyond 2^63 elements"));
    }
  }
  for (Symbol weight : side.weights()) {
    const uint32_t first = side.FirstShard(weight);
    if (first == KeySpace::kNone) continue;
    for (uint32_t i = side.NextShard(first); i != KeySpace::kNone; i = side.NextShard(i)) {
      const ShardDesc &a = side.shard(first), &b = side.shard(i);
      if (a.global_shape != b.global_shape) {
        fail(Reason::kShapeMismatch, b,
             absl::StrCat("is declared with the global shapes ", ShapeToString(a.global_shape), " and ",
                          ShapeToString(b.global_shape)));
        break;
      }
      if (a.dtype != b.dtype) {
        fail(Reason::kDtypeMismatch, b,
             absl::StrCat("is declared as ", DtypeText(a.dtype), " and as ", DtypeText(b.dtype)));
        break;
      }
    }
  }
}

}  // namespace

MappedState::MappedState(std::unique_ptr<const Program> program, Variables variables, std::vector<Output> outputs,
                         std::vector<Symbol> removed, std::vector<bool> used_sources, std::vector<Shape> declared)
    : program_(std::move(program)),
      variables_(std::move(variables)),
      outputs_(std::move(outputs)),
      removed_(std::move(removed)),
      used_sources_(std::move(used_sources)),
      declared_(std::move(declared)) {
  output_of_.assign(program_->symbols().size(), kNoOutput);
  for (size_t i = 0; i < outputs_.size(); ++i) output_of_[outputs_[i].name] = static_cast<uint32_t>(i);
}

const Output* MappedState::FindOutput(std::string_view weight) const {
  const auto symbol = program_->symbols().Find(weight);
  if (!symbol.has_value() || output_of_[*symbol] == kNoOutput) return nullptr;
  return &outputs_[output_of_[*symbol]];
}

absl::Status MappedState::Resolve(const ShardDesc& target, std::vector<Entry>& entries) const {
  const StateKey key = SplitStateKey(target.key);
  const Output* output = FindOutput(key.weight);
  if (output == nullptr) return NoOutput(target, key.weight);
  if (output->variable == kNoVariable) return absl::OkStatus();
  if (key.kind == StateKind::kScalar) {
    ResolveScalar(target, key, output->variable, entries);
    return absl::OkStatus();
  }
  CAIRN_RETURN_IF_ERROR(CheckFits(target, *output));
  const Box box{target.global_offset, target.local_shape};
  std::vector<Variables::Part> parts;
  if (absl::Status status = variables_.Find(output->variable, box, parts); !status.ok()) {
    return Annotate(status, absl::StrCat("'", View(target.key), "'"), {{"tensor", std::string(target.key)}});
  }
  const bool is_weight = key.kind == StateKind::kWeight;
  if (is_weight) {
    for (const Variables::Part& part : parts) CAIRN_RETURN_IF_ERROR(CheckDtype(target, part));
  }
  entries.reserve(entries.size() + parts.size());
  for (Variables::Part& part : parts) {
    const SourceTensor& source = variables_.source(part.source);
    entries.push_back({.target = std::move(part.target),
                       .source_key = Text(source.name),
                       .source_suffix = key.suffix.empty() ? std::string_view() : kStateSuffixes[key.suffix_index],
                       .source = std::move(part.source_box),
                       .source_shape = source.shape,
                       // A state has a dtype of its own, which need not be the weight's.
                       .source_dtype = is_weight ? source.dtype : target.dtype,
                       .chain = part.chain});
  }
  return absl::OkStatus();
}

absl::Status MappedState::NoOutput(const ShardDesc& target, std::string_view weight) const {
  std::vector<Symbol> names;
  for (const Output& other : outputs_) names.push_back(other.name);
  return MakeError(Reason::kMappingUnknownName,
                   absl::StrCat("'", View(weight), "' is not among the outputs of the mapping",
                                Suggest(weight, names, program_->symbols())),
                   {{"tensor", std::string(target.key)}});
}

void MappedState::ResolveScalar(const ShardDesc& target, const StateKey& key, VariableId variable,
                                std::vector<Entry>& entries) const {
  const auto name_of = [this](const Slice& slice) { return Text(variables_.source(slice.source).name); };
  const auto slices = variables_.slices(variable);
  const auto smallest = std::min_element(slices.begin(), slices.end(),
                                         [&](const Slice& a, const Slice& b) { return name_of(a) < name_of(b); });
  if (smallest == slices.end()) return;
  const Box box{target.global_offset, target.local_shape};
  entries.push_back({.target = box,
                     .source_key = name_of(*smallest),
                     .source_suffix = kStateSuffixes[key.suffix_index],
                     .source = box,
                     .source_shape = target.global_shape,
                     .source_dtype = target.dtype});
}

absl::Status MappedState::CheckFits(const ShardDesc& target, const Output& output) const {
  const ErrorMetadata metadata = {{"tensor", std::string(target.key)}};
  const auto shape = variables_.shape(output.variable);
  if (target.local_shape.size() != shape.size() || target.global_offset.size() != shape.size()) {
    return MakeError(
        Reason::kMappingShape,
        absl::StrCat("For the key '", View(target.key), "', the target has ", target.local_shape.size(),
                     " dimensions, but the mapped tensor has ", shape.size(), " (shape ", ShapeToString(shape), ")"),
        metadata);
  }
  const Box box{target.global_offset, target.local_shape};
  const bool fits = Contains(shape, box);
  // If a transpose was forgotten, a shard may lie inside the other tensor by chance.
  const bool same_tensor =
      std::equal(shape.begin(), shape.end(), target.global_shape.begin(), target.global_shape.end());
  const Shape& declared = declared_[static_cast<size_t>(&output - outputs_.data())];
  const bool as_declared = declared.empty() || declared == target.global_shape;
  if (fits && (same_tensor || !as_declared)) return absl::OkStatus();
  if (!IsBox(box)) {
    return MakeError(Reason::kMappingRange,
                     absl::StrCat("'", View(target.key), "' has no valid box: offset ", ShapeToString(box.offset),
                                  ", shape ", ShapeToString(box.shape)),
                     metadata);
  }
  return MakeError(
      Reason::kMappingRange,
      absl::StrCat(
          "the target '", View(target.key), "' does not fit the tensor that is mapped to it: the shard of shape ",
          ShapeToString(box.shape), " at offset ", ShapeToString(box.offset), " is asked of a tensor of shape ",
          ShapeToString(shape), ": current model param slice range: ", SliceText(box.offset, box.shape),
          ", preloaded weights param slice range: ", SliceText(Shape(shape.size(), 0), shape), ", Please check",
          fits ? absl::StrCat(" the global shapes: ", ShapeToString(target.global_shape), " wanted, ",
                              ShapeToString(shape), " mapped")
               : "",
          ": is a transpose missing, or a number of shards wrong?"),
      metadata);
}

absl::Status MappedState::CheckDtype(const ShardDesc& target, const Variables::Part& part) const {
  const SourceTensor& source = variables_.source(part.source);
  const DType stored = source.dtype;
  const DType arrives = variables_.steps().DtypeAfter(part.chain, stored);
  if (MayBeEqual(arrives, target.dtype)) return absl::OkStatus();
  const std::string wanted = DtypeText(target.dtype);
  return MakeError(
      Reason::kMappingDtype,
      absl::StrCat("Direct assignment of Tensors with different types is prohibited in AOA: '", View(Text(source.name)),
                   "' is ", DtypeText(stored), arrives == stored ? "" : absl::StrCat(", cast to ", DtypeText(arrives)),
                   ", and '", View(target.key), "' is ", wanted,
                   arrives == stored ? absl::StrCat("; cast it: src_dtype='", DtypeText(stored), "', dst_dtype='")
                                     : std::string("; let the last cast be dtype='"),
                   wanted, "'"),
      {{"tensor", std::string(target.key)}});
}

std::vector<std::string_view> MappedState::removed() const {
  std::vector<std::string_view> names;
  for (Symbol name : removed_) names.push_back(Text(name));
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string_view> MappedState::unused() const {
  std::vector<bool> removed(program_->symbols().size());
  for (Symbol name : removed_) removed[name] = true;
  std::vector<std::string_view> names;
  for (SourceId id = 0; id < used_sources_.size(); ++id) {
    const Symbol name = variables_.source(id).name;
    if (!used_sources_[id] && !removed[name]) names.push_back(Text(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<MappedState> BuildMapping(const Config& config, std::span<const ShardDesc> source,
                                         std::optional<std::span<const ShardDesc>> destination,
                                         std::vector<MappingError>* errors, size_t* total) {
  auto program = std::make_unique<Program>();
  Diagnostics diagnostics;
  const auto failed = [&]() -> absl::Status {
    const std::vector<MappingError> rendered = diagnostics.Render(*program, config.traceback);
    const absl::Status status = ToStatus(rendered, diagnostics.total());
    if (total != nullptr) *total = diagnostics.total();
    if (errors != nullptr) *errors = rendered;
    return status;
  };

  // Most mappings name each tensor, its transpose and a temporary once. A name on the destination side has several
  // shards.
  program->symbols().Reserve(3 * source.size() + (destination.has_value() ? destination->size() : 0));
  program->Reserve(3 * source.size());
  KeySpace sources(source, program->symbols());
  KeySpace destinations = destination.has_value() ? KeySpace(*destination, program->symbols()) : KeySpace();
  CheckDescs(sources, source, "source", diagnostics);
  if (destination.has_value()) CheckDescs(destinations, *destination, "destination", diagnostics);
  if (!diagnostics.empty()) return failed();

  for (const std::string& text : config.statements) {
    const Program::AddResult added = program->AddText(text);
    if (added.fault.has_value()) {
      diagnostics.Add(Reason::kMappingSyntax, added.faulty, Stage::kLexer, added.fault->message);
    }
  }
  if (!diagnostics.empty()) return failed();

  MacroContext context{.program = *program,
                       .left = config.reverse ? destinations : sources,
                       .right = config.reverse ? sources : destinations,
                       .reverse = config.reverse,
                       .legacy_qkv = config.legacy_qkv,
                       .diagnostics = diagnostics};
  RunMacros(context);
  if (!diagnostics.empty()) return failed();

  std::vector<Statement> statements;
  statements.reserve(program->current().size());
  for (LineId line : program->current()) {
    if (auto statement = ParseStatement(*program, line, diagnostics)) statements.push_back(*std::move(statement));
  }
  if (!diagnostics.empty()) return failed();

  Engine engine(*program, sources, destinations, config.reverse, diagnostics);
  engine.Run(statements);
  engine.Finish(config.allow_missing);
  if (!diagnostics.empty()) return failed();

  std::vector<Output> outputs;
  std::vector<Shape> declared;
  outputs.reserve(engine.results.size());
  declared.reserve(engine.results.size());
  for (const Engine::Result& result : engine.results) {
    outputs.push_back(
        {.name = result.name, .variable = result.variable, .added = result.added, .missing = result.missing});
    const uint32_t shard =
        destinations.known() ? destinations.ShapeShard(result.name, program->symbols()) : KeySpace::kNone;
    declared.push_back(shard == KeySpace::kNone ? Shape() : destinations.shard(shard).global_shape);
  }
  return MappedState(std::move(program), std::move(engine.variables), std::move(outputs), std::move(engine.removed),
                     std::move(engine.used_sources), std::move(declared));
}

}  // namespace cairn::aoa
