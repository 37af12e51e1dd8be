#include "foreign/read/deepspeed/parallel_rules.h"

#include <re2/re2.h>
#include <re2/set.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr size_t kMostPatterns = 100'000;
constexpr int64_t kMostPatternMemory = int64_t{256} << 20;
constexpr int64_t kMostSubParameters = 10'000;

enum class List : uint8_t {
  kVocabulary,
  kPipelineReplicated,
  kReplicated,
  kAveraged,
  kByColumn,
  kTwoHalves,
  kSubParameters,
  kUnsupported,
};

absl::Status Bad(const std::string& name, const std::string& problem) {
  return MakeError(Reason::kBadForeignFile, absl::StrCat("'", name, "' ", problem), {{"tensor", name}});
}

absl::Status Unsupported(const std::string& name, const std::string& problem, const std::string& next) {
  return MakeError(Reason::kUnsupported, absl::StrCat("'", name, "' ", problem), {{"tensor", name}, {"next", next}});
}

constexpr char kByItsLibrary[] =
    "Make a universal checkpoint (python -m deepspeed.checkpoint.ds_to_universal), and import that.";

// DeepSpeed matches patterns with Python's re. Returns a part of the pattern that Python and RE2 accept but understand
// differently; nothing if there is none.
std::optional<std::string> AmbiguityOf(std::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest[0] == '\\') {
      ++i;
    } else if (rest.starts_with("{,")) {
      const size_t end = std::min(rest.find_first_not_of("0123456789", 2), rest.size());
      if (rest.substr(end).starts_with("}"))
        return "Python takes a bound without a minimum as a bound, and RE2 as text";
    } else if (rest.starts_with("[:")) {
      const size_t end = std::min(rest.find_first_not_of("^abcdefghijklmnopqrstuvwxyz", 2), rest.size());
      if (end > 2 && rest.substr(end).starts_with(":]")) {
        return "Python takes the name of a POSIX class as its letters, and RE2 as the class";
      }
    }
  }
  return std::nullopt;
}

// Returns true if a pattern has character classes that include all of Unicode in Python, and only ASCII in RE2.
bool HasUnicodeClasses(std::string_view pattern) {
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] == '\\' && std::string_view("wWdDsSbB").find(pattern[++i]) != std::string_view::npos) return true;
  }
  return false;
}

// Returns the product of some dimensions; nothing if there is none.
std::optional<int64_t> ProductOf(const Shape& shape, size_t begin, size_t end) {
  if (begin > end || end > shape.size()) return std::nullopt;
  return ElementCount(std::span<const int64_t>(shape).subspan(begin, end - begin));
}

absl::StatusOr<MergedShape> Concatenate(const std::string& name, std::span<const Shape> slices, size_t dimension) {
  MergedShape merged;
  merged.shape = slices[0];
  merged.dimension = dimension;
  if (dimension >= merged.shape.size()) {
    return Bad(name, absl::StrCat("is cut along dimension ", dimension, ", and its parts have the shape ",
                                  ShapeToString(merged.shape)));
  }
  merged.shape[dimension] = 0;
  for (size_t part = 0; part < slices.size(); ++part) {
    Shape rest = slices[part];
    const bool fits = rest.size() == merged.shape.size();
    const int64_t length = fits ? rest[dimension] : 0;
    if (fits) rest[dimension] = merged.shape[dimension];
    if (rest != merged.shape || length < 0 || length > INT64_MAX - merged.shape[dimension]) {
      return Bad(name, absl::StrCat("has parts of the shapes ", ShapeToString(slices[0]), " and ",
                                    ShapeToString(slices[part]), ", which differ by more than dimension ", dimension));
    }
    merged.strips.push_back({static_cast<uint32_t>(part), 0, length, merged.shape[dimension]});
    merged.shape[dimension] += length;
  }
  return merged;
}

// Splits each slice into its shares of the sub-parameters, and joins the shares of each sub-parameter. `widths` has a
// row for each sub-parameter, with a number for each part. It is an error if the widths do not add up to the slices.
absl::StatusOr<MergedShape> Interleave(const std::string& name, std::span<const Shape> slices, size_t dimension,
                                       const std::vector<std::vector<int64_t>>& widths) {
  CAIRN_ASSIGN_OR_RETURN(MergedShape merged, Concatenate(name, slices, dimension));
  merged.strips.clear();
  std::vector<int64_t> used(slices.size(), 0);
  int64_t target = 0;
  for (const std::vector<int64_t>& row : widths) {
    if (row.size() != slices.size()) {
      return Bad(name, absl::StrCat("has ", slices.size(), " parts, and a sub-parameter has ", row.size(), " widths"));
    }
    for (size_t part = 0; part < slices.size(); ++part) {
      if (row[part] < 0 || row[part] > slices[part][dimension] - used[part]) {
        return Bad(name, absl::StrCat("has a part of the shape ", ShapeToString(slices[part]),
                                      ", which its sub-parameters exceed in dimension ", dimension));
      }
      const int64_t begin = used[part];
      used[part] += row[part];
      if (row[part] > 0) merged.strips.push_back({static_cast<uint32_t>(part), begin, used[part], target});
      target += row[part];
    }
  }
  if (target != merged.shape[dimension]) {
    return Bad(name, absl::StrCat("has ", merged.shape[dimension], " elements along dimension ", dimension,
                                  ", and its sub-parameters ", target));
  }
  return merged;
}

// Finds the dimension of the slices that corresponds to dimension `of_view` of a view of the parameter.
std::optional<size_t> DimensionOf(std::span<const Shape> slices, const Shape& view, size_t of_view) {
  const auto before = ProductOf(view, 0, of_view), behind = ProductOf(view, of_view + 1, view.size());
  std::optional<size_t> found;
  for (size_t dimension = 0; dimension < slices[0].size(); ++dimension) {
    const bool fits = std::all_of(slices.begin(), slices.end(), [&](const Shape& slice) {
      return before.has_value() && behind.has_value() && dimension < slice.size() &&
             ProductOf(slice, 0, dimension) == before && ProductOf(slice, dimension + 1, slice.size()) == behind;
    });
    if (fits && (!found || dimension == of_view)) found = dimension;
  }
  return found;
}

absl::StatusOr<MergedShape> MergeSubParameters(const std::string& name, std::span<const Shape> slices,
                                               const ParallelInfo::SubParameters& sub, double version,
                                               const std::vector<std::vector<int64_t>>* widths) {
  const auto parts = static_cast<int64_t>(slices.size());
  if (sub.dimension < 0 || static_cast<size_t>(sub.dimension) >= sub.shape.size()) {
    return Bad(name, "has sub-parameters along a dimension that its shape does not have");
  }
  const auto of_view = static_cast<size_t>(sub.dimension);
  std::vector<int64_t> sizes = sub.sizes;
  if (sizes.empty()) {
    // The view has the number of sub-parameters here, which are of equal size.
    const int64_t count = sub.shape[of_view];
    CAIRN_ASSIGN_OR_RETURN(const MergedShape whole, Concatenate(name, slices, of_view));
    const int64_t length = whole.shape[of_view];
    if (count <= 0 || count > kMostSubParameters || length % count != 0) {
      return Bad(name, absl::StrCat("has ", length, " elements along dimension ", of_view, ", which are no ", count,
                                    " equal sub-parameters"));
    }
    sizes.assign(static_cast<size_t>(count), length / count);
  }
  std::vector<std::vector<int64_t>> even;
  if (version < 0.4) {
    for (const int64_t size : sizes) {
      if (size < 0 || size % parts != 0) {
        return Unsupported(name,
                           absl::StrCat("has a sub-parameter of ", size, " elements in ", parts,
                                        " parts, and its file does not say how many each has"),
                           "Save it with a DeepSpeed of 0.19 or later.");
      }
      even.emplace_back(static_cast<size_t>(parts), size / parts);
    }
    widths = &even;
  } else if (widths == nullptr) {
    return Unsupported(name, "has sub-parameters, and its file does not say how much of each a part has",
                       "Save it with a DeepSpeed that writes 'sub_param_shard_widths'.");
  }
  Shape view = sub.shape;
  view[of_view] = 0;
  for (const int64_t size : sizes) {
    if (size < 0 || size > INT64_MAX - view[of_view]) return Bad(name, "has a sub-parameter without a size");
    view[of_view] += size;
  }
  // One dimension may be -1: it gets the elements that are left.
  int64_t elements = 0;
  for (const Shape& slice : slices) {
    const auto count = ElementCount(slice);
    if (!count || *count > INT64_MAX - elements) return Bad(name, "has a part without an element count");
    elements += *count;
  }
  if (const auto open = std::find(view.begin(), view.end(), -1); open != view.end()) {
    *open = 1;
    const auto known = ElementCount(view);
    if (!known || *known <= 0 || elements % *known != 0) return Bad(name, "does not fit the shape that its file gives");
    *open = elements / *known;
  }
  if (ElementCount(view) != elements) return Bad(name, "does not fit the shape that its file gives");
  const auto dimension = DimensionOf(slices, view, of_view);
  if (!dimension) {
    return Unsupported(name,
                       absl::StrCat("is cut as if its shape were ", ShapeToString(view), ", and its parts have ",
                                    ShapeToString(slices[0])),
                       kByItsLibrary);
  }
  return Interleave(name, slices, *dimension, *widths);
}

}  // namespace

bool ParallelInfo::HasPatterns() const {
  return !vocabulary_patterns.empty() || !pipeline_replicated.empty() || !replicated.empty() || !averaged.empty() ||
         !by_column.empty() || !two_halves.empty() || !sub_parameters.empty() || !unsupported.empty();
}

struct ParallelRules::Patterns {
  // RE2::Set finds all patterns that a name matches in one pass.
  std::unique_ptr<RE2::Set> set;
  struct Entry {
    List list;
    size_t index;  // of the pattern; of kSubParameters: of the sub-parameters
    std::string text;
  };
  std::vector<Entry> entries;
  std::optional<std::string> unicode;  // a pattern that may match names outside of ASCII in Python but not in RE2

  // The patterns that a name matches, in their order.
  std::vector<const Entry*> Matching(const std::string& name) const {
    std::vector<int> found;
    std::vector<const Entry*> matching;
    if (set == nullptr || !set->Match(name, &found)) return matching;
    std::sort(found.begin(), found.end());
    for (const int index : found) matching.push_back(&entries[static_cast<size_t>(index)]);
    return matching;
  }
};

ParallelRules::ParallelRules(ParallelInfo info, std::unique_ptr<Patterns> patterns)
    : info_(std::move(info)), patterns_(std::move(patterns)) {}
ParallelRules::ParallelRules(ParallelRules&&) noexcept = default;
ParallelRules& ParallelRules::operator=(ParallelRules&&) noexcept = default;
ParallelRules::~ParallelRules() = default;

absl::StatusOr<ParallelRules> ParallelRules::Create(ParallelInfo info) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMostPatternMemory);
  auto patterns = std::make_unique<Patterns>();
  auto set = std::make_unique<RE2::Set>(options, RE2::ANCHOR_START);
  absl::Status status;
  const auto add = [&](List list, size_t index, const std::string& text) {
    if (!status.ok()) return;
    std::string problem;
    if (patterns->entries.size() == kMostPatterns) {
      status = MakeError(Reason::kUnsupported, absl::StrCat("there are more than ", kMostPatterns, " patterns"));
    } else if (auto ambiguity = AmbiguityOf(text); ambiguity.has_value() || set->Add(text, &problem) < 0) {
      if (ambiguity) problem = *std::move(ambiguity);
      status = MakeError(Reason::kUnsupported,
                         absl::StrCat("Cairn cannot match the pattern '", text.substr(0, 200), "': ", problem),
                         {{"next", kByItsLibrary}});
    }
    if (!patterns->unicode && HasUnicodeClasses(text)) patterns->unicode = text;
    patterns->entries.push_back({list, index, text});
  };
  const auto add_all = [&](List list, const std::vector<std::string>& texts) {
    for (size_t i = 0; i < texts.size(); ++i) add(list, i, texts[i]);
  };
  add_all(List::kVocabulary, info.vocabulary_patterns);
  add_all(List::kPipelineReplicated, info.pipeline_replicated);
  add_all(List::kReplicated, info.replicated);
  add_all(List::kAveraged, info.averaged);
  add_all(List::kByColumn, info.by_column);
  add_all(List::kTwoHalves, info.two_halves);
  for (size_t i = 0; i < info.sub_parameters.size(); ++i) {
    for (const std::string& text : info.sub_parameters[i].patterns) add(List::kSubParameters, i, text);
  }
  for (const auto& [text, why] : info.unsupported) add(List::kUnsupported, 0, text);
  CAIRN_RETURN_IF_ERROR(status);
  if (!patterns->entries.empty()) {
    if (!set->Compile()) {
      return MakeError(Reason::kUnsupported, "the patterns of its parameters take too much memory",
                       {{"next", kByItsLibrary}});
    }
    patterns->set = std::move(set);
  }
  return ParallelRules(std::move(info), std::move(patterns));
}

bool ParallelRules::IsPipelineReplicated(const std::string& name) const {
  const auto matching = patterns_->Matching(name);
  return std::any_of(matching.begin(), matching.end(),
                     [](const Patterns::Entry* entry) { return entry->list == List::kPipelineReplicated; });
}

absl::StatusOr<MergedShape> ParallelRules::Merge(const std::string& name, std::span<const Shape> slices) const {
  if (patterns_->unicode && std::any_of(name.begin(), name.end(), [](char c) { return (c & 0x80) != 0; })) {
    return Unsupported(name,
                       absl::StrCat("is not ASCII, and the pattern '", patterns_->unicode->substr(0, 200),
                                    "' means other characters in Python than here"),
                       kByItsLibrary);
  }
  const auto matching = patterns_->Matching(name);
  const auto find = [&](List list) -> const Patterns::Entry* {
    const auto found = std::find_if(matching.begin(), matching.end(),
                                    [&](const Patterns::Entry* entry) { return entry->list == list; });
    return found == matching.end() ? nullptr : *found;
  };
  if (const auto* entry = find(List::kUnsupported)) {
    return Unsupported(name, absl::StrCat("cannot be put together: ", info_.unsupported.at(entry->text)),
                       "Leave it out of the parallel layers, or save the model without tensor parallelism.");
  }
  MergedShape merged;
  if (find(List::kReplicated) != nullptr) {
    CAIRN_ASSIGN_OR_RETURN(merged, MergeReplicas(name, slices));
  } else if (find(List::kAveraged) != nullptr && slices.size() > 1) {
    return Unsupported(name, "is the average of its parts, which only DeepSpeed computes", kByItsLibrary);
  } else if (find(List::kTwoHalves) != nullptr) {
    std::vector<std::vector<int64_t>> halves(2);
    for (const Shape& slice : slices) {
      const int64_t length = slice.empty() ? 0 : slice[0];
      halves[0].push_back(length - length / 2);  // as torch.chunk does
      halves[1].push_back(length / 2);
    }
    CAIRN_ASSIGN_OR_RETURN(merged, Interleave(name, slices, 0, halves));
  } else if (const auto* sub = find(List::kSubParameters)) {
    const auto widths = info_.widths.find(sub->text);
    CAIRN_ASSIGN_OR_RETURN(merged, MergeSubParameters(name, slices, info_.sub_parameters[sub->index], info_.version,
                                                      widths == info_.widths.end() ? nullptr : &widths->second));
  } else {
    CAIRN_ASSIGN_OR_RETURN(merged, Concatenate(name, slices, find(List::kByColumn) != nullptr ? 1 : 0));
  }
  if (find(List::kVocabulary) == nullptr) return merged;
  if (info_.vocabulary <= 0 || merged.shape.empty()) {
    return Bad(name, "has a padded vocabulary, and its file does not say how large it is without the padding");
  }
  merged.shape[0] = std::min(merged.shape[0], info_.vocabulary);
  return merged;
}

absl::StatusOr<MergedShape> MergeReplicas(const std::string& name, std::span<const Shape> slices) {
  for (const Shape& slice : slices) {
    if (slice != slices[0]) {
      return Bad(name, absl::StrCat("is the same in all parts, and has the shapes ", ShapeToString(slices[0]), " and ",
                                    ShapeToString(slice)));
    }
  }
  return MergedShape{slices[0], 0, {{0, 0, slices[0].empty() ? 1 : slices[0][0], 0}}};
}

bool AppendMerged(const MergedShape& merged, uint32_t part, const BoxAt& piece, size_t most,
                  std::vector<BoxAt>& boxes) {
  const size_t ndim = merged.shape.size(), d = merged.dimension;
  if (ndim == 0) {
    if (!merged.strips.empty() && merged.strips[0].part == part) boxes.push_back(piece);
    return boxes.size() <= most;
  }
  // The number of elements in one step along `d` and, as `row`, in all steps along `d`.
  int64_t inner = 1;
  for (size_t i = d + 1; i < ndim; ++i) inner *= piece.box.shape[i];
  const int64_t row = inner * piece.box.shape[d];
  for (const MergedShape::Strip& strip : merged.strips) {
    if (strip.part != part) continue;
    const int64_t first = std::max(strip.begin, piece.box.offset[d]);
    const int64_t end = std::min(strip.end, piece.box.offset[d] + piece.box.shape[d]);
    if (first >= end || inner == 0) continue;
    // Each row of the piece along `d` has a part of the strip. If it has the whole strip, the rows are contiguous.
    const bool whole = end - first == piece.box.shape[d];
    const int64_t outer = whole ? 1 : piece.box.size() / row;
    for (int64_t i = 0; i < outer; ++i) {
      BoxAt added = piece;
      added.offset += i * row + (first - piece.box.offset[d]) * inner;
      if (!whole) {
        int64_t rest = i;
        for (size_t axis = d; axis-- > 0;) {
          added.box.offset[axis] += rest % piece.box.shape[axis];
          rest /= piece.box.shape[axis];
          added.box.shape[axis] = 1;
        }
      }
      added.box.offset[d] = first - strip.begin + strip.target;
      added.box.shape[d] = end - first;
      // Rows of padding are at the end of the parameter, so the rows before them are still contiguous.
      added.box.shape[0] = std::min(added.box.shape[0], merged.shape[0] - added.box.offset[0]);
      if (added.box.shape[0] <= 0) continue;
      if (boxes.size() == most) return false;
      boxes.push_back(std::move(added));
    }
  }
  return true;
}

}  // namespace cairn
