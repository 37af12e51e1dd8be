// Finds sentence boundaries by Punkt: T. Kiss and J. Strunk, "Unsupervised Multilingual Sentence Boundary Detection",
// Computational Linguistics 32 (2006). punkt_splitter.cc names sections of this paper.
#ifndef CAIRN_CORPUS_PUNKT_PUNKT_SPLITTER_H_
#define CAIRN_CORPUS_PUNKT_PUNKT_SPLITTER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "corpus/preprocess/sentence_splitter.h"
#include "corpus/punkt/punkt_model.h"

namespace cairn::corpus {

// Gives the sentences that tokenize() of nltk 3.10's PunktSentenceTokenizer gives with the same model: there are no
// blanks between them, and closing quotation marks and brackets belong to the sentence that they close. Characters have
// the properties of ICU's Unicode version.
class PunktSplitter final : public SentenceSplitter {
 public:
  // `model` must outlive this.
  explicit PunktSplitter(const PunktModel& model) : model_(model) {}

  void Split(std::string_view text, std::vector<std::string_view>& sentences) override;

 private:
  struct Token {
    std::string_view text;
    std::string type;
    bool period_final = false, sentence_break = false, abbreviation = false, ellipsis = false;

    std::string_view TypeNoPeriod() const;
    std::string_view TypeNoSentencePeriod() const { return sentence_break ? TypeNoPeriod() : std::string_view(type); }
  };
  struct Slice {
    size_t begin, end;
  };

  void FindSlices(std::string_view text);
  bool HasBreak(const std::string& context);
  void ClassifyByType(Token& token) const;
  void ClassifyByContext(Token& token, const Token& next) const;
  std::optional<bool> StartsSentence(const Token& token) const;

  const PunktModel& model_;
  std::vector<std::string_view> words_;
  std::vector<Token> tokens_;
  std::vector<Slice> slices_;
  std::string context_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PUNKT_PUNKT_SPLITTER_H_
