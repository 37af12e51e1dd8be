#include "store/s3/signature_v4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/digest.h"

namespace cairn {
namespace {

std::string Mac(std::string_view key, std::string_view text) {
  std::string mac(kDigestBytes, '\0');
  const unsigned char* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), reinterpret_cast<unsigned char*>(mac.data()), nullptr);
  if (made == nullptr) std::abort();
  return mac;
}

// The parameters of a query in the order of their names. Names and values are encoded already.
std::string SortedQuery(std::string_view query) {
  std::vector<std::string> parameters = absl::StrSplit(std::string(query), '&', absl::SkipEmpty());
  for (std::string& parameter : parameters) {
    if (parameter.find('=') == parameter.npos) parameter += '=';
  }
  std::sort(parameters.begin(), parameters.end());
  return absl::StrJoin(parameters, "&");
}

}  // namespace

HttpHeaders SignV4(const SignatureWords& words, const std::string& id, std::string_view secret,
                   const HttpRequest& request, std::string_view payload, absl::Time now) {
  const std::string time = absl::FormatTime("%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone());
  const std::string day = time.substr(0, 8);
  HttpHeaders added = {{absl::StrCat(std::string(words.header), "content-sha256"), std::string(payload)},
                       {absl::StrCat(std::string(words.header), "date"), time}};
  std::map<std::string, std::string> headers;
  for (const HttpHeaders& some : {request.headers, added}) {
    for (const auto& [name, value] : some) {
      headers[absl::AsciiStrToLower(name)] = std::string(absl::StripAsciiWhitespace(value));
    }
  }
  std::string canonical_headers, signed_headers;
  for (const auto& [name, value] : headers) {
    absl::StrAppend(&canonical_headers, name, ":", value, "\n");
    absl::StrAppend(&signed_headers, signed_headers.empty() ? "" : ";", name);
  }
  const size_t question = std::min(request.target.find('?'), request.target.size());
  const std::string query =
      question == request.target.size() ? "" : SortedQuery(std::string_view(request.target).substr(question + 1));
  const std::string canonical = absl::StrCat(request.method, "\n", request.target.substr(0, question), "\n", query,
                                             "\n", canonical_headers, "\n", signed_headers, "\n", std::string(payload));
  const std::vector<std::string> scopes = {day, std::string(words.region), std::string(words.service),
                                           std::string(words.request)};
  const std::string scope = absl::StrJoin(scopes, "/");
  const std::string text =
      absl::StrCat(std::string(words.algorithm), "\n", time, "\n", scope, "\n", DigestHex(Digest(canonical)));
  std::string key = absl::StrCat(std::string(words.key), std::string(secret));
  for (const std::string& part : scopes) key = Mac(key, part);
  added.emplace_back("Authorization",
                     absl::StrCat(std::string(words.algorithm), " Credential=", id, "/", scope,
                                  ", SignedHeaders=", signed_headers, ", Signature=", DigestHex(Mac(key, text))));
  return added;
}

}  // namespace cairn
