#include "foreign/write/torch/exported_values.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using Kind = ObjectValue::Kind;

constexpr size_t kNamesTold = 5;

ObjectValue TextValue(std::string text) {
  ObjectValue value;
  value.kind = Kind::kText;
  value.text = std::move(text);
  return value;
}

// Decides as traverse_state_dict of torch.distributed.checkpoint does.
bool IsTakenApart(const ObjectValue& value) {
  if (value.kind == Kind::kDict) {
    // A key of another kind would become a text, so the dict would change.
    for (size_t i = 0; i < value.items.size(); i += 2) {
      if (value.items[i].kind != Kind::kText && value.items[i].kind != Kind::kInt) return false;
    }
    return true;
  }
  return value.kind == Kind::kList && std::any_of(value.items.begin(), value.items.end(), IsTakenApart);
}

void TakeOneApart(ExportedValue&& whole, std::vector<ExportedValue>& parts) {
  if (!IsTakenApart(whole.value)) {
    parts.push_back(std::move(whole));
    return;
  }
  const bool dict = whole.value.kind == Kind::kDict;
  for (size_t i = 0; i < whole.value.items.size(); i += dict ? 2 : 1) {
    ExportedValue part;
    ObjectValue key;
    key.kind = Kind::kInt;
    key.text = absl::StrCat(i);
    if (dict) key = TextValue(std::move(whole.value.items[i].text));
    part.name = absl::StrCat(whole.name, ".", key.text);
    part.path = whole.path;
    part.object = whole.object;
    part.path.push_back(std::move(key));
    part.value = std::move(whole.value.items[dict ? i + 1 : i]);
    TakeOneApart(std::move(part), parts);
  }
}

}  // namespace

absl::StatusOr<std::vector<ExportedValue>> ReadExportedValues(const Manifest& manifest, const TensorChoice& choice,
                                                              ItemReader& reader) {
  std::vector<ExportedValue> values;
  for (size_t begin = 0, end = 0; begin < manifest.objects.size(); begin = end) {
    const std::string& name = manifest.objects[begin].name;
    while (end < manifest.objects.size() && manifest.objects[end].name == name) ++end;
    if (!IsChosen(choice, name)) continue;
    std::vector<std::string> stored;
    for (size_t i = begin; i < end; ++i) {
      CAIRN_ASSIGN_OR_RETURN(stored.emplace_back(), reader.Read(manifest.objects[i]));
    }
    const bool same = std::all_of(stored.begin(), stored.end(), [&](const auto& each) { return each == stored[0]; });
    for (size_t i = 0; i < (same ? 1 : stored.size()); ++i) {
      ExportedValue whole;
      whole.name = same ? name : absl::StrCat(name, ".rank", *manifest.objects[begin + i].rank);
      whole.path = {TextValue(whole.name)};
      whole.object = name;
      CAIRN_ASSIGN_OR_RETURN(whole.value, ReadObjectValue(stored[i], name));
      values.push_back(std::move(whole));
    }
  }
  std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return values;
}

absl::StatusOr<ValuesOfRanks> ReadValuesOfRanks(const Manifest& manifest, const TensorChoice& choice,
                                                const std::vector<ExportedValue>& values, ItemReader& reader) {
  ValuesOfRanks result;
  result.values.world_size = manifest.world_size;
  absl::flat_hash_set<std::string_view> names;
  for (const ManifestObject& object : manifest.objects) {
    if (!object.rank || !IsChosen(choice, object.name)) continue;
    CAIRN_ASSIGN_OR_RETURN(result.contents.emplace_back(), reader.Read(object));
    result.values.values.push_back({object.name, *object.rank, 0, 0});
    names.insert(object.name);
  }
  for (const ExportedValue& value : values) {
    if (names.contains(value.object)) result.values.stands_for.push_back(value.name);
  }
  return result;
}

std::vector<ExportedValue> TakeApart(std::vector<ExportedValue> values) {
  std::vector<ExportedValue> parts;
  for (ExportedValue& value : values) TakeOneApart(std::move(value), parts);
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return parts;
}

absl::Status CheckNoneIsOpaque(const std::vector<ExportedValue>& values) {
  std::vector<std::string> opaque;
  for (const ExportedValue& value : values) {
    if (const ObjectValue* found = FindOpaque(value.value)) {
      opaque.push_back(absl::StrCat(value.name, " (", found->text, ")"));
    }
  }
  if (opaque.empty()) return absl::OkStatus();
  const size_t told = std::min(opaque.size(), kNamesTold);
  std::string text = absl::StrJoin(opaque.begin(), opaque.begin() + static_cast<ptrdiff_t>(told), ", ");
  if (opaque.size() > told) absl::StrAppend(&text, " and ", opaque.size() - told, " more");
  return MakeError(Reason::kUnsupported,
                   absl::StrCat("these values can only be made by the code of their classes: ", text),
                   {{"names", text}, {"next", "Leave them out by --exclude."}});
}

}  // namespace cairn
