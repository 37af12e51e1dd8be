#include "tests/trust/judge/state_reader.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/format/item_summary.h"
#include "common/format/stored_item.h"
#include "common/format/summary_columns.h"

namespace cairn {
namespace {

using Json = nlohmann::json;

Shape ShapeOf(const Json& numbers) {
  Shape shape;
  for (const int64_t number : numbers) shape.push_back(number);
  return shape;
}

// Reads the bytes of a shard, and appends it to the manifest. Returns its summary.
absl::StatusOr<TensorSummary> ReadShard(const Json& shard, const ManifestTensor& tensor, std::istream& in,
                                        Manifest& manifest) {
  StoredItem item;
  item.name = tensor.name;
  item.dtype = tensor.dtype;
  item.global_shape = tensor.global_shape;
  item.box = {ShapeOf(shard.at("offset")), ShapeOf(shard.at("shape"))};
  std::string bytes(item.bytes(), '\0');
  if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    return absl::InvalidArgumentError(absl::StrCat("the stream ends within the bytes of ", tensor.name));
  }
  ManifestShard entry;
  entry.tensor = static_cast<uint32_t>(manifest.tensors.size());
  entry.file = shard.at("rank").get<uint32_t>();
  if (entry.file >= manifest.files.size()) return absl::InvalidArgumentError("there is no such rank");
  entry.crc32c = Crc32c(bytes.data(), bytes.size());
  entry.bytes = bytes.size();
  manifest.shards.push_back(entry);
  const ItemSummarizer summarizer({&item});
  const std::vector<std::vector<ItemSummarizer::Fragment>> pieces = {summarizer.Touch(0, bytes.data(), bytes.size())};
  return AsRecorded(summarizer.Combine(pieces)[0], tensor.dtype);
}

absl::Status ReadTensor(const Json& json, std::istream& in, JudgeOrder& order) {
  Manifest& manifest = order.manifest;
  const std::optional<DType> dtype = DTypeFromName(json.at("dtype").get<std::string>());
  if (!dtype.has_value()) return absl::InvalidArgumentError("there is no such dtype");
  ManifestTensor tensor;
  tensor.name = json.at("name");
  tensor.dtype = *dtype;
  tensor.global_shape = ShapeOf(json.at("shape"));
  tensor.first_shard = static_cast<uint32_t>(manifest.shards.size());
  tensor.shard_count = static_cast<uint32_t>(json.at("shards").size());
  TensorSummary sum;
  for (const Json& shard : json.at("shards")) {
    const absl::StatusOr<TensorSummary> part = ReadShard(shard, tensor, in, manifest);
    if (!part.ok()) return part.status();
    sum.Add(*part);
    const uint64_t zeros = part->statistics.zeros;
    order.zero_shards.push_back(zeros > 0 &&
                                zeros * static_cast<uint64_t>(BytesOf(tensor.dtype)) == manifest.shards.back().bytes);
  }
  manifest.summaries.push_back(AsRecorded(sum, tensor.dtype));
  manifest.tensors.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::StatusOr<JudgeOrder> OrderOf(const Json& json, std::istream& in) {
  JudgeOrder order;
  order.goes_back = json.contains("go_back_to");
  order.goes_back_to = json.value("go_back_to", "");
  order.keep = json.value("keep", "");
  Manifest& manifest = order.manifest;
  manifest.step = json.at("step");
  manifest.attempt = 1;
  manifest.world_size = json.at("ranks");
  manifest.plan_digest = json.at("plan");
  manifest.lineage.line = json.at("line");
  for (uint32_t rank = 0; rank < manifest.world_size; ++rank) {
    manifest.files.emplace_back();
    manifest.files.back().rank = static_cast<int>(rank);
  }
  for (const Json& tensor : json.at("tensors")) {
    if (absl::Status read = ReadTensor(tensor, in, order); !read.ok()) return read;
  }
  for (const Json& object : json.at("objects")) {
    const bool per_rank = object.at("crc32c").size() > 1;
    int rank = 0;
    for (const uint32_t crc : object.at("crc32c")) {
      ManifestObject& entry = manifest.objects.emplace_back();
      entry.name = object.at("name");
      if (per_rank) entry.rank = rank++;
      entry.crc32c = crc;
    }
  }
  return order;
}

}  // namespace

absl::StatusOr<JudgeOrder> ReadOrder(std::istream& in) {
  std::string line;
  if (!std::getline(in, line)) return absl::OutOfRangeError("there is no further order");
  try {
    return OrderOf(Json::parse(line), in);
  } catch (const Json::exception& wrong) {
    return absl::InvalidArgumentError(wrong.what());
  }
}

}  // namespace cairn
