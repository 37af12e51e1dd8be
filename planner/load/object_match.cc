#include "planner/load/object_match.h"

#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "planner/layout/rank_keys.h"

namespace cairn {
namespace {

using Names = std::set<std::string_view>;
using Wish = LayoutSet::Wish;

Names StoredNames(const Manifest& source) {
  Names names;
  for (const ManifestObject& object : source.objects) names.insert(object.name);
  return names;
}

// Returns whether one of the names is a part of `whole`: whether it begins with `whole` and a dot.
bool HasParts(const Names& names, std::string_view whole) {
  const std::string begin = absl::StrCat(absl::string_view(whole.data(), whole.size()), ".");
  const auto first = names.lower_bound(begin);
  return first != names.end() && first->substr(0, begin.size()) == begin;
}

bool IsPart(const Names& names, std::string_view name) {
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    if (names.contains(name.substr(0, dot))) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> MissingObjects(const Manifest& source, const LayoutSet& targets) {
  const Names stored = StoredNames(source);
  Names tensors;  // filled when first needed, because there may be very many
  const auto has_tensors = [&](const std::string& name) {
    if (tensors.empty()) {
      for (const ManifestTensor& tensor : source.tensors) tensors.insert(tensor.name);
    }
    return HasParts(tensors, name);
  };
  std::vector<std::string> missing;
  for (const LayoutSet::Object& object : targets.objects()) {
    if (object.wish == Wish::kIfThere || object.wish == Wish::kPlace || stored.contains(object.name)) continue;
    if (object.wish == Wish::kInParts && (HasParts(stored, object.name) || has_tensors(object.name))) continue;
    missing.push_back(object.name);
  }
  return missing;
}

std::vector<std::string> UnexpectedObjects(const Manifest& source, const LayoutSet& targets) {
  Names places, wanted;
  for (const LayoutSet::Object& object : targets.objects()) {
    (object.wish == Wish::kPlace ? places : wanted).insert(object.name);
  }
  std::vector<std::string> unexpected;
  if (places.empty()) return unexpected;
  const std::vector<std::string_view> names(wanted.begin(), wanted.end());
  for (const std::string_view name : StoredNames(source)) {
    if (!IsPart(places, name) || wanted.contains(name) || IsPart(wanted, name) || HasParts(wanted, name)) continue;
    if (IsOfAnotherRank(names, name)) continue;
    unexpected.emplace_back(name);
  }
  return unexpected;
}

}  // namespace cairn
