#include "planner/load/object_match.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "planner/layout/name_parts.h"
#include "planner/layout/rank_keys.h"

namespace cairn {
namespace {

using Names = std::vector<std::string_view>;  // sorted
using Wish = LayoutSet::Wish;

template <typename Named>
Names NamesOf(const std::vector<Named>& all) {
  Names names;
  names.reserve(all.size());
  for (const Named& each : all) names.push_back(each.name);
  std::sort(names.begin(), names.end());
  return names;
}

bool Contains(const Names& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

}  // namespace

std::vector<std::string> MissingObjects(const Manifest& source, const LayoutSet& targets) {
  const Names stored = NamesOf(source.objects);
  std::optional<Names> tensors;  // made when first needed, because there may be very many
  const auto has_tensors = [&](const std::string& name) {
    if (!tensors) tensors = NamesOf(source.tensors);
    return HasPartsOf(*tensors, name);
  };
  std::vector<std::string> missing;
  for (const LayoutSet::Object& object : targets.objects()) {
    if (object.wish == Wish::kIfThere || object.wish == Wish::kPlace || Contains(stored, object.name)) continue;
    if (object.wish == Wish::kInParts && (HasPartsOf(stored, object.name) || has_tensors(object.name))) continue;
    missing.push_back(object.name);
  }
  return missing;
}

std::vector<std::string> UnexpectedObjects(const Manifest& source, const LayoutSet& targets) {
  Names places, wanted;
  for (const LayoutSet::Object& object : targets.objects()) {
    (object.wish == Wish::kPlace ? places : wanted).push_back(object.name);
  }
  std::vector<std::string> unexpected;
  if (places.empty()) return unexpected;
  std::sort(places.begin(), places.end());
  std::sort(wanted.begin(), wanted.end());
  Names stored = NamesOf(source.objects);
  stored.erase(std::unique(stored.begin(), stored.end()), stored.end());
  for (const std::string_view name : stored) {
    if (!IsPartOfAny(places, name) || Contains(wanted, name)) continue;
    if (IsPartOfAny(wanted, name) || HasPartsOf(wanted, name) || IsOfAnotherRank(wanted, name)) continue;
    unexpected.emplace_back(name);
  }
  return unexpected;
}

}  // namespace cairn
