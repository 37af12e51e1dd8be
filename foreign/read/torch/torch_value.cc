#include "foreign/read/torch/torch_value.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/pickle/bounded_json.h"
#include "foreign/read/source/object_text.h"
#include "foreign/read/torch/torch_file.h"

namespace cairn {
namespace {

constexpr std::string_view kTag = "$cairn";
constexpr int kMostDepth = 200;
// The text of a value is longer than its pickle, but not longer than these limits.
constexpr uint64_t kMostGrowth = 16, kMostSmall = uint64_t{1} << 20;

class Encoder {
 public:
  Encoder(const PickleDocument& document, const std::string& what)
      : document_(document), what_(what), most_(kMostSmall + kMostGrowth * document.consumed()) {}

  absl::StatusOr<std::string> Encode(PickleValue value) {
    CAIRN_RETURN_IF_ERROR(Append(value, 0));
    return absl::StrCat(std::string(1, tagged_ ? kObjectTaggedJson : kObjectJson), text_);
  }

 private:
  absl::Status Unsupported(std::string_view problem) const {
    return MakeError(Reason::kUnsupported, absl::StrCat(what_, ": the value ", std::string(problem)),
                     {{"object", what_}});
  }

  absl::Status Append(PickleValue value, int depth);
  absl::Status AppendElements(PickleValue value, int depth);
  absl::Status AppendDict(PickleValue value, int depth);
  void AppendText(std::string_view text) { AppendObjectString(text, text_); }
  // Begins {"$cairn": kind, "value":, which the caller ends with "}".
  void BeginTagged(std::string_view kind) {
    tagged_ = true;
    absl::StrAppend(&text_, "{\"", std::string(kTag), "\":\"", std::string(kind), "\",\"value\":");
  }

  const PickleDocument& document_;
  const std::string& what_;
  const uint64_t most_;
  std::string text_;
  bool tagged_ = false;
};

absl::Status Encoder::Append(PickleValue value, int depth) {
  if (depth > kMostDepth) return Unsupported(absl::StrCat("is nested more than ", kMostDepth, " levels deep"));
  if (text_.size() > most_) return Unsupported("holds the same parts too often");
  switch (value.kind()) {
    case PickleKind::kNone:
      text_ += "null";
      return absl::OkStatus();
    case PickleKind::kBool:
      text_ += *document_.Bool(value) ? "true" : "false";
      return absl::OkStatus();
    case PickleKind::kFloat:
      text_ += ObjectFloat(*document_.Float(value));
      return absl::OkStatus();
    case PickleKind::kText:
      AppendText(*document_.Text(value));
      return absl::OkStatus();
    case PickleKind::kBytes:
      BeginTagged("bytes");
      absl::StrAppend(&text_, "\"", absl::Base64Escape(std::string(*document_.Bytes(value))), "\"}");
      return absl::OkStatus();
    case PickleKind::kList:
      return AppendElements(value, depth);
    case PickleKind::kTuple:
      BeginTagged("tuple");
      CAIRN_RETURN_IF_ERROR(AppendElements(value, depth));
      text_ += '}';
      return absl::OkStatus();
    case PickleKind::kDict:
      return AppendDict(value, depth);
    case PickleKind::kInt:
    case PickleKind::kWideInt:
      if (const auto number = document_.Int(value)) {
        absl::StrAppend(&text_, *number);
        return absl::OkStatus();
      }
      [[fallthrough]];
    case PickleKind::kSet:
    case PickleKind::kGlobal:
    case PickleKind::kObject:
    case PickleKind::kPersistent:
      BeginTagged("opaque");
      AppendText(document_.Describe(value));
      text_ += '}';
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Encoder::AppendElements(PickleValue value, int depth) {
  text_ += '[';
  bool first = true;
  absl::Status status;
  document_.ForEach(value, [&](PickleValue each) {
    if (!status.ok()) return;
    if (!std::exchange(first, false)) text_ += ',';
    status = Append(each, depth + 1);
  });
  text_ += ']';
  return status;
}

absl::Status Encoder::AppendDict(PickleValue value, int depth) {
  bool plain = true;
  document_.ForEachPair(value, [&](PickleValue key, PickleValue) {
    const auto text = document_.Text(key);
    plain = plain && text && *text != kTag;
  });
  if (!plain) BeginTagged("dict");
  text_ += plain ? '{' : '[';
  bool first = true;
  absl::Status status;
  document_.ForEachPair(value, [&](PickleValue key, PickleValue item) {
    if (!status.ok()) return;
    if (!std::exchange(first, false)) text_ += ',';
    if (!plain) text_ += '[';
    status = Append(key, depth + 1);
    if (!status.ok()) return;
    text_ += plain ? ':' : ',';
    status = Append(item, depth + 1);
    if (!plain) text_ += ']';
  });
  text_ += plain ? "}" : "]}";
  return status;
}

// Encodes a value from torchsnapshot's metadata: {"type": "int", "serialized_value": "7", ...}.
absl::StatusOr<std::string> EncodeSnapshotEntry(std::string_view entry, const std::string& what) {
  const auto json = ParseBoundedJson(entry);
  const auto text = [&](const char* key) -> std::optional<std::string> {
    const auto found = json.is_object() ? json.find(key) : json.end();
    if (found == json.end() || !found->is_string()) return std::nullopt;
    return found->get<std::string>();
  };
  const auto type = text("type"), value = text("serialized_value");
  std::string bytes;
  if (type && value) {
    const std::string head(1, kObjectJson);
    const size_t sign = value->starts_with('-') ? 1 : 0;
    if (type == "str") return absl::StrCat(head, json["serialized_value"].dump());
    if (type == "bool" && value == "True") return absl::StrCat(head, "true");
    if (type == "bool" && value == "False") return absl::StrCat(head, "false");
    if (type == "int" && value->size() > sign && value->find_first_not_of("0123456789", sign) == std::string::npos) {
      return absl::StrCat(head, *value);
    }
    if (type == "bytes" && absl::Base64Unescape(*value, &bytes))
      return absl::StrCat(std::string(1, kObjectRawBytes), bytes);
    double number = 0;
    if (type == "float" && absl::Base64Unescape(*value, &bytes) && bytes.size() == sizeof number) {
      std::memcpy(&number, bytes.data(), sizeof number);
      return absl::StrCat(head, ObjectFloat(number));
    }
  }
  return MakeError(Reason::kBadForeignFile, absl::StrCat(what, ": the entry has no value that Cairn can read"),
                   {{"object", what}});
}

}  // namespace

absl::StatusOr<std::string> EncodeValue(const PickleDocument& document, PickleValue value, const std::string& what) {
  if (const auto bytes = document.Bytes(value)) return std::string(1, kObjectRawBytes) + std::string(*bytes);
  return Encoder(document, what).Encode(value);
}

absl::StatusOr<std::string> EncodeTorchValue(std::string_view archive, const std::string& what) {
  if (archive.starts_with('{')) return EncodeSnapshotEntry(archive, what);
  if (archive.starts_with(kObjectRawBytes) || archive.starts_with(kObjectJson) ||
      archive.starts_with(kObjectTaggedJson) || archive.starts_with(kObjectTaggedJsonOfClasses)) {
    return std::string(archive);
  }
  const ReadRange read = [&](uint64_t offset, uint64_t bytes) { return std::string(archive.substr(offset, bytes)); };
  CAIRN_ASSIGN_OR_RETURN(const TorchFile file, TorchFile::Open(archive.size(), read, what));
  return EncodeValue(file.document(), file.document().root(), what);
}

bool HoldsOpaqueValue(std::string_view bytes) {
  // It cannot occur within a text, because quotes would be escaped there.
  static constexpr std::string_view kOpaque = R"({"$cairn":"opaque",)";
  return (bytes.starts_with(kObjectTaggedJson) || bytes.starts_with(kObjectTaggedJsonOfClasses)) &&
         bytes.find(kOpaque) != std::string_view::npos;
}

}  // namespace cairn
