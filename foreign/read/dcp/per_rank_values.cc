#include "foreign/read/dcp/per_rank_values.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/format/stored_item.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr char kFormat[] = "cairn per-rank values 1";
constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMostDescriptionBytes = uint64_t{256} << 20;
constexpr uint64_t kMostRanks = 1'000'000;

std::string HexOf(std::string_view digest) {
  return absl::BytesToHexString(absl::string_view(digest.data(), digest.size()));
}

absl::Status Bad(const std::string& what, const std::string& problem) {
  return MakeError(Reason::kBadForeignFile, absl::StrCat(what, " ", problem),
                   {{"file", what},
                    {"next",
                     "Export the checkpoint again, or remove that file: without it, the values of "
                     "each rank have the names that PyTorch gives them."}});
}

bool Less(const PerRankValue& a, const PerRankValue& b) { return std::tie(a.name, a.rank) < std::tie(b.name, b.rank); }

// Reads one value of the description. Returns false if the element is not one.
bool ReadValue(simdjson::dom::element element, PerRankValue& value) {
  std::string_view name;
  uint64_t rank = 0;
  if (element["name"].get(name) != simdjson::SUCCESS || element["rank"].get(rank) != simdjson::SUCCESS ||
      element["offset"].get(value.offset) != simdjson::SUCCESS ||
      element["bytes"].get(value.bytes) != simdjson::SUCCESS || rank >= kMostRanks) {
    return false;
  }
  value.name = std::string(name);
  value.rank = static_cast<int>(rank);
  return true;
}

}  // namespace

std::string RenderPerRankValues(const PerRankValues& values, const std::vector<std::string>& contents,
                                std::string_view metadata_digest) {
  nlohmann::ordered_json description = {{"format", kFormat},
                                        {"metadata", HexOf(metadata_digest)},
                                        {"world_size", values.world_size},
                                        {"values", nlohmann::ordered_json::array()},
                                        {"stands_for", values.stands_for}};
  // The description holds offsets, which depend on its own length. So the length is found first, from a description
  // with the longest possible numbers.
  const auto render = [&](uint64_t begin) {
    auto& list = description["values"] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < values.values.size(); ++i) {
      const PerRankValue& value = values.values[i];
      list.push_back({{"name", value.name}, {"rank", value.rank}, {"offset", begin}, {"bytes", contents[i].size()}});
      begin += contents[i].size();
    }
    return description.dump();
  };
  const size_t room = render(uint64_t{1} << 62).size();
  std::string text = render(kLengthBytes + room);
  text.resize(room, ' ');
  std::string bytes(kLengthBytes, '\0');
  const uint64_t length = text.size();
  std::memcpy(bytes.data(), &length, kLengthBytes);
  bytes += text;
  for (const std::string& content : contents) bytes += content;
  return bytes;
}

absl::StatusOr<std::optional<PerRankValues>> ParsePerRankValues(std::string_view description, uint64_t file_bytes,
                                                                std::string_view metadata_digest,
                                                                const std::string& what) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::array list, names;
  std::string_view format, digest;
  uint64_t ranks = 0;
  if (parser.parse(description.data(), description.size()).get(root) != simdjson::SUCCESS ||
      root["format"].get(format) != simdjson::SUCCESS || root["metadata"].get(digest) != simdjson::SUCCESS) {
    return Bad(what, "is no description of values of ranks");
  }
  if (digest != HexOf(metadata_digest)) return std::nullopt;
  if (format != kFormat) return Bad(what, "is of a version that this one does not know");
  PerRankValues values;
  if (root["world_size"].get(ranks) != simdjson::SUCCESS || ranks == 0 || ranks > kMostRanks ||
      root["values"].get(list) != simdjson::SUCCESS || root["stands_for"].get(names) != simdjson::SUCCESS) {
    return Bad(what, "lacks its values, or the number of ranks");
  }
  values.world_size = static_cast<uint32_t>(ranks);
  for (const simdjson::dom::element element : list) {
    PerRankValue& value = values.values.emplace_back();
    if (!ReadValue(element, value) || value.rank >= static_cast<int>(ranks)) {
      return Bad(what, absl::StrCat("has a damaged value '", value.name, "'"));
    }
    if (value.bytes > file_bytes || value.offset > file_bytes - value.bytes) {
      return Bad(what, absl::StrCat("ends before '", value.name, "' of rank ", value.rank));
    }
    CAIRN_RETURN_IF_ERROR(CheckName(value.name));
  }
  std::sort(values.values.begin(), values.values.end(), Less);
  const auto twice = std::adjacent_find(values.values.begin(), values.values.end(),
                                        [](const auto& a, const auto& b) { return !Less(a, b); });
  if (twice != values.values.end()) {
    return Bad(what, absl::StrCat("has '", twice->name, "' of rank ", twice->rank, " twice"));
  }
  std::vector<bool> has_values(ranks, false);
  for (const PerRankValue& value : values.values) has_values[static_cast<size_t>(value.rank)] = true;
  const auto without = std::find(has_values.begin(), has_values.end(), false);
  if (without != has_values.end()) {
    return Bad(what, absl::StrCat("has no value of rank ", without - has_values.begin(), " of ", ranks));
  }
  for (const simdjson::dom::element element : names) {
    std::string_view name;
    if (element.get(name) != simdjson::SUCCESS) return Bad(what, "has a name that is no text");
    values.stands_for.emplace_back(name);
  }
  std::sort(values.stands_for.begin(), values.stands_for.end());
  return values;
}

absl::StatusOr<std::optional<PerRankFile>> ReadPerRankFile(const std::string& directory,
                                                           std::string_view metadata_digest) {
  auto file = ForeignFile::OpenBelow(directory, kPerRankValuesName);
  if (HasReason(file.status(), Reason::kFileMissing)) return std::nullopt;
  CAIRN_RETURN_IF_ERROR(file.status());
  uint64_t length = 0;
  if (file->bytes() < kLengthBytes) return Bad(file->path(), "is cut off");
  CAIRN_ASSIGN_OR_RETURN(const std::string head, file->Read(0, kLengthBytes));
  std::memcpy(&length, head.data(), kLengthBytes);
  if (length > kMostDescriptionBytes || length > file->bytes() - kLengthBytes) return Bad(file->path(), "is cut off");
  CAIRN_ASSIGN_OR_RETURN(const std::string description, file->Read(kLengthBytes, length));
  CAIRN_ASSIGN_OR_RETURN(std::optional<PerRankValues> values,
                         ParsePerRankValues(description, file->bytes(), metadata_digest, file->path()));
  if (!values) return std::nullopt;
  file->Close();
  return PerRankFile{*std::move(file), *std::move(values)};
}

}  // namespace cairn
