#include "store/s3/s3_uploads.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status.h"
#include "store/s3/http_status.h"
#include "store/s3/s3_object.h"
#include "store/s3/s3_standing.h"

namespace cairn {
namespace {

// A listing has at most so many pages of 1,000.
constexpr size_t kMostPages = 1'000;

std::string QueryOf(const std::string& upload) {
  return absl::StrCat("uploadId=", PercentEncoded(upload, /*slash=*/true));
}

}  // namespace

absl::StatusOr<std::string> S3Uploads::Begin(const std::string& key, const std::string& writer,
                                             const std::atomic<bool>* stop) {
  // A try whose answer was lost leaves an upload without parts, which RemoveUnfinished finds.
  const S3Dialect& dialect = *requester_.address().dialect;
  S3Request request = {"POST", key, "uploads", dialect.upload};
  request.headers.emplace_back(dialect.writer_header, writer);
  request.stop = stop;
  CAIRN_ASSIGN_OR_RETURN(const S3Xml xml, requester_.AskForXml(request, "InitiateMultipartUploadResult"));
  if (std::string id = xml.Text("UploadId"); !id.empty()) return id;
  return Lacks(requester_.address(), request, "the id of the upload");
}

absl::StatusOr<S3Part> S3Uploads::PutPart(const std::string& key, const std::string& upload, int number,
                                          std::string_view bytes, const std::atomic<bool>* stop) {
  const S3Dialect& dialect = *requester_.address().dialect;
  S3Part part = {number, "", ""};
  S3Request request = {
      "PUT", key, absl::StrCat("partNumber=", number, "&", QueryOf(upload)), {dialect.ChecksumOf(bytes)}, bytes};
  if (dialect.completion_has_checksums) part.crc32c = request.headers.front().second;
  request.stop = stop;
  const S3Reply reply = requester_.Ask(request);
  if (!reply.done()) return ErrorOf(requester_.address(), request, reply);
  part.etag = reply.answer.Header("etag");
  if (part.etag.empty()) return Lacks(requester_.address(), request, "an ETag");
  return part;
}

absl::StatusOr<Put> S3Uploads::Complete(const std::string& key, const std::string& upload,
                                        const std::vector<S3Part>& parts, const std::string& writer, bool if_absent) {
  const std::string body = CompletionXml(parts);
  S3Request request = {"POST", key, QueryOf(upload), {}, body};
  if (if_absent) request.headers = requester_.address().dialect->completion;
  request.headers.emplace_back("Content-Type", "application/xml");
  const S3Reply reply = requester_.Ask(request);
  const bool said = reply.xml.has_value() && reply.xml->name == "CompleteMultipartUploadResult";
  if (reply.done() && said) return Put::kCreated;
  if (reply.final && !reply.done() && !reply.in_doubt && reply.answer.status != kHttpPreconditionFailed) {
    return ErrorOf(requester_.address(), request, reply);
  }
  // An earlier try may have completed it; then the upload is gone, or the key is taken by its object. It may also still
  // be at work: a store takes minutes to put many parts together, and what it answers to the next try is not
  // documented.
  const absl::Time begun = requester_.Now();
  for (int attempt = 1;; ++attempt) {
    CAIRN_ASSIGN_OR_RETURN(const std::optional<Put> put, WhoseStands(requester_, key, writer));
    if (put.has_value()) return *put;
    const bool gone = reply.final && reply.answer.status == kHttpNotFound;
    if (!gone || requester_.Now() - begun > requester_.options().patience) break;
    requester_.BackOff(attempt);
  }
  return ErrorOf(requester_.address(), request, reply);
}

absl::Status S3Uploads::Abort(const std::string& key, const std::string& upload, const std::atomic<bool>* stop) {
  S3Request request = {"DELETE", key, QueryOf(upload)};
  request.stop = stop;
  const S3Reply reply = requester_.Ask(request);
  if (reply.done() || (reply.final && reply.answer.status == kHttpNotFound)) return absl::OkStatus();
  return ErrorOf(requester_.address(), request, reply);
}

absl::StatusOr<std::vector<S3UnfinishedUpload>> S3Uploads::List(const std::string& prefix) {
  const S3Address& address = requester_.address();
  std::vector<S3UnfinishedUpload> uploads;
  std::pair<std::string, std::string> marker;  // of the key, and of its upload
  for (size_t pages = 0; pages < kMostPages; ++pages) {
    S3Request request = {"GET", "", "uploads"};
    if (!prefix.empty()) absl::StrAppend(&request.query, "&prefix=", PercentEncoded(prefix, /*slash=*/true));
    if (!marker.first.empty()) {
      absl::StrAppend(&request.query, "&key-marker=", PercentEncoded(marker.first, /*slash=*/true),
                      "&upload-id-marker=", PercentEncoded(marker.second, /*slash=*/true));
    }
    CAIRN_ASSIGN_OR_RETURN(const S3Xml xml, requester_.AskForXml(request, "ListMultipartUploadsResult"));
    for (const auto& [name, texts] : xml.elements) {
      // A time that is not known is no reason to remove anything.
      S3UnfinishedUpload upload = {S3Xml::TextOf(texts, "Key"), S3Xml::TextOf(texts, "UploadId"),
                                   TimeOf(S3Xml::TextOf(texts, "Initiated")).value_or(absl::InfiniteFuture())};
      if (upload.key.starts_with(prefix)) uploads.push_back(std::move(upload));
    }
    const std::string truncated = xml.Text("IsTruncated");
    if (truncated == "false") return uploads;
    std::pair next(xml.Text("NextKeyMarker"), xml.Text("NextUploadIdMarker"));
    if (truncated != "true" || next.first.empty() || next.first < marker.first || next == marker) {
      return Lacks(address, request, "IsTruncated, or the marker of what follows");
    }
    marker = std::move(next);
  }
  return Lacks(address, {"GET", "", "uploads"}, "an end");
}

}  // namespace cairn
