// Turns a line of JSON into the token ids of its documents. Each worker of the preprocessing has one such encoder.
#ifndef CAIRN_CORPUS_PREPROCESS_DOCUMENT_ENCODER_H_
#define CAIRN_CORPUS_PREPROCESS_DOCUMENT_ENCODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "corpus/preprocess/document_parser.h"
#include "corpus/preprocess/sentence_splitter.h"
#include "corpus/tokenizer/tokenizer.h"

namespace cairn::corpus {

// The ids that are put around those of the text.
struct Framing {
  std::vector<uint32_t> before, after;      // around every sentence: [CLS] and [SEP] for BERT
  std::optional<uint32_t> end_of_document;  // behind the last sentence of a document that has any token
};

// The documents of one key: their ids in a row, cut into sequences (sentences, or the whole document), which are cut
// into documents. A sentence without ids is no sequence; a document without ids has no sequence.
struct EncodedDocuments {
  std::vector<uint32_t> ids;
  std::vector<int32_t> sequence_lengths;
  std::vector<uint32_t> document_sequences;  // how many sequences each document has
  std::vector<int8_t> modes;                 // of each sequence, of a multimodal dataset alone

  // Drops the last document.
  void Pop();
};

// Not thread-safe.
class DocumentEncoder {
 public:
  // If `splitter` is null, a text is one sentence. If `modes_key` is not empty, it is the key of a list with one mode
  // for each sentence of a text. The tokenizer and `framing` must outlive this object.
  DocumentEncoder(std::vector<std::string> keys, const Tokenizer& tokenizer, const Framing& framing,
                  std::unique_ptr<SentenceSplitter> splitter, const std::string& modes_key = "");

  // Appends one document per key, out[i] for keys[i]; after an error, nothing. kLinePadding readable bytes must follow
  // `line`. INVALID_ARGUMENT (BAD_JSON_LINE): see DocumentParser; or a list of sentences stands where texts are to be
  // split; or a text has another number of sentences than of modes; or a document has 2^31 tokens.
  absl::Status Encode(std::string_view line, std::vector<EncodedDocuments>& out);

 private:
  absl::Status EncodeField(const FieldValue& value, const std::string& key, EncodedDocuments& out);

  const std::vector<std::string> keys_;
  const std::string modes_key_;
  const Framing& framing_;
  DocumentParser parser_;
  std::unique_ptr<Encoder> encoder_;
  std::unique_ptr<SentenceSplitter> splitter_;
  std::vector<std::string_view> sentences_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_DOCUMENT_ENCODER_H_
