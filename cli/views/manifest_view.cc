#include "cli/views/manifest_view.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/base/counted.h"
#include "cli/base/terminal.h"
#include "common/format/checkpoint_path.h"
#include "common/process/quantity.h"
#include "common/tensor/fingerprint.h"

namespace cairn::cli {
namespace {

std::string DataDirectory(const Manifest& manifest, const std::string& root) {
  const std::string below = AttemptDirectory(manifest.job, manifest.step, manifest.attempt);
  return root.empty() ? below : absl::StrCat(root, "/", below);
}

// One line about an item in a file.
struct FileItem {
  uint64_t offset;
  uint64_t bytes;
  uint32_t crc32c;
  StoredItem item;
};

std::vector<std::vector<FileItem>> ItemsByFile(const Manifest& manifest) {
  std::vector<std::vector<FileItem>> files(manifest.files.size());
  for (const ManifestShard& shard : manifest.shards) {
    files[shard.file].push_back({shard.file_offset, shard.bytes, shard.crc32c, manifest.item_of(shard)});
  }
  for (const ManifestObject& object : manifest.objects) {
    files[object.file].push_back({object.file_offset, object.slot_bytes, object.crc32c, Manifest::item_of(object)});
  }
  for (auto& items : files) {
    std::sort(items.begin(), items.end(), [](const FileItem& a, const FileItem& b) { return a.offset < b.offset; });
  }
  return files;
}

// Prints which rank wrote most bytes, and the largest item of that rank.
void PrintBalance(const Manifest& manifest) {
  if (manifest.files.empty() || manifest.world_size == 0) return;
  std::map<int, uint64_t> by_rank;
  uint64_t total = 0;
  for (const ManifestFile& file : manifest.files) {
    by_rank[file.rank] += file.data_bytes;
    total += file.data_bytes;
  }
  const auto heaviest = std::max_element(by_rank.begin(), by_rank.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
  const ManifestShard* largest = nullptr;
  for (const ManifestShard& shard : manifest.shards) {
    if (manifest.files[shard.file].rank != heaviest->first) continue;
    if (largest == nullptr || shard.bytes > largest->bytes) largest = &shard;
  }
  const double mean = static_cast<double>(total) / manifest.world_size;
  std::printf("  balance    rank %d wrote most: %s, %.3f of the mean (%s)%s\n", heaviest->first,
              FormatSize(static_cast<int64_t>(heaviest->second)).c_str(),
              mean > 0 ? static_cast<double>(heaviest->second) / mean : 1.0,
              FormatSize(static_cast<int64_t>(mean)).c_str(),
              largest == nullptr
                  ? ""
                  : absl::StrCat("; its largest shard is of ", ForTerminal(manifest.tensors[largest->tensor].name),
                                 ": ", FormatSize(static_cast<int64_t>(largest->bytes)))
                        .c_str());
}

// JSON's null, and nothing in a table, if the manifest has none.
nlohmann::ordered_json FingerprintOf(const Manifest& manifest, size_t tensor) {
  const std::optional<uint64_t> fingerprint = manifest.fingerprint_of(tensor);
  return fingerprint.has_value() ? nlohmann::ordered_json(FingerprintText(*fingerprint)) : nullptr;
}

// Null if the manifest has none.
const TensorStatistics* StatisticsIn(const Manifest& manifest, size_t tensor) {
  if (tensor >= manifest.summaries.size() || !HasStatistics(manifest.tensors[tensor].dtype)) return nullptr;
  return &manifest.summaries[tensor].statistics;
}

}  // namespace

std::string CommitTimeText(const Manifest& manifest) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", manifest.commit_time, absl::UTCTimeZone());
}

nlohmann::ordered_json SummaryToJson(const Manifest& manifest) {
  return {{"job", manifest.job},
          {"step", manifest.step},
          {"state", "COMMITTED"},
          {"attempt", manifest.attempt},
          {"commit_time", CommitTimeText(manifest)},
          {"bytes", manifest.total_bytes()},
          {"world_size", manifest.world_size}};
}

nlohmann::ordered_json ManifestToJson(const Manifest& manifest, const std::string& root) {
  nlohmann::ordered_json json = SummaryToJson(manifest);
  json["data_directory"] = DataDirectory(manifest, root);
  json["tensors"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor& tensor = manifest.tensors[i];
    nlohmann::ordered_json entry = {
        {"name", tensor.name},
        {"dtype", std::string(NameOf(tensor.dtype))},
        {"global_shape", std::vector<int64_t>(tensor.global_shape.begin(), tensor.global_shape.end())},
        {"shards", tensor.shard_count},
        {"fingerprint", FingerprintOf(manifest, i)}};
    const TensorStatistics* statistics = StatisticsIn(manifest, i);
    if (statistics != nullptr) {
      entry["zeros"] = statistics->zeros;
      entry["non_finite"] = statistics->non_finite;
      // A tensor without a finite element has none of these.
      const bool finite = statistics->min <= statistics->max;
      entry["min"] = finite ? nlohmann::ordered_json(statistics->min) : nullptr;
      entry["max"] = finite ? nlohmann::ordered_json(statistics->max) : nullptr;
      // A larger sum is not kept.
      const bool known = statistics->sum_squares < static_cast<double>(std::numeric_limits<float>::max());
      entry["norm"] = known ? nlohmann::ordered_json(std::sqrt(statistics->sum_squares)) : nullptr;
    }
    json["tensors"].push_back(std::move(entry));
  }
  json["objects"] = nlohmann::ordered_json::array();
  for (const ManifestObject& object : manifest.objects) {
    nlohmann::ordered_json entry = {{"name", object.name}, {"bytes", object.bytes}};
    entry["rank"] = object.rank ? nlohmann::ordered_json(*object.rank) : nullptr;
    json["objects"].push_back(std::move(entry));
  }
  json["aliases"] = nlohmann::ordered_json::object();
  for (const auto& [name, target] : manifest.aliases) json["aliases"][name] = target;
  json["files"] = nlohmann::ordered_json::array();
  const auto files = ItemsByFile(manifest);
  for (size_t i = 0; i < files.size(); ++i) {
    const ManifestFile& file = manifest.files[i];
    nlohmann::ordered_json entry = {{"file", file.name + ".safetensors"},
                                    {"rank", file.rank},
                                    {"bytes", file.bytes()},
                                    {"header_bytes", file.header_bytes}};
    entry["items"] = nlohmann::ordered_json::array();
    for (const FileItem& item : files[i]) {
      const Box& box = item.item.box;
      nlohmann::ordered_json one = {{"name", item.item.name},
                                    {"file_offset", item.offset},
                                    {"bytes", item.bytes},
                                    {"crc32c", absl::StrFormat("%08x", item.crc32c)}};
      if (!item.item.object) {
        one["offset"] = std::vector<int64_t>(box.offset.begin(), box.offset.end());
        one["shape"] = std::vector<int64_t>(box.shape.begin(), box.shape.end());
        if (item.item.flat) one["flat_range"] = {item.item.flat->begin, item.item.flat->end};
      }
      entry["items"].push_back(std::move(one));
    }
    json["files"].push_back(std::move(entry));
  }
  return json;
}

void PrintSummary(const Manifest& manifest, const std::string& root) {
  std::printf("%s\n", Coloured(stdout, Colour::kBold, absl::StrCat(manifest.job, "@", manifest.step)).c_str());
  std::printf("  committed  %s (attempt %u, %s)\n", CommitTimeText(manifest).c_str(), manifest.attempt,
              ForTerminal(manifest.writer).c_str());
  std::printf("  saved by   %s\n", Counted(manifest.world_size, "rank").c_str());
  std::printf("  holds      %s in %s, %s, %s: %s\n", Counted(manifest.tensors.size(), "tensor").c_str(),
              Counted(manifest.shards.size(), "shard").c_str(), Counted(manifest.objects.size(), "object").c_str(),
              Counted(manifest.aliases.size(), "alias", "aliases").c_str(),
              FormatSize(static_cast<int64_t>(manifest.total_bytes())).c_str());
  std::printf("  files      %zu in %s\n", manifest.files.size(), ForTerminal(DataDirectory(manifest, root)).c_str());
  PrintBalance(manifest);
}

void PrintTensors(const Manifest& manifest) {
  Table table({"TENSOR", "DTYPE", "SHAPE", "SHARDS", "NORM", "MIN", "MAX", "FINGERPRINT"});
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const ManifestTensor& tensor = manifest.tensors[i];
    std::vector<std::string> row = {tensor.name, std::string(NameOf(tensor.dtype)), ShapeToString(tensor.global_shape),
                                    absl::StrCat(tensor.shard_count)};
    const TensorStatistics* statistics = StatisticsIn(manifest, i);
    const bool finite = statistics != nullptr && statistics->min <= statistics->max;
    row.push_back(finite ? absl::StrFormat("%.4g", std::sqrt(statistics->sum_squares)) : "");
    row.push_back(finite ? absl::StrFormat("%.4g", statistics->min) : "");
    row.push_back(finite ? absl::StrFormat("%.4g", statistics->max) : "");
    const std::optional<uint64_t> fingerprint = manifest.fingerprint_of(i);
    row.push_back(fingerprint.has_value() ? FingerprintText(*fingerprint) : "");
    const bool bad = statistics != nullptr && statistics->non_finite > 0;
    if (bad) row.back() += absl::StrCat("  ", Counted(statistics->non_finite, "element"), " NaN or infinite");
    table.Add(std::move(row), bad ? Colour::kYellow : Colour::kNone);
  }
  for (const auto& [name, target] : manifest.aliases) {
    table.Add({name, "alias", "= " + target, "", "", "", "", ""}, Colour::kDim);
  }
  table.Print(stdout);
}

void PrintObjects(const Manifest& manifest) {
  constexpr size_t kMaxLines = 1000;
  struct Named {
    uint64_t bytes = 0;
    size_t ranks = 0;  // ranks with an object of their own; 0: all ranks share the object
  };
  std::map<std::string_view, Named> objects;
  for (const ManifestObject& object : manifest.objects) {
    Named& named = objects[object.name];
    named.bytes += object.bytes;
    if (object.rank.has_value()) ++named.ranks;
  }
  Table table({"OBJECT", "OF", "BYTES"});
  size_t lines = 0;
  for (const auto& [name, named] : objects) {
    if (lines++ == kMaxLines) break;
    table.Add({std::string(name),
               named.ranks == 0 ? "all ranks" : absl::StrCat("each of ", Counted(named.ranks, "rank")),
               FormatSize(static_cast<int64_t>(named.bytes))});
  }
  table.Print(stdout);
  if (objects.size() > kMaxLines) {
    std::printf("and %zu more names: --format=json has all\n", objects.size() - kMaxLines);
  }
}

void PrintFiles(const Manifest& manifest) {
  Table table({"FILE", "RANK", "OFFSET", "BYTES", "ITEM", "REGION", "CRC32C"});
  const auto files = ItemsByFile(manifest);
  for (size_t i = 0; i < files.size(); ++i) {
    for (const FileItem& item : files[i]) {
      std::string region = item.item.object ? "object" : ToString(item.item.box);
      if (item.item.flat) absl::StrAppend(&region, " flat [", item.item.flat->begin, ", ", item.item.flat->end, ")");
      table.Add({manifest.files[i].name, absl::StrCat(manifest.files[i].rank), absl::StrCat(item.offset),
                 absl::StrCat(item.bytes), item.item.name, region, absl::StrFormat("%08x", item.crc32c)});
    }
  }
  table.Print(stdout);
}

}  // namespace cairn::cli
