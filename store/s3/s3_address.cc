#include "store/s3/s3_address.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
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

bool IsBucketName(std::string_view name) {
  if (name.size() < 3 || name.size() > 63) return false;
  for (const char c : name) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '.' && c != '-') return false;
  }
  return true;
}

std::string FirstOf(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (std::string value = environment(name); !value.empty()) return value;
  }
  return "";
}

// Reads "http://host:port".
absl::Status TakeEndpoint(std::string_view root, const std::string& endpoint, S3Address& address) {
  // Nothing of it is printed: it may have a password.
  if (absl::StrContains(endpoint, '@')) {
    return BadRoot(root.substr(0, root.find('?')),
                   "has an endpoint with a user, which stores do not take; credentials come from the environment");
  }
  const std::string wrong = absl::StrCat("has the endpoint ", endpoint, ", which is not http[s]://HOST[:PORT]");
  absl::string_view rest = endpoint;
  if (absl::ConsumePrefix(&rest, "http://")) {
    address.tls = false;
    address.port = 80;
  } else if (!absl::ConsumePrefix(&rest, "https://")) {
    return BadRoot(root, wrong);
  }
  absl::ConsumeSuffix(&rest, "/");
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != rest.npos && rest.find(']', colon) == rest.npos;
  if (has_port && (!absl::SimpleAtoi(rest.substr(colon + 1), &address.port) || address.port > 65535)) {
    return BadRoot(root, wrong);
  }
  address.host = std::string(rest.substr(0, has_port ? colon : rest.size()));
  if (address.host.empty() || address.host.find('/') != std::string::npos) return BadRoot(root, wrong);
  return absl::OkStatus();
}

}  // namespace

bool IsObjectStoreRoot(std::string_view root) {
  const size_t colon = root.find(':');
  return colon != root.npos && colon > 0 && root.substr(colon + 1).starts_with("/") &&
         std::all_of(root.begin(), root.begin() + static_cast<ptrdiff_t>(colon),
                     [](char c) { return absl::ascii_isalnum(c); });
}

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string S3Address::HostHeader() const {
  const std::string name = path_style ? host : absl::StrCat(bucket, ".", host);
  return port == (tls ? 443 : 80) ? name : absl::StrCat(name, ":", port);
}

std::string S3Address::PathOf(std::string_view key) const {
  return absl::StrCat("/", path_style ? absl::StrCat(bucket, "/") : "", PercentEncoded(key, /*slash=*/false));
}

std::string S3Address::NameOf(std::string_view key) const {
  return absl::StrCat("s3://", bucket, "/", absl::string_view(key.data(), key.size()));
}

absl::StatusOr<S3Address> ParseS3Root(std::string_view root, const Environment& environment) {
  absl::string_view rest(root.data(), root.size());
  if (!absl::ConsumePrefix(&rest, "s3://")) {
    const std::string scheme = absl::AsciiStrToLower(std::string(root.substr(0, root.find(':'))));
    std::string path(root.substr(root.find(':') + 1));
    path.erase(0, path.find_first_not_of('/'));
    return MakeError(
        Reason::kUnsupported,
        absl::StrCat(std::string(root), " is in a kind of store that Cairn does not know; it knows s3://"),
        {{"root", std::string(root)},
         {"next", scheme == "s3" ? absl::StrCat("Write s3://", path, ".")
                                 : absl::StrCat("Give s3://BUCKET/PREFIX, or a directory; one of this name is ./",
                                                std::string(root), ".")}});
  }
  const size_t question = rest.find('?');
  const absl::string_view query = question == rest.npos ? "" : rest.substr(question + 1);
  rest = rest.substr(0, question);
  S3Address address;
  address.bucket = std::string(rest.substr(0, rest.find('/')));
  if (!IsBucketName(address.bucket)) return BadRoot(root, "has no name of a bucket behind s3://");
  rest.remove_prefix(address.bucket.size());
  while (absl::ConsumePrefix(&rest, "/")) continue;
  while (absl::ConsumeSuffix(&rest, "/")) continue;
  for (const absl::string_view name : absl::StrSplit(rest, '/', absl::SkipEmpty())) {
    if (name == "." || name == "..") return BadRoot(root, "has \".\" or \"..\" in its path");
    absl::StrAppend(&address.prefix, name, "/");
  }
  std::string endpoint = FirstOf(environment, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  address.region = FirstOf(environment, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  address.ca_file = environment("AWS_CA_BUNDLE");
  std::string style;
  for (const absl::string_view word : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> named = absl::StrSplit(word, absl::MaxSplits('=', 1));
    if (named.first == "endpoint") {
      endpoint = named.second;
    } else if (named.first == "region") {
      address.region = named.second;
    } else if (named.first == "style" && (named.second == "path" || named.second == "virtual")) {
      style = named.second;
    } else {
      return BadRoot(
          root,
          absl::StrCat("has \"", word,
                       "\" behind its \"?\"; it may have endpoint=URL, region=NAME and style=path or style=virtual"));
    }
  }
  if (address.region.empty()) address.region = "us-east-1";
  if (endpoint.empty()) {
    address.host = absl::StrCat("s3.", address.region, ".amazonaws.com");
    // A certificate for *.s3... does not cover two names.
    address.path_style = style == "path" || (style.empty() && absl::StrContains(address.bucket, '.'));
  } else {
    CAIRN_RETURN_IF_ERROR(TakeEndpoint(root, endpoint, address));
    address.endpoint_is_named = true;
    address.path_style = style != "virtual";
  }
  return address;
}

std::string NextWithoutCredentials(const Environment& environment) {
  const bool key = !environment("AWS_ACCESS_KEY_ID").empty();
  const bool secret = !environment("AWS_SECRET_ACCESS_KEY").empty();
  if (key != secret) {
    return key ? "Set AWS_SECRET_ACCESS_KEY too: only AWS_ACCESS_KEY_ID is set."
               : "Set AWS_ACCESS_KEY_ID too: only AWS_SECRET_ACCESS_KEY is set.";
  }
  if (const std::string profile = environment("AWS_PROFILE"); !profile.empty()) {
    return absl::StrCat("Look for the profile ", profile, " (AWS_PROFILE) in ~/.aws/credentials and ~/.aws/config.");
  }
  return "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE: nothing was found in the environment, in "
         "~/.aws, as web identity, from the container or as the machine's role.";
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
