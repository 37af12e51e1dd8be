// Makes a tokenizer, and the framing of texts, from Megatron-LM's --tokenizer-type and the files that belong to it.
#ifndef CAIRN_CORPUS_PREPROCESS_TOKENIZER_CHOICE_H_
#define CAIRN_CORPUS_PREPROCESS_TOKENIZER_CHOICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "corpus/preprocess/document_encoder.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

inline constexpr std::string_view kTokenizerTypes =
    "BertWordPieceCase, BertWordPieceLowerCase, GPT2BPETokenizer, HuggingFaceTokenizer, SentencePieceTokenizer, "
    "GPTSentencePieceTokenizer, Llama2Tokenizer, TikTokenizer, NullTokenizer";

struct TokenizerChoice {
  std::string type;                    // one of kTokenizerTypes
  std::string vocab_file;              // vocab.txt or vocab.json
  std::string merge_file;              // merges.txt
  std::string tokenizer_model;         // a directory, a tokenizer.json, a *.model, or TikTokenizer's JSON
  bool include_special_tokens = true;  // for example [CLS] .. [SEP] around every sentence
  bool append_eod = false;
  bool legacy_wordpiece = false;  // the original BERT's rules, as Megatron-LM before 2026
  // For TikTokenizer and NullTokenizer, at most NullTokenizer::kMostNumbers; 0: not given.
  uint32_t vocab_size = 0;
  std::string tiktoken_pattern = "v2";  // or "v1"
  uint32_t tiktoken_specials = 1000;    // the number of TikTokenizer's special tokens
};

struct ChosenTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  Framing framing;
  // The token that ends a document is none of the vocabulary's: it has the id behind them, as Hugging Face gives it.
  bool end_of_document_is_added = false;
};

// BAD_REQUEST: the type is unknown, or a file that it needs is not given. BAD_TOKENIZER: a file is damaged, or
// --append-eod is set and there is no such token. Else the errors of the loaders.
absl::StatusOr<ChosenTokenizer> LoadChosenTokenizer(const TokenizerChoice& choice);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_TOKENIZER_CHOICE_H_
