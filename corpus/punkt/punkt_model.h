// Holds what Punkt learned about a language: its abbreviations, and how its words are written.
#ifndef CAIRN_CORPUS_PUNKT_PUNKT_MODEL_H_
#define CAIRN_CORPUS_PUNKT_PUNKT_MODEL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"

namespace cairn::corpus {

// Says where a word was seen. The numbers are those of nltk's files.
enum OrthoContext : uint32_t {
  kBeginUpper = 1 << 1,
  kMiddleUpper = 1 << 2,
  kUnknownUpper = 1 << 3,
  kBeginLower = 1 << 4,
  kMiddleLower = 1 << 5,
  kUnknownLower = 1 << 6,
  kAnyUpper = kBeginUpper | kMiddleUpper | kUnknownUpper,
  kAnyLower = kBeginLower | kMiddleLower | kUnknownLower,
};

// Word types are lower-case; numbers are "##number##".
struct PunktModel {
  absl::flat_hash_set<std::string> abbreviations;  // without their last period
  absl::flat_hash_set<std::string> sentence_starters;
  absl::flat_hash_set<std::string> collocations;        // two types with a tab between
  absl::flat_hash_map<std::string, uint32_t> contexts;  // OrthoContext bits

  bool HasAbbreviation(std::string_view type) const { return Has(abbreviations, type); }
  bool HasStarter(std::string_view type) const { return Has(sentence_starters, type); }
  bool HasCollocation(std::string_view first, std::string_view second) const;
  uint32_t ContextOf(std::string_view type) const;

 private:
  static bool Has(const absl::flat_hash_set<std::string>& set, std::string_view type) {
    return set.contains(absl::string_view(type.data(), type.size()));
  }
};

// Holds the texts of the four files of a language in nltk's punkt_tab.
struct PunktFiles {
  std::string abbrev_types;   // abbrev_types.txt: one type per line
  std::string sent_starters;  // sent_starters.txt: one type per line
  std::string collocations;   // collocations.tab: two types per line
  std::string ortho_context;  // ortho_context.tab: a type and a number per line
};

// INVALID_ARGUMENT (BAD_TOKENIZER): a line has another form, or is not UTF-8; it names file and line.
absl::StatusOr<PunktModel> ParsePunktModel(const PunktFiles& files, std::string_view directory);

// Reads a directory such as punkt_tab/english. NOT_FOUND (INPUT_UNREADABLE): a file is missing.
absl::StatusOr<PunktModel> LoadPunktModel(const std::string& directory);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PUNKT_PUNKT_MODEL_H_
