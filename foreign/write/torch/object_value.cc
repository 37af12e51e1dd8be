#include "foreign/write/torch/object_value.h"

#include <cctype>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/dtype.h"
#include "foreign/write/torch/torch_archive_writer.h"

namespace cairn {
namespace {

using Kind = ObjectValue::Kind;

// These are the kinds of python/cairn/_state/objects.py.
enum : char { kRawBytes = 0, kJson = 1, kTaggedJson = 2, kTaggedJsonOfClasses = 3 };
constexpr std::string_view kTag = "$cairn";
constexpr std::string_view kTensorSerializer = "torch.Tensor";
// The writers of objects allow 200 levels; a tagged value takes up to three levels of JSON more.
constexpr int kMostDepth = 1000;

void AppendUtf8(uint32_t code, std::string& text) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static constexpr uint32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
  text += static_cast<char>(kFirst[more] | code >> (6 * more));
  for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (code >> (6 * i) & 0x3f));
}

// Reads JSON as Python writes it: with NaN and infinities, and with integers of any size. A JSON library would refuse
// NaN and infinities, and would round long integers.
class Reader {
 public:
  Reader(std::string_view text, bool tagged) : text_(text), tagged_(tagged) {}

  // Returns nothing if the text is no JSON, or has a tag that is not known.
  std::optional<ObjectValue> Read() {
    ObjectValue value;
    if (!Value(value, 0)) return std::nullopt;
    SkipBlanks();
    if (at_ != text_.size()) return std::nullopt;
    return value;
  }

 private:
  void SkipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  bool Take(std::string_view token) {
    SkipBlanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }

  bool Value(ObjectValue& value, int depth);
  bool Number(ObjectValue& value);
  bool String(std::string& text);
  bool CodeUnit(uint32_t& unit);
  bool Elements(std::vector<ObjectValue>& items, int depth);
  bool Object(ObjectValue& value, int depth);
  static bool Untag(std::string_view tag, ObjectValue&& content, ObjectValue& value);

  const std::string_view text_;
  const bool tagged_;
  size_t at_ = 0;
};

// Reads a tensor in the form of python/cairn/torch/_tensors/tensor_serializer.py: a line with the dtype and the shape,
// then the elements.
bool ReadTensor(std::string_view base64, ObjectValue& value) {
  std::string bytes;
  if (!absl::Base64Unescape(absl::string_view(base64.data(), base64.size()), &bytes)) return false;
  const size_t end = bytes.find('\n');
  if (end == std::string::npos) return false;
  const std::vector<std::string> head = absl::StrSplit(bytes.substr(0, end), ' ');
  const auto dtype = DTypeFromName(head[0]);
  for (size_t i = 1; i < head.size(); ++i) {
    if (!absl::SimpleAtoi(head[i], &value.shape.emplace_back())) return false;
  }
  const auto elements = ElementCount(value.shape);
  value.kind = Kind::kTensor;
  value.dtype = head[0];
  value.text = bytes.substr(end + 1);
  return dtype && elements && *elements <= static_cast<int64_t>(value.text.size()) &&
         static_cast<uint64_t>(*elements * BytesOf(*dtype)) == value.text.size();
}

bool Reader::Value(ObjectValue& value, int depth) {
  if (depth > kMostDepth) return false;
  SkipBlanks();
  if (at_ == text_.size()) return false;
  if (text_[at_] == '"') {
    value.kind = Kind::kText;
    return String(value.text);
  }
  if (Take("{")) return Object(value, depth);
  if (Take("[")) {
    value.kind = Kind::kList;
    return Elements(value.items, depth);
  }
  if (Take("null")) return true;
  if (Take("true")) {
    value.kind = Kind::kBool;
    value.boolean = true;
    return true;
  }
  if (Take("false")) {
    value.kind = Kind::kBool;
    return true;
  }
  return Number(value);
}

bool Reader::Number(ObjectValue& value) {
  value.kind = Kind::kFloat;
  if (Take("NaN")) {
    value.number = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  const size_t begin = at_;
  if (Take("-Infinity") || Take("Infinity")) {
    value.number =
        text_[begin] == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
    return true;
  }
  const auto digits = [&] {
    const size_t first = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ > first;
  };
  if (text_[at_] == '-') ++at_;
  if (!digits()) return false;
  bool whole = true;
  if (at_ < text_.size() && text_[at_] == '.') {
    whole = false;
    ++at_;
    if (!digits()) return false;
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    whole = false;
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    if (!digits()) return false;
  }
  const std::string_view token = text_.substr(begin, at_ - begin);
  if (whole) {
    value.kind = Kind::kInt;
    value.text = std::string(token);
    return true;
  }
  return absl::SimpleAtod(absl::string_view(token.data(), token.size()), &value.number);
}

bool Reader::CodeUnit(uint32_t& unit) {
  if (text_.size() - at_ < 4) return false;
  unit = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = text_[at_++];
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return false;
    unit = unit << 4 | static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return true;
}

bool Reader::String(std::string& text) {
  if (!Take("\"")) return false;
  while (at_ < text_.size()) {
    const char c = text_[at_++];
    if (c == '"') return true;
    if (c != '\\') {
      text += c;
      continue;
    }
    if (at_ == text_.size()) return false;
    const char escape = text_[at_++];
    static constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const size_t known = kEscapes.find(escape); known != std::string_view::npos) {
      text += kMeanings[known];
      continue;
    }
    uint32_t code = 0, low = 0;
    if (escape != 'u' || !CodeUnit(code)) return false;
    if (code >= 0xd800 && code < 0xe000) {
      // The first half of a pair must be followed by the second.
      if (code >= 0xdc00 || !text_.substr(at_).starts_with("\\u")) return false;
      at_ += 2;
      if (!CodeUnit(low) || low < 0xdc00 || low >= 0xe000) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    AppendUtf8(code, text);
  }
  return false;
}

bool Reader::Elements(std::vector<ObjectValue>& items, int depth) {
  if (Take("]")) return true;
  do {
    if (!Value(items.emplace_back(), depth + 1)) return false;
  } while (Take(","));
  return Take("]");
}

bool Reader::Object(ObjectValue& value, int depth) {
  value.kind = Kind::kDict;
  if (Take("}")) return true;
  do {
    ObjectValue& key = value.items.emplace_back();
    key.kind = Kind::kText;
    SkipBlanks();
    if (!String(key.text) || !Take(":")) return false;
    if (!Value(value.items.emplace_back(), depth + 1)) return false;
  } while (Take(","));
  if (!Take("}")) return false;
  if (!tagged_ || value.items[0].text != kTag) return true;
  if (value.items.size() != 4 || value.items[2].text != "value") return false;
  const std::string tag = value.items[1].text;
  ObjectValue content = std::move(value.items[3]);
  value = ObjectValue();
  return Untag(tag, std::move(content), value);
}

bool Reader::Untag(std::string_view tag, ObjectValue&& content, ObjectValue& value) {
  if (tag == "bytes") {
    value.kind = Kind::kBytes;
    return content.kind == Kind::kText && absl::Base64Unescape(content.text, &value.text);
  }
  if (tag == "opaque") {
    value.kind = Kind::kOpaque;
    value.text = std::move(content.text);
    return content.kind == Kind::kText;
  }
  if (content.kind != Kind::kList) return false;
  if (tag == "tuple") {
    value.kind = Kind::kTuple;
    value.items = std::move(content.items);
    return true;
  }
  if (tag == "dict") {
    value.kind = Kind::kDict;
    for (ObjectValue& pair : content.items) {
      if (pair.kind != Kind::kList || pair.items.size() != 2) return false;
      for (ObjectValue& each : pair.items) value.items.push_back(std::move(each));
    }
    return true;
  }
  // A dict of a class of Python's `collections`: the class, the default factory or null, and the pairs.
  if (tag == "mapping") {
    return content.items.size() == 3 && Untag("dict", std::move(content.items[2]), value);
  }
  if (tag == "user") {
    if (content.items.size() != 2 || content.items[0].kind != Kind::kText) return false;
    if (content.items[0].text == kTensorSerializer) return ReadTensor(content.items[1].text, value);
    value.kind = Kind::kOpaque;
    value.text = content.items[0].text;
    return true;
  }
  if (tag != "array" || content.items.size() != 3) return false;
  const ObjectValue &dtype = content.items[0], &shape = content.items[1], &data = content.items[2];
  if (dtype.kind != Kind::kText || dtype.text.size() < 3 || shape.kind != Kind::kList || data.kind != Kind::kText) {
    return false;
  }
  value.kind = Kind::kArray;
  value.dtype = dtype.text;
  for (const ObjectValue& each : shape.items) {
    if (each.kind != Kind::kInt || !absl::SimpleAtoi(each.text, &value.shape.emplace_back())) return false;
  }
  return absl::Base64Unescape(data.text, &value.text);
}

// Writes an array as numpy pickles it. Every version of numpy finds the function under this name.
void WriteArray(const ObjectValue& value, PickleWriter& pickle) {
  pickle.Global("numpy.core.multiarray", "_reconstruct");
  pickle.Mark();
  pickle.Global("numpy", "ndarray");
  const int64_t none[] = {0};
  pickle.IntTuple(none);
  pickle.Bytes("b");
  pickle.Tuple();
  pickle.Reduce();
  pickle.Mark();
  pickle.Int(1);  // the version of this state
  pickle.IntTuple(value.shape);
  pickle.Global("numpy", "dtype");
  pickle.Mark();
  pickle.Text(std::string_view(value.dtype).substr(1));
  pickle.Bool(false);
  pickle.Bool(true);
  pickle.Tuple();
  pickle.Reduce();
  pickle.Mark();
  pickle.Int(3);
  pickle.Text(std::string_view(value.dtype).substr(0, 1));
  for (int i = 0; i < 3; ++i) pickle.None();
  pickle.Int(-1);
  pickle.Int(-1);
  pickle.Int(0);
  pickle.Tuple();
  pickle.Build();
  pickle.Bool(false);  // the elements are row-major
  pickle.Bytes(value.text);
  pickle.Tuple();
  pickle.Build();
}

}  // namespace

absl::StatusOr<ObjectValue> ReadObjectValue(std::string_view bytes, std::string_view name) {
  const std::string told(name);
  if (bytes.empty() || bytes[0] < kRawBytes || bytes[0] > kTaggedJsonOfClasses) {
    return MakeError(Reason::kFormatTooNew,
                     absl::StrCat("object '", told, "' has an encoding that this version does not know"),
                     {{"object", told}});
  }
  if (bytes[0] == kRawBytes) {
    ObjectValue value;
    value.kind = Kind::kBytes;
    value.text = std::string(bytes.substr(1));
    return value;
  }
  auto value = Reader(bytes.substr(1), bytes[0] >= kTaggedJson).Read();
  if (value) return *std::move(value);
  return MakeError(Reason::kChecksumMismatch, absl::StrCat("object '", told, "' cannot be decoded"),
                   {{"object", told}});
}

const ObjectValue* FindOpaque(const ObjectValue& value) {
  if (value.kind == Kind::kOpaque) return &value;
  for (const ObjectValue& each : value.items) {
    if (const ObjectValue* found = FindOpaque(each)) return found;
  }
  return nullptr;
}

void WriteValue(const ObjectValue& value, PickleWriter& pickle, std::vector<std::string_view>& storages) {
  switch (value.kind) {
    case Kind::kNone:
    case Kind::kOpaque:
      return pickle.None();
    case Kind::kBool:
      return pickle.Bool(value.boolean);
    case Kind::kInt:
      if (int64_t small = 0; absl::SimpleAtoi(value.text, &small)) return pickle.Int(small);
      return pickle.Decimal(value.text);
    case Kind::kFloat:
      return pickle.Float(value.number);
    case Kind::kText:
      return pickle.Text(value.text);
    case Kind::kBytes:
      return pickle.Bytes(value.text);
    case Kind::kArray:
      return WriteArray(value, pickle);
    case Kind::kTensor:
      storages.push_back(value.text);
      return WriteTorchTensor(*DTypeFromName(value.dtype), value.shape, absl::StrCat(storages.size() - 1), pickle);
    case Kind::kTuple:
      if (value.items.empty()) return pickle.EmptyTuple();
      pickle.Mark();
      for (const ObjectValue& each : value.items) WriteValue(each, pickle, storages);
      return pickle.Tuple();
    case Kind::kList:
    case Kind::kDict:
      if (value.kind == Kind::kList) {
        pickle.EmptyList();
      } else {
        pickle.EmptyDict();
      }
      if (value.items.empty()) return;
      pickle.Mark();
      for (const ObjectValue& each : value.items) WriteValue(each, pickle, storages);
      return value.kind == Kind::kList ? pickle.AppendItems() : pickle.SetItems();
  }
}

std::string TorchArchiveOf(const ObjectValue& value) {
  PickleWriter pickle;
  std::vector<std::string_view> storages;
  WriteValue(value, pickle, storages);
  return TorchValueArchive(std::move(pickle).Finish(), storages);
}

}  // namespace cairn
