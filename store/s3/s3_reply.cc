#include "store/s3/s3_reply.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "store/s3/http_status.h"

namespace cairn {
namespace {

// Says what to do about an answer that no store gives.
std::string NextIfNoStore(const S3Address& address) {
  return absl::StrCat("Look whether a proxy has answered in the store's place: the request went to ",
                      address.Server().HostHeader(), ".");
}

std::string NextIfNoAnswer(const S3Address& address) {
  const std::string what =
      address.endpoint_is_named
          ? absl::StrCat("Check the endpoint (", absl::StrJoin(address.dialect->endpoint_variables, ", "),
                         " or ?endpoint=; https only if the store speaks it), proxy and network")
          : address.dialect->without_endpoint;
  return absl::StrCat(what, ": the request went to ", address.Server().HostHeader(), ".");
}

}  // namespace

void S3Reply::Take(S3Answer taken, bool content) {
  answer = std::move(taken);
  xml.reset();
  code.clear();
  message.clear();
  if (content && IsGood(answer.status)) return;
  auto parsed = ParseS3Xml(answer.body);
  if (!parsed.ok()) return;
  xml = *std::move(parsed);
  // Some errors come behind a good status, because the store had begun to answer.
  if (xml->name == "Error") {
    code = xml->Text("Code");
    message = xml->Text("Message");
  }
}

bool S3Reply::done() const { return final && IsGood(answer.status) && answer.refused.ok() && code.empty(); }

Reason ReasonFor(int status, std::string_view code, bool bare) {
  if (code == "NoSuchBucket") return Reason::kRootMissing;
  // Other answers with this status are not about a key: of a proxy, or of an upload that never was a file.
  if (status == kHttpNotFound && (code == "NoSuchKey" || bare)) return Reason::kFileMissing;
  if (IsDenied(status) || code == "AccessDenied") return Reason::kStorageReadOnly;
  if (status == 507 || code == "QuotaExceeded") return Reason::kNoSpace;
  return Reason::kStorageError;
}

absl::Status ErrorOf(const S3Address& address, const S3Request& request, const S3Reply& reply) {
  const S3Answer& answer = reply.answer;
  const std::string file = address.NameOf(request.key);
  const std::string id = answer.Header(address.dialect->id_header);
  // What is asked of a bucket says itself of which names.
  std::string text = absl::StrCat(request.method, " ", file, request.key.empty() ? "?" : "",
                                  request.key.empty() ? request.query : "", ": ");
  if (!answer.refused.ok()) {
    absl::StrAppend(&text, answer.refused.message());
    return MakeError(ReasonOf(answer.refused).value_or(Reason::kStorageError), text, {{"file", file}});
  }
  absl::StrAppend(&text, answer.status == 0
                             ? answer.trouble
                             : absl::StrCat("HTTP ", answer.status, " ", reply.code, " ", reply.message));
  if (!id.empty()) absl::StrAppend(&text, " (request ", id, ")");
  ErrorMetadata metadata = {{"file", file}, {"request", id}};
  const Reason reason = answer.no_credentials ? Reason::kStorageReadOnly
                                              : ReasonFor(answer.status, reply.code, /*bare=*/request.method == "HEAD");
  const std::string region = answer.Header(address.dialect->region_header);
  if (answer.no_credentials) {
    metadata.emplace_back("next", answer.next);
  } else if (answer.status == 0) {
    metadata.emplace_back("next", NextIfNoAnswer(address));
  } else if (reason == Reason::kRootMissing) {
    metadata.emplace_back("next", "Correct the name of the bucket, or make the bucket.");
  } else if (answer.status == kHttpNotFound && reason == Reason::kStorageError) {
    metadata.emplace_back("next", NextIfNoStore(address));
  } else if (reply.code == "RequestTimeTooSkewed") {
    metadata.emplace_back(
        "next", absl::StrCat("Set the clock of this machine: by the store's it is ", answer.Header("date"), "."));
  } else if (reason == Reason::kStorageReadOnly) {
    metadata.emplace_back("next", "Look at the credentials, and at what the policy of the bucket allows them.");
  } else if (reason == Reason::kStorageError && !region.empty() && region != address.region) {
    absl::StrAppend(&text, ": the bucket is in the region ", region, ", and the request went to ", address.region);
    metadata.emplace_back("next", absl::StrCat("Set AWS_REGION=", region, "."));
  }
  return MakeError(reason, text, metadata);
}

absl::Status Lacks(const S3Address& address, const S3Request& request, std::string_view what) {
  const std::string file = address.NameOf(request.key);
  return MakeError(Reason::kStorageError,
                   absl::StrCat(request.method, " ", file, ": the store's answer lacks ", std::string(what)),
                   {{"file", file}, {"next", NextIfNoStore(address)}});
}

}  // namespace cairn
