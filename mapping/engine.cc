#include "mapping/engine.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "mapping/state_key.h"
#include "mapping/suggestion.h"

namespace cairn::aoa {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

const Attribute* FindAttribute(const Statement& statement, Symbol key) {
  for (const Attribute& attribute : statement.attributes) {
    if (attribute.key == key) return &attribute;
  }
  return nullptr;
}

std::string ListText(const Shape& list) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", list[i]);
  return text += ']';
}

}  // namespace

Engine::Engine(Program& program, const KeySpace& source, const KeySpace& destination, bool reverse,
               Diagnostics& diagnostics)
    : program_(program), destination_(destination), reverse_(reverse), diagnostics_(diagnostics) {
  const size_t symbols = program.symbols().size();
  inputs_.assign(symbols, kUnset);
  bindings_.assign(symbols, kUnset);
  added_.assign(symbols, false);
  removed_by_.assign(symbols, kNoLine);
  // Most mappings transpose each tensor and give it another name.
  variables.Reserve(source.weights().size(), 3 * source.weights().size());
  for (Symbol weight : source.weights()) {
    const uint32_t shard = source.ShapeShard(weight, program.symbols());
    // If only optimizer states of a weight exist, the weight has a shape but no dtype of its own.
    const bool own = source.FirstShard(weight) != KeySpace::kNone;
    const SourceId id = variables.AddSource({.name = weight,
                                             .dtype = own ? source.shard(shard).dtype : DType::kUnspecified,
                                             .shape = source.shard(shard).global_shape});
    inputs_[weight] = variables.Whole(id);
  }
  input_names_ = source.weights();
  consumed_.assign(input_names_.size(), false);
  used_sources.assign(input_names_.size(), false);
}

std::string Engine::Quoted(Symbol name) const { return absl::StrCat("'", View(program_.symbols().Text(name)), "'"); }

std::string Engine::Described(Symbol name, VariableId variable) const {
  constexpr size_t kMaxSources = 4;
  const auto described = [&](Symbol symbol, DType dtype, std::span<const int64_t> shape) {
    return absl::StrCat(Quoted(symbol), " ", dtype == DType::kUnspecified ? "" : absl::StrCat(View(NameOf(dtype)), " "),
                        ShapeToString(shape));
  };
  const std::string text = described(name, variables.variable(variable).dtype, variables.shape(variable));
  std::string of;
  std::vector<SourceId> sources;
  for (const Slice& slice : variables.slices(variable)) {
    if (std::find(sources.begin(), sources.end(), slice.source) == sources.end()) sources.push_back(slice.source);
    if (sources.size() > kMaxSources) break;
  }
  if (sources.size() == 1 && variables.source(sources[0]).name == name) return text;
  for (size_t i = 0; i < std::min(sources.size(), kMaxSources); ++i) {
    const SourceTensor& source = variables.source(sources[i]);
    absl::StrAppend(&of, i == 0 ? " (made of " : ", ", described(source.name, source.dtype, source.shape));
  }
  return absl::StrCat(text, of, sources.size() > kMaxSources ? " and others)" : ")");
}

void Engine::Fail(LineId line, Reason reason, std::string message) {
  diagnostics_.Add(reason, line, Stage::kEngine, std::move(message));
}

void Engine::Fail(LineId line, const absl::Status& status, std::string_view before, std::string_view after) {
  Fail(line, ReasonOf(status).value_or(Reason::kInternal), absl::StrCat(View(before), status.message(), View(after)));
}

std::vector<Symbol> Engine::KnownNames() const {
  std::vector<Symbol> names = input_names_;
  names.insert(names.end(), written_.begin(), written_.end());
  return names;
}

VariableId Engine::Read(const Statement& statement, Symbol name) {
  VariableId variable = bindings_[name];
  if (variable == kUnset) variable = inputs_[name];
  if (variable == kSpoiled) return kSpoiled;
  if (variable != kUnset) {
    if (consumed_.size() <= variable) consumed_.resize(variable + 1);
    consumed_[variable] = true;
    return variable;
  }
  const std::string_view text = program_.symbols().Text(name);
  std::string message = absl::StrCat(Quoted(name),
                                     " should be assigned before! No source tensor and no earlier "
                                     "statement gives it");
  if (const StateKey state = SplitStateKey(text); !state.suffix.empty()) {
    absl::StrAppend(&message, "; mappings name weights, their optimizer states follow: write '", View(state.weight),
                    "'");
  } else if (name == kNothing) {
    absl::StrAppend(&message, "; '_' stands alone on its side");
  } else if (diagnostics_.has_room()) {
    message += Suggest(text, KnownNames(), program_.symbols());
  }
  Fail(statement.line, Reason::kMappingUnknownName, std::move(message));
  return kSpoiled;
}

void Engine::Write(Symbol name, VariableId variable) {
  if (bindings_[name] == kUnset) written_.push_back(name);
  bindings_[name] = variable;
}

void Engine::Run(const std::vector<Statement>& statements) {
  size_t made = 0;
  for (const Statement& statement : statements) made += RightCount(statement);
  variables.Reserve(0, std::min<size_t>(made, 1 << 20));
  if (reverse_) {
    for (size_t i = statements.size(); i-- > 0;) Execute(statements[i]);
  } else {
    for (const Statement& statement : statements) Execute(statement);
  }
}

void Engine::Execute(const Statement& statement) {
  if (LeftCount(statement) > 1 || RightCount(statement) > 1) return ExecuteMany(statement);
  const Symbol from = Left(statement, 0), to = Right(statement, 0);
  if (from == kNothing && to == kNothing) {
    return Fail(statement.line, Reason::kMappingSyntax, "'_ -> _' maps nothing to nothing");
  }
  if (to == kNothing) {
    // A temporary is just dropped, but a source tensor is taken out of the mapping.
    if (bindings_[from] != kUnset) {
      Read(statement, from);
    } else if (removed_by_[from] == kNoLine) {
      removed_by_[from] = statement.line;
      removed.push_back(from);
    }
    return;
  }
  if (from == kNothing) {
    added_[to] = true;
    return;
  }
  ExecuteOne(statement, from, to);
}

void Engine::ExecuteOne(const Statement& statement, Symbol from, Symbol to) {
  const VariableId in = Read(statement, from);
  if (in == kSpoiled) return Write(to, kSpoiled);
  absl::StatusOr<VariableId> out = statement.attributes.empty() ? variables.Rename(in) : Transform(statement, in, to);
  if (!out.ok()) {
    Fail(statement.line, out.status(), absl::StrCat(Quoted(from), ": "));
    return Write(to, kSpoiled);
  }
  Write(to, *out);
}

absl::StatusOr<VariableId> Engine::CastBy(const Statement& statement, VariableId in) {
  const SymbolTable& symbols = program_.symbols();
  Symbol target = statement.attributes[0].value;
  if (statement.attributes.size() == 2 && !reverse_) target = statement.attributes[1].value;
  if (statement.attributes.size() == 1 && reverse_) {
    return MakeError(Reason::kMappingDtype,
                     "dtype= alone cannot run backwards (aoa_config_reverse): it does not say what to cast back to; "
                     "write src_dtype='...', dst_dtype='...'");
  }
  for (const Attribute& attribute : statement.attributes) {
    const auto dtype = DTypeFromName(symbols.Text(attribute.value));
    if (dtype.has_value() && IsCastable(*dtype)) continue;
    return MakeError(Reason::kMappingDtype,
                     absl::StrCat("Unsupported cast dtype: ", View(symbols.Text(attribute.value)),
                                  "; a mapping casts between ", CastableNames(), " only"));
  }
  return variables.Cast(in, *DTypeFromName(symbols.Text(target)));
}

absl::StatusOr<VariableId> Engine::PermuteBy(const Attribute& attribute, VariableId in) {
  const size_t dims = variables.shape(in).size();
  if (permutation_.value == attribute.value && permutation_.dims == dims && !permutation_.text.empty()) {
    return variables.Permute(in, permutation_.axes, permutation_.text);
  }
  const std::string_view value = program_.symbols().Text(attribute.value);
  auto axes = ParseList(value);
  if (!axes.has_value()) {
    return MakeError(Reason::kMappingSyntax,
                     absl::StrCat("permute='", View(value), "' is no list of axes like '[1, 0]'"));
  }
  std::string text(value);
  if (axes->empty()) {
    axes->resize(dims);
    std::iota(axes->rbegin(), axes->rend(), 0);
    text = ListText(*axes);
  } else if (reverse_) {
    Shape inverse(axes->size(), -1);
    for (size_t i = 0; i < axes->size(); ++i) {
      if ((*axes)[i] < static_cast<int64_t>(axes->size())) inverse[(*axes)[i]] = static_cast<int64_t>(i);
    }
    // A list that is no permutation has no inverse, so it is refused below in the form in which it was written.
    if (std::find(inverse.begin(), inverse.end(), -1) == inverse.end()) {
      axes = inverse;
      text = ListText(*axes);
    }
  }
  permutation_ = {attribute.value, dims, *axes, text};
  return variables.Permute(in, *axes, text);
}

absl::StatusOr<VariableId> Engine::Transform(const Statement& statement, VariableId in, Symbol to) {
  const SymbolTable& symbols = program_.symbols();
  const auto& attributes = statement.attributes;
  const Attribute& first = attributes[0];
  const std::string_view value = symbols.Text(first.value);
  const auto unsupported = [&](std::string_view why) {
    std::string text;
    for (const Attribute& attribute : attributes) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", View(symbols.Text(attribute.key)));
    }
    return MakeError(Reason::kMappingSyntax, absl::StrCat("Unsupported attribute: ", text, View(why)));
  };
  if (attributes.size() == 2 && first.key == kSrcDtype && attributes[1].key == kDstDtype) return CastBy(statement, in);
  if (FindAttribute(statement, kSrcDtype) != nullptr || FindAttribute(statement, kDstDtype) != nullptr) {
    return unsupported("; src_dtype and dst_dtype come as a pair, in this order");
  }
  if (attributes.size() > 1) {
    return unsupported("; one statement carries one operator: chain several over temporaries");
  }
  if (first.is_string == (first.key == kAxis)) {
    return unsupported(first.key == kAxis ? " must be a number" : " must be text in quotes");
  }
  switch (first.key) {
    case kAxis: {  // what is left of a merge or split with only one part
      const auto axis = ParseNumber(value);
      if (!axis.has_value() || *axis >= static_cast<int64_t>(variables.shape(in).size())) {
        return MakeError(Reason::kMappingShape, absl::StrCat("axis ", View(value), " is out of range for shape ",
                                                             ShapeToString(variables.shape(in))));
      }
      return variables.Rename(in);
    }
    case kDtype:
      return CastBy(statement, in);
    case kPermute:
      return PermuteBy(first, in);
    case kReshape: {
      const auto canonical = ParseList(value);
      if (!canonical.has_value()) {
        return MakeError(Reason::kMappingSyntax,
                         absl::StrCat("reshape='", View(value), "' is no shape like '[8, 128, 64]'"));
      }
      const uint32_t shard = destination_.HasWeight(to) ? destination_.ShapeShard(to, symbols) : KeySpace::kNone;
      return variables.Reshape(in, *canonical, std::string(value),
                               shard == KeySpace::kNone ? nullptr : &destination_.shard(shard).global_shape);
    }
    default:
      return unsupported("");
  }
}

void Engine::ExecuteMany(const Statement& statement) {
  const SymbolTable& symbols = program_.symbols();
  const uint32_t n = LeftCount(statement), m = RightCount(statement);
  const auto spoil = [&] {
    for (uint32_t i = 0; i < m; ++i) Write(Right(statement, i), kSpoiled);
  };
  const auto fail = [&](Reason reason, std::string message) {
    Fail(statement.line, reason, std::move(message));
    spoil();
  };
  std::vector<VariableId> in(n);
  bool readable = true;
  for (uint32_t i = 0; i < n; ++i) {
    in[i] = Read(statement, Left(statement, i));
    readable &= in[i] != kSpoiled;
  }
  if (n > 1 && m > 1) return fail(Reason::kMappingSyntax, "one side of a statement must be a single name");
  const Attribute* axis_attribute = FindAttribute(statement, kAxis);
  const Attribute* sizes_attribute = FindAttribute(statement, kSizes);
  const size_t expected = 1 + (sizes_attribute != nullptr);
  if (axis_attribute == nullptr || statement.attributes.size() != expected) {
    std::string text;
    for (const Attribute& attribute : statement.attributes) {
      absl::StrAppend(&text, text.empty() ? "" : ", ", View(symbols.Text(attribute.key)));
    }
    return fail(Reason::kMappingSyntax,
                absl::StrCat("When split/merge, only one attribute named `axis` is supported (and `sizes`), but got [",
                             text, "]"));
  }
  const auto axis = ParseNumber(symbols.Text(axis_attribute->value));
  if (axis_attribute->is_string || !axis.has_value()) {
    return fail(Reason::kMappingSyntax,
                absl::StrCat("axis=", View(symbols.Text(axis_attribute->value)), " must be a number"));
  }
  std::optional<Shape> sizes;
  if (sizes_attribute != nullptr) {
    sizes = ParseList(symbols.Text(sizes_attribute->value));
    if (!sizes_attribute->is_string || !sizes.has_value() || sizes->size() != std::max(n, m)) {
      return fail(Reason::kMappingSyntax, absl::StrCat("sizes='", View(symbols.Text(sizes_attribute->value)),
                                                       "' must list ", std::max(n, m), " sizes, one for each part"));
    }
  }
  if (!readable) return spoil();
  if (m == 1) {
    for (uint32_t i = 0; sizes.has_value() && i < n; ++i) {
      const auto shape = variables.shape(in[i]);
      if (*axis >= static_cast<int64_t>(shape.size()) || shape[*axis] == (*sizes)[i]) continue;
      return fail(Reason::kMappingShape, absl::StrCat(Quoted(Left(statement, i)), " has shape ", ShapeToString(shape),
                                                      ", but sizes says ", (*sizes)[i], " along axis ", *axis));
    }
    const auto merged =
        variables.Merge(in, *axis, [&](size_t part) { return Quoted(Left(statement, static_cast<uint32_t>(part))); });
    if (!merged.ok()) {
      constexpr uint32_t kMaxParts = 8;
      std::string parts;
      for (uint32_t i = 0; i < std::min(n, kMaxParts); ++i) {
        absl::StrAppend(&parts, i == 0 ? "; the parts are " : ", ", Described(Left(statement, i), in[i]));
      }
      if (n > kMaxParts) absl::StrAppend(&parts, " and ", n - kMaxParts, " more");
      Fail(statement.line, merged.status(), absl::StrCat("merge of ", n, " into ", Quoted(Right(statement, 0)), ": "),
           parts);
      return spoil();
    }
    return Write(Right(statement, 0), *merged);
  }
  const auto shape = variables.shape(in[0]);
  const auto what = [&] {
    return absl::StrCat("split of ", Quoted(Left(statement, 0)), ", shape ", ShapeToString(variables.shape(in[0])),
                        ", into ", m, " parts along axis ", *axis, ": ");
  };
  if (*axis >= static_cast<int64_t>(shape.size())) {
    return fail(Reason::kMappingShape, absl::StrCat(what(), "the axis is out of range"));
  }
  if (!sizes.has_value()) {
    if (shape[*axis] % m != 0) {
      return fail(Reason::kMappingShape,
                  absl::StrCat(what(), shape[*axis], " is not divisible by ", m, "; unequal parts need sizes='[...]'"));
    }
    sizes = Shape(m, shape[*axis] / m);
  }
  int64_t total = 0;
  for (int64_t size : *sizes) {
    if (__builtin_add_overflow(total, size, &total)) total = -1;
    if (total < 0) break;
  }
  if (total != shape[*axis]) {
    return fail(Reason::kMappingShape, absl::StrCat(what(), "the sizes do not add up to ", shape[*axis]));
  }
  const auto pieces = variables.Split(in[0], *axis, *sizes);
  if (!pieces.ok()) {
    Fail(statement.line, pieces.status(), what());
    return spoil();
  }
  for (uint32_t i = 0; i < m; ++i) Write(Right(statement, i), (*pieces)[i]);
}

void Engine::Finish(bool allow_missing) {
  const SymbolTable& symbols = program_.symbols();
  consumed_.resize(std::max<size_t>(consumed_.size(), 1));
  const auto unread = [&](VariableId variable) { return variable >= consumed_.size() || !consumed_[variable]; };
  if (destination_.known()) {
    for (Symbol name : destination_.weights()) {
      Result result{.name = name, .variable = kNoVariable};
      if (bindings_[name] == kSpoiled) continue;
      if (bindings_[name] != kUnset) {
        result.variable = bindings_[name];
      } else if (added_[name] || (inputs_[name] != kUnset && removed_by_[name] != kNoLine)) {
        result.added = true;
      } else if (inputs_[name] != kUnset) {
        result.variable = inputs_[name];
      } else {
        result.missing = true;
        if (!allow_missing) {
          std::string message = absl::StrCat("the destination tensor ", Quoted(name),
                                             " needs to be loaded, but not found in checkpoint and given by no "
                                             "statement; to keep its initial value add the statement '_ -> ",
                                             View(symbols.Text(name)), "'");
          if (diagnostics_.has_room()) message += Suggest(symbols.Text(name), KnownNames(), symbols);
          diagnostics_.Add(Reason::kMappingUncovered, kNoLine, Stage::kEngine, std::move(message));
        }
      }
      results.push_back(result);
    }
  } else {
    for (Symbol name : written_) {
      if (bindings_[name] == kSpoiled || !unread(bindings_[name])) continue;
      results.push_back({.name = name, .variable = bindings_[name]});
    }
    for (Symbol name : input_names_) {
      // A source tensor that no statement reads becomes an output unchanged, unless a statement has assigned its name.
      if (!unread(inputs_[name]) || removed_by_[name] != kNoLine) continue;
      if (bindings_[name] != kUnset && bindings_[name] != kSpoiled && unread(bindings_[name])) continue;
      results.push_back({.name = name, .variable = inputs_[name]});
    }
  }
  std::sort(results.begin(), results.end(),
            [&](const Result& a, const Result& b) { return symbols.Text(a.name) < symbols.Text(b.name); });

  for (const Result& result : results) {
    if (result.variable == kNoVariable) continue;
    for (const Slice& slice : variables.slices(result.variable)) {
      if (used_sources[slice.source]) continue;
      used_sources[slice.source] = true;
      const Symbol name = variables.source(slice.source).name;
      if (removed_by_[name] == kNoLine) continue;
      Fail(removed_by_[name], Reason::kMappingUncovered,
           absl::StrCat(Quoted(name), " is removed here, but ", Quoted(result.name),
                        " needs it: its elements would have no source"));
    }
  }
}

}  // namespace cairn::aoa
