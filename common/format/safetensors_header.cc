#include "common/format/safetensors_header.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/format/json_writer.h"
#include "common/format/safetensors_header_impl.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

constexpr int kLengthDigits = 12;  // the digits of an object's true length are padded to this
// The length of every identity: enough for the longest job name and the largest numbers. It must never change.
constexpr size_t kIdentityBytes = 400;

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
    for (uint64_t i = 0; i < count; ++i) json.Raw(checksums ? ChecksumHex(value(i)) : "00000000");
  };
  json.Key("crc32c");
  json.Raw("\\\"");
  hex(1, [&](uint64_t) { return checksums->crc32c; });
  json.Raw("\\\"");
  // If an item has one block, the item's checksum is the block's.
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
  // A dtype that other readers do not know is stored as bytes, and the last dimension counts bytes.
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
constexpr std::string_view kAliases = R"(,\"aliases\":{)";
constexpr std::string_view kEnd = "}";

// Returns the text behind the items: "}", the identity, and blanks, which JSON allows there.
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
  text.replace(own_checksum, kNoChecksum.size(), ChecksumHex(Crc32c(text.data(), text.size())));
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

}  // namespace cairn
