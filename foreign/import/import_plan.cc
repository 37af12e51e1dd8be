#include "foreign/import/import_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/torch/torch_value.h"
#include "planner/layout/layout_description.h"

namespace cairn {
namespace {

constexpr uint64_t kSlotBytes = 4096;
// A load reads the parts of a bin in any order, so bins need not be small; but a header has an entry for every block.
constexpr uint64_t kBinBytes = uint64_t{4} << 30;
constexpr uint64_t kMostBins = 99;

LayoutDescription Describe(const Manifest& source, const ImportPlan& plan, int rank) {
  LayoutDescription layout;
  for (const uint32_t number : plan.ranks[static_cast<size_t>(rank)].objects) {
    const ImportObject& object = plan.objects[number];
    const ManifestObject& stored = source.objects[object.source];
    const uint64_t slot = (std::max<uint64_t>(object.bytes, 1) + kSlotBytes - 1) / kSlotBytes * kSlotBytes;
    layout.objects.push_back({stored.name, slot, stored.rank.has_value()});
  }
  if (rank != 0) return layout;
  for (const WholeTensor& tensor : plan.tensors) {
    layout.tensors.push_back(
        {tensor.plain.name, tensor.plain.dtype, tensor.plain.shape, {{WholeBox(tensor.plain.shape), std::nullopt}}});
  }
  layout.aliases = plan.aliases;
  return layout;
}

std::vector<StoredItem> ItemsOf(const LayoutDescription& layout, int rank) {
  std::vector<StoredItem> items;
  for (const TensorDescription& tensor : layout.tensors) {
    StoredItem& item = items.emplace_back();
    item.name = tensor.name;
    item.dtype = tensor.dtype;
    item.global_shape = tensor.global_shape;
    item.box = WholeBox(tensor.global_shape);
  }
  for (const ObjectDescription& object : layout.objects) {
    StoredItem& item = items.emplace_back();
    item.name = object.name;
    item.dtype = DType::kUint8;
    item.global_shape = {static_cast<int64_t>(object.slot_bytes)};
    item.box = WholeBox(item.global_shape);
    item.object = true;
    if (object.per_rank) item.object_rank = rank;
  }
  return items;
}

}  // namespace

absl::StatusOr<std::string> ReadImportedObject(const Manifest& source, uint32_t object, ItemReader& reader) {
  const ManifestObject& stored = source.objects[object];
  CAIRN_ASSIGN_OR_RETURN(const std::string archive, reader.Read(stored));
  return EncodeTorchValue(archive, absl::StrCat(source.files[stored.file].name, ": '", stored.name, "'"));
}

absl::StatusOr<ImportPlan> MakeImportPlan(const Manifest& source, const TensorChoice& choice, ItemReader& reader) {
  CAIRN_ASSIGN_OR_RETURN(std::vector<WholeTensor> tensors, ChooseTensors(source, choice));
  std::sort(tensors.begin(), tensors.end(),
            [](const WholeTensor& a, const WholeTensor& b) { return a.plain.name < b.plain.name; });
  std::vector<ImportObject> objects;
  for (uint32_t i = 0; i < source.objects.size(); ++i) {
    if (!IsChosen(choice, source.objects[i].name)) continue;
    CAIRN_ASSIGN_OR_RETURN(const std::string bytes, ReadImportedObject(source, i, reader));
    objects.push_back({i, bytes.size(), HoldsOpaqueValue(bytes)});
  }
  if (tensors.empty() && objects.empty()) {
    return MakeError(
        Reason::kBadRequest, "nothing to import: no tensor and no value is left",
        {{"next", "Look at --include, --exclude and the mapping: they leave out every name of the source."}});
  }
  ImportPlan plan{std::move(tensors), std::move(objects), ChooseAliases(source, choice), SavePlan(nullptr), {}, 0};
  const bool of_ranks = std::any_of(plan.objects.begin(), plan.objects.end(), [&](const ImportObject& object) {
    return source.objects[object.source].rank.has_value();
  });
  plan.ranks.resize(of_ranks ? source.world_size : 1);
  for (uint32_t i = 0; i < plan.objects.size(); ++i) {
    const std::optional<int> rank = source.objects[plan.objects[i].source].rank;
    plan.ranks[static_cast<size_t>(rank.value_or(0))].objects.push_back(i);
  }
  std::vector<std::string> layouts, digests;
  uint64_t total = 0;
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    const LayoutDescription layout = Describe(source, plan, static_cast<int>(r));
    plan.ranks[r].items = ItemsOf(layout, static_cast<int>(r));
    for (const StoredItem& item : plan.ranks[r].items) {
      total += item.bytes();
      if (!item.object) plan.tensor_bytes += item.bytes();
    }
    layouts.push_back(SerializeLayout(layout));
    digests.push_back(Digest(layouts.back()));
  }
  std::vector<RankInput> inputs;
  for (size_t r = 0; r < plan.ranks.size(); ++r) inputs.push_back({static_cast<int>(r), "", layouts[r], digests[r]});
  SaveOptions options;
  options.bins_per_rank = static_cast<int>(std::clamp<uint64_t>(total / kBinBytes + 1, 1, kMostBins));
  CAIRN_ASSIGN_OR_RETURN(plan.save, MakeSavePlan(inputs, options));
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    if (!plan.ranks[r].part.ParseFromString(plan.save.PartFor(static_cast<int>(r)))) {
      return MakeError(Reason::kInternal, "the plan of the import cannot be parsed");
    }
  }
  return plan;
}

}  // namespace cairn
