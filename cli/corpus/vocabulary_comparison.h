// Shows how well tokenizers encode texts, side by side.
#ifndef CAIRN_CLI_CORPUS_VOCABULARY_COMPARISON_H_
#define CAIRN_CLI_CORPUS_VOCABULARY_COMPARISON_H_

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "corpus/pipeline/vocabulary_measure.h"

namespace cairn::cli {

struct VocabularyComparison {
  struct Vocabulary {
    std::string name;
    size_t tokens = 0;                          // in the vocabulary
    std::vector<corpus::TextMeasure> measures;  // by text
    std::vector<std::string> longest;           // the texts of the longest tokens; empty if they are not known

    // Returns how many tokens stand in none of the texts.
    size_t Unused() const;
    double UnusedShare() const { return tokens == 0 ? 0 : static_cast<double>(Unused()) / static_cast<double>(tokens); }
  };

  std::vector<std::string> texts;  // names
  std::vector<Vocabulary> vocabularies;
};

// Returns two tables for a terminal: of texts by vocabularies, and of the vocabularies.
std::string ComparisonTables(const VocabularyComparison& comparison);
nlohmann::ordered_json ComparisonJson(const VocabularyComparison& comparison);
// Returns a page that needs no other file: charts in SVG, and the numbers as tables. It follows the reader's choice of
// a light or a dark page. Any name may hold any bytes.
std::string ComparisonPage(const VocabularyComparison& comparison);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_VOCABULARY_COMPARISON_H_
