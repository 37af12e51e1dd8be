#include "store/s3/s3_address.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

absl::Status BadRoot(std::string_view root, std::string_view why) {
  return MakeError(Reason::kBadRequest, absl::StrCat(std::string(root), " ", std::string(why)),
                   {{"root", std::string(root)}});
}

// Says why the name of a bucket is none: "is too short"; empty if it is one.
std::string WrongWithBucket(const S3Dialect& dialect, std::string_view name) {
  const bool google = dialect.account == S3Dialect::Account::kGoogle;
  if (name.empty()) return "is missing";
  if (name.size() < 3) return "is too short";
  if (name.size() > (google ? 222 : 63)) return "is too long";
  for (const char c : name) {
    if (google && c == '_') continue;
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '.' && c != '-') {
      return absl::StrCat("has '", std::string(1, c), "'");
    }
  }
  return "";
}

std::string FirstOf(const Environment& environment, const std::vector<const char*>& names) {
  for (const char* name : names) {
    if (std::string value = environment(name); !value.empty()) return value;
  }
  return "";
}

// Takes "http://host:port".
absl::Status TakeEndpoint(std::string_view root, const std::string& endpoint, S3Address& address) {
  // Nothing of it is printed: it may have a password.
  if (absl::StrContains(endpoint, '@')) {
    return BadRoot(root.substr(0, root.find('?')),
                   "has an endpoint with a user, which stores do not take; credentials come from the environment");
  }
  auto url = ParseHttpUrl(endpoint);
  if (address.dialect->account == S3Dialect::Account::kGoogle) {
    // Google's own libraries take an emulator without a scheme, and its tools an endpoint with the path of its other
    // API.
    if (!absl::StrContains(endpoint, "://")) url = ParseHttpUrl(absl::StrCat("http://", endpoint));
    if (url.has_value() && url->path.starts_with("/storage/v1")) url->path = "/";
  }
  if (!url.has_value() || url->path != "/") {
    return BadRoot(root, absl::StrCat("has the endpoint ", endpoint, ", which is not http[s]://HOST[:PORT]"));
  }
  address.server = url->server;
  address.endpoint_is_named = true;
  return absl::OkStatus();
}

// What may stand behind the "?" of a root.
struct Options {
  std::string endpoint, region, style;
};

absl::StatusOr<Options> ParseOptions(const S3Dialect& dialect, std::string_view root, absl::string_view query) {
  const bool amazon = dialect.account == S3Dialect::Account::kAmazon;
  Options options;
  for (const absl::string_view word : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> named = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (named.first == "endpoint") {
      options.endpoint = named.second;
    } else if (amazon && named.first == "region") {
      options.region = named.second;
    } else if (amazon && named.first == "style" && (named.second == "path" || named.second == "virtual")) {
      options.style = named.second;
    } else {
      return BadRoot(root, absl::StrCat("has \"", word, "\" behind its \"?\"; it may have endpoint=URL",
                                        amazon ? ", region=NAME and style=path or style=virtual" : ""));
    }
  }
  return options;
}

// Says where Amazon's own store is, and how to ask it or another one that speaks as it does.
void TakeAmazon(const Options& options, const Environment& environment, S3Address& address) {
  address.region = options.region;
  if (address.region.empty()) address.region = FirstOf(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  if (address.region.empty()) address.region = "us-east-1";
  address.path_style = options.style != "virtual";
  if (address.endpoint_is_named) return;
  address.server.host = absl::StrCat("s3.", address.region, ".amazonaws.com");
  // A certificate for *.s3... does not cover two names.
  address.path_style = options.style == "path" || (options.style.empty() && absl::StrContains(address.bucket, '.'));
}

void TakeGoogle(S3Address& address) {
  // The bucket always stands in the path, so one name of a host is enough.
  address.path_style = true;
  if (!address.endpoint_is_named) address.server.host = "storage.googleapis.com";
}

}  // namespace

bool IsObjectStoreRoot(std::string_view root) {
  const size_t colon = std::min(root.find(':'), root.size());
  const std::string scheme = absl::AsciiStrToLower(std::string(root.substr(0, colon)));
  const std::string_view rest = root.substr(std::min(colon + 1, root.size()));
  if (scheme == "s3" || scheme == "gs") return !rest.empty();
  // The characters of a scheme, as in RFC 3986.
  return rest.starts_with("/") && !scheme.empty() && absl::ascii_isalnum(scheme.front()) &&
         std::all_of(scheme.begin(), scheme.end(),
                     [](char c) { return absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '.'; });
}

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

HttpServer S3Address::Server() const {
  HttpServer whole = server;
  if (!path_style) whole.host = absl::StrCat(bucket, ".", server.host);
  return whole;
}

std::string S3Address::PathOf(std::string_view key) const {
  return absl::StrCat("/", path_style ? absl::StrCat(bucket, "/") : "", PercentEncoded(key, /*slash=*/false));
}

std::string S3Address::NameOf(std::string_view key) const {
  return absl::StrCat(dialect->scheme, bucket, "/", absl::string_view(key.data(), key.size()));
}

absl::StatusOr<S3Address> ParseS3Root(std::string_view root, const Environment& environment) {
  const S3Dialect* const dialect = DialectOf(root);
  if (dialect == nullptr) {
    const std::string scheme = absl::AsciiStrToLower(std::string(root.substr(0, root.find(':'))));
    std::string path(root.substr(root.find(':') + 1));
    path.erase(0, path.find_first_not_of('/'));
    return MakeError(
        Reason::kUnsupported,
        absl::StrCat(std::string(root), " is in a kind of store that Cairn does not know; it knows s3:// and gs://"),
        {{"root", std::string(root)},
         {"next", scheme == "s3" || scheme == "gs"
                      ? absl::StrCat("Write ", scheme, "://", path, ".")
                      : absl::StrCat("Give s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, or a directory; one of this name "
                                     "is ./",
                                     std::string(root), ".")}});
  }
  absl::string_view rest(root.data(), root.size());
  rest.remove_prefix(dialect->scheme.size());
  const size_t question = rest.find('?');
  const absl::string_view query = question == rest.npos ? "" : rest.substr(question + 1);
  rest = rest.substr(0, question);
  S3Address address;
  address.dialect = dialect;
  address.bucket = std::string(rest.substr(0, rest.find('/')));
  if (const std::string wrong = WrongWithBucket(*dialect, address.bucket); !wrong.empty()) {
    return BadRoot(root, absl::StrCat("has no name of a bucket behind ", dialect->scheme, ": it ", wrong,
                                      "; buckets have names of ", dialect->bucket_names));
  }
  rest.remove_prefix(address.bucket.size());
  while (absl::ConsumePrefix(&rest, "/")) continue;
  while (absl::ConsumeSuffix(&rest, "/")) continue;
  for (const absl::string_view name : absl::StrSplit(rest, '/', absl::SkipEmpty())) {
    if (name == "." || name == "..") return BadRoot(root, "has \".\" or \"..\" in its path");
    absl::StrAppend(&address.prefix, name, "/");
  }
  address.ca_file = environment(dialect->ca_variable);
  CAIRN_ASSIGN_OR_RETURN(const Options options, ParseOptions(*dialect, root, query));
  const std::string endpoint =
      options.endpoint.empty() ? FirstOf(environment, dialect->endpoint_variables) : options.endpoint;
  if (!endpoint.empty()) CAIRN_RETURN_IF_ERROR(TakeEndpoint(root, endpoint, address));
  switch (dialect->account) {
    case S3Dialect::Account::kAmazon:
      TakeAmazon(options, environment, address);
      break;
    case S3Dialect::Account::kGoogle:
      TakeGoogle(address);
      break;
  }
  return address;
}

std::string PercentEncoded(std::string_view text, bool slash) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~' || (c == '/' && !slash)) {
      encoded += c;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace cairn
