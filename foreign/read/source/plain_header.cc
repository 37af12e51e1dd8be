#include "foreign/read/source/plain_header.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/format/safetensors_header.h"
#include "common/format/stored_item.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

namespace dom = simdjson::dom;

constexpr uint64_t kPadding = 64;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Bad(const std::string& what) {
  return MakeError(Reason::kBadSafetensors, absl::StrCat("bad header: ", what));
}

std::optional<DType> DTypeFromPlainName(std::string_view name) {
  for (const DTypeInfo& info : DTypeTable()) {
    if (PlainDtypeName(info.dtype) == name) return info.dtype;
  }
  return std::nullopt;
}

bool ReadNumbers(simdjson::simdjson_result<dom::element> element, Shape& numbers) {
  dom::array array;
  if (element.get(array) != simdjson::SUCCESS || array.size() > 64) return false;
  for (dom::element entry : array) {
    int64_t value;
    if (entry.get(value) != simdjson::SUCCESS || value < 0) return false;
    numbers.push_back(value);
  }
  return true;
}

// Returns the number of elements of a header, along the last dimension, that are one element of Cairn.
int64_t PairsOf(DType dtype) { return dtype == DType::kFloat4E2m1fnX2 ? 2 : 1; }

// Reads the dict under "__metadata__". Its values should be texts; others are left out.
void ReadMetadata(dom::element value, PlainHeader& header) {
  dom::object entries;
  if (value.get(entries) != simdjson::SUCCESS) return;
  for (const auto& [key, entry] : entries) {
    std::string_view text;
    if (entry.get(text) == simdjson::SUCCESS) header.metadata.emplace_back(key, text);
  }
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out += '"';
}

}  // namespace

std::string_view PlainDtypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat8E8m0fnu:
      return "F8_E8M0";
    case DType::kFloat8E4m3fnuz:
      return "F8_E4M3FNUZ";
    case DType::kFloat8E5m2fnuz:
      return "F8_E5M2FNUZ";
    case DType::kFloat4E2m1fnX2:
      return "F4";
    case DType::kComplex32:
    case DType::kComplex128:
      return "";
    default:
      return InfoOf(dtype).safetensors;
  }
}

bool CanBePlain(DType dtype, const Shape& shape) {
  return !PlainDtypeName(dtype).empty() && (PairsOf(dtype) == 1 || !shape.empty());
}

bool IsRecentPlainDtype(DType dtype) {
  return dtype == DType::kFloat8E8m0fnu || dtype == DType::kFloat8E4m3fnuz || dtype == DType::kFloat8E5m2fnuz ||
         dtype == DType::kFloat4E2m1fnX2;
}

absl::StatusOr<uint64_t> PlainHeaderBytesFrom(std::string_view first_8_bytes, uint64_t file_bytes) {
  if (first_8_bytes.size() < 8) return Bad("the file is shorter than 8 bytes");
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(first_8_bytes[static_cast<size_t>(i)]);
  if (length > kMaxHeaderBytes || length + 8 > file_bytes) {
    return Bad(absl::StrCat("it should have ", length, " bytes, the whole file has ", file_bytes));
  }
  return length + 8;
}

absl::StatusOr<PlainHeader> ParsePlainHeader(std::string_view header, uint64_t file_bytes) {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t header_bytes, PlainHeaderBytesFrom(header, file_bytes));
  if (header.size() < header_bytes) return Bad("it is cut off");
  dom::parser parser;
  dom::object top;
  if (parser.parse(header.data() + 8, header_bytes - 8).get(top) != simdjson::SUCCESS) return Bad("no JSON object");
  PlainHeader parsed;
  std::vector<PlainTensor>& tensors = parsed.tensors;
  absl::flat_hash_set<std::string> seen;
  for (const auto& [name, value] : top) {
    if (name == "__metadata__") {
      ReadMetadata(value, parsed);
      continue;
    }
    PlainTensor tensor;
    tensor.name = std::string(name);
    if (absl::Status status = CheckName(tensor.name); !status.ok()) return Bad(std::string(status.message()));
    const auto bad = [&](std::string_view what) { return Bad(absl::StrCat("'", tensor.name, "' ", View(what))); };
    if (!seen.insert(tensor.name).second) return bad("stands twice");
    dom::object entry;
    std::string_view dtype;
    Shape range;
    if (value.get(entry) != simdjson::SUCCESS || entry["dtype"].get(dtype) != simdjson::SUCCESS ||
        !ReadNumbers(entry["shape"], tensor.shape) || !ReadNumbers(entry["data_offsets"], range) || range.size() != 2 ||
        range[0] > range[1]) {
      return bad("has no valid dtype, shape and data_offsets");
    }
    const auto known = DTypeFromPlainName(dtype);
    if (!known) {
      return MakeError(Reason::kUnsupported,
                       absl::StrCat("'", tensor.name, "' has the dtype ", View(dtype), ", which is not known here"),
                       {{"tensor", tensor.name}});
    }
    tensor.dtype = *known;
    if (const int64_t pairs = PairsOf(*known); pairs > 1) {
      if (tensor.shape.empty() || tensor.shape.back() % pairs != 0) {
        return MakeError(Reason::kUnsupported,
                         absl::StrCat("'", tensor.name, "' has the dtype ", View(dtype), " and the shape ",
                                      ShapeToString(tensor.shape), ", but its last dimension must be even here"),
                         {{"tensor", tensor.name}});
      }
      tensor.shape.back() /= pairs;
    }
    tensor.begin = static_cast<uint64_t>(range[0]);
    tensor.end = static_cast<uint64_t>(range[1]);
    const auto elements = ElementCount(tensor.shape);
    int64_t bytes = 0;
    if (!elements || __builtin_mul_overflow(*elements, BytesOf(tensor.dtype), &bytes) ||
        tensor.end - tensor.begin != static_cast<uint64_t>(bytes)) {
      return bad(absl::StrCat("has ", tensor.end - tensor.begin, " bytes, which do not fit ", View(dtype), " of shape ",
                              ShapeToString(tensor.shape)));
    }
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const PlainTensor& a, const PlainTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t end = 0;
  for (const PlainTensor& tensor : tensors) {
    if (tensor.begin != end) return Bad(absl::StrCat("a gap or overlap before '", tensor.name, "'"));
    end = tensor.end;
  }
  if (end < file_bytes - header_bytes) {
    return Bad(absl::StrCat("it has ", file_bytes, " bytes, but the tensors end at ", header_bytes + end));
  }
  if (end > file_bytes - header_bytes) {
    return MakeError(Reason::kFileTruncated, absl::StrCat("the tensors need ", header_bytes + end,
                                                          " bytes with the header, the file has ", file_bytes));
  }
  return parsed;
}

std::string RenderPlainHeader(std::span<const PlainTensor> tensors) {
  std::string text(8, '\0');
  text += "{\"__metadata__\":{\"format\":\"pt\"}";
  uint64_t begin = 0;
  for (const PlainTensor& tensor : tensors) {
    const uint64_t end = begin + static_cast<uint64_t>(*ElementCount(tensor.shape) * BytesOf(tensor.dtype));
    absl::StrAppend(&text, ",", Quoted(tensor.name), ":{\"dtype\":\"", View(PlainDtypeName(tensor.dtype)),
                    "\",\"shape\":[");
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      absl::StrAppend(&text, d == 0 ? "" : ",",
                      tensor.shape[d] * (d + 1 == tensor.shape.size() ? PairsOf(tensor.dtype) : 1));
    }
    absl::StrAppend(&text, "],\"data_offsets\":[", begin, ",", end, "]}");
    begin = end;
  }
  text += '}';
  text.resize((text.size() + kPadding - 1) / kPadding * kPadding, ' ');
  const uint64_t length = text.size() - 8;
  for (int i = 0; i < 8; ++i) text[static_cast<size_t>(i)] = static_cast<char>(length >> (8 * i));
  return text;
}

std::string RenderPlainIndex(const PlainIndex& index) {
  std::string text =
      absl::StrCat("{\n  \"metadata\": {\n    \"total_size\": ", index.total_size, "\n  },\n  \"weight_map\": {\n");
  for (size_t i = 0; i < index.weight_map.size(); ++i) {
    absl::StrAppend(&text, "    ", Quoted(index.weight_map[i].first), ": ", Quoted(index.weight_map[i].second),
                    i + 1 < index.weight_map.size() ? ",\n" : "\n");
  }
  return text += "  }\n}\n";
}

absl::StatusOr<PlainIndex> ParsePlainIndex(std::string_view text) {
  const auto bad = [](const std::string& what) {
    return MakeError(Reason::kBadSafetensors, absl::StrCat("bad index: ", what));
  };
  dom::parser parser;
  dom::object top, map;
  if (parser.parse(text.data(), text.size()).get(top) != simdjson::SUCCESS) return bad("no JSON object");
  if (top["weight_map"].get(map) != simdjson::SUCCESS) return bad("no weight_map");
  PlainIndex index;
  for (const auto& [name, value] : map) {
    std::string_view file;
    if (value.get(file) != simdjson::SUCCESS || file.empty() || file == "." || file == ".." ||
        file.find('/') != std::string_view::npos || file.find('\0') != std::string_view::npos) {
      return bad(absl::StrCat("'", View(name), "' is not in a file of the same directory"));
    }
    index.weight_map.emplace_back(name, file);
  }
  std::sort(index.weight_map.begin(), index.weight_map.end());
  for (size_t i = 1; i < index.weight_map.size(); ++i) {
    if (index.weight_map[i].first == index.weight_map[i - 1].first) {
      return bad(absl::StrCat("'", index.weight_map[i].first, "' stands twice"));
    }
  }
  dom::object metadata;
  if (top["metadata"].get(metadata) == simdjson::SUCCESS) {
    uint64_t total;
    if (metadata["total_size"].get(total) == simdjson::SUCCESS) index.total_size = total;
  }
  return index;
}

}  // namespace cairn
