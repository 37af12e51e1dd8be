#include "common/format/safetensors_header.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr int kFormatVersion = 1;
constexpr int kLengthDigits = 12;  // the digits of an object's true length are padded to this
// The identity always takes this room, which is more than the longest job's name and numbers need. It must never
// change.
constexpr size_t kIdentityBytes = 400;
// The header's own checksum covers all of the header, with zeros in the place of the eight digits that follow this
// text.
constexpr std::string_view kOwnChecksum = R"(\"header_crc32c\":\")";
constexpr std::string_view kNoChecksum = "00000000";

// The header is written through one of two sinks, so that its length and its text cannot disagree.
class CountSink {
 public:
  void Raw(std::string_view text) { bytes_ += text.size(); }
  void Number(uint64_t number) {
    do {
      ++bytes_;
      number /= 10;
    } while (number != 0);
  }
  void Char(char) { ++bytes_; }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
};

class StringSink {
 public:
  explicit StringSink(std::string& text) : text_(text) {}
  void Raw(std::string_view text) { text_.append(text); }
  void Number(uint64_t number) { absl::StrAppend(&text_, number); }
  void Char(char c) { text_.push_back(c); }

 private:
  std::string& text_;
};

// Writes JSON into a sink. With depth 1 that JSON itself stands within a JSON string.
template <typename Sink, int depth>
class JsonWriter {
 public:
  explicit JsonWriter(Sink& sink) : sink_(sink) {}

  void Text(std::string_view text) {
    Quote();
    for (char c : text) {
      if (c == '"' || c == '\\') {
        Backslash();
        if constexpr (depth == 1) sink_.Char('\\');
      }
      sink_.Char(c);
    }
    Quote();
  }
  // Writes a text that needs no escapes.
  void Plain(std::string_view text) {
    Quote();
    sink_.Raw(text);
    Quote();
  }
  void Key(std::string_view key) {
    Plain(key);
    sink_.Char(':');
  }
  void Raw(std::string_view text) { sink_.Raw(text); }
  void Number(uint64_t number) { sink_.Number(number); }
  template <typename Numbers>
  void List(const Numbers& numbers) {
    sink_.Char('[');
    bool first = true;
    for (auto number : numbers) {
      if (!first) sink_.Char(',');
      first = false;
      sink_.Number(static_cast<uint64_t>(number));
    }
    sink_.Char(']');
  }
  Sink& sink() { return sink_; }

 private:
  void Backslash() {
    sink_.Char('\\');
    if constexpr (depth == 1) sink_.Char('\\');
  }
  void Quote() {
    if constexpr (depth == 1) sink_.Char('\\');
    sink_.Char('"');
  }

  Sink& sink_;
};

// A `"` or `\` of a name is written as `\"` or `\\` in JSON; where that JSON stands within a string, each of these
// characters is escaped once more. Backslash() writes the escape's own backslash: `\`, or `\\` at depth 1.

std::string Hex(uint32_t value) { return std::string(absl::StrCat(absl::Hex(value, absl::kZeroPad8))); }

template <typename Sink>
void WriteShardingInfo(JsonWriter<Sink, 1> json, const StoredItem& item, const std::string& stored_name) {
  json.Text(stored_name);
  json.Raw(":{");
  json.Key("saved_offsets");
  json.List(item.flat ? Shape{0} : item.box.offset);
  json.Raw("}");
}

template <typename Sink>
void WriteChecksums(JsonWriter<Sink, 1>& json, uint64_t bytes, const ItemChecksums* checksums) {
  const uint64_t blocks = ChecksumBlockCount(bytes);
  const auto hex = [&](uint64_t count, auto value) {
    for (uint64_t i = 0; i < count; ++i) json.Raw(checksums ? Hex(value(i)) : "00000000");
  };
  json.Key("crc32c");
  json.Raw("\\\"");
  hex(1, [&](uint64_t) { return checksums->crc32c; });
  json.Raw("\\\"");
  // An item of one block has that block's checksum already.
  if (blocks > 1) {
    json.Raw(",");
    json.Key("blocks");
    json.Raw("\\\"");
    if constexpr (std::is_same_v<Sink, CountSink>) {
      for (uint64_t i = 0; i < blocks; ++i) json.Raw("00000000");
    } else {
      hex(blocks, [&](uint64_t i) { return checksums->blocks[i]; });
    }
    json.Raw("\\\"");
  }
}

template <typename Sink>
void WriteCairnItem(JsonWriter<Sink, 1> json, const StoredItem& item, const std::string& stored_name,
                    const ItemChecksums* checksums) {
  json.Text(stored_name);
  json.Raw(":{");
  if (item.object) {
    std::string length = absl::StrCat(checksums ? checksums->object_bytes : 0);
    length.insert(0, kLengthDigits - std::min<size_t>(length.size(), kLengthDigits), '0');
    json.Key("object");
    json.Text(item.name);
    json.Raw(",");
    json.Key("bytes");
    json.Plain(length);
    if (item.object_rank) {
      json.Raw(",");
      json.Key("rank");
      json.Number(static_cast<uint64_t>(*item.object_rank));
    }
  } else {
    json.Key("dtype");
    json.Plain(NameOf(item.dtype));
    json.Raw(",");
    json.Key("global_shape");
    json.List(item.global_shape);
    if (item.flat) {
      json.Raw(",");
      json.Key("tensor");
      json.Text(item.name);
      json.Raw(",");
      json.Key("offset");
      json.List(item.box.offset);
      json.Raw(",");
      json.Key("shape");
      json.List(item.box.shape);
      json.Raw(",");
      json.Key("flat_range");
      json.List(Shape{item.flat->begin, item.flat->end});
    }
  }
  json.Raw(",");
  WriteChecksums(json, item.bytes(), checksums);
  json.Raw("}");
}

// Writes the entry that any safetensors reader sees.
template <typename Sink>
void WriteEntry(JsonWriter<Sink, 0> json, const StoredItem& item, const std::string& stored_name, uint64_t begin) {
  const DTypeInfo& info = InfoOf(item.dtype);
  // A dtype that readers do not know is stored as bytes, which the last dimension counts.
  Shape shape = item.flat ? Shape{item.flat->end - item.flat->begin} : item.box.shape;
  const bool as_bytes = info.safetensors == "U8" && info.bytes > 1;
  if (as_bytes && shape.empty()) shape = {1};
  if (as_bytes) shape.back() *= info.bytes;
  json.Text(stored_name);
  json.Raw(":{\"dtype\":\"");
  json.Raw(info.safetensors);
  json.Raw("\",\"shape\":");
  json.List(shape);
  json.Raw(",\"data_offsets\":");
  json.List(Shape{static_cast<int64_t>(begin), static_cast<int64_t>(begin + item.bytes())});
  json.Raw("}");
}

constexpr std::string_view kOpen = R"({"__metadata__":{"DCP_SHARDING_INFO":"{)";
constexpr std::string_view kMiddle = R"(}","DCP_VERSION":"1.0","cairn":"{\"version\":1,\"items\":{)";
constexpr std::string_view kClose = R"(}","format":"pt"})";
constexpr std::string_view kAliases = R"(,\"aliases\":{)";
constexpr std::string_view kEnd = "}";

// Returns what stands behind the items: "}", who wrote the file, and blanks, which JSON allows there.
std::string RenderIdentity(const BinIdentity& identity) {
  std::string text = "},";
  StringSink sink(text);
  JsonWriter<StringSink, 1> json(sink);
  json.Key("saved");
  json.Raw("{");
  json.Key("job");
  json.Text(identity.job);
  const auto number = [&](std::string_view key, uint64_t value) {
    json.Raw(",");
    json.Key(key);
    json.Number(value);
  };
  number("step", static_cast<uint64_t>(identity.step));
  number("attempt", identity.attempt);
  number("rank", static_cast<uint64_t>(identity.rank));
  number("world_size", identity.world_size);
  number("files", identity.files);
  json.Raw(",");
  json.Raw(kOwnChecksum);
  json.Raw(kNoChecksum);
  json.Raw("\\\"}");
  text.resize(std::max(text.size(), kIdentityBytes), ' ');
  return text;
}

template <typename Sink>
void WriteAlias(JsonWriter<Sink, 1> json, std::string_view name, std::string_view target) {
  json.Text(name);
  json.Raw(":");
  json.Text(target);
}

uint64_t Padded(uint64_t bytes) { return (bytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment; }

}  // namespace

void HeaderSizer::Add(const StoredItem& item) {
  CountSink sink;
  const std::string stored_name = item.stored_name();
  WriteShardingInfo(JsonWriter<CountSink, 1>(sink), item, stored_name);
  WriteCairnItem(JsonWriter<CountSink, 1>(sink), item, stored_name, nullptr);
  // How many digits an item's position has depends on the items before it. PaddedBytes counts the digits of the largest
  // position for each, so the sum does not depend on the order of the items; RenderHeader pads to that sum.
  WriteEntry(JsonWriter<CountSink, 0>(sink), item, stored_name, 0);
  inner_bytes_ += sink.bytes() + 3;  // a comma in each of the three lists
  data_bytes_ += item.bytes();
  ++items_;
}

void HeaderSizer::AddMeasured(uint64_t inner_bytes, uint64_t data_bytes) {
  inner_bytes_ += inner_bytes;
  data_bytes_ += data_bytes;
  ++items_;
}

void HeaderSizer::AddAlias(std::string_view name, std::string_view target) {
  CountSink sink;
  WriteAlias(JsonWriter<CountSink, 1>(sink), name, target);
  alias_bytes_ += sink.bytes() + 1;  // a comma, or the brace that closes the list
  if (alias_bytes_ == sink.bytes() + 1) alias_bytes_ += kAliases.size();
}

uint64_t HeaderSizer::PaddedBytes() const {
  CountSink digits;
  digits.Number(data_bytes_);
  return Padded(8 + kOpen.size() + kMiddle.size() + kIdentityBytes + alias_bytes_ + kClose.size() + kEnd.size() +
                inner_bytes_ + items_ * 2 * digits.bytes());
}

std::string RenderHeader(std::span<const StoredItem> items, std::span<const ItemChecksums> checksums,
                         const BinIdentity& identity, const AliasList& aliases) {
  HeaderSizer sizer;
  for (const auto& [name, target] : aliases) sizer.AddAlias(name, target);
  std::vector<std::string> names;
  names.reserve(items.size());
  for (const StoredItem& item : items) {
    sizer.Add(item);
    names.push_back(item.stored_name());
  }
  const uint64_t padded = sizer.PaddedBytes();
  std::string text(8, '\0');
  text.reserve(padded);
  StringSink sink(text);
  text.append(kOpen);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text.push_back(',');
    WriteShardingInfo(JsonWriter<StringSink, 1>(sink), items[i], names[i]);
  }
  text.append(kMiddle);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text.push_back(',');
    WriteCairnItem(JsonWriter<StringSink, 1>(sink), items[i], names[i], &checksums[i]);
  }
  const size_t identity_begin = text.size();
  text.append(RenderIdentity(identity));
  const size_t own_checksum = text.find(kOwnChecksum, identity_begin) + kOwnChecksum.size();
  for (size_t i = 0; i < aliases.size(); ++i) {
    text.append(i == 0 ? kAliases : ",");
    WriteAlias(JsonWriter<StringSink, 1>(sink), aliases[i].first, aliases[i].second);
  }
  if (!aliases.empty()) text.push_back('}');
  text.append(kClose);
  uint64_t begin = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    text.push_back(',');
    WriteEntry(JsonWriter<StringSink, 0>(sink), items[i], names[i], begin);
    begin += items[i].bytes();
  }
  text.append(kEnd);
  text.resize(padded, ' ');
  const uint64_t length = padded - 8;
  for (int i = 0; i < 8; ++i) text[static_cast<size_t>(i)] = static_cast<char>(length >> (8 * i));
  text.replace(own_checksum, kNoChecksum.size(), Hex(Crc32c(text.data(), text.size())));
  return text;
}

absl::StatusOr<uint64_t> HeaderBytesFrom(std::string_view first_8_bytes) {
  uint64_t length = 0;
  if (first_8_bytes.size() < 8) return MakeError(Reason::kBadSafetensors, "the file is shorter than 8 bytes");
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(first_8_bytes[static_cast<size_t>(i)]);
  if (length > kMaxHeaderBytes || (length + 8) % kDataAlignment != 0) {
    return MakeError(Reason::kBadSafetensors,
                     absl::StrCat("a header of ", length, " bytes is not one that Cairn writes"));
  }
  return length + 8;
}

namespace {

namespace dom = simdjson::dom;

absl::Status Bad(std::string_view what) {
  return MakeError(Reason::kBadSafetensors, absl::StrCat("bad header: ", absl::string_view(what.data(), what.size())));
}

// Returns the CRC32C that RenderHeader gave the header.
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

// Reads whose file it is. Within the metadata, the text before the checksum's digits can stand nowhere else, because
// quotes in names have more backslashes there. In the entries behind the metadata it could be a tensor's name.
absl::Status ReadIdentity(std::string_view bytes, dom::object cairn, ParsedHeader& header) {
  dom::object saved, aliases;
  const size_t marker = bytes.substr(0, bytes.find(kClose)).find(kOwnChecksum);
  if ((cairn["saved"].get(saved) == simdjson::SUCCESS) != (marker != std::string_view::npos)) {
    return Bad("whose file it is");
  }
  if (marker == std::string_view::npos) return absl::OkStatus();
  const size_t digits = marker + kOwnChecksum.size();
  if (bytes.substr(digits, kNoChecksum.size()) != Hex(OwnChecksum(bytes, digits))) {
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
      return Bad("an item without a sound global shape");
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
