#include "corpus/preprocess/document_encoder.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

// Megatron-LM gives its sentence splitter at most this many characters at a time, and cuts there.
constexpr size_t kSplitCharacters = 1000000;

// Returns the end of the first `characters` characters of text[begin..], which must be valid UTF-8.
size_t CharactersEnd(std::string_view text, size_t begin, size_t characters) {
  if (text.size() - begin <= characters) return text.size();
  size_t at = begin;
  for (size_t n = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80 && n++ == characters) break;
  }
  return at;
}

std::vector<std::string> WithModes(std::vector<std::string> keys, const std::string& modes_key) {
  if (!modes_key.empty()) keys.push_back(modes_key);
  return keys;
}

}  // namespace

void EncodedDocuments::Pop() {
  for (; document_sequences.back() > 0; --document_sequences.back()) {
    ids.resize(ids.size() - static_cast<size_t>(sequence_lengths.back()));
    if (!modes.empty()) modes.pop_back();
    sequence_lengths.pop_back();
  }
  document_sequences.pop_back();
}

DocumentEncoder::DocumentEncoder(std::vector<std::string> keys, const Tokenizer& tokenizer, const Framing& framing,
                                 std::unique_ptr<SentenceSplitter> splitter, const std::string& modes_key)
    : keys_(keys),
      modes_key_(modes_key),
      framing_(framing),
      parser_(WithModes(std::move(keys), modes_key), modes_key.empty() ? 0 : 1),
      encoder_(tokenizer.NewEncoder()),
      splitter_(std::move(splitter)) {}

absl::Status DocumentEncoder::Encode(std::string_view line, std::vector<EncodedDocuments>& out) {
  CAIRN_RETURN_IF_ERROR(parser_.Parse(line));
  for (size_t i = 0; i < keys_.size(); ++i) {
    const size_t ids = out[i].ids.size(), sequences = out[i].sequence_lengths.size(), modes = out[i].modes.size();
    const absl::Status status = EncodeField(parser_.values()[i], keys_[i], out[i]);
    if (status.ok()) continue;
    out[i].ids.resize(ids);
    out[i].sequence_lengths.resize(sequences);
    out[i].modes.resize(modes);
    while (i-- > 0) out[i].Pop();
    return status;
  }
  return absl::OkStatus();
}

absl::Status DocumentEncoder::EncodeField(const FieldValue& value, const std::string& key, EncodedDocuments& out) {
  const std::vector<std::string_view>* sentences = &value.texts;
  if (splitter_ != nullptr) {
    if (value.is_list) {
      return MakeError(
          Reason::kBadJsonLine,
          absl::StrCat("the value of '", key, "' is a list of sentences already; --split-sentences wants a text"));
    }
    sentences_.clear();
    const std::string_view text = value.texts.front();
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = CharactersEnd(text, begin, kSplitCharacters);
      splitter_->Split(text.substr(begin, end - begin), sentences_);
      begin = end;
    }
    sentences = &sentences_;
  }

  const std::vector<int8_t>* const modes = modes_key_.empty() ? nullptr : &parser_.values().back().numbers;
  if (modes != nullptr && modes->size() != sentences->size()) {
    return MakeError(Reason::kBadJsonLine, absl::StrCat("'", key, "' has ", sentences->size(), " sequences, but '",
                                                        modes_key_, "' has ", modes->size(), " modes"));
  }
  const size_t first_id = out.ids.size(), first_sequence = out.sequence_lengths.size();
  for (size_t i = 0; i < sentences->size(); ++i) {
    const std::string_view sentence = (*sentences)[i];
    const size_t begin = out.ids.size();
    out.ids.insert(out.ids.end(), framing_.before.begin(), framing_.before.end());
    if (const absl::Status status = encoder_->Encode(sentence, out.ids); !status.ok()) {
      return MakeError(Reason::kBadJsonLine, absl::StrCat("the text of '", key, "': ", std::string(status.message())));
    }
    out.ids.insert(out.ids.end(), framing_.after.begin(), framing_.after.end());
    const size_t length = out.ids.size() - begin;
    if (length >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      return MakeError(Reason::kBadJsonLine,
                       absl::StrCat("the text of '", key, "' has ", length, " tokens; an index counts to 2^31 - 1"));
    }
    if (length == 0) continue;
    out.sequence_lengths.push_back(static_cast<int32_t>(length));
    if (modes != nullptr) out.modes.push_back((*modes)[i]);
  }
  if (out.ids.size() > first_id && framing_.end_of_document) {
    out.ids.push_back(*framing_.end_of_document);
    ++out.sequence_lengths.back();
  }
  out.document_sequences.push_back(static_cast<uint32_t>(out.sequence_lengths.size() - first_sequence));
  return absl::OkStatus();
}

}  // namespace cairn::corpus
