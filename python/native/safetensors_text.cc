#include "python/native/safetensors_text.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status/reason.h"
#include "common/tensor/dtype.h"
#include "foreign/read/huggingface/numbered_files.h"
#include "foreign/read/huggingface/tied_names.h"
#include "foreign/read/source/plain_header.h"

namespace {

std::string_view ViewOf(const char* bytes, int64_t size) { return {bytes, static_cast<size_t>(size)}; }

std::vector<std::string> Split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = text.find('\0');
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

// Returns valid UTF-8 as a text of JSON.
std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return out += '"';
}

// Returns an array of arrays of two texts.
template <typename Pairs>
std::string PairsText(const Pairs& pairs) {
  return absl::StrCat("[",
                      absl::StrJoin(pairs, ",",
                                    [](std::string* out, const auto& pair) {
                                      absl::StrAppend(out, "[", Quoted(pair.first), ",", Quoted(pair.second), "]");
                                    }),
                      "]");
}

std::string TextOf(const cairn::PlainHeader& header, uint64_t header_bytes) {
  std::string out = absl::StrCat("{\"bytes\":", header_bytes, ",\"tensors\":[");
  const char* comma = "";
  for (const cairn::PlainTensor& tensor : header.tensors) {
    absl::StrAppend(&out, comma, "[", Quoted(tensor.name), ",", Quoted(cairn::InfoOf(tensor.dtype).name), ",[",
                    absl::StrJoin(tensor.shape, ","), "],", tensor.begin, ",", tensor.end, "]");
    comma = ",";
  }
  return absl::StrCat(out, "],\"metadata\":", PairsText(header.metadata), "}");
}

std::string ErrorText(const absl::Status& status) {
  const auto reason = cairn::ReasonOf(status).value_or(cairn::Reason::kInternal);
  return absl::StrCat(std::string(cairn::InfoOf(reason).name), ": ", status.message());
}

// Gives a result to Python.
int64_t Give(bool good, const std::string& result, char** text, int64_t* text_bytes) {
  *text = static_cast<char*>(std::malloc(result.size() + 1));
  if (*text == nullptr) return 0;
  std::memcpy(*text, result.data(), result.size());
  *text_bytes = static_cast<int64_t>(result.size());
  return good ? 1 : 0;
}

// Gives what `make` returns: whether it is good, and the text.
template <typename Make>
int64_t GiveResult(char** text, int64_t* text_bytes, const Make& make) {
  *text = nullptr;
  *text_bytes = 0;
  try {
    const auto [good, result] = make();
    return Give(good, result, text, text_bytes);
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

}  // namespace

int64_t cairn_safetensors_header(const char* bytes, int64_t size, int64_t file_bytes, char** text,
                                 int64_t* text_bytes) {
  return GiveResult(text, text_bytes, [&]() -> std::pair<bool, std::string> {
    const std::string_view given = ViewOf(bytes, size);
    const auto length = cairn::PlainHeaderBytesFrom(given, static_cast<uint64_t>(file_bytes));
    if (!length.ok()) return {false, ErrorText(length.status())};
    const auto header = cairn::ParsePlainHeader(given, static_cast<uint64_t>(file_bytes));
    if (!header.ok()) return {false, ErrorText(header.status())};
    return {true, TextOf(*header, *length)};
  });
}

int64_t cairn_safetensors_index(const char* bytes, int64_t size, char** text, int64_t* text_bytes) {
  return GiveResult(text, text_bytes, [&]() -> std::pair<bool, std::string> {
    const auto index = cairn::ParsePlainIndex(ViewOf(bytes, size));
    if (!index.ok()) return {false, ErrorText(index.status())};
    return {true, PairsText(index->weight_map)};
  });
}

int64_t cairn_numbered_files(const char* names, int64_t size, char** text, int64_t* text_bytes) {
  return GiveResult(text, text_bytes, [&]() -> std::pair<bool, std::string> {
    std::string out = "[";
    for (const auto& [pattern, set] : cairn::FindNumberedFiles(Split(ViewOf(names, size)))) {
      if (set.missing() <= 0) continue;
      absl::StrAppend(&out, out.size() > 1 ? "," : "", "[", Quoted(pattern), ",", set.missing(), "]");
    }
    return {true, out + "]"};
  });
}

int64_t cairn_tied_names(const char* names, int64_t size, const char* metadata, int64_t metadata_size,
                         const char* config, int64_t config_size, char** text, int64_t* text_bytes) {
  return GiveResult(text, text_bytes, [&]() -> std::pair<bool, std::string> {
    const std::vector<std::string> stored = Split(ViewOf(names, size));
    const std::vector<std::string> entries = Split(ViewOf(metadata, metadata_size));
    std::vector<std::pair<std::string, std::string>> pairs;
    for (size_t i = 0; i + 1 < entries.size(); i += 2) pairs.emplace_back(entries[i], entries[i + 1]);
    return {true, PairsText(cairn::FindTiedNames({std::set<std::string, std::less<>>(stored.begin(), stored.end()),
                                                  pairs, ViewOf(config, config_size)}))};
  });
}
