#include "corpus/punkt/punkt_model.h"

#include <simdjson.h>

#include <charconv>
#include <filesystem>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/input_path.h"

namespace cairn::corpus {
namespace {

constexpr const char* kAbbreviations = "abbrev_types.txt";
constexpr const char* kStarters = "sent_starters.txt";
constexpr const char* kCollocations = "collocations.tab";
constexpr const char* kContexts = "ortho_context.tab";

// visit(line) returns what is wrong with the line, or nothing.
absl::Status ForEachEntry(std::string_view text, const std::string& file,
                          const std::function<std::string(std::string_view)>& visit) {
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    std::string wrong = simdjson::validate_utf8(line.data(), line.size()) ? visit(line) : "is not UTF-8";
    if (wrong.empty()) continue;
    return MakeError(Reason::kBadTokenizer, absl::StrCat(file, ": line ", number, " ", std::string(wrong)),
                     {{"file", file}, {"line", std::to_string(number)}});
  }
  return absl::OkStatus();
}

}  // namespace

bool PunktModel::HasCollocation(std::string_view first, std::string_view second) const {
  if (collocations.empty()) return false;
  std::string key;
  key.reserve(first.size() + 1 + second.size());
  key.append(first).append(1, '\t').append(second);
  return collocations.contains(key);
}

uint32_t PunktModel::ContextOf(std::string_view type) const {
  const auto it = contexts.find(absl::string_view(type.data(), type.size()));
  return it == contexts.end() ? 0 : it->second;
}

absl::StatusOr<PunktModel> ParsePunktModel(const PunktFiles& files, std::string_view directory) {
  const auto path = [&](const char* name) { return absl::StrCat(std::string(directory), "/", name); };
  PunktModel model;
  const auto into = [](absl::flat_hash_set<std::string>& set) {
    return [&set](std::string_view line) {
      set.emplace(line);
      return std::string();
    };
  };
  CAIRN_RETURN_IF_ERROR(ForEachEntry(files.abbrev_types, path(kAbbreviations), into(model.abbreviations)));
  CAIRN_RETURN_IF_ERROR(ForEachEntry(files.sent_starters, path(kStarters), into(model.sentence_starters)));
  CAIRN_RETURN_IF_ERROR(ForEachEntry(files.collocations, path(kCollocations), [&](std::string_view line) {
    const size_t tab = line.find('\t');
    if (tab == line.npos || line.find('\t', tab + 1) != line.npos) return std::string("must be two words and a tab");
    model.collocations.emplace(line);
    return std::string();
  }));
  CAIRN_RETURN_IF_ERROR(ForEachEntry(files.ortho_context, path(kContexts), [&](std::string_view line) {
    const size_t tab = line.find('\t');
    const std::string_view number = tab == line.npos ? std::string_view() : line.substr(tab + 1);
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (number.empty() || error != std::errc() || end != number.data() + number.size()) {
      return std::string("must be a word, a tab and a number");
    }
    model.contexts[std::string(line.substr(0, tab))] = value;
    return std::string();
  }));
  return model;
}

absl::StatusOr<PunktModel> LoadPunktModel(const std::string& directory) {
  PunktFiles files;
  for (const auto& [name, text] :
       {std::pair(kAbbreviations, &files.abbrev_types), std::pair(kStarters, &files.sent_starters),
        std::pair(kCollocations, &files.collocations), std::pair(kContexts, &files.ortho_context)}) {
    const std::string path = (std::filesystem::path(directory) / name).string();
    absl::StatusOr<std::string> content = ReadInput(path);
    if (HasReason(content.status(), Reason::kInputUnreadable)) {
      return MakeError(
          Reason::kInputUnreadable,
          absl::StrCat(std::string(content.status().message()), "; a Punkt model is a directory with ", kAbbreviations,
                       ", ", kStarters, ", ", kCollocations, " and ", kContexts, ", as nltk's punkt_tab/english"),
          {{"file", path}});
    }
    CAIRN_ASSIGN_OR_RETURN(*text, std::move(content));
  }
  return ParsePunktModel(files, directory);
}

}  // namespace cairn::corpus
