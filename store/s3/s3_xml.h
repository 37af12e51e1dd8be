// The XML of an object store: what it answers, and what it is sent.
#ifndef CAIRN_STORE_S3_S3_XML_H_
#define CAIRN_STORE_S3_S3_XML_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace cairn {

// An answer in two levels, which is all that these stores use: the texts of the top element's own elements, and for the
// elements that may come many times (Contents, CommonPrefixes, Upload, Deleted, Error) their own texts, in order. Of
// texts with one name the last counts. What is deeper is left out.
struct S3Xml {
  using Texts = std::map<std::string, std::string>;

  std::string name;  // of the top element: "ListBucketResult"
  Texts texts;
  std::vector<std::pair<std::string, Texts>> elements;

  std::string Text(const std::string& of) const { return TextOf(texts, of); }
  static std::string TextOf(const Texts& texts, const std::string& of) {
    const auto at = texts.find(of);
    return at == texts.end() ? "" : at->second;
  }
};

// UNAVAILABLE (STORAGE_ERROR): it is no XML.
absl::StatusOr<S3Xml> ParseS3Xml(std::string_view text);

// A part of an upload that has arrived.
struct S3Part {
  int number = 0;      // from 1
  std::string etag;    // as the store gave it
  std::string crc32c;  // base64, as it was sent; empty: the store is not told again
};
// The body that ends an upload. `parts` are in the order of their numbers.
std::string CompletionXml(const std::vector<S3Part>& parts);
// The body that deletes keys, at most 1,000. `quiet`: what was deleted is not told.
std::string DeletionXml(const std::vector<std::string>& keys, bool quiet);

}  // namespace cairn

#endif  // CAIRN_STORE_S3_S3_XML_H_
