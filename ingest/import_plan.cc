#include "ingest/import_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "import/torch_value.h"
#include "planner/layout/layout_description.h"

namespace cairn {
namespace {

constexpr uint64_t kSlotBytes = 4096;
// A load reads the parts of a bin in any order, so bins need not be small; but a header has an entry for every block.
constexpr uint64_t kBinBytes = uint64_t{4} << 30;
constexpr uint64_t kMostBins = 99;

LayoutDescription Describe(const Manifest& source, const ImportPlan& plan) {
  LayoutDescription layout;
  for (const WholeTensor& tensor : plan.tensors) {
    layout.tensors.push_back(
        {tensor.plain.name, tensor.plain.dtype, tensor.plain.shape, {{WholeBox(tensor.plain.shape), std::nullopt}}});
  }
  for (const ImportObject& object : plan.objects) {
    const uint64_t slot = (std::max<uint64_t>(object.bytes, 1) + kSlotBytes - 1) / kSlotBytes * kSlotBytes;
    layout.objects.push_back({source.objects[object.source].name, slot, false});
  }
  layout.aliases = plan.aliases;
  return layout;
}

std::vector<StoredItem> ItemsOf(const LayoutDescription& layout) {
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
  ImportPlan plan{std::move(tensors), std::move(objects), {}, {}, SavePlan(nullptr), {}};
  if (!choice.mapping) {
    for (const auto& [name, target] : source.aliases) {
      if (IsChosen(choice, name) && IsChosen(choice, target)) plan.aliases.emplace_back(name, target);
    }
  }
  const LayoutDescription layout = Describe(source, plan);
  plan.items = ItemsOf(layout);
  uint64_t total = 0;
  for (const StoredItem& item : plan.items) {
    total += item.bytes();
    if (!item.object) plan.tensor_bytes += item.bytes();
  }
  const std::string bytes = SerializeLayout(layout);
  const std::string digest = Digest(bytes);
  const RankInput rank{0, "", bytes, digest};
  SaveOptions options;
  options.bins_per_rank = static_cast<int>(std::clamp<uint64_t>(total / kBinBytes + 1, 1, kMostBins));
  CAIRN_ASSIGN_OR_RETURN(plan.save, MakeSavePlan({&rank, 1}, options));
  if (!plan.part.ParseFromString(plan.save.PartFor(0))) {
    return MakeError(Reason::kInternal, "the plan of the import cannot be parsed");
  }
  return plan;
}

}  // namespace cairn
