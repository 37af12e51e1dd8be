#include "planner/layout_json.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "planner/layout/layout_description.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

constexpr int kMaxRank = 1 << 24;
constexpr uint64_t kMaxObjectBytes = uint64_t{1} << 39;

std::optional<int64_t> ToInteger(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > INT64_MAX) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

const Json* Find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<Shape> ToDims(const Json* value) {
  if (value == nullptr || !value->is_array() || value->size() > 64) return std::nullopt;
  Shape dims;
  for (const Json& entry : *value) {
    const auto number = ToInteger(entry);
    if (!number) return std::nullopt;
    dims.push_back(*number);
  }
  return dims;
}

class Reader {
 public:
  explicit Reader(FaultList& faults) : faults_(faults) {}

  LayoutsFromJson Read(const Json& set) {
    LayoutsFromJson out;
    const Json* layouts = Find(set, "layouts");
    if (layouts == nullptr || !layouts->is_array()) {
      Fault(Reason::kBadRequest, "", {}, "\"layouts\" must be a list of layouts");
      return out;
    }
    std::vector<LayoutDescription> descriptions;
    std::vector<std::vector<int>> ranks_of;
    std::vector<std::string> nodes;
    for (const Json& entry : *layouts) {
      std::vector<int> ranks = ReadRanks(entry);
      const Json* node = Find(entry, "node");
      if (node != nullptr && !node->is_string()) Fault(Reason::kBadRequest, "", ranks, "\"node\" must be a string");
      nodes.push_back(node != nullptr && node->is_string() ? node->get<std::string>() : "");
      descriptions.push_back(ReadLayout(entry, ranks, out));
      ranks_of.push_back(std::move(ranks));
    }
    for (size_t i = 0; i < descriptions.size(); ++i) {
      std::erase_if(descriptions[i].tensors, [&](const auto& tensor) { return spoiled_.contains(tensor.name); });
      Canonicalize(descriptions[i]);
      out.layouts.push_back(SerializeLayout(descriptions[i]));
      out.digests.push_back(Digest(out.layouts.back()));
    }
    for (size_t i = 0; i < descriptions.size(); ++i) {
      for (int rank : ranks_of[i]) out.inputs.push_back({rank, nodes[i], out.layouts[i], out.digests[i]});
    }
    return out;
  }

 private:
  void Fault(Reason reason, std::string name, std::vector<int> ranks, std::string message, Shape offset = {},
             Shape shape = {}) {
    faults_.Add({reason,
                 std::move(name),
                 std::move(ranks),
                 {offset.begin(), offset.end()},
                 {shape.begin(), shape.end()},
                 std::move(message)});
  }

  std::vector<int> ReadRanks(const Json& entry) {
    std::vector<int> ranks;
    const Json* list = Find(entry, "ranks");
    if (list == nullptr || !list->is_array() || list->empty()) {
      Fault(Reason::kBadRequest, "", {}, "every layout needs \"ranks\", a list of one rank at least");
      return ranks;
    }
    for (const Json& value : *list) {
      const auto rank = ToInteger(value);
      if (!rank || *rank < 0 || *rank > kMaxRank) {
        Fault(Reason::kRankOutOfRange, "", {}, absl::StrCat("a rank must be an integer from 0 to ", kMaxRank));
      } else {
        ranks.push_back(static_cast<int>(*rank));
      }
    }
    return ranks;
  }

  LayoutDescription ReadLayout(const Json& entry, const std::vector<int>& ranks, LayoutsFromJson& out) {
    LayoutDescription layout;
    if (const Json* tensors = Find(entry, "tensors")) {
      if (!tensors->is_array()) Fault(Reason::kBadRequest, "", ranks, "\"tensors\" must be a list");
      for (const Json& tensor : tensors->is_array() ? *tensors : Json::array()) ReadTensor(tensor, ranks, layout);
    }
    if (const Json* objects = Find(entry, "objects")) {
      if (!objects->is_array()) Fault(Reason::kBadRequest, "", ranks, "\"objects\" must be a list");
      for (const Json& object : objects->is_array() ? *objects : Json::array()) ReadObject(object, ranks, layout, out);
    }
    if (const Json* aliases = Find(entry, "aliases")) {
      if (!aliases->is_object()) {
        Fault(Reason::kBadRequest, "", ranks, "\"aliases\" must be an object: name to target");
      } else {
        for (const auto& [name, target] : aliases->items()) {
          if (target.is_string()) {
            layout.aliases.emplace_back(name, target.get<std::string>());
          } else {
            Fault(Reason::kBadRequest, name, ranks, absl::StrCat("the alias ", name, " must name a tensor"));
          }
        }
      }
    }
    return layout;
  }

  void ReadTensor(const Json& entry, const std::vector<int>& ranks, LayoutDescription& layout) {
    const Json* name = Find(entry, "name");
    if (name == nullptr || !name->is_string()) {
      return Fault(Reason::kBadRequest, "", ranks, "every tensor needs a \"name\"");
    }
    TensorDescription tensor;
    tensor.name = name->get<std::string>();
    const auto spoil = [&](Reason reason, std::string what, Shape offset = {}, Shape shape = {}) {
      spoiled_.insert(tensor.name);
      Fault(reason, tensor.name, ranks, absl::StrCat("tensor ", tensor.name, " of ", RanksText(ranks), ": ", what),
            std::move(offset), std::move(shape));
    };
    const Json* dtype = Find(entry, "dtype");
    const auto known = dtype != nullptr && dtype->is_string() ? DTypeFromName(dtype->get<std::string>()) : std::nullopt;
    if (!known) {
      spoil(Reason::kBadDtype, absl::StrCat("unknown dtype ", dtype == nullptr ? "(none)" : Text(*dtype)));
    } else {
      tensor.dtype = *known;
    }
    const auto global_shape = ToDims(Find(entry, "global_shape"));
    if (!global_shape) {
      spoil(Reason::kBadShape, "\"global_shape\" must be a list of integers below 2^63");
      return;
    }
    tensor.global_shape = *global_shape;
    const Json* shards = Find(entry, "shards");
    if (shards == nullptr || !shards->is_array()) {
      spoil(Reason::kBadRequest, "\"shards\" must be a list");
      return;
    }
    for (const Json& value : *shards) {
      const Json* offset_json = Find(value, "offset");
      const Json* shape_json = Find(value, "shape");
      ShardDescription shard;
      if (shape_json == nullptr && offset_json == nullptr) {
        shard.box = WholeBox(tensor.global_shape);
      } else {
        const auto shape = ToDims(shape_json);
        if (!shape) {
          spoil(Reason::kBadShape, "a shard's \"shape\" must be a list of integers below 2^63");
          continue;
        }
        if (offset_json == nullptr && *shape != tensor.global_shape) {
          spoil(Reason::kBadShape,
                absl::StrCat("a shard of shape ", ShapeToString(*shape), " is smaller than the global shape ",
                             ShapeToString(tensor.global_shape), " and has no offset"),
                {}, *shape);
          continue;
        }
        const auto offset = offset_json == nullptr ? Shape(shape->size(), 0) : ToDims(offset_json);
        if (!offset || offset->size() != tensor.global_shape.size() || shape->size() != tensor.global_shape.size()) {
          spoil(Reason::kBadShape, absl::StrCat("a shard's \"offset\" and \"shape\" must be ",
                                                tensor.global_shape.size(), " integers each"));
          continue;
        }
        shard.box = {*offset, *shape};
      }
      if (const Json* range_json = Find(value, "flat_range")) {
        const auto range = ToDims(range_json);
        if (!range || range->size() != 2) {
          spoil(Reason::kBadRequest, "\"flat_range\" must be two integers");
          continue;
        }
        shard.flat = FlatRange{(*range)[0], (*range)[1]};
      }
      tensor.shards.push_back(std::move(shard));
    }
    layout.tensors.push_back(std::move(tensor));
  }

  void ReadObject(const Json& entry, const std::vector<int>& ranks, LayoutDescription& layout, LayoutsFromJson& out) {
    const Json* name = Find(entry, "name");
    const Json* bytes = Find(entry, "bytes");
    const Json* per_rank = Find(entry, "per_rank");
    const int64_t size = bytes == nullptr ? -1 : ToInteger(*bytes).value_or(-1);
    if (name == nullptr || !name->is_string() || size < 0 || static_cast<uint64_t>(size) > kMaxObjectBytes ||
        (per_rank != nullptr && !per_rank->is_boolean())) {
      return Fault(Reason::kBadRequest, name != nullptr && name->is_string() ? name->get<std::string>() : "", ranks,
                   "every object needs a \"name\" and \"bytes\" from 0 to 2^39");
    }
    ObjectDescription object;
    object.name = name->get<std::string>();
    object.per_rank = per_rank != nullptr && per_rank->get<bool>();
    object.slot_bytes = (std::max<uint64_t>(1, static_cast<uint64_t>(size)) + 4095) / 4096 * 4096;
    const auto declared = static_cast<uint64_t>(size);
    if (object.per_rank) {
      for (int rank : ranks) out.object_bytes[{object.name, rank}] = declared;
    } else {
      const auto [known, is_new] = out.object_bytes.try_emplace({object.name, -1}, declared);
      if (!is_new && known->second != declared) {
        Fault(Reason::kObjectMismatch, object.name, ranks,
              absl::StrCat("object ", object.name, " has ", declared, " bytes on ", RanksText(ranks), ", ",
                           known->second, " on others"));
      }
    }
    layout.objects.push_back(std::move(object));
  }

  static std::string Text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

  FaultList& faults_;
  std::set<std::string> spoiled_;
};

}  // namespace

LayoutsFromJson ReadLayouts(const nlohmann::json& set, FaultList& faults) { return Reader(faults).Read(set); }

nlohmann::ordered_json ErrorsToJson(const FaultList& faults) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Fault& fault : faults.faults()) {
    list.push_back({{"reason", std::string(InfoOf(fault.reason).name)},
                    {"name", fault.name},
                    {"ranks", fault.ranks},
                    {"offset", fault.offset},
                    {"shape", fault.shape},
                    {"message", fault.message}});
  }
  return {{"errors", std::move(list)}, {"total", faults.total()}};
}

}  // namespace cairn
