// Reads what safetensors_header.cc writes.
#include <simdjson.h>

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/format/safetensors_header.h"
#include "common/format/safetensors_header_impl.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

namespace dom = simdjson::dom;

constexpr int kFormatVersion = 1;

absl::Status Bad(std::string_view what) {
  return MakeError(Reason::kBadSafetensors, absl::StrCat("bad header: ", absl::string_view(what.data(), what.size())));
}

// Computes the header's checksum as RenderHeader does.
uint32_t OwnChecksum(std::string_view header, size_t digits) {
  const std::string_view rest = header.substr(std::min(header.size(), digits + kNoChecksum.size()));
  const uint32_t crc = ExtendCrc32c(Crc32c(header.data(), digits), kNoChecksum.data(), kNoChecksum.size());
  return ExtendCrc32c(crc, rest.data(), rest.size());
}

bool ReadDims(simdjson::simdjson_result<dom::element> element, Shape& dims) {
  dom::array array;
  if (element.get(array) != simdjson::SUCCESS || array.size() > 64) return false;
  for (dom::element entry : array) {
    int64_t value;
    if (entry.get(value) != simdjson::SUCCESS || value < 0) return false;
    dims.push_back(value);
  }
  return true;
}

bool ReadHex(std::string_view text, uint32_t& value) {
  return text.size() == 8 && absl::SimpleHexAtoi(absl::string_view(text.data(), text.size()), &value);
}

// Reads the identity. Within the metadata, kOwnChecksum can occur only once, because quotes in names have more
// backslashes there. Behind the metadata it could be part of a tensor's name.
absl::Status ReadIdentity(std::string_view bytes, dom::object cairn, ParsedHeader& header) {
  dom::object saved, aliases;
  const size_t marker = bytes.substr(0, bytes.find(kClose)).find(kOwnChecksum);
  if ((cairn["saved"].get(saved) == simdjson::SUCCESS) != (marker != std::string_view::npos)) {
    return Bad("whose file it is");
  }
  if (marker == std::string_view::npos) return absl::OkStatus();
  const size_t digits = marker + kOwnChecksum.size();
  if (bytes.substr(digits, kNoChecksum.size()) != ChecksumHex(OwnChecksum(bytes, digits))) {
    return Bad("it is not what was written: its own checksum is wrong");
  }
  std::string_view job;
  int64_t step;
  uint64_t attempt, rank, world_size, files;
  if (saved["job"].get(job) != simdjson::SUCCESS || saved["step"].get(step) != simdjson::SUCCESS || step < 0 ||
      saved["attempt"].get(attempt) != simdjson::SUCCESS || attempt > UINT32_MAX ||
      saved["rank"].get(rank) != simdjson::SUCCESS || rank > INT32_MAX ||
      saved["world_size"].get(world_size) != simdjson::SUCCESS || world_size > UINT32_MAX ||
      saved["files"].get(files) != simdjson::SUCCESS || files > UINT32_MAX) {
    return Bad("whose file it is");
  }
  header.identity = {std::string(job),
                     step,
                     static_cast<uint32_t>(attempt),
                     static_cast<int>(rank),
                     static_cast<uint32_t>(world_size),
                     static_cast<uint32_t>(files)};
  if (cairn["aliases"].get(aliases) != simdjson::SUCCESS) return absl::OkStatus();
  for (const auto& [name, value] : aliases) {
    std::string_view target;
    if (value.get(target) != simdjson::SUCCESS) return Bad("an alias");
    header.aliases.emplace_back(std::string(name), std::string(target));
  }
  return absl::OkStatus();
}

// Reads one entry of the "cairn" metadata.
absl::Status ReadCairnItem(std::string_view stored_name, dom::object fields, ParsedItem& parsed) {
  StoredItem& item = parsed.item;
  std::string_view text;
  if (fields["object"].get(text) == simdjson::SUCCESS) {
    item.object = true;
    item.name = std::string(text);
    item.dtype = DType::kUint8;
    if (fields["bytes"].get(text) != simdjson::SUCCESS ||
        !absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &parsed.checksums.object_bytes)) {
      return Bad("an object without its length");
    }
    uint64_t rank;
    if (fields["rank"].get(rank) == simdjson::SUCCESS) {
      if (rank > INT32_MAX) return Bad("an object's rank");
      item.object_rank = static_cast<int>(rank);
    }
  } else {
    if (fields["dtype"].get(text) != simdjson::SUCCESS) return Bad("an item without dtype");
    const auto dtype = DTypeFromName(text);
    if (!dtype) return MakeError(Reason::kFormatTooNew, absl::StrCat("unknown dtype ", std::string(text)));
    item.dtype = *dtype;
    if (!ReadDims(fields["global_shape"], item.global_shape) || !ElementCount(item.global_shape)) {
      return Bad("an item without a valid global shape");
    }
    item.name = std::string(stored_name);
    if (fields["tensor"].get(text) == simdjson::SUCCESS) {
      item.name = std::string(text);
      Shape range;
      if (!ReadDims(fields["offset"], item.box.offset) || !ReadDims(fields["shape"], item.box.shape) ||
          !ReadDims(fields["flat_range"], range) || range.size() != 2 || range[0] > range[1] ||
          !Contains(item.global_shape, item.box) || range[1] > item.box.size()) {
        return Bad("a flat piece outside its box");
      }
      item.flat = FlatRange{range[0], range[1]};
    }
  }
  if (fields["crc32c"].get(text) != simdjson::SUCCESS || !ReadHex(text, parsed.checksums.crc32c)) {
    return Bad("an item without checksum");
  }
  if (fields["blocks"].get(text) == simdjson::SUCCESS) {
    if (text.size() % 8 != 0) return Bad("block checksums");
    for (size_t i = 0; i < text.size(); i += 8) {
      uint32_t value;
      if (!ReadHex(text.substr(i, 8), value)) return Bad("block checksums");
      parsed.checksums.blocks.push_back(value);
    }
  }
  return absl::OkStatus();
}

// Reads the safetensors entry and the sharding info of an item whose "cairn" entry was read.
absl::Status ReadEntry(dom::object entry, simdjson::simdjson_result<dom::element> sharding, uint64_t data_bytes,
                       ParsedItem& parsed) {
  StoredItem& item = parsed.item;
  Shape shape, range;
  std::string_view dtype;
  if (entry["dtype"].get(dtype) != simdjson::SUCCESS || dtype != InfoOf(item.dtype).safetensors ||
      !ReadDims(entry["shape"], shape) || !ReadDims(entry["data_offsets"], range) || range.size() != 2 ||
      range[0] > range[1] || static_cast<uint64_t>(range[1]) > data_bytes) {
    return Bad("a tensor's dtype, shape or position");
  }
  parsed.begin = static_cast<uint64_t>(range[0]);
  parsed.end = static_cast<uint64_t>(range[1]);
  if (item.object) {
    if (shape.size() != 1 || parsed.checksums.object_bytes > static_cast<uint64_t>(shape[0]))
      return Bad("an object's slot");
    item.global_shape = shape;
    item.box = {{0}, shape};
  } else if (!item.flat) {
    Shape offset;
    dom::element fields;
    if (sharding.get(fields) != simdjson::SUCCESS || !ReadDims(fields["saved_offsets"], offset)) {
      return Bad("a tensor without saved_offsets");
    }
    const DTypeInfo& info = InfoOf(item.dtype);
    if (info.safetensors == "U8" && info.bytes > 1) {
      if (shape.empty() || shape.back() % info.bytes != 0) return Bad("a shape in bytes");
      shape.back() /= info.bytes;
      if (offset.empty()) shape.clear();
    }
    item.box = {offset, shape};
    if (!Contains(item.global_shape, item.box)) return Bad("a shard outside its tensor");
  }
  if (parsed.end - parsed.begin != item.bytes()) return Bad("a tensor's length");
  if (parsed.checksums.blocks.empty()) parsed.checksums.blocks.assign(item.bytes() ? 1 : 0, parsed.checksums.crc32c);
  if (parsed.checksums.blocks.size() != ChecksumBlockCount(item.bytes())) return Bad("the number of block checksums");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParsedHeader> ParseHeader(std::string_view bytes) {
  ParsedHeader header;
  CAIRN_ASSIGN_OR_RETURN(header.header_bytes, HeaderBytesFrom(bytes));
  if (bytes.size() < header.header_bytes) return Bad("it is cut off");
  dom::parser parser, sharding_parser, cairn_parser;
  dom::object top, metadata, sharding, cairn, items;
  if (parser.parse(bytes.data() + 8, header.header_bytes - 8).get(top) != simdjson::SUCCESS)
    return Bad("no JSON object");
  if (top["__metadata__"].get(metadata) != simdjson::SUCCESS) return Bad("no __metadata__");
  std::string_view text;
  if (metadata["DCP_SHARDING_INFO"].get(text) != simdjson::SUCCESS ||
      sharding_parser.parse(text.data(), text.size()).get(sharding) != simdjson::SUCCESS) {
    return Bad("no DCP_SHARDING_INFO");
  }
  if (metadata["cairn"].get(text) != simdjson::SUCCESS ||
      cairn_parser.parse(text.data(), text.size()).get(cairn) != simdjson::SUCCESS ||
      cairn["items"].get(items) != simdjson::SUCCESS) {
    return Bad("no metadata of Cairn's");
  }
  int64_t version;
  if (cairn["version"].get(version) != simdjson::SUCCESS || version < 1) return Bad("no version");
  if (version > kFormatVersion) {
    return MakeError(Reason::kFormatTooNew,
                     absl::StrCat("the bin has format ", version, ", this version reads ", kFormatVersion));
  }

  CAIRN_RETURN_IF_ERROR(ReadIdentity(bytes.substr(0, header.header_bytes), cairn, header));

  absl::flat_hash_map<std::string, dom::object> entries;
  for (const auto& [name, value] : top) {
    if (name == "__metadata__") continue;
    dom::object entry;
    if (value.get(entry) != simdjson::SUCCESS || !entries.emplace(std::string(name), entry).second) {
      return Bad("an entry that is no object, or stands twice");
    }
  }
  absl::flat_hash_map<std::string, dom::element> shardings;
  for (const auto& [name, value] : sharding) shardings.emplace(std::string(name), value);

  absl::flat_hash_set<std::string> seen;
  for (const auto& [name, value] : items) {
    dom::object fields;
    const auto entry = entries.find(absl::string_view(name.data(), name.size()));
    if (value.get(fields) != simdjson::SUCCESS || entry == entries.end() || !seen.insert(std::string(name)).second) {
      return Bad("metadata of a tensor that is not there, or stands twice");
    }
    ParsedItem parsed;
    CAIRN_RETURN_IF_ERROR(ReadCairnItem(name, fields, parsed));
    const auto found = shardings.find(absl::string_view(name.data(), name.size()));
    simdjson::simdjson_result<dom::element> info(simdjson::NO_SUCH_FIELD);
    if (found != shardings.end()) info = simdjson::simdjson_result<dom::element>(dom::element(found->second));
    CAIRN_RETURN_IF_ERROR(ReadEntry(entry->second, info, INT64_MAX, parsed));
    header.items.push_back(std::move(parsed));
  }
  if (seen.size() != entries.size()) return Bad("a tensor without metadata of Cairn's");
  std::sort(header.items.begin(), header.items.end(), [](const ParsedItem& a, const ParsedItem& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  for (const ParsedItem& parsed : header.items) {
    if (parsed.begin != header.data_bytes) return Bad("a gap or overlap between tensors");
    header.data_bytes = parsed.end;
  }
  return header;
}

}  // namespace cairn
